//! Events that are late, twice, lost, out of order, or from the past.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use otctl_kit::store::{Key, Store, Version};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::time::sleep;

use crate::api::{Api, End, bookmark, event, events, list, map, refused};
use crate::clock::seconds;
use crate::kit::{Watched, names};
use crate::plain::Reflected;

/// A list, one watch that tells these events, and silence.
fn telling(told: Vec<Value>) -> Api {
    Api::new(move |ask| match (ask.is_list(), ask.version()) {
        (true, _) => list(10, &[map("a", 5), map("b", 6)]),
        (false, "10") => events(&told, End::Close),
        (false, _) => events(&[], End::Silence),
    })
}

#[tokio::test(start_paused = true)]
async fn a_replayed_event_takes_a_plain_store_back_in_time_and_not_the_kits() {
    let replay = vec![
        event("MODIFIED", &map("a", 12)),
        event("DELETED", &map("b", 13)),
        event("MODIFIED", &map("a", 11)),
        event("MODIFIED", &map("b", 6)),
    ];
    let plain = Reflected::start(telling(replay.clone()).client());
    sleep(seconds(2)).await;
    assert_eq!(plain.held(), ["a 11", "b 6"], "kube-rs compares versions now");

    let api = telling(replay);
    let kit = Watched::start(api.client());
    sleep(seconds(5)).await;
    assert_eq!(kit.held(), ["a 12"]);
    let next = api.asked().into_iter().rfind(|ask| ask.is_watch()).unwrap();
    assert_eq!(next.version(), "13", "the next watch does not begin in the past either");
    println!(
        "older events told again: plain kube-rs holds {:?}, the kit {:?}",
        plain.held(),
        kit.held()
    );
}

/// The life of five objects, and what of it a bad line made.
struct History {
    told: Vec<Value>,
    /// The latest version told of each, and whether that was its end.
    latest: HashMap<String, (u64, bool)>,
    /// What is there in the end.
    end: HashMap<String, u64>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut whole, mut end) = (Vec::new(), HashMap::new());
        for version in 20..80 {
            let name = format!("o{}", random.random_range(0..5));
            let says = match end.contains_key(&name) {
                true if random.random_bool(0.3) => "DELETED",
                true => "MODIFIED",
                false => "ADDED",
            };
            if says == "DELETED" {
                end.remove(&name)
            } else {
                end.insert(name.clone(), version)
            };
            whole.push((name, version, says));
        }
        let told = Self::mistold(whole, &mut random);
        let mut latest = HashMap::new();
        for (name, version, says) in &told {
            let entry = latest.entry(name.clone()).or_insert((0, false));
            *entry = (*entry).max((*version, *says == "DELETED"));
        }
        let told = told.iter().map(|(name, version, says)| event(says, &map(name, *version)));
        Self { told: told.collect(), latest, end }
    }

    /// Some are lost, some told twice, and all in the wrong order within a window.
    fn mistold<T: Clone>(mut events: Vec<T>, random: &mut SmallRng) -> Vec<T> {
        events.retain(|_| random.random_bool(0.8));
        let twice: Vec<T> = events.iter().filter(|_| random.random_bool(0.2)).cloned().collect();
        events.extend(twice);
        events.chunks_mut(7).for_each(|window| window.shuffle(random));
        events
    }

    /// What may be held once all was told: the latest of each, but for the dead.
    fn held(&self) -> Vec<String> {
        let alive = self.latest.iter().filter(|(_, (_, is_dead))| !is_dead);
        let mut held: Vec<String> =
            alive.map(|(name, (version, _))| format!("{name} {version}")).collect();
        held.sort();
        held
    }

    fn in_the_end(&self) -> Vec<Value> {
        self.end.iter().map(|(name, version)| map(name, *version)).collect()
    }
}

/// A store that fails the test when an object goes back in time.
fn forward_only() -> Store<ConfigMap> {
    let (store, seen) = (Store::<ConfigMap>::default(), Mutex::<HashMap<Key, Version>>::default());
    store.subscribe(move |map| {
        let mut seen = seen.lock().unwrap();
        let last = seen.entry(Key::of(map)).or_default();
        assert!(Version::of(map) >= *last, "{} went back from {last}", Key::of(map));
        *last = Version::of(map);
    });
    store
}

#[tokio::test(start_paused = true)]
async fn whatever_is_lost_late_twice_or_out_of_order_the_highest_version_of_each_is_kept() {
    for seed in 0..100 {
        let history = Arc::new(History::new(seed));
        let script = history.clone();
        let api = Api::new(move |ask| match (ask.is_list(), ask.version()) {
            (true, _) if ask.nth == 0 => list(10, &[]),
            (true, _) => list(90, &script.in_the_end()),
            (false, "10") => events(&script.told, End::Close),
            (false, "90") => events(&[], End::Silence),
            (false, _) if ask.at < seconds(10) => events(&[], End::Close),
            (false, _) => refused(410),
        });
        let kit = Watched::start_into(api.client(), |_| {}, forward_only());
        sleep(seconds(5)).await;
        assert_eq!(kit.held(), history.held(), "seed {seed}: what was told");
        sleep(seconds(20)).await;
        let mut end: Vec<String> =
            history.end.iter().map(|(name, version)| format!("{name} {version}")).collect();
        end.sort();
        assert_eq!(kit.held(), end, "seed {seed}: a list makes good what was lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_from_the_past_deletes_nothing_and_one_that_lasts_is_told_by_the_probe() {
    let api = Api::new(|ask| match (ask.is_list(), ask.nth) {
        (true, 0) => list(100, &[map("a", 5), map("b", 90)]),
        (true, _) => list(50, &[map("a", 3), map("gone-since", 40)]),
        (false, _) => refused(410),
    });
    let kit = Watched::start(api.client());
    sleep(seconds(50)).await;
    assert_eq!(kit.held(), ["a 5", "b 90"]);
    assert_eq!(names(kit.health.wedged()), Vec::<String>::new());
    sleep(seconds(60)).await;
    assert_eq!(kit.held(), ["a 5", "b 90"]);
    assert_eq!(names(kit.health.wedged()), ["watch ConfigMap"], "a new process believes the list");
    let lists = api.lists("configmaps").len();
    assert!(lists <= 12, "{lists} lists in 110 s");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_from_the_past_move_nothing_back() {
    let api = telling(vec![bookmark(30), bookmark(12)]);
    let _kit = Watched::start(api.client());
    sleep(seconds(5)).await;
    let versions: Vec<String> = api
        .asked()
        .into_iter()
        .filter(|ask| ask.is_watch() && !ask.wants_list())
        .map(|ask| ask.version().to_owned())
        .collect();
    assert_eq!(versions, ["10", "30"]);
}
