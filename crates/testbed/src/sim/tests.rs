use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use otctl_types::diskimage::Phase;
use otctl_types::import::ImportReason;

use super::toy::{Mutation, images, toy};
use super::{Order, Sim, Ways, crash_points, every_crash_point};
use crate::builders::{image, key, policy};
use crate::check::{self, expect_none};
use crate::fault::{Point, What, at};
use crate::golden;

/// Two images, the second of which fails, and one slot.
fn two_images(sim: &mut Sim) {
    image("lab/a").create(&sim.world);
    image("lab/b").import_fails(ImportReason::ServerError).create(&sim.world);
    sim.settle();
}

fn judge(sim: &Sim) {
    let found = check::whole_history(&sim.world);
    if !found.is_empty() {
        sim.fail(&found.join("\n"));
    }
    let phases: Vec<Option<Phase>> = images(&sim.world)
        .into_iter()
        .map(|image| image.status.and_then(|status| status.phase))
        .collect();
    assert_eq!(phases, [Some(Phase::Succeeded), Some(Phase::Failed)], "\n{}", sim.story);
}

/// What the harness says of the toy with that mistake in it, in any order and with any crash.
fn verdict_on(mutation: Mutation) -> String {
    let orders = (0..30).map(Order::Shuffled).chain((0..30).map(Order::Interleaved));
    for order in [Order::Fixed].into_iter().chain(orders) {
        let run = catch_unwind(AssertUnwindSafe(|| {
            let mut sim = toy(order, mutation);
            two_images(&mut sim);
            judge(&sim);
            let mut sim = toy(order, mutation);
            deleted_while_running(&mut sim);
            expect_none(&check::whole_history(&sim.world));
            let mut sim = toy(order, mutation);
            job_deleted_by_hand(&mut sim);
            expect_none(&check::whole_history(&sim.world));
        }));
        if let Err(panic) = run {
            return said(&*panic);
        }
    }
    let run = catch_unwind(|| every_crash_point(|| toy(Order::Fixed, mutation), two_images, judge));
    run.err().map_or_else(|| "found nothing".to_owned(), |panic| said(&*panic))
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.expect("panics here have a message").to_owned()
}

fn deleted_while_running(sim: &mut Sim) {
    image("lab/a").imports_without_end().create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("the first pod runs", |world| {
        world.list("Pod").iter().any(|pod| pod["status"]["phase"] == "Running")
    });
    sim.world.delete("VMDiskImage", &key("lab/a"), Propagation::Background);
    sim.settle();
}

fn job_deleted_by_hand(sim: &mut Sim) {
    image("lab/a").imports_without_end().create(&sim.world);
    image("lab/b").create(&sim.world);
    sim.run_until("the first pod runs", |world| {
        world.list("Pod").iter().any(|pod| pod["status"]["phase"] == "Running")
    });
    let job = sim.world.list("Job")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    sim.world.delete("Job", &Key::new("lab", &job), Propagation::Background);
    sim.settle();
}

#[test]
fn a_run_reads_like_a_story() {
    let mut sim = toy(Order::Fixed, Mutation::None);
    two_images(&mut sim);
    judge(&sim);
    golden::compare(
        golden!("two_images_one_slot"),
        &format!("# two images, one slot\n{}", sim.story),
    );
}

#[test]
fn a_run_is_the_same_each_time_and_another_with_another_seed() {
    let story = |seed| {
        let mut sim = toy(Order::Interleaved(seed), Mutation::None);
        two_images(&mut sim);
        sim.story.to_string()
    };
    assert_eq!(story(1), story(1));
    assert_ne!(story(1), story(2));
}

#[test]
fn nothing_is_wrong_with_the_toy_in_any_order() {
    for seed in 0..40 {
        for order in [Order::Shuffled(seed), Order::Interleaved(seed)] {
            let mut sim = toy(order, Mutation::None);
            two_images(&mut sim);
            judge(&sim);
            let mut sim = toy(order, Mutation::None);
            deleted_while_running(&mut sim);
            expect_none(&check::whole_history(&sim.world));
            assert!(sim.world.list("Pod").is_empty(), "\n{}", sim.story);
            let mut sim = toy(order, Mutation::None);
            job_deleted_by_hand(&mut sim);
            expect_none(&check::whole_history(&sim.world));
        }
    }
}

#[test]
fn the_toy_ends_the_same_after_any_crash() {
    let tried = every_crash_point(
        || toy(Order::Fixed, Mutation::None),
        two_images,
        |sim| {
            judge(sim);
            assert_eq!(sim.world.downloads(&key("lab/a")), 1);
            assert_eq!(sim.world.downloads(&key("lab/b")), 1);
        },
    );
    assert_eq!(tried.runs, tried.writes * 4);
    assert!(tried.writes >= 10, "{tried:?}");
    let in_turns =
        crash_points(Ways::InTurns, || toy(Order::Fixed, Mutation::None), two_images, judge);
    assert_eq!((in_turns.writes, in_turns.runs), (tried.writes, tried.writes));
}

#[test]
fn two_processes_at_once_break_nothing() {
    for seed in 0..20 {
        let sim = toy(Order::Interleaved(seed), Mutation::None);
        let mut sim = sim.with_process("other", super::toy::another);
        two_images(&mut sim);
        judge(&sim);
    }
}

