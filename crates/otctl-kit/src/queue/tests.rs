//! The edges of the diagram, and what holds for any history.

use proptest::prelude::*;

use super::*;

fn key(number: u8) -> Key {
    Key::new("lab", &number.to_string())
}

fn at(elapsed: Duration) -> Timestamp {
    after(Timestamp::UNIX_EPOCH, elapsed)
}

const START: Duration = Duration::ZERO;
const REST: End = End::Done(Next::Wait);
const FAILED: End = End::Failed { at_least: Duration::ZERO, next: Next::Wait };

/// A queue with key 0 at work since [`START`].
fn running() -> Queue {
    let mut queue = Queue::default();
    queue.wake(&key(0), at(START));
    queue.take(at(START)).unwrap();
    queue
}

fn due_after(queue: &Queue) -> Option<Duration> {
    queue.next_due().map(|due| crate::clock::until(at(START), due).unwrap_or_default())
}

#[test]
fn a_key_is_queued_once_however_often_it_is_woken() {
    let mut queue = Queue::default();
    (0..5).for_each(|_| queue.wake(&key(0), at(START)));
    assert_eq!(queue.take(at(START)), Some(key(0)));
    assert_eq!(queue.take(at(START)), None);
}

#[test]
fn a_key_that_is_woken_during_its_pass_takes_another_turn_after_it() {
    let mut queue = running();
    queue.wake(&key(0), at(START));
    assert_eq!(queue.take(at(START)), None);
    queue.finish(&key(0), REST, at(START), 1.0);
    assert_eq!(queue.take(at(START)), Some(key(0)));
}

#[test]
fn a_busy_key_waits_behind_the_calm_ones() {
    let mut queue = running();
    (1..4).for_each(|number| queue.wake(&key(number), at(START)));
    queue.wake(&key(0), at(START));
    queue.finish(&key(0), REST, at(START), 1.0);
    let order: Vec<Key> = std::iter::from_fn(|| queue.take(at(START))).collect();
    assert_eq!(order, [key(1), key(2), key(3), key(0)]);
}

#[test]
fn a_key_at_rest_leaves_nothing_behind() {
    let mut queue = running();
    queue.finish(&key(0), REST, at(START), 1.0);
    assert_eq!(queue.places(), []);
}

