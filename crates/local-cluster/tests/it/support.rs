//! Waiting, and looking at processes.

use std::{
    fs,
    time::{Duration, Instant},
};

use local_cluster::{LocalCluster, Options};

/// Wide: a machine may be busy with compilers.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// The cluster that these tests share, without storage.
pub(crate) async fn shared() -> &'static LocalCluster {
    LocalCluster::shared(bare).await.unwrap()
}

/// A control plane alone.
pub(crate) fn bare() -> Options {
    Options { nodes: 0, storage: false, ..Options::default() }
}

/// Waits until `holds`, and panics with `what` if that takes too long.
pub(crate) async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whether the process runs. A zombie has ended; not every machine's first process buries orphans.
pub(crate) fn is_running(id: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}
