//! From a pod that is bound to the node to everything its processes are started with.

use std::time::Duration;

use super::NodeContext;
use super::mounts::NotYet;

/// How soon what a pod lacks is looked for again; doubles up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(1);

/// What must be there before something is started.
pub(super) trait Preparation: Sync {
    type Found: Send;

    /// What is needed, or why it is not there.
    fn look(&self) -> impl Future<Output = Result<Self::Found, NotYet>> + Send;

    /// Tells why it is not there.
    fn tell(&self, problem: &NotYet) -> impl Future<Output = ()> + Send;
}

/// Looks until all that is needed is there; tells once why it is not.
pub(super) async fn until_there<P: Preparation>(context: &NodeContext, preparation: P) -> P::Found {
    let (mut delay, mut looks_with, mut problem) = (FIRST_RETRY, 0, None);
    loop {
        context.link.up().await;
        match preparation.look().await {
            Ok(found) => return found,
            Err(again) if problem.as_ref() == Some(&again) => looks_with += 1,
            Err(other) => (problem, looks_with) = (Some(other), 1),
        }
        // The first time says little: the API server may not yet know that this node has the pod.
        if looks_with == 2
            && let Some(problem) = &problem
        {
            preparation.tell(problem).await;
        }
        tokio::time::sleep(delay).await;
        delay = (delay * 2).min(LAST_RETRY);
    }
}