#[test]
fn a_time_is_kept_and_a_trigger_comes_before_it() {
    let mut queue = running();
    let hour = Duration::from_hours(1);
    queue.finish(&key(0), End::Done(Next::At(at(hour))), at(START), 1.0);
    assert_eq!(queue.take(at(hour - Duration::from_secs(1))), None);
    queue.wake(&key(0), at(START));
    assert_eq!(queue.take(at(START)), Some(key(0)));
    queue.finish(&key(0), End::Done(Next::At(at(hour))), at(START), 1.0);
    assert_eq!(queue.take(at(hour)), Some(key(0)));
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_delay_and_hastens_no_time_of_day() {
    let (mut queue, hour) = (Queue::default(), Duration::from_hours(1));
    for number in 0..2 {
        queue.wake(&key(number), at(2 * hour));
        queue.take(at(2 * hour)).unwrap();
    }
    queue.finish(&key(0), FAILED, at(2 * hour), 1.0);
    queue.finish(&key(1), End::Done(Next::At(at(3 * hour))), at(2 * hour), 1.0);
    assert_eq!(queue.take(at(hour)), None, "the delay is not over");
    assert_eq!(queue.take(at(hour) + BACKOFF_FROM), Some(key(0)));
    assert_eq!(queue.take(at(3 * hour) - BACKOFF_FROM), None);
    assert_eq!(queue.take(at(3 * hour)), Some(key(1)));
}

#[test]
fn a_clock_that_is_set_back_does_not_lock_a_key_out() {
    let (mut queue, hour) = (Queue::default(), Duration::from_hours(1));
    queue.wake(&key(0), at(2 * hour));
    queue.take(at(2 * hour)).unwrap();
    queue.finish(
        &key(0),
        End::Failed { at_least: BACKOFF_TO, next: Next::Wait },
        at(2 * hour),
        1.0,
    );
    queue.wake(&key(0), at(hour));
    assert_eq!(queue.next_due(), Some(at(hour) + BACKOFF_TO), "as long as was asked, no longer");
}

#[test]
fn a_trigger_during_a_pass_comes_before_the_time_that_the_pass_asked_for() {
    let mut queue = running();
    queue.wake(&key(0), at(START));
    queue.finish(&key(0), End::Done(Next::At(at(Duration::from_hours(1)))), at(START), 1.0);
    assert_eq!(queue.take(at(START)), Some(key(0)));
}

#[test]
fn a_plan_that_asks_for_the_past_does_not_spin() {
    let mut queue = running();
    queue.finish(&key(0), End::Done(Next::At(Timestamp::MIN)), at(START), 1.0);
    assert_eq!(due_after(&queue), Some(AGAIN_AFTER));
}

#[test]
fn failures_back_off_from_5_ms_to_15_min_and_success_resets() {
    let delays: Vec<u128> = (1..=20)
        .map(|failures| jittered(failures, BACKOFF_FROM..=BACKOFF_TO, 1.0).as_millis())
        .collect();
    assert_eq!(&delays[..4], [5, 10, 20, 40]);
    assert_eq!(delays[19], 900_000);
    assert_eq!(jittered(u32::MAX, BACKOFF_FROM..=BACKOFF_TO, 1.0), BACKOFF_TO);
    assert_eq!(jittered(20, BACKOFF_FROM..=BACKOFF_TO, 0.0), BACKOFF_TO / 2);

    let mut queue = running();
    queue.finish(&key(0), FAILED, at(START), 1.0);
    assert_eq!(due_after(&queue), Some(BACKOFF_FROM));
    queue.take(at(BACKOFF_FROM)).unwrap();
    queue.finish(&key(0), REST, at(BACKOFF_FROM), 1.0);
    queue.wake(&key(0), at(START));
    queue.take(at(START)).unwrap();
    queue.finish(&key(0), FAILED, at(START), 1.0);
    assert_eq!(due_after(&queue), Some(BACKOFF_FROM));
}

/// Fails key 0 until its backoff is at its longest; returns when it failed last.
fn exhaust(queue: &mut Queue) -> Timestamp {
    let mut now = at(START);
    for _ in 0..20 {
        queue.finish(&key(0), FAILED, now, 1.0);
        now = queue.next_due().unwrap();
        queue.take(now).unwrap();
    }
    queue.finish(&key(0), FAILED, now, 1.0);
    now
}

#[test]
fn a_trigger_shortens_a_backoff_to_a_second_and_no_further() {
    let mut queue = running();
    let failed = exhaust(&mut queue);
    assert_eq!(queue.next_due(), Some(after(failed, BACKOFF_TO)));
    queue.wake(&key(0), failed);
    assert_eq!(queue.take(failed), None);
    assert_eq!(queue.next_due(), Some(after(failed, WOKEN_AFTER)));
}

#[test]
fn a_trigger_does_not_shorten_the_time_that_the_server_asked_for() {
    let mut queue = running();
    let asked = Duration::from_secs(30);
    queue.wake(&key(0), at(START));
    queue.finish(&key(0), End::Failed { at_least: asked, next: Next::Wait }, at(START), 1.0);
    assert_eq!(due_after(&queue), Some(asked));
}

/// What was decided has a deadline, such as the end of a slot, that a backoff does not move.
#[test]
fn a_failed_pass_is_made_again_when_it_was_to_look_again_at_the_latest() {
    let hour = Duration::from_hours(1);
    let mut queue = running();
    for _ in 0..30 {
        let next = Next::At(at(2 * hour));
        queue.finish(&key(0), End::Failed { at_least: Duration::ZERO, next }, at(hour), 1.0);
        assert!(queue.next_due() <= Some(at(hour) + BACKOFF_TO));
        queue.take(at(4 * hour)).unwrap();
    }
    let soon = Next::At(at(hour + Duration::from_secs(5)));
    queue.finish(&key(0), End::Failed { at_least: Duration::ZERO, next: soon }, at(hour), 1.0);
    assert_eq!(queue.next_due(), Some(at(hour + Duration::from_secs(5))));
    queue.take(at(2 * hour)).unwrap();
    let at_least = Duration::from_secs(30);
    queue.finish(&key(0), End::Failed { at_least, next: soon }, at(hour), 1.0);
    assert_eq!(queue.next_due(), Some(at(hour) + at_least), "not sooner than was asked");
}

#[test]
fn a_lost_race_is_run_again_at_once_but_only_so_often() {
    let mut queue = running();
    let mut at_once = 1;
    loop {
        queue.finish(&key(0), End::Conflict, at(START), 1.0);
        if queue.take(at(START)).is_none() {
            break;
        }
        at_once += 1;
    }
    assert_eq!(at_once, CONFLICTS_AT_ONCE);
    assert_eq!(due_after(&queue), Some(BACKOFF_FROM));
}

#[test]
fn passes_that_were_given_up_are_due_again() {
    let mut queue = running();
    queue.recall();
    assert_eq!(queue.take(at(START)), Some(key(0)));
}

#[test]
fn people_see_what_waits_and_why() {
    let mut queue = running();
    queue.wake(&key(1), at(START));
    queue.wake(&key(2), at(START));
    queue.take(at(START)).unwrap();
    queue.finish(&key(1), FAILED, at(START), 1.0);
    let places: Vec<(&str, u32)> =
        queue.places().iter().map(|place| (place.state, place.failures)).collect();
    assert_eq!(places, [("running", 0), ("waiting", 1), ("ready", 0)]);
    assert_eq!(queue.depth(), 1);
}

#[test]
fn a_key_that_was_put_off_is_woken_by_what_happens_and_keeps_its_failures() {
    let mut queue = running();
    queue.finish(&key(0), FAILED, at(START), 1.0);
    let (soon, later) = (Duration::from_secs(2), Duration::from_secs(3));
    queue.take(at(soon)).unwrap();
    queue.finish(&key(0), End::PutOff(at(later)), at(soon), 1.0);
    assert_eq!(due_after(&queue), Some(later));
    assert_eq!(queue.places()[0].failures, 1);
    queue.wake(&key(0), at(soon));
    assert_eq!(queue.take(at(soon)), Some(key(0)));
}

#[derive(Clone, Debug)]
enum Step {
    Wake(u8),
    Take,
    Finish(usize, End),
    Pass(u64),
    Recall,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let end = prop_oneof![
        Just(REST),
        (0..5000_u64).prop_map(|ms| End::Done(Next::At(at(Duration::from_millis(ms))))),
        Just(End::Conflict),
        (0..5000_u64).prop_map(|ms| End::PutOff(at(Duration::from_millis(ms)))),
        (0..2000_u64, 0..5000_u64).prop_map(|(ms, next)| End::Failed {
            at_least: Duration::from_millis(ms),
            next: Next::At(at(Duration::from_millis(next))),
        }),
    ];
    let step = prop_oneof![
        4 => (0..4_u8).prop_map(Step::Wake),
        4 => Just(Step::Take),
        3 => (0..4_usize, end).prop_map(|(which, end)| Step::Finish(which, end)),
        2 => (0..2000_u64).prop_map(Step::Pass),
        1 => Just(Step::Recall),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    /// Never two passes of a key, no trigger lost, nothing left over.
    #[test]
    fn any_history_is_sound(steps in steps()) {
        let mut queue = Queue::default();
        let mut now = Duration::ZERO;
        let mut running: Vec<Key> = Vec::new();
        let mut owed: BTreeSet<Key> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Wake(number) => {
                    queue.wake(&key(number), at(now));
                    owed.insert(key(number));
                }
                Step::Take => if let Some(key) = queue.take(at(now)) {
                    prop_assert!(!running.contains(&key), "{key} in two passes");
                    owed.remove(&key);
                    running.push(key);
                },
                Step::Finish(which, end) => if !running.is_empty() {
                    let key = running.remove(which % running.len());
                    queue.finish(&key, end, at(now), 0.5);
                },
                Step::Pass(ms) => now += Duration::from_millis(ms),
                Step::Recall => {
                    queue.recall();
                    owed.extend(running.drain(..));
                }
            }
        }
        for key in running.drain(..) {
            queue.finish(&key, REST, at(now), 0.5);
        }
        now += Duration::from_hours(1);
        while let Some(key) = queue.take(at(now)) {
            owed.remove(&key);
            queue.finish(&key, REST, at(now), 0.5);
        }
        prop_assert!(owed.is_empty(), "never got the turn they were owed: {owed:?}");
        prop_assert_eq!(queue.places(), vec![]);
        prop_assert_eq!(queue.next_due(), None);
    }
}
