//! One watch that fails for ever, beside one that is fine.

use std::time::Duration;

use tokio::time::sleep;

use crate::api::{Api, Changes, list, map, refused};
use crate::clock::seconds;
use crate::kit::Looping;
use crate::plain::Controlled;

/// Changes of the kind that can be watched, ten seconds apart.
const CHANGES: u64 = 30;

/// Secrets are forbidden. A ConfigMap changes all the time.
fn one_kind_fails() -> Api {
    let changes = Changes { name: "a", from: 10, at: (1..=CHANGES).map(change_at).collect() };
    Api::new(move |ask| match (ask.kind.as_str(), ask.is_list()) {
        ("secrets", _) => refused(403),
        (_, true) => list(10, &[map("a", 5)]),
        (_, false) => changes.told(ask),
    })
}

fn change_at(number: u64) -> Duration {
    seconds(20 + 10 * number)
}

/// How long after each change its pass came; none where it came after a later change.
fn delays(passes: &[(Duration, String)]) -> Vec<Duration> {
    let of = |change: u64| {
        let shown = format!("a {}", 10 + change);
        let pass = passes.iter().find(|(_, pass)| *pass == shown);
        pass.map(|(at, _)| at.saturating_sub(change_at(change)))
    };
    (1..=CHANGES).filter_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_fails_slows_down_all_of_a_plain_controller_and_none_of_the_kit() {
    let api = one_kind_fails();
    let plain = Controlled::start(api.client(), |_| {});
    sleep(change_at(CHANGES + 1)).await;
    let slow = delays(&plain.passes());
    let slowest = slow.iter().max().copied().unwrap_or_default();
    let missed = usize::try_from(CHANGES).unwrap() - slow.len();
    assert!(slowest > seconds(1) || missed > 0, "kube-rs has a backoff per watch now");

    let api = one_kind_fails();
    let kit = Looping::start(api.client());
    sleep(change_at(CHANGES + 1)).await;
    let fast = delays(&kit.passes());
    assert_eq!(fast.len(), usize::try_from(CHANGES).unwrap());
    let latest = fast.iter().max().unwrap();
    assert!(*latest <= Duration::from_millis(10), "{fast:?}");
    println!(
        "one of two watches always refused, {CHANGES} changes of the other kind: plain kube-rs had its pass up to {slowest:?} late and missed {missed}; the kit at most {latest:?} late"
    );
}
