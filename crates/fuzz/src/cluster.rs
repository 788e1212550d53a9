//! The in-memory world as the cluster of a controller whose passes are made one at a time.

use std::sync::{Mutex, MutexGuard};

use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request};
use otctl_kit::driver::pass;
use otctl_kit::error::{Category, Error};
use otctl_kit::reconciler::Reconciler;
use otctl_kit::report::Outcome;
use otctl_kit::store::Key;
use testbed::World;
use testbed::clock::VirtualClock;

/// Who the controller is in the history.
pub(crate) const CONTROLLER: &str = "controller";

/// Answers at once, and truly but for one request now and then.
pub(crate) struct Direct {
    world: World,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    trouble: Option<Trouble>,
    /// Whether a namespace could not be asked for once. A right that is away again later is one that stays away, as far as a
    /// controller can tell that asked at no other time.
    was_denied: bool,
}

/// What becomes of the request after so many others.
#[derive(Clone, Copy)]
struct Trouble {
    others: usize,
    mishap: Mishap,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mishap {
    /// It does not arrive.
    Lost,
    /// It is carried out, and its answer does not arrive.
    Unanswered,
    /// A right is away.
    Forbidden,
    /// A quota is used up: of what makes or changes an object.
    OverQuota,
    /// The API server calls it invalid: of what makes or changes an object.
    Invalid,
    /// The API server is asked for too much.
    Throttled,
}

impl Mishap {
    /// Those that are answers.
    pub(crate) const REFUSALS: [Self; 4] =
        [Self::Forbidden, Self::OverQuota, Self::Invalid, Self::Throttled];

    /// What the sender hears of it.
    fn answer(self) -> ApiError {
        let forbidden = |detail: &str, quota| ApiError::Forbidden {
            detail: detail.to_owned(),
            quota,
            namespace_terminating: false,
        };
        match self {
            Self::Lost | Self::Unanswered => {
                ApiError::Unknown { detail: "the answer was lost".to_owned() }
            }
            Self::Forbidden => forbidden("the right is away", false),
            Self::OverQuota => forbidden("exceeded quota: labs", true),
            Self::Invalid => ApiError::Invalid { detail: "no such thing".to_owned() },
            Self::Throttled => ApiError::Throttled { retry_after_seconds: Some(1) },
        }
    }
}

impl State {
    /// The mishap that befalls this request.
    fn befalls(&mut self, request: &Request) -> Option<Mishap> {
        let trouble = self.trouble.as_mut()?;
        let of_namespace =
            matches!(request, Request::Get(target) if target.resource.kind == "Namespace");
        let may_befall = match trouble.mishap {
            Mishap::Lost | Mishap::Unanswered | Mishap::Throttled => true,
            Mishap::Forbidden => !(of_namespace && self.was_denied),
            Mishap::OverQuota | Mishap::Invalid => {
                matches!(request, Request::Create(_) | Request::Apply(_))
            }
        };
        if !may_befall {
            return None;
        }
        let Some(others) = trouble.others.checked_sub(1) else {
            let mishap = self.trouble.take().map(|trouble| trouble.mishap);
            self.was_denied |= of_namespace && matches!(mishap, Some(Mishap::Forbidden));
            return mishap;
        };
        trouble.others = others;
        None
    }
}

impl Direct {
    pub(crate) fn new(world: &World) -> Self {
        Self { world: world.clone(), state: Mutex::default() }
    }

    /// The cluster that answers.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// It befalls the request after so many others that it may befall.
    pub(crate) fn be_in_trouble(&self, others: usize, mishap: Mishap) {
        self.state().trouble = Some(Trouble { others, mishap });
    }

    /// Every request is answered again.
    pub(crate) fn be_out_of_trouble(&self) {
        self.state().trouble = None;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while it is held")
    }

    fn answer(&self, request: Request) -> Result<Answer, ApiError> {
        let carry_out = |request| self.world.request(CONTROLLER, request);
        let mishap = self.state().befalls(&request);
        match mishap {
            None => carry_out(request),
            Some(mishap) => {
                if matches!(mishap, Mishap::Unanswered) {
                    drop(carry_out(request));
                }
                Err(mishap.answer())
            }
        }
    }
}

impl Cluster for Direct {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        Box::pin(ready(self.answer(request)))
    }
}

/// A pass that panics, or that fails for a reason of ours, is a finding; one whose view is old is not.
pub(crate) fn make<R: Reconciler>(
    reconciler: &R,
    cluster: &dyn Cluster,
    key: &Key,
    clock: &VirtualClock,
) {
    let passed = pass(reconciler, cluster, key, clock);
    let passed = passed.now_or_never().expect("the world answers at once");
    let is_defect =
        matches!(passed.outcome, Outcome::Failed(Category::Internal | Category::Panicked));
    let why = passed.error.as_ref().map(Error::chain).unwrap_or_default();
    assert!(!is_defect, "{} of {key}, {}: {why}", R::NAME, passed.verdict);
}
