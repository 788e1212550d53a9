//! Waiting for a condition.

use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(20);
const LOOK_RARELY: Duration = Duration::from_secs(1);

/// Waits until `look` gives something; an error after `within`. Looks ever more rarely: looking costs the other side.
pub(crate) async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let (deadline, mut pause) = (Instant::now() + within, LOOK_AGAIN);
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < deadline, "not within {within:?}: {what}");
        tokio::time::sleep(pause).await;
        pause = (pause * 11 / 10).min(LOOK_RARELY);
    }
}
