//! A reconciler that panics over one object.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::api::{Api, Changes, End, events, list, map, object};
use crate::clock::seconds;
use crate::kit::{self, Looping};
use crate::plain::Controlled;

/// Three objects, of which the middle one is bad; the last one changes after 5 s and after a minute.
fn three_objects() -> Api {
    let changes = Changes { name: "c", from: 10, at: vec![seconds(5), seconds(60)] };
    Api::new(move |ask| match (ask.kind.as_str(), ask.is_list()) {
        ("secrets", true) => list(10, &[]),
        ("configmaps", true) => list(10, &[map("a", 1), map("bad", 2), map("c", 3)]),
        ("configmaps", false) if ask.is_watch() => changes.told(ask),
        ("configmaps", false) => object(&map("bad", 2)),
        ("events", _) => object(&json!({"metadata": {"name": "e", "resourceVersion": "1"}})),
        _ => events(&[], End::Silence),
    })
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_a_plain_controller_and_costs_the_kit_one_object() {
    let pass = |name: &str| assert!(name != "bad", "an index out of bounds");
    let mut plain = Controlled::start(three_objects().client(), pass);
    sleep(seconds(120)).await;
    assert!(plain.task.is_finished(), "kube-rs contains panics now");
    assert!((&mut plain.task).await.unwrap_err().is_panic());
    assert!(plain.passes().iter().all(|(_, shown)| shown != "c 11" && shown != "c 12"));

    let kit = Looping::start(three_objects().client());
    sleep(seconds(120)).await;
    let last = kit.passes().into_iter().rfind(|(_, shown)| shown.starts_with("c "));
    assert_eq!(last.unwrap().1, "c 12", "the others went on");
    println!(
        "a panic over one of three objects, in 120 s: plain kube-rs ended after {} passes; the kit made {}, {} of them over the bad one",
        plain.passes().len(),
        kit.passes().len(),
        kit.of("bad").len(),
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_panics_backs_off_is_counted_and_says_so() {
    let api = three_objects();
    let kit = Looping::start(api.client());
    sleep(Duration::from_hours(1)).await;
    let times = kit.of("bad");
    assert!((5..=25).contains(&times.len()), "{times:?}");
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[0] >= seconds(1), "{gaps:?}");
    assert!(*gaps.last().unwrap() >= Duration::from_mins(5), "{gaps:?}");
    let series = "otctl_reconcile_errors_total{category=\"panicked\",controller=\"named\"}";
    assert_eq!(kit::value(&kit.metrics, series), u64::try_from(times.len()).unwrap());
    let told: Vec<_> = api.asked().into_iter().filter(|ask| ask.name == "bad").collect();
    assert_eq!(told[0].body["status"]["reason"], "InternalError");
    assert_eq!(told[0].body["status"]["why"], "an index out of bounds");
    let place = kit.trigger.places().into_iter().find(|place| place.object == "lab/bad").unwrap();
    assert_eq!((place.state, usize::try_from(place.failures).unwrap()), ("waiting", times.len()));
}