fn is_found(mutation: Mutation, words: &str) {
    let verdict = verdict_on(mutation);
    assert!(verdict.contains(words), "{mutation:?} should be found by \"{words}\":\n{verdict}");
}

#[test]
fn a_job_created_started_is_found() {
    is_found(Mutation::StartsAtOnce, "was created started");
}

#[test]
fn a_job_started_before_it_is_on_record_is_found() {
    is_found(Mutation::StartsUnrecorded, "without being on record");
}

#[test]
fn one_admission_too_many_is_found() {
    is_found(Mutation::AdmitsOneMore, "2 of Some(1) active");
}

#[test]
fn overtaking_is_found() {
    is_found(Mutation::AdmitsBackwards, "was admitted before");
}

#[test]
fn a_slot_given_back_early_is_found() {
    is_found(Mutation::GivesBackEarly, "Some(Syncing)");
}

#[test]
fn a_slot_given_back_on_absence_alone_is_found() {
    is_found(Mutation::TrustsAbsence, "without entry");
}

#[test]
fn a_child_without_owner_is_found() {
    is_found(Mutation::ForgetsOwner, "creates without a controller owner");
}

#[test]
fn an_apply_by_name_is_found() {
    is_found(Mutation::AppliesByName, "applies without a UID");
}

#[test]
fn a_decision_that_is_not_pure_is_found() {
    is_found(Mutation::Moody, "decides otherwise on the same facts");
}

#[test]
fn an_attempt_number_in_memory_is_found() {
    is_found(Mutation::CountsInMemory, "ends otherwise");
}

#[test]
fn an_attempt_closed_without_a_look_is_found() {
    is_found(Mutation::ClosesWithoutLook, "without entry");
}

#[test]
fn a_missing_wake_up_is_found() {
    is_found(Mutation::WakesNobody, "left == right");
}

#[test]
fn a_pass_that_waits_for_anything_else_is_told() {
    let sim = || {
        Sim::new(Order::Fixed).with_process("waits", |connection| {
            let wakes = super::Wakes::new(&connection.clock);
            wakes.wake(&key("lab/a"));
            let one = super::Loop::new("waits", &wakes, |_| std::future::pending());
            super::Instance { feeds: Vec::new(), loops: vec![one] }
        })
    };
    let panic = catch_unwind(|| sim().settle()).unwrap_err();
    assert!(said(&*panic).contains("waits for something else than its requests"));
}

#[test]
fn a_fault_strikes_the_request_it_names() {
    let mut sim = toy(Order::Fixed, Mutation::None)
        .with_fault(at("create Job").point(Point::Commit).then(What::Kill))
        .with_fault(at("patch status VMDiskImage lab/b").nth(2).then(What::Lose));
    two_images(&mut sim);
    judge(&sim);
    assert_eq!(
        sim.story.lines_with("died after: create Job lab/import-").len(),
        1,
        "{}",
        sim.story
    );
    assert!(sim.faults().unmet().is_empty());
}

#[test]
fn a_request_under_way_lands_after_its_sender_died() {
    let mut sim = toy(Order::Fixed, Mutation::None)
        .with_fault(at("create Job").point(Point::UnderWay).then(What::Kill));
    two_images(&mut sim);
    judge(&sim);
    let late = sim.story.lines_with("late from toy: create Job");
    assert!(late[0].contains("an object of that name exists"), "{late:?}");
}

#[test]
fn a_held_watch_is_late_and_a_released_one_catches_up() {
    let mut sim = toy(Order::Fixed, Mutation::None);
    sim.hold("Job");
    image("lab/a").create(&sim.world);
    sim.settle();
    assert_eq!(
        images(&sim.world)[0].status.as_ref().unwrap().last_attempt,
        None,
        "it has not seen its Job"
    );
    sim.release("Job");
    sim.settle();
    assert_eq!(images(&sim.world)[0].status.as_ref().unwrap().phase, Some(Phase::Succeeded));
}

#[test]
fn a_changed_limit_acts_on_the_next_decision() {
    let mut sim = toy(Order::Fixed, Mutation::None);
    for name in ["lab/a", "lab/b", "lab/c"] {
        image(name).imports_without_end().create(&sim.world);
    }
    sim.advance(Duration::from_secs(60));
    assert_eq!(sim.world.list("Pod").len(), 1);
    policy().concurrency(2).apply(&sim.world);
    image("lab/d").imports_without_end().create(&sim.world);
    sim.advance(Duration::from_secs(60));
    assert_eq!(sim.world.list("Pod").len(), 2);
    policy().concurrency(0).apply(&sim.world);
    sim.advance(Duration::from_secs(60));
    assert_eq!(sim.world.list("Pod").len(), 2, "nothing that runs is killed");
    expect_none(&check::whole_history(&sim.world));
}

#[test]
fn an_invariant_is_asked_after_every_write() {
    let sim = toy(Order::Fixed, Mutation::None);
    let mut sim = sim.always(|world| {
        world.list("Job").iter().map(|job| format!("a Job: {}", job["kind"])).collect()
    });
    let panic = catch_unwind(AssertUnwindSafe(|| two_images(&mut sim))).unwrap_err();
    assert!(said(&*panic).starts_with("a Job: "));
    assert_eq!(sim.world.list("Pod").len(), 0, "it was told at once");
}
