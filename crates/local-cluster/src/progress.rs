//! Where lines about long work go (building programs, starting a cluster): a callback, or the log.

use std::{fmt, sync::Arc};

/// Takes one line at a time. The default writes them to the log at level `info`.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(&str) + Send + Sync>);

impl Progress {
    /// Calls `take` with each line, without a line end.
    pub fn new(take: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Reports one line.
    pub fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new(|line| tracing::info!("{line}"))
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Progress")
    }
}
