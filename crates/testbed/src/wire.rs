//! The line between one controller process and the world: the kit's [`Cluster`], where faults strike. Every request
//! waits for one turn before it is carried out, so that a simulation can put other steps between two requests.

use std::future::{Future, pending, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures::future::BoxFuture;
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request};

use crate::fault::{Call, Effect, Fault, Faults, Inexpressible};
use crate::world::World;

/// What lies between all processes and the world: the faults, and the requests of dead senders. Clones are the same one.
#[derive(Clone, Default)]
pub struct Network {
    faults: Faults,
    under_way: Arc<Mutex<Vec<(String, Request)>>>,
}

impl Network {
    /// One more fault.
    ///
    /// # Errors
    /// When the world cannot express it.
    pub fn add(&self, fault: Fault) -> Result<(), Inexpressible> {
        Effect::of(&fault)?;
        self.faults.add(fault);
        Ok(())
    }

    /// The faults, to see which were met.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Whether requests of dead senders are still under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.under_way().is_empty()
    }

    /// The oldest of them, with its sender.
    pub(crate) fn land(&self) -> Option<(String, Request)> {
        let mut under_way = self.under_way();
        (!under_way.is_empty()).then(|| under_way.remove(0))
    }

    fn strike(&self, request: &Request) -> Option<Effect> {
        let fault = self.faults.strike(&Call::from(request))?;
        Some(Effect::of(&fault).expect("it was tried when the fault was added"))
    }

    fn under_way(&self) -> MutexGuard<'_, Vec<(String, Request)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of one process. When a fault kills the process, no request of it is answered any more.
pub struct Wire {
    world: World,
    by: String,
    network: Network,
    death: Mutex<Option<String>>,
}

impl Wire {
    /// A connection of the process called `by`.
    #[must_use]
    pub fn new(world: &World, by: &str, network: &Network) -> Self {
        Self {
            world: world.clone(),
            by: by.to_owned(),
            network: network.clone(),
            death: Mutex::new(None),
        }
    }

    /// How the process died, if it did.
    #[must_use]
    pub fn death(&self) -> Option<String> {
        self.death.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn carry_out(&self, request: Request) -> Result<Answer, ApiError> {
        if self.death().is_some() {
            return pending().await;
        }
        let line = Call::from(&request);
        match self.network.strike(&request) {
            None => self.world.request(&self.by, request),
            Some(Effect::Answer(error)) => Err(error),
            Some(Effect::AnswerAfter(error)) => {
                let _unread = self.world.request(&self.by, request);
                Err(error)
            }
            Some(Effect::Twice) => {
                let _first = self.world.request(&self.by, request.clone());
                self.world.request(&self.by, request)
            }
            Some(Effect::DieBefore) => self.die(format!("died before: {line}")).await,
            Some(Effect::DieAfter) => {
                let _unread = self.world.request(&self.by, request);
                self.die(format!("died after: {line}")).await
            }
            Some(Effect::DieInFlight) => {
                self.network.under_way().push((self.by.clone(), request));
                self.die(format!("died with a request under way: {line}")).await
            }
        }
    }

    /// From here on nothing of the process runs: whoever waits for an answer waits until it is dropped.
    fn die(&self, how: String) -> impl Future<Output = Result<Answer, ApiError>> + use<> {
        *self.death.lock().unwrap_or_else(PoisonError::into_inner) = Some(how);
        pending()
    }
}

impl Cluster for Wire {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        Box::pin(async move {
            next_turn().await;
            self.carry_out(request).await
        })
    }
}

/// Ready at the second poll.
fn next_turn() -> impl Future<Output = ()> {
    let mut is_first = true;
    poll_fn(move |context| {
        if std::mem::replace(&mut is_first, false) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
}
