//! Many workspaces share few slots while their controllers are killed and two act at once: never more than the limit, in
//! the order of creation, and those at the head that never get ready hold nobody up.

use std::time::Instant;

use kube::ResourceExt as _;
use kube::api::ListParams;
use local_cluster::Options;
use local_cluster::audit::Mark;
use otctl_types::Workspace;
use otctl_types::condition::{CONTAINERS_READY, READY};
use otctl_types::names::WORKSPACE_QUEUE;
use otctl_types::workspace::Phase;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use testbed::check;
use testbed::setting;
use testbed::world::Version;
use tokio::sync::watch;

use super::labs::{self, Labs};
use crate::controller_log::Log;
use crate::faults::acting::contend;
use crate::faults::proxied::{ALONE, Proxied};
use crate::stage::until;
use crate::timeline::Timeline;

/// The shortest time that a start may take: those that never get ready keep their slots for so long.
const POLICY: [(&str, &str); 2] = [("workspaceConcurrency", "2"), ("provisioningTimeout", "1m")];
const LIMIT: usize = 2;
/// Kills of the one that acts alone.
const KILLS: usize = 8;
/// Ledger writes that must have met a conflict, or the two did not act at once.
const CONFLICTS: usize = 5;
/// So many workspaces, and no more, for two that hardly meet, and how many come at a time.
const MOST: usize = 150;
const MORE: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn many_share_two_slots_under_kills_and_with_two_at_once() {
    let (count, seed) = (setting("OTCTL_FLEET", 60), setting("OTCTL_FLEET_SEED", rand::random()));
    println!("fleet: {count} workspaces, limit {LIMIT}, OTCTL_FLEET_SEED={seed}");
    let started = Instant::now();
    let mut labs = Labs::set(&POLICY, Options::default()).await;
    let mut timeline = Timeline::of_workspaces(&labs.stage.client).await;
    for (name, spec) in never_ready() {
        labs.create(name, spec).await;
    }
    create(&labs, 0..count).await;

    let mid_pass = alone(&mut labs, count / 3, seed).await;
    let mark = labs.stage.mark();
    let (struck, count) = both(&labs, count, seed).await;
    let conflicts = conflicts(&labs, mark);
    labs.start();
    await_ready(&labs, count).await;

    for ((name, _), (condition, reason)) in never_ready().into_iter().zip(REASONS) {
        let words = labs.says(name, condition, reason).await;
        println!("{name}: {reason}: {words}");
    }
    let history = timeline.history().await;
    let most = history.iter().filter_map(entries).max().unwrap();
    println!(
        "{KILLS} kills of one, {mid_pass} of them between two writes of a pass; {struck} stops and kills while both acted, \
         {conflicts} ledger writes refused by conflict; at most {most} entries at once; {:.0?}",
        started.elapsed()
    );
    assert_eq!(most, LIMIT);
    assert!(conflicts >= CONFLICTS, "they hardly met: {conflicts} conflicts");
    check::expect_none(&check::turns::intact(&history));
    check::expect_none(&check::parts::intact(&history));
    labs.finish_but(|_| false).await;
}

fn container(image: &str) -> Value {
    json!({"containers": [{"name": "web", "image": image}]})
}

/// Why each of them is not ready.
const REASONS: [(&str, &str); 4] = [
    (READY, "ImageNotFound"),
    (CONTAINERS_READY, "ImagePullBackOff"),
    (CONTAINERS_READY, "Unschedulable"),
    (CONTAINERS_READY, "CrashLoopBackOff"),
];

/// Created first, so that they are at the head: a missing image, a wrong tag, more CPU than there is, a crash loop.
fn never_ready() -> [(&'static str, Value); 4] {
    let mut image = container("example.com/web:1");
    image["virtualMachines"] = json!([{"name": "db", "spec": {"VMDiskImageName": "absent"}}]);
    let mut cpu = container("example.com/web:1");
    cpu["containers"][0]["resources"] = json!({"requests": {"cpu": "1000"}});
    [
        ("head-image", image),
        ("head-tag", container("example.com/web:none")),
        ("head-cpu", cpu),
        ("head-crash", container("example.com/crash:1")),
    ]
}

/// One controller, killed again and again, until so many are ready: how often between two writes of a pass. It runs no
/// more then.
async fn alone(labs: &mut Labs, wanted: usize, seed: u64) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let mut mid_pass = 0;
    for _ in 0..KILLS {
        labs.start();
        let moment = (random.random_range(1..=12), random.random_ratio(1, 2));
        let mut log = Log::await_moment(&labs.launch.log, moment.0, moment.1).await;
        labs.kill().await;
        log.read();
        mid_pass += usize::from(log.is_mid_pass());
    }
    labs.start();
    await_ready(labs, wanted).await;
    labs.kill().await;
    mid_pass
}

async fn create(labs: &Labs, numbers: std::ops::Range<usize>) {
    for number in numbers {
        labs.create(&format!("lab-{number:03}"), container("example.com/web:1")).await;
    }
}

/// Two without a lease, stopped and killed, until two thirds are ready and they have met often enough: how often they were
/// struck, and how many workspaces there are by then.
async fn both(labs: &Labs, count: usize, seed: u64) -> (usize, usize) {
    let mark = labs.stage.mark();
    let over = watch::Sender::new(false);
    let (one, other) = tokio::join!(contender(labs, "one"), contender(labs, "other"));
    let ends = [over.subscribe(), over.subscribe()];
    let [of_one, of_other] = ends;
    let (one, other, count) = tokio::join!(
        contend(one, seed, of_one),
        contend(other, seed.wrapping_add(1), of_other),
        async {
            let mut count = count;
            await_ready(labs, count * 2 / 3).await;
            while conflicts(labs, mark) < CONFLICTS && count < MOST {
                create(labs, count..count + MORE).await;
                count += MORE;
                await_ready(labs, count - MORE).await;
            }
            over.send_replace(true);
            count
        }
    );
    (one + other, count)
}

async fn contender(labs: &Labs, name: &str) -> Proxied {
    let mut launch = labs::launch(&labs.stage).await;
    launch.flags.retain(|flag| flag.starts_with("--namespaces"));
    let mut contender = Proxied::of(launch, &labs.stage, name, ALONE).await;
    contender.start();
    contender
}

/// Waits for as long as one more gets ready within the patience of [`until`].
async fn await_ready(labs: &Labs, wanted: usize) {
    let mut known = 0;
    while known < wanted {
        known = until(&format!("more than {known} workspaces are ready"), async || {
            let all = labs.workspaces().list(&ListParams::default()).await.unwrap().items;
            let ready = all.iter().filter(|it| is_ready(it)).count();
            (ready > known).then_some(ready)
        })
        .await;
    }
}

fn is_ready(workspace: &Workspace) -> bool {
    let status = workspace.status.as_ref();
    workspace.name_any().starts_with("lab-")
        && status.is_some_and(|status| status.phase == Some(Phase::Ready))
}

fn conflicts(labs: &Labs, since: Mark) -> usize {
    let writes = labs.writes(since);
    let of_ledger = writes.iter().filter(|entry| entry.target() == "admissionqueues/status");
    of_ledger.filter(|entry| entry.code == 409).count()
}

/// How many entries a version of the ledger has.
fn entries(version: &Version) -> Option<usize> {
    let is_ledger = version.id.kind == "AdmissionQueue" && version.id.key.name == WORKSPACE_QUEUE;
    let active = version.object["status"]["active"].as_array().map_or(0, Vec::len);
    is_ledger.then_some(active)
}
