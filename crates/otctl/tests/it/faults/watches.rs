//! What watches tell comes late, twice, again, out of order between kinds, in part or not at all, and the end is the
//! same: each life is as it would be without, by the same writes.

use std::time::Duration;

use serde_json::Value;
use testbed::fault::{Answer, Verb, What, at};
use testbed::proxy::{Entry, Outcome};
use testbed::world::Version;
use testbed::{Fault, check};

use super::lives::{Clean, Life, Lives};

/// Beyond what a key waits until its view shows its own writes.
const LATE: Duration = Duration::from_secs(6);

/// What is done to events, under a name, and whether no write may be tried again. Where one may, because a pass was
/// decided on an old view, it must be refused.
struct Distortion {
    name: &'static str,
    faults: Vec<Fault>,
    costs_nothing: bool,
}

fn distortions() -> Vec<Distortion> {
    let seconds = Duration::from_secs;
    let expired = || What::Answer(Answer::refusal(410, "Expired"));
    let always = |line: &str, what: What| at(line).always().then(what);
    let one = |name, costs_nothing, faults| Distortion { name, faults, costs_nothing };
    vec![
        one("every event twice", true, vec![always("event any", What::Duplicate)]),
        one("older events again after each", true, vec![always("event any", What::Replay(5))]),
        one(
            "only the last of close events",
            false,
            vec![always("event any", What::Coalesce(Duration::from_millis(700)))],
        ),
        one(
            "pods before their Jobs",
            false,
            vec![always("event any Job", What::Delay(seconds(3)))],
        ),
        one(
            "watches that break in the middle of an event",
            false,
            vec![
                at("event any VMDiskImage").nth(2).times(3).then(What::Cut(40)),
                at("event any AdmissionQueue").nth(2).then(What::Cut(1)),
                at("event any Job").nth(3).then(What::Cut(200)),
            ],
        ),
        one(
            "watches that expire",
            false,
            vec![
                at("event any VMDiskImage").nth(3).then(expired()),
                at("event any Job").nth(2).then(expired()),
                at("event deleted").then(expired()),
            ],
        ),
        one("images late", false, vec![always("event any VMDiskImage", What::Delay(LATE))]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_events_the_end_is_the_same() {
    let mut scene = Lives::set("64", &[]).await;
    let lives = [Life::Success, Life::Deletion];
    let clean = [scene.clean(lives[0]).await, scene.clean(lives[1]).await];
    let mut lived = Vec::new();
    for distortion in distortions() {
        let Distortion { name, faults, costs_nothing } = distortion;
        faults.into_iter().for_each(|fault| scene.controller.proxy.add(fault));
        let from = scene.controller.asked();
        let (success, deletion) = tokio::join!(
            live(&scene, lives[0], &clean[0], name),
            live(&scene, lives[1], &clean[1], name)
        );
        assert_eq!(scene.controller.proxy.faults().unmet(), [] as [String; 0], "{name}");
        scene.controller.proxy.faults().clear();
        scene.quiet().await;
        for (namespace, clean) in [success, deletion].into_iter().zip(&clean) {
            let own = scene.writes_in(&namespace, from);
            lived.push(Lived { name, costs_nothing, clean, namespace, own });
        }
    }
    let (history, log) = (scene.history().await, scene.controller.log());
    let dear: Vec<_> = lived.iter().filter_map(|lived| lived.cost(&history, &log)).collect();
    check::expect_none(&dear);
    scene.finish().await;
}

/// A life under a distortion.
struct Lived<'a> {
    name: &'static str,
    costs_nothing: bool,
    clean: &'a Clean,
    namespace: String,
    own: Vec<Entry>,
}

impl Lived<'_> {
    /// What it cost more than the same life without.
    fn cost(&self, history: &[Version], log: &str) -> Option<String> {
        let Self { name, namespace, clean, .. } = self;
        let (tried, most) = (self.own.len(), clean.own.len());
        let made = made(&self.own, namespace, history);
        let without = self::made(&clean.own, &clean.namespace, history);
        println!(
            "{name}: {made} of {tried} writes changed something, without it {without} of {most}"
        );
        let is_dear = made > without || self.costs_nothing && tried > most;
        let writes = self.own.iter().map(|entry| format!("{:?} {}", entry.outcome, entry.call));
        let told: Vec<_> = writes.chain(reasons(log, namespace)).collect();
        is_dear.then(|| format!("{name} costs writes:\n{}", told.join("\n")))
    }
}

/// How many changed something.
fn made(writes: &[Entry], namespace: &str, history: &[Version]) -> usize {
    let is_done = |entry: &&Entry| matches!(entry.outcome, Outcome::Answered(200..=299));
    let is_version = |version: &&Version| {
        version.id.kind == "VMDiskImage" && version.id.key.namespace == namespace
    };
    changes(writes).filter(is_done).count() + history.iter().filter(is_version).count()
}

/// Those that change something when they are done. What is on its way out is not changed by one more deletion, nor is an
/// image by the guard of such a deletion, which is its status as it is: versions tell of those.
fn changes(writes: &[Entry]) -> impl Iterator<Item = &Entry> {
    writes.iter().filter(|entry| entry.call.verb != Verb::Delete && entry.call.part != "status")
}

/// The lines of a controller's log that say of writes in this namespace what they change and why.
fn reasons(log: &str, namespace: &str) -> Vec<String> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let writes = lines.filter(|line| line["write"].is_string());
    let told = writes.map(|line| {
        let text = |field: &str| line[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", text("timestamp"), text("object"), text("write"))
    });
    told.filter(|line| line.contains(namespace)).collect()
}

/// A life, which must end as ever; its namespace.
async fn live(scene: &Lives, life: Life, clean: &Clean, told: &str) -> String {
    let namespace = scene.namespace().await;
    life.begin(&scene.stage, &namespace).await;
    life.go(&scene.stage, &namespace).await;
    scene.expect_end(&format!("{told}: {life:?}"), &namespace, &clean.end).await;
    namespace
}
