//! Attempts that do not end by themselves: claims that do not bind, importers that are frozen or out of reach. On the
//! world's time.

use std::time::Duration;

use diskimage_controller::bandwidth::Bandwidth;
use diskimage_controller::exchange::Correspondence;
use diskimage_controller::progress::{Answer, Elapsed, ProgressBook};
use otctl_types::diskimage::Phase;
use serde_json::json;
use testbed::builders::{image, key, policy, storage};
use testbed::check;
use testbed::sim::Order;
use testbed::{Sim, VirtualClock, World};

use crate::controller::{
    instance_with, is_importing, let_imports_succeed, names, one_slot, reason, status, world,
};

/// A talk whose time is the world's.
fn talk_on(clock: &VirtualClock) -> Correspondence {
    let (clock, start) = (clock.clone(), clock.now());
    let elapsed = Elapsed::new(move || clock.now().duration_since(start).unsigned_abs());
    Correspondence {
        book: ProgressBook::new(elapsed.clone()),
        bandwidth: Bandwidth::new(elapsed),
        ..Correspondence::default()
    }
}

/// One slot, an import of lab/a that runs, and what it tells.
fn importing() -> (Sim, Correspondence, String) {
    let sim = Sim::new(Order::Fixed);
    let talk = talk_on(sim.world.clock());
    let of_process = talk.clone();
    let mut sim = sim.with_process("controller", move |at| instance_with(at, of_process.clone()));
    storage(&sim.world);
    policy().concurrency(1).apply(&sim.world);
    image("lab/a").imports_without_end().create(&sim.world);
    sim.run_until("its pod runs", |world| is_importing(world, "lab/a"));
    sim.quiesce();
    let job = status(&sim.world, "lab/a").open_attempt.unwrap().job_uid;
    (sim, talk, job)
}

fn reasons(world: &World) -> Vec<String> {
    let attempts = status(world, "lab/a").attempts.into_iter();
    attempts.filter_map(|attempt| attempt.reason).collect()
}

#[test]
fn a_frozen_import_is_ended_charged_and_tried_again() {
    let (mut sim, talk, job) = importing();
    talk.book.note(&job, Answer::Mute);
    sim.advance(Duration::from_secs(599));
    assert_eq!(reasons(&sim.world), Vec::<String>::new(), "\n{}", sim.story);
    assert_eq!(
        status(&sim.world, "lab/a").progress.unwrap().percent.as_deref(),
        Some("unknown"),
        "while it cannot be asked"
    );
    sim.run_until("it is on record why", |world| {
        status(world, "lab/a").open_attempt.is_none_or(|open| open.cut.is_some())
    });
    // Whoever takes over knows why, though it has heard nothing.
    sim.kill("controller");
    sim.run_until("it has ended", |world| reasons(world) == ["NoProgress"]);
    let ended = status(&sim.world, "lab/a");
    assert_eq!(reason(&sim.world, "lab/a"), "Backoff");
    assert_eq!(ended.budget.unwrap().charged, 1, "it may have asked for data");
    let_imports_succeed(&sim.world, "lab/a");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    check::expect_none(&check::whole_history(&sim.world));
}

#[test]
fn an_import_that_is_only_out_of_reach_is_left_alone() {
    let (mut sim, talk, job) = importing();
    for _ in 0..60 {
        talk.book.note(&job, Answer::Unreachable);
        sim.advance(Duration::from_secs(300));
    }
    assert!(is_importing(&sim.world, "lab/a"), "\n{}", sim.story);
    let told = status(&sim.world, "lab/a").progress.unwrap();
    assert_eq!(told.percent.as_deref(), Some("unknown"));
    let_imports_succeed(&sim.world, "lab/a");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
}

#[test]
fn an_import_that_completed_while_it_was_being_ended_has_succeeded() {
    let (mut sim, talk, job) = importing();
    talk.book.note(&job, Answer::Mute);
    sim.run_until("it is on record why", |world| {
        status(world, "lab/a").open_attempt.is_some_and(|open| open.cut.is_some())
    });
    // The pod ends well in the moment before its Job goes.
    sim.world.edit("Job", &key(&names(&sim.world, "Job").pop().unwrap()), |_| {});
    let_imports_succeed(&sim.world, "lab/a");
    sim.settle();
    let done = status(&sim.world, "lab/a");
    assert_eq!(done.phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert!(done.budget.unwrap().charged <= 2, "\n{}", sim.story);
    check::expect_none(&check::whole_history(&sim.world));
}

/// Claims of lab/a lose or get back their storage.
fn set_claims(world: &World, phase: &str) {
    for name in names(world, "PersistentVolumeClaim") {
        if name.starts_with("lab/a-") {
            world.edit("PersistentVolumeClaim", &key(&name), |claim| {
                claim["status"]["phase"] = json!(phase);
            });
        }
    }
}

#[test]
fn a_claim_that_does_not_bind_gives_the_slot_back_for_free_and_heals() {
    let mut sim = one_slot();
    image("lab/a").create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("claims are made", |world| !names(world, "PersistentVolumeClaim").is_empty());
    // Nothing provisions them.
    set_claims(&sim.world, "Lost");
    sim.run_until("it is told", |world| reason(world, "lab/a") == "NotBinding");
    let waiting = status(&sim.world, "lab/a");
    let message = waiting.message.unwrap();
    assert!(message.contains("did not bind within 10m"), "{message}");
    assert_eq!(waiting.budget.unwrap().charged, 0);
    assert!(waiting.next_retry_at.is_some());
    sim.run_until("b has its slot", |world| status(world, "lab/b").phase == Some(Phase::Succeeded));
    set_claims(&sim.world, "Pending");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(sim.world.downloads(&key("lab/a")), 1);
    check::expect_none(&check::whole_history(&sim.world));
}

#[test]
fn the_time_to_bind_is_apart_from_the_time_without_a_byte() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(1).set("bindTimeout", "2m").set("stallTimeout", "1h").apply(&sim.world);
    image("lab/a").create(&sim.world);
    sim.run_until("claims are made", |world| !names(world, "PersistentVolumeClaim").is_empty());
    set_claims(&sim.world, "Lost");
    let begun = sim.now();
    sim.run_until("it is told", |world| reason(world, "lab/a") == "NotBinding");
    let waited = sim.now().duration_since(begun).as_secs();
    assert!((120..=180).contains(&waited), "{waited} s\n{}", sim.story);
}

/// Room and volumes are waited for on other timers, and cost nothing; the attempt's own begins when its pod runs.
#[test]
fn waiting_for_a_volume_is_no_time_of_the_attempt() {
    let mut sim = world(Order::Fixed);
    policy().concurrency(1).set("attemptTimeout", "1m").set("retryLimit", "0").apply(&sim.world);
    image("lab/a").create(&sim.world);
    sim.run_until("claims are made", |world| !names(world, "PersistentVolumeClaim").is_empty());
    set_claims(&sim.world, "Lost");
    sim.advance(Duration::from_secs(300));
    assert_eq!(reasons(&sim.world), Vec::<String>::new(), "\n{}", sim.story);
    set_claims(&sim.world, "Pending");
    sim.settle();
    assert_eq!(status(&sim.world, "lab/a").phase, Some(Phase::Succeeded), "\n{}", sim.story);
    assert_eq!(reasons(&sim.world), ["Succeeded"]);
}
