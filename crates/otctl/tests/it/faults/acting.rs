//! Two controllers act at once for a part of a run, each stopped and killed at writes of its own, and there are never
//! more than the limit.

use std::time::{Duration, Instant};

use image_server::{Behaviour, Content, Fault, On};
use kube::ResourceExt as _;
use kube::api::ListParams;
use local_cluster::audit::Mark;
use otctl::demo::peak::{History, Peak};
use otctl_types::diskimage::Phase;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use testbed::fault::{Point, What, at};
use testbed::setting;
use testbed::{check, fault};
use tokio::sync::watch;

use super::proxied::{ALONE, HASTY, Proxied};
use crate::stage::{Stage, has_ended, phase, status, until};
use crate::timeline::Timeline;

const LIMIT: usize = 3;
const SIZE: u64 = 96 << 10;
/// A transfer takes about a second: the other one decides while some are open.
const BYTES_PER_SECOND: u64 = 96 << 10;
/// So many images, and no more, for two that hardly meet.
const MOST: usize = 400;
/// Images of a long run.
const LONG: usize = 100;
/// Ledger writes that must have met a conflict, or the two did not act at once.
const CONFLICTS: usize = 20;
/// For how long one is stopped: up to several passes of the other.
const PAUSES: std::ops::Range<u64> = 20..1500;

#[tokio::test(flavor = "multi_thread")]
async fn two_that_act_at_once_are_never_more_than_the_limit() {
    let images = setting("OTCTL_ACTING_IMAGES", 36);
    let seed = setting("OTCTL_ACTING_SEED", rand::random::<u64>());
    println!("both acting: {images} images, limit {LIMIT}, OTCTL_ACTING_SEED={seed}");
    let started = Instant::now();
    let stage = Stage::set(&[("concurrency", "3")]).await;
    let peak = History::open(&stage.client).await.unwrap();
    let mut timeline = Timeline::open(&stage.client).await;
    create(&stage, 0..images).await;

    // A third of a long run; of a short one more, or they would hardly meet.
    let first = if images < LONG { images / 6 } else { images / 3 };
    alone(&stage, first).await;
    let mark = stage.mark();
    let (struck, images) = both(&stage, images, first, seed).await;
    let conflicts = conflicts(&stage, mark);
    alone(&stage, images).await;

    expect_done_once(&stage).await;
    let (entries, pods) = peak.close().await.unwrap();
    let transfers = stage.server.totals().most_open_data;
    println!(
        "{struck} stops and kills while both acted, {conflicts} ledger writes refused by conflict; at most {entries} \
         entries, {pods} import pods, {transfers} transfers at once; {:.0?}",
        started.elapsed()
    );
    assert_eq!(Peak { entries, pods, transfers }.most(), LIMIT);
    assert!(conflicts >= CONFLICTS, "they hardly met: {conflicts} conflicts");
    check::expect_none(&check::ledger::intact(&timeline.history().await));
    stage.finish().await;
}

async fn create(stage: &Stage, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let content = Content::generated(SIZE, number as u64);
        let pace = Fault::rate_limit(BYTES_PER_SECOND).on(On::Data);
        let image = stage.image(&format!("image-{number}"), content, Behaviour::new().always(pace));
        stage.create(&image).await;
    }
}

/// One controller with a lease, until so many images have ended.
async fn alone(stage: &Stage, ended: usize) {
    let mut controller = Proxied::on(stage, &format!("alone-{ended}"), HASTY).await;
    controller.start();
    await_ended(stage, ended).await;
    controller.stop().await;
}

/// Two without one, stopped and killed, until all but `rest` of the images have ended and they have met often enough: how
/// often they were struck, and how many images there are by then.
async fn both(stage: &Stage, images: usize, rest: usize, seed: u64) -> (usize, usize) {
    let mark = stage.mark();
    let over = watch::Sender::new(false);
    let (one, other) = tokio::join!(contender(stage, "one"), contender(stage, "other"));
    let (seeds, ends) = ([seed, seed.wrapping_add(1)], [over.subscribe(), over.subscribe()]);
    let [of_one, of_other] = ends;
    let (one, other, images) =
        tokio::join!(contend(one, seeds[0], of_one), contend(other, seeds[1], of_other), async {
            let mut images = images;
            await_ended(stage, images - rest).await;
            while conflicts(stage, mark) < CONFLICTS && images < MOST {
                create(stage, images..images + rest).await;
                images += rest;
                await_ended(stage, images - rest).await;
            }
            over.send_replace(true);
            images
        });
    (one + other, images)
}

async fn contender(stage: &Stage, name: &str) -> Proxied {
    let mut contender = Proxied::on(stage, name, ALONE).await;
    contender.start();
    contender
}

/// Is struck at one write after the other until it is over; how often it was.
pub(crate) async fn contend(
    mut contender: Proxied,
    seed: u64,
    mut over: watch::Receiver<bool>,
) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut struck = 0;
    loop {
        let (fault, kills, before) = (next(&mut random), contender.proxy.kills(), struck);
        let is_kill = *fault.what() == What::Kill;
        contender.proxy.add(fault);
        let is_over = tokio::select! {
            () = contender.proxy.struck(before + 1) => {
                struck = contender.proxy.strikes();
                false
            }
            _ = over.wait_for(|over| *over) => true,
        };
        // A kill that struck comes, over or not.
        if contender.proxy.faults().clear() > 0 && is_kill {
            contender.revive(kills + 1).await;
        }
        if is_over {
            break;
        }
    }
    contender.stop().await;
    struck
}

/// At one of the next writes, of the ledger more often than not: a stop, or now and then a kill, at any point.
fn next(random: &mut StdRng) -> fault::Fault {
    let line = if random.random_ratio(2, 3) { "update status AdmissionQueue" } else { "write" };
    let is_kill = random.random_ratio(1, 3);
    let what = if is_kill {
        What::Kill
    } else {
        What::Stop(Duration::from_millis(random.random_range(PAUSES)))
    };
    let points = [Point::Before, Point::Commit, Point::Reply];
    let point = points[random.random_range(0..points.len())];
    at(line).nth(random.random_range(1..=6)).point(point).then(what)
}

/// Waits for as long as one more ends within the patience of [`until`].
async fn await_ended(stage: &Stage, wanted: usize) {
    let mut known = 0;
    while known < wanted {
        known = until(&format!("more than {known} images have ended"), async || {
            let images = stage.images().list(&ListParams::default()).await.unwrap().items;
            let ended = images.iter().filter(|image| has_ended(image)).count();
            (ended > known).then_some(ended)
        })
        .await;
    }
}

fn conflicts(stage: &Stage, since: Mark) -> usize {
    let writes = stage.writes(since);
    let of_ledger = writes.iter().filter(|entry| entry.target() == "admissionqueues/status");
    of_ledger.filter(|entry| entry.code == 409).count()
}

/// Every image succeeded by one download, which is what it was charged for. A slot that was given on an old view to an
/// image that had its end uses a number up, for nothing.
pub(super) async fn expect_done_once(stage: &Stage) {
    for image in stage.await_all_ended().await {
        let name = image.name_any();
        assert_eq!(phase(&image), Some(Phase::Succeeded), "{name}");
        let attempts = status(&image).attempts;
        let charged = attempts.iter().filter(|attempt| attempt.charged).count();
        assert_eq!(charged, 1, "{name}: {attempts:#?}");
        assert_eq!(stage.server.counts(&name).downloads, 1, "{name}");
    }
}
