//! What running imports use of the network together, counted where the bytes leave: by the server, on the sockets. What
//! a frozen import and a busy lane of snapshots are like is seen on the same cluster.

use std::time::{Duration, Instant};

use image_server::Content;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;

use crate::frozen::expect_a_frozen_import_to_end;
use crate::lanes::expect_one_snapshot_at_a_time;
use crate::stage::{Stage, until, well_behaved};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// Bytes per second of all imports together.
const LIMIT: u64 = 8 * MIB;
/// What is measured at that pace.
const MEASURED: u64 = 24 * MIB;
/// A slice per import, and what is under way in the sockets' buffers.
const SLACK: u64 = 4 * MIB;
/// Next to nothing: what has heard of this limit does not come to its end.
const CRAWL: &str = "64Ki";

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_shares_the_bandwidth_and_what_is_frozen_is_ended() {
    let policy = |limit: Option<&'static str>| {
        let mut policy = vec![("concurrency", "2"), ("stallTimeout", "30s")];
        policy.extend([("snapshotConcurrency", "1"), ("retryLimit", "3")]);
        policy.extend(limit.map(|limit| ("bandwidthLimit", limit)));
        policy
    };
    let mut stage = Stage::set(&policy(Some("8Mi"))).await;
    stage.start_controller();
    expect_two_within_the_limit(&stage).await;

    stage.policy(&policy(Some(CRAWL))).await;
    expect_running_imports_to_crawl(&stage).await;
    stage.policy(&policy(None)).await;
    for name in ["one", "two"] {
        stage.await_phase(name, Phase::Succeeded).await;
        assert_eq!(stage.server.counts(name).downloads, 1, "no share ends an attempt");
    }
    expect_a_frozen_import_to_end(&stage).await;
    expect_one_snapshot_at_a_time(&stage).await;
    stage.finish().await;
}

fn large(stage: &Stage, name: &str, seed: u64) -> VMDiskImage {
    let mut image = stage.image(name, Content::generated(SIZE, seed), well_behaved());
    image.spec.disk_size = Some("64Mi".to_owned());
    image.spec.snapshot_class = None;
    image
}

/// Body bytes that were handed to sockets.
fn written(stage: &Stage) -> u64 {
    stage.server.totals().counts.bytes
}

async fn expect_two_within_the_limit(stage: &Stage) {
    stage.create_all(&[large(stage, "one", 1), large(stage, "two", 2)]).await;
    stage.await_running(2).await;
    // The clock is read outside of the counts, so that the pace is never taken for faster than it was.
    let (begun, before) = (Instant::now(), written(stage));
    let rates = until("both have fetched a part", async || {
        (written(stage) - before >= MEASURED).then_some(written(stage) - before)
    });
    let bytes = rates.await;
    let elapsed = begun.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "printed for people")]
    let rate = bytes as f64 / elapsed.as_secs_f64() / MIB as f64;
    println!("two imports under 8Mi: {bytes} bytes in {elapsed:.2?}, {rate:.2} MiB/s together");
    let allowed = LIMIT * u64::try_from(elapsed.as_millis()).unwrap() / 1000 + SLACK;
    assert!(bytes <= allowed, "{bytes} bytes, {allowed} allowed in {elapsed:?}");
}

/// A lower limit acts on what runs: left alone, both would be done long before anybody loses patience.
async fn expect_running_imports_to_crawl(stage: &Stage) {
    let changed = (Instant::now(), written(stage));
    let mut seen = changed;
    let slow = Duration::from_secs(3);
    until("both crawl", async || {
        let now = written(stage);
        if now - seen.1 > MIB {
            seen = (Instant::now(), now);
        }
        (seen.0.elapsed() >= slow).then_some(())
    })
    .await;
    println!(
        "after a change to {CRAWL}: {} bytes more within {:.2?}, then less than 1 MiB in {slow:?}",
        seen.1 - changed.1,
        seen.0 - changed.0
    );
    assert_eq!(stage.server.totals().counts.open_data, 2, "both run on");
}
