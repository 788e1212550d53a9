//! Never more than `concurrency`, whenever the controller is killed, and the same end as if it never was.

use std::sync::Arc;
use std::time::{Duration, Instant};

use image_server::{Behaviour, Content, Fault, ImageServer, On};
use kube::ResourceExt as _;
use local_cluster::Options;
use otctl::demo::peak::{History, Peak};
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use testbed::check;
use testbed::mask::{EndState, difference};
use testbed::setting;

use crate::controller_log::Log;
use crate::stage::{Stage, phase};
use crate::timeline::Timeline;

const LIMIT: usize = 3;
const POLICY: [(&str, &str); 1] = [("concurrency", "3")];
/// More than a first look reads, so that there is a download.
const SIZE: u64 = 96 << 10;
/// A transfer takes about a third of a second: kills come while some are open.
const BYTES_PER_SECOND: u64 = 320 << 10;
/// Kills that must come between two writes of one pass.
const MID_PASS: usize = 5;
/// An image costs at least so many lines about writes.
const LINES_PER_IMAGE: usize = 14;

/// What the environment may set; the seed is printed.
struct Plan {
    images: usize,
    kills: usize,
    seed: u64,
}

impl Plan {
    fn read() -> Self {
        let images = setting("OTCTL_KILL_IMAGES", 60);
        let plan = Self {
            images,
            kills: setting("OTCTL_KILLS", 20),
            seed: setting("OTCTL_KILL_SEED", rand::random()),
        };
        println!(
            "kills: {} images, limit {LIMIT}, {} kills, OTCTL_KILL_SEED={}",
            plan.images, plan.kills, plan.seed
        );
        plan
    }

    /// After how many lines about writes each controller is killed, and whether only between two writes of a pass.
    fn moments(&self) -> Vec<(usize, bool)> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let most = (self.images * LINES_PER_IMAGE * 2 / 3 / self.kills).max(2);
        (0..self.kills)
            .map(|_| (random.random_range(1..=most), random.random_ratio(2, 3)))
            .collect()
    }
}

/// What a run came to.
struct Outcome {
    end: EndState,
    peak: Peak,
    mid_pass: usize,
    took: Duration,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_order_and_end_are_the_same_under_kills() {
    let plan = Plan::read();
    let server = Arc::new(ImageServer::start().await.unwrap());
    let undisturbed = run(&server, plan.images, &[]).await;
    println!("undisturbed: {} in {:.0?}", told(&undisturbed.peak), undisturbed.took);
    let killed = run(&server, plan.images, &plan.moments()).await;
    println!(
        "killed {} times, {} of them between two writes of a pass: {} in {:.0?}",
        plan.kills,
        killed.mid_pass,
        told(&killed.peak),
        killed.took
    );
    assert!(killed.mid_pass >= MID_PASS, "only {} kills came in mid-pass", killed.mid_pass);
    for peak in [undisturbed.peak, killed.peak] {
        assert_eq!(peak.most(), LIMIT, "{}", told(&peak));
    }
    let differs = difference(&undisturbed.end, &killed.end);
    assert!(differs.is_empty(), "the ends differ:\n{differs}");
}

/// Syncs so many images while the controller is killed at these moments, and checks the whole history.
async fn run(server: &Arc<ImageServer>, images: usize, moments: &[(usize, bool)]) -> Outcome {
    let started = Instant::now();
    let mut stage = Stage::set_with(server.clone(), &POLICY, Options::default()).await;
    let peak = History::open(&stage.client).await.unwrap();
    let mut timeline = Timeline::open(&stage.client).await;
    for number in 0..images {
        let content = Content::generated(SIZE, number as u64);
        let pace = Fault::rate_limit(BYTES_PER_SECOND).on(On::Data);
        let image = stage.image(&format!("image-{number}"), content, Behaviour::new().always(pace));
        stage.create(&image).await;
    }
    stage.start_controller();
    let mut mid_pass = 0;
    for (lines, between_writes) in moments {
        mid_pass += usize::from(kill(&mut stage, *lines, *between_writes).await);
        stage.start_controller();
    }
    let ended = stage.await_all_ended().await;
    let failed: Vec<String> = ended.iter().filter(|image| !has_succeeded(image)).map(why).collect();
    assert_eq!(failed, [""; 0], "every image succeeds");
    let (entries, pods) = peak.close().await.unwrap();
    let transfers = server.totals().most_open_data;
    check::expect_none(&check::ledger::intact(&timeline.history().await));
    let end = stage.end_state().await;
    stage.finish().await;
    Outcome { end, peak: Peak { entries, pods, transfers }, mid_pass, took: started.elapsed() }
}

fn has_succeeded(image: &VMDiskImage) -> bool {
    phase(image) == Some(Phase::Succeeded)
}

fn why(image: &VMDiskImage) -> String {
    let message = image.status.as_ref().and_then(|status| status.message.as_deref());
    format!("{}: {}", image.name_any(), message.unwrap_or_default())
}

/// Kills the controller when its log has so many lines about writes, or at the next one after which its pass has more
/// to write; whether the last thing it said was that.
async fn kill(stage: &mut Stage, lines: usize, between_writes: bool) -> bool {
    let mut log = Log::await_moment(stage.log(), lines, between_writes).await;
    stage.kill_controller().await;
    log.read();
    log.is_mid_pass()
}

fn told(peak: &Peak) -> String {
    let Peak { entries, pods, transfers } = peak;
    format!("at most {entries} entries, {pods} import pods, {transfers} transfers at once")
}
