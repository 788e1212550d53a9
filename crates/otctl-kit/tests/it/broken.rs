//! Bodies that end too early, and objects that cannot be read.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::api::{Api, End, Reply, bookmark, event, events, late, list, map, refused};
use crate::clock::seconds;
use crate::kit::Watched;
use crate::plain::Reflected;

/// What else may stand where an object should.
fn broken() -> Vec<Value> {
    let mut wrong_type = map("b", 6);
    wrong_type["data"] = json!("not a map");
    let mut strange_time = map("b", 6);
    strange_time["metadata"]["creationTimestamp"] = json!("yesterday");
    vec![
        wrong_type,
        strange_time,
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "b", "resourceVersion": "6"}}),
        json!({"metadata": 7}),
        json!({"metadata": {"resourceVersion": "6"}}),
        json!({"data": {}}),
        json!("b"),
        Value::Null,
    ]
}

const UNREADABLE: &str = "otctl_watch_unreadable_objects{kind=\"ConfigMap\"}";

#[tokio::test(start_paused = true)]
async fn one_unreadable_item_empties_a_plain_store_and_costs_the_kit_one_object() {
    let mut stopped = 0;
    for bad in broken() {
        let script = bad.clone();
        let api = Api::new(move |ask| match ask.is_list() {
            true => list(10, &[map("a", 5), script.clone(), map("c", 7)]),
            false => events(&[], End::Silence),
        });
        let plain = Reflected::start(api.client());
        sleep(Duration::from_mins(5)).await;
        stopped += usize::from(plain.held().is_empty());
        drop(plain);

        let kit = Watched::start(api.client());
        sleep(seconds(5)).await;
        assert!(kit.store.is_synced(), "{bad}");
        assert_eq!(kit.held(), ["a 5", "c 7"], "{bad}");
        assert_eq!(kit.metric(UNREADABLE), 1, "{bad}");
    }
    assert!(stopped >= 5, "kube-rs reads the rest now");
    println!(
        "one of three listed objects is unreadable in {} ways: plain kube-rs held nothing in {stopped} of them after 5 min; the kit held the other two in all",
        broken().len(),
    );
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_event_stops_no_other_and_its_object_keeps_its_last_state() {
    for bad in broken() {
        let told = [event("MODIFIED", &bad), event("ADDED", &map("d", 12))];
        let api = Api::new(move |ask| match (ask.is_list(), ask.version()) {
            (true, _) if ask.nth == 0 => list(10, &[map("a", 5), map("b", 6)]),
            (true, _) => late(seconds(5), list(20, &[map("b", 11), map("d", 12)])),
            (false, "10") => events(&told, End::Close),
            (false, _) => events(&[], End::Silence),
        });
        let kit = Watched::start(api.client());
        sleep(seconds(2)).await;
        assert_eq!(kit.held(), ["a 5", "b 6", "d 12"], "{bad}");
        assert_eq!(kit.metric(UNREADABLE), 1, "{bad}");
        sleep(seconds(10)).await;
        let is_named = bad["metadata"]["name"].is_string();
        assert_eq!(kit.held() == ["b 11", "d 12"], !is_named, "{bad}: it was to be listed again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_be_read_again_is_counted_no_more_and_what_went_unreadable_is_gone() {
    let mut bad = map("a", 11);
    bad["data"] = json!(7);
    let mut gone = map("b", 13);
    gone["data"] = json!(7);
    let told = [event("MODIFIED", &bad), event("MODIFIED", &map("a", 12)), event("DELETED", &gone)];
    let api = Api::new(move |ask| match (ask.is_list(), ask.version()) {
        (true, _) => list(10, &[map("a", 5), map("b", 6)]),
        (false, "10") => events(&told, End::Close),
        (false, _) => events(&[], End::Silence),
    });
    let kit = Watched::start(api.client());
    sleep(seconds(5)).await;
    assert_eq!(kit.held(), ["a 12"]);
    assert_eq!(kit.metric(UNREADABLE), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_on_which_slimming_panics_stops_no_other() {
    let api = Api::new(|ask| match ask.is_list() {
        true => list(10, &[map("a", 5), map("bad", 6), map("c", 7)]),
        false => events(&[], End::Silence),
    });
    let kit = Watched::start_slimmed(api.client(), |map| {
        assert!(map.metadata.name.as_deref() != Some("bad"), "an index out of bounds");
    });
    sleep(seconds(5)).await;
    assert_eq!((kit.held(), kit.metric(UNREADABLE)), (vec!["a 5".to_owned(), "c 7".to_owned()], 1));
}

/// Of the list and the watch, whichever is cut, only so many bytes come; then all goes well.
fn cut(bytes: usize, cuts_list: bool, end: End) -> Api {
    Api::new(move |ask| {
        let body = match ask.is_list() {
            true => {
                let items = [map("a", 15), map("c", 16)];
                json!({"metadata": {"resourceVersion": "20"}, "items": items}).to_string()
            }
            false => {
                let told = [event("DELETED", &map("b", 21)), event("ADDED", &map("d", 22))];
                told.iter().map(|event| format!("{event}\n")).collect()
            }
        };
        let is_cut = ask.is_list() == cuts_list;
        match (ask.is_list(), ask.nth) {
            (true, 0) => list(10, &[map("a", 5), map("b", 6), map("c", 7)]),
            (false, _) if ask.version() == "10" => refused(410),
            (true, 1) | (false, 1) if is_cut => {
                let bytes = bytes.min(body.len());
                Reply::Lines(vec![(Duration::ZERO, body[..bytes].to_owned())], end)
            }
            (true, _) => Reply::Lines(vec![(Duration::ZERO, body)], End::Close),
            (false, _) if ask.version() == "20" || ask.version() == "21" => {
                Reply::Lines(vec![(Duration::ZERO, body)], End::Close)
            }
            (false, _) => events(&[bookmark(22)], End::Silence),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_cut_after_any_byte_takes_nothing_away_and_is_made_good() {
    let mut cuts = 0;
    for cuts_list in [true, false] {
        for end in [End::Close, End::Break] {
            for bytes in (0..420).step_by(3) {
                let api = cut(bytes, cuts_list, end);
                let kit = Watched::start(api.client());
                sleep(seconds(20)).await;
                assert_eq!(kit.held(), ["a 15", "c 16", "d 22"], "cut after {bytes} bytes");
                cuts += 1;
            }
        }
    }
    println!("{cuts} cuts of lists and watches, all made good");
}
