//! The line between one controller process and the world: the kit's [`Cluster`], where faults strike. Every request
//! waits for one turn before it is carried out, so that a simulation can put other steps between two requests.

use std::future::{Future, pending, poll_fn};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use futures::future::BoxFuture;
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request};

use crate::fault::{Effect, Faults, line};
use crate::world::World;

/// The connection of one process. When a fault kills the process, no request of it is answered any more.
pub struct Wire {
    world: World,
    by: String,
    faults: Faults,
    death: Mutex<Option<String>>,
}

impl Wire {
    /// A connection of the process called `by`.
    #[must_use]
    pub fn new(world: &World, by: &str, faults: &Faults) -> Self {
        Self {
            world: world.clone(),
            by: by.to_owned(),
            faults: faults.clone(),
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
        match self.faults.strike(&request) {
            None => self.world.request(&self.by, request),
            Some(Effect::Answer(error)) => Err(error),
            Some(Effect::LoseAnswer) => {
                let _lost = self.world.request(&self.by, request);
                Err(ApiError::Unknown { detail: "the answer was lost".to_owned() })
            }
            Some(Effect::DieBefore) => self.die(format!("died before: {}", line(&request))).await,
            Some(Effect::DieAfter) => {
                let how = format!("died after: {}", line(&request));
                let _unread = self.world.request(&self.by, request);
                self.die(how).await
            }
            Some(Effect::DieInFlight) => {
                let how = format!("died with a request under way: {}", line(&request));
                self.faults.leave_in_flight(&self.by, request);
                self.die(how).await
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
