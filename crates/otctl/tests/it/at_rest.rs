//! What images cost the API server when nothing happens. It takes the longest, so it is well that tests begin in the order
//! of their names.

use image_server::Content;
use kube::api::ListParams;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;

use crate::stage::{Stage, phase, ready_reason, told, until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
/// Images at rest.
const RESTING: usize = 200;
/// How often the controller renews its lease, every two seconds, while nothing may be written about them.
const RENEWALS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_images_at_rest_cause_no_write() {
    let mut stage = Stage::set(&[("concurrency", "10")]).await;
    stage.keep_lease();
    stage.start_controller();
    for number in 0..RESTING {
        stage.create(&resting(&stage, number)).await;
    }
    until("all are at rest", async || {
        let images = stage.images().list(&ListParams::default()).await.unwrap().items;
        images.iter().all(rests).then_some(())
    })
    .await;
    stage.quiet().await;
    let mark = stage.mark();
    let requests = until("the controller has lived for a minute", async || {
        let requests = stage.requests(mark);
        (requests.iter().filter(|it| it.is_write() && it.resource == "leases").count() >= RENEWALS)
            .then_some(requests)
    })
    .await;
    let (writes, reads): (Vec<_>, Vec<_>) = requests.iter().partition(|entry| entry.is_write());
    let writes: Vec<_> =
        writes.into_iter().filter(|it| it.resource != "leases").map(told).collect();
    println!("{RESTING} images at rest: {} writes, {} reads", writes.len(), reads.len());
    assert!(writes.is_empty(), "{}", writes.join("\n"));
    stage.finish().await;
}

/// A few that are done, some that failed for good, some that are suspended, some whose class is missing.
fn resting(stage: &Stage, number: usize) -> VMDiskImage {
    let name = format!("image-{number}");
    match number % 10 {
        0 => stage.image(&name, Content::generated(SIZE, 4), well_behaved()),
        1..=4 => stage.image_of(&name, &stage.server.url("nowhere")),
        5..=7 => {
            let mut image = stage.image_of(&name, &stage.server.url("nowhere"));
            image.spec.suspend = true;
            image
        }
        _ => {
            let mut image = stage.image_of(&name, &stage.server.url("nowhere"));
            image.spec.storage_class = Some("missing".to_owned());
            image
        }
    }
}

fn rests(image: &VMDiskImage) -> bool {
    let reason = image.status.as_ref().map(ready_reason).unwrap_or_default();
    matches!(phase(image), Some(Phase::Succeeded | Phase::Failed))
        || matches!(reason, "Suspended" | "StorageClassNotFound")
}
