//! The lane of snapshots, with a storage that takes its time.

use image_server::Content;
use kube::Api;
use kube::api::ListParams;
use local_cluster::storage::VolumeSnapshot;
use otctl_types::diskimage::Phase;

use crate::stage::{NAMESPACE, Stage, ready_reason, status, until, well_behaved};

const NAMES: [&str; 3] = ["lane-a", "lane-b", "lane-c"];

/// One is being taken, the others wait without a slot and say why. The policy's `snapshotConcurrency` is 1.
pub(crate) async fn expect_one_snapshot_at_a_time(stage: &Stage) {
    let storage = stage.cluster().storage().unwrap();
    storage.hold_ready(NAMESPACE);
    for (name, seed) in NAMES.into_iter().zip(7..) {
        stage.create(&stage.image(name, Content::generated(1 << 20, seed), well_behaved())).await;
    }
    until("two wait for the third", async || {
        let mut waiting = 0;
        for name in NAMES {
            let told = status(&stage.read(name).await);
            waiting += usize::from(ready_reason(&told) == "SnapshotThrottled");
        }
        (waiting == 2).then_some(())
    })
    .await;
    stage.await_ledger("nobody holds a slot", |ledger| ledger.active.is_empty()).await;
    assert_eq!(stage.ledger().await.snapshots.len(), 1);
    let snapshots: Api<VolumeSnapshot> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let asked = snapshots.list(&ListParams::default()).await.unwrap().items.len();
    println!("snapshotConcurrency 1: {asked} of {} snapshots asked for", NAMES.len());
    assert_eq!(asked, 1);
    storage.release_ready(NAMESPACE);
    for name in NAMES {
        stage.await_phase(name, Phase::Succeeded).await;
    }
    stage.await_ledger("the lane is empty", |ledger| ledger.snapshots.is_empty()).await;
}
