//! Something else that is done while leading: it has no keys and no passes, and writes nothing to the API server.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::assembly::Loop;
use crate::health::{Health, Pulse};
use crate::queue::Place;

/// A duty shows that it lives at least so often.
const SILENCE: Duration = Duration::from_secs(60);
/// One that panicked begins again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Begun when this process leads, dropped when it leads no longer or is told to stop.
pub(super) struct Duty {
    name: &'static str,
    begin: Box<dyn Fn(Signs) -> BoxFuture<'static, ()> + Send + Sync>,
    health: Health,
}

/// Where a duty shows that it lives.
#[derive(Clone, Debug)]
pub struct Signs(std::sync::Arc<Pulse>);

impl Signs {
    /// It is alive.
    pub fn beat(&self) {
        self.0.beat();
    }
}

impl Duty {
    pub(super) fn new<F>(
        name: &'static str,
        health: Health,
        begin: impl Fn(Signs) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, begin: Box::new(move |signs| Box::pin(begin(signs))), health }
    }

    /// For ever: one that ends or panics begins again.
    async fn last(&self, signs: &Signs) {
        loop {
            let ended = AssertUnwindSafe((self.begin)(signs.clone())).catch_unwind().await;
            if ended.is_err() {
                tracing::error!(duty = self.name, "a duty panicked; it begins again");
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

impl Loop for Duty {
    fn name(&self) -> &'static str {
        self.name
    }

    fn places(&self) -> Vec<Place> {
        Vec::new()
    }

    fn run<'a>(&'a self, drain: BoxFuture<'a, ()>, abort: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let pulse = self.health.pulse(&format!("duty {}", self.name), SILENCE);
            let signs = Signs(std::sync::Arc::new(pulse));
            tokio::select! {
                biased;
                () = abort => {}
                () = drain => {}
                () = self.last(&signs) => {}
            }
            // What the duty held was dropped with it.
            if let Some(pulse) = std::sync::Arc::into_inner(signs.0) {
                pulse.retire();
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A duty that counts how often it was begun, beats once a second, and panics the first time.
    fn counting(begun: &Arc<AtomicUsize>, health: &Health) -> Duty {
        let begun = begun.clone();
        Duty::new("counting", health.clone(), move |signs| {
            let nth = begun.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(nth > 0, "the first one panics");
                loop {
                    signs.beat();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn it_lasts_as_long_as_this_process_leads_and_is_not_missed_afterwards() {
        let (begun, health) = (Arc::new(AtomicUsize::new(0)), Health::default());
        let duty = counting(&begun, &health);
        let leading = Box::pin(tokio::time::sleep(Duration::from_secs(100)));
        duty.run(Box::pin(std::future::pending()), leading).await;
        assert_eq!(begun.load(Ordering::SeqCst), 2, "begun again after its panic, and once");
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(health.wedged(), [], "on standby nothing is expected of it");
        let told = Box::pin(tokio::time::sleep(Duration::from_secs(5)));
        duty.run(told, Box::pin(std::future::pending())).await;
        assert_eq!(begun.load(Ordering::SeqCst), 3, "begun again when it leads again");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_is_wedged() {
        let health = Health::default();
        let duty = Duty::new("hanging", health.clone(), |_| std::future::pending());
        let forever = || Box::pin(std::future::pending());
        tokio::select! {
            () = duty.run(forever(), forever()) => unreachable!("nobody ends it"),
            () = tokio::time::sleep(SILENCE + Duration::from_secs(1)) => {}
        }
        assert_eq!(health.wedged().len(), 1);
    }
}
