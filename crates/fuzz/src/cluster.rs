//! The in-memory world as the cluster of a controller whose passes are made one at a time.

use std::sync::Mutex;

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
    trouble: Mutex<Option<Trouble>>,
}

/// What becomes of the request after so many others.
#[derive(Clone, Copy)]
struct Trouble {
    others: usize,
    is_carried_out: bool,
}

impl Direct {
    pub(crate) fn new(world: &World) -> Self {
        Self { world: world.clone(), trouble: Mutex::default() }
    }

    /// The cluster that answers.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// The request after so many others is lost, or its answer is.
    pub(crate) fn be_in_trouble(&self, others: usize, is_carried_out: bool) {
        self.trouble(Some(Trouble { others, is_carried_out }));
    }

    /// Every request is answered again.
    pub(crate) fn be_out_of_trouble(&self) {
        self.trouble(None);
    }

    fn trouble(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().expect("nobody panics while it is held") = trouble;
    }

    fn answer(&self, request: Request) -> Result<Answer, ApiError> {
        let answer = |request| self.world.request(CONTROLLER, request);
        let mut trouble = self.trouble.lock().expect("nobody panics while it is held");
        match trouble.as_mut() {
            Some(Trouble { others: 0, is_carried_out }) => {
                if *is_carried_out {
                    drop(answer(request));
                }
                *trouble = None;
                Err(ApiError::Unknown { detail: "the answer was lost".to_owned() })
            }
            Some(Trouble { others, .. }) => {
                *others -= 1;
                answer(request)
            }
            None => answer(request),
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
