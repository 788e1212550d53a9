//! How a stream comes by all objects: one by one from a watch where the server can, in small pages where it cannot.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::{
    Api, Ask, End, Reply, event, events, least_gap, list, list_ends, map, page, refused,
};
use crate::clock::seconds;
use crate::kit::Watched;

const KIND: &str = "configmaps";

/// All objects and the bookmark after them, then a change.
fn told(objects: &[Value], version: u64) -> Reply {
    let added = objects.iter().map(|object| event("ADDED", object));
    let later = event("MODIFIED", &map("a", version + 1));
    let lines = added.chain([list_ends(version)]).map(|line| (seconds(0), format!("{line}\n")));
    Reply::Lines(lines.chain([(seconds(1), format!("{later}\n"))]).collect(), End::Silence)
}

/// The watches that asked for all objects.
fn streamed(api: &Api) -> Vec<Ask> {
    api.asked().into_iter().filter(Ask::wants_list).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_at_the_beginning_of_a_watch_that_goes_on() {
    let api = Api::streaming(|_| told(&[map("a", 5), map("b", 6)], 10));
    let kit = Watched::start(api.client());
    sleep(seconds(5)).await;
    assert_eq!(kit.held(), ["a 11", "b 6"]);
    let asked = api.asked();
    assert_eq!(asked.len(), 1, "one request for all: {asked:?}");
    for part in
        ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true"]
    {
        assert!(asked[0].query.contains(part), "{}", asked[0].query);
    }
    assert!(asked[0].query.ends_with("resourceVersion="), "a consistent read: {}", asked[0].query);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_is_asked_in_small_pages_and_not_again_for_more() {
    let api = Api::streaming(|ask| match (ask.wants_list(), ask.is_list(), ask.nth) {
        (true, ..) => refused(422),
        (_, true, 0) => page(10, &[map("a", 5)], "more"),
        (_, true, 1) => list(10, &[map("b", 6)]),
        (_, true, _) => list(20, &[map("c", 17)]),
        _ if ask.version() == "10" => refused(410),
        _ => events(&[], End::Silence),
    });
    let kit = Watched::start(api.client());
    sleep(seconds(10)).await;
    assert_eq!(kit.held(), ["c 17"]);
    let lists: Vec<Ask> = api.asked().into_iter().filter(Ask::is_list).collect();
    assert!(lists.iter().all(|ask| ask.query.contains("limit=50")), "{lists:?}");
    assert_eq!((lists.len(), streamed(&api).len()), (3, 1));
    assert!(least_gap(&api.watches(KIND)) >= seconds(1));
}

/// What may go wrong with a list that a watch tells.
type Failure = (&'static str, fn() -> Reply);

fn failures() -> Vec<Failure> {
    vec![
        ("never answered", || Reply::Never),
        ("never begun", || events(&[], End::Silence)),
        ("cut in the middle", || events(&[event("ADDED", &map("a", 15))], End::Break)),
        ("ended in the middle", || events(&[event("ADDED", &map("a", 15))], End::Close)),
        ("silent in the middle", || events(&[event("ADDED", &map("a", 15))], End::Silence)),
        ("expired in the middle", || {
            events(
                &[event("ADDED", &map("a", 15)), event("ERROR", &crate::api::status(410))],
                End::Close,
            )
        }),
        ("failing", || refused(500)),
        ("overloaded", || refused(429)),
    ]
}

#[tokio::test(start_paused = true)]
async fn half_a_streamed_list_takes_nothing_away_and_pages_come_next() {
    for (how, fail) in failures() {
        let api = Api::streaming(move |ask| match (ask.wants_list(), ask.nth) {
            (true, 0) => told(&[map("a", 5), map("b", 6)], 10),
            (true, _) => fail(),
            _ if ask.is_list() => list(20, &[map("a", 15)]),
            _ if ask.version() == "20" => events(&[], End::Silence),
            _ => refused(410),
        });
        let kit = Watched::start(api.client());
        let mut waited = 0;
        while kit.held() != ["a 15"] {
            let held = kit.held();
            assert!(held.is_empty() || held.contains(&"b 6".to_owned()), "{how}: {held:?}");
            waited += 1;
            assert!(waited < 60, "{how}: {held:?}");
            sleep(seconds(1)).await;
        }
        assert_eq!(api.lists(KIND).len(), 1, "{how}");
        assert!(least_gap(&api.watches(KIND)) >= seconds(1), "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_object_goes_slim_as_it_comes() {
    static SLIMMED: AtomicUsize = AtomicUsize::new(0);
    let api = Api::streaming(|_| {
        let added = (0..50).map(|n| {
            let mut object = map(&format!("o{n}"), 5);
            object["data"] = json!({"k": "x".repeat(1000)});
            (seconds(1), format!("{}\n", event("ADDED", &object)))
        });
        Reply::Lines(
            added.chain([(seconds(1), format!("{}\n", list_ends(10)))]).collect(),
            End::Silence,
        )
    });
    let kit = Watched::start_slimmed(api.client(), |map| {
        SLIMMED.fetch_add(1, Ordering::SeqCst);
        map.data = None;
    });
    for n in 1..20 {
        sleep(seconds(1)).await;
        let (held, slimmed) = (kit.store.all(), SLIMMED.load(Ordering::SeqCst));
        assert!(held.len() == slimmed && slimmed.abs_diff(n) <= 1, "{n}: {} {slimmed}", held.len());
        assert!(held.iter().all(|map| map.data.is_none()));
        assert!(!kit.store.is_synced(), "half a list is none");
    }
}
