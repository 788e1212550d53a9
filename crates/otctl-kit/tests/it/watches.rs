//! Watches that end, expire, or tell only where they are.

use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::api::{
    Api, End, Reply, STORM, bookmark, event, events, least_gap, list, map, page, refused, status,
};
use crate::clock::seconds;
use crate::kit::Watched;
use crate::plain::Reflected;

const KIND: &str = "configmaps";

/// The first list, and whatever the watches are answered.
fn watched(answer: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Api {
    Api::new(move |ask| if ask.is_list() { list(10, &[map("a", 5)]) } else { answer(ask.nth) })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_every_watch_at_once_is_stormed_by_plain_watchers_and_not_by_the_kit()
{
    let (api, began) = (watched(|_| events(&[], End::Close)), std::time::Instant::now());
    let _plain = Reflected::start(api.client());
    sleep(seconds(1)).await;
    let stormed = api.watches(KIND);
    let rate = stormed.len() as f64 / began.elapsed().as_secs_f64();
    assert!(stormed.len() >= STORM - 1, "kube-rs waits between watches now");
    assert_eq!(stormed.last(), stormed.first(), "not a moment lies between them");

    let api = watched(|_| events(&[], End::Close));
    let kit = Watched::start(api.client());
    sleep(seconds(60)).await;
    let watches = api.watches(KIND);
    assert!((55..=62).contains(&watches.len()), "{}", watches.len());
    assert!(least_gap(&watches[1..]) >= seconds(1), "{watches:?}");
    assert_eq!(kit.held(), ["a 5"]);
    println!(
        "every watch closed at once: plain kube-rs made {} requests in no time ({rate:.0} a second of this machine's); the kit {} in 60 s",
        stormed.len(),
        watches.len(),
    );
}

/// How a server ends watches: what it answers to the n-th.
type Ending = (&'static str, fn(usize) -> Reply);

fn ways_to_end() -> Vec<Ending> {
    vec![
        ("closed at once", |_| events(&[], End::Close)),
        ("broken at once", |_| events(&[], End::Break)),
        ("closed after an event", |nth| {
            events(&[event("MODIFIED", &map("a", 11 + nth as u64))], End::Close)
        }),
        ("broken after an event", |nth| {
            events(&[event("MODIFIED", &map("a", 11 + nth as u64))], End::Break)
        }),
        ("refused as expired", |_| refused(410)),
        ("expired as an event", |_| events(&[event("ERROR", &status(410))], End::Close)),
        ("failing", |_| refused(500)),
        ("failing by turns", |nth| {
            if nth % 2 == 0 { refused(503) } else { events(&[bookmark(11)], End::Close) }
        }),
        ("in half a line", |_| {
            Reply::Lines(vec![(Duration::ZERO, "{\"type\": \"ADD".to_owned())], End::Close)
        }),
        ("garbled", |_| Reply::Lines(vec![(Duration::ZERO, "}{\n".to_owned())], End::Close)),
    ]
}

#[tokio::test(start_paused = true)]
async fn watches_of_a_kind_begin_once_a_second_at_most_however_they_end() {
    for streams in [false, true] {
        for (how, answer) in ways_to_end() {
            let script = move |ask: &crate::api::Ask| match ask.is_list() {
                true => list(10, &[map("a", 5)]),
                false => answer(ask.nth),
            };
            let api = if streams { Api::streaming(script) } else { Api::new(script) };
            let kit = Watched::start(api.client());
            sleep(seconds(300)).await;
            drop(kit);
            let watches = api.watches(KIND);
            assert!(least_gap(&watches) >= seconds(1), "{how}: {watches:?}");
            let lists = api.lists(KIND).len();
            assert!(lists <= 160, "{how}: {lists} lists in 300 s");
            println!("watches {how}: {} watches, {lists} lists in 300 s", watches.len());
        }
    }
}

/// What was watched is too old; a list shows what became of it.
fn expired(answer: fn() -> Reply) -> Api {
    Api::new(move |ask| match (ask.is_list(), ask.nth) {
        (true, 0) => list(10, &[map("a", 5)]),
        (true, _) => list(20, &[map("b", 15)]),
        (false, _) if ask.version() == "10" => answer(),
        (false, _) => events(&[], End::Silence),
    })
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_start_wedges_plain_watchers_and_not_the_kit() {
    let api = expired(|| refused(410));
    let plain = Reflected::start(api.client());
    sleep(Duration::from_mins(10)).await;
    assert_eq!(plain.held(), ["a 5"], "kube-rs lists again now");
    let asked = api.watches(KIND).len();

    let api = expired(|| refused(410));
    let kit = Watched::start(api.client());
    sleep(seconds(5)).await;
    assert_eq!(kit.held(), ["b 15"], "it was to be listed again within 5 s");
    println!(
        "410 to a watch start: plain kube-rs asked {asked} times in 10 min and knows nothing new; the kit listed again after {:?}",
        api.lists(KIND)[1],
    );
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_is_listed_again_and_what_went_meanwhile_is_gone() {
    let api = expired(|| events(&[event("ERROR", &status(410))], End::Close));
    let kit = Watched::start(api.client());
    sleep(seconds(5)).await;
    assert_eq!(kit.held(), ["b 15"]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_gone_on_a_list_that_expires_between_its_pages() {
    let api = Api::new(|ask| match (ask.is_list(), ask.query.contains("continue="), ask.nth) {
        (true, _, 0) => list(10, &[map("a", 5), map("b", 6), map("c", 7)]),
        (true, false, _) => page(20, &[map("a", 5)], "more"),
        (true, true, nth) if nth < 10 => refused(410),
        (true, true, _) => list(20, &[map("c", 7)]),
        (false, ..) if ask.version() == "10" => refused(410),
        (false, ..) => events(&[], End::Silence),
    });
    let kit = Watched::start(api.client());
    let gone_at = async {
        while kit.held() != ["a 5", "c 7"] {
            if !kit.held().is_empty() {
                assert_eq!(kit.held(), ["a 5", "b 6", "c 7"], "gone on half a list");
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(10), gone_at).await.unwrap();
    assert!(api.lists(KIND).len() >= 11);
}

/// A quiet kind in a busy cluster: versions pass by, and those older than five minutes are compacted.
fn busy_cluster(bookmarks: bool) -> Api {
    let version = |at: Duration| 1000 + at.as_secs();
    Api::new(move |ask| {
        let now = version(ask.at);
        if ask.is_list() {
            return list(now, &[map("a", 5)]);
        }
        if ask.version().parse::<u64>().unwrap() + 300 < now {
            return refused(410);
        }
        let told: &[Value] = if bookmarks { &[bookmark(now)] } else { &[] };
        let lines = told.iter().map(|line| (seconds(24), format!("{line}\n")));
        Reply::Lines(lines.chain([(seconds(24), "\n".to_owned())]).collect(), End::Close)
    })
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_a_quiet_kind_from_being_listed_again_and_without_them_it_is_no_storm() {
    let with = busy_cluster(true);
    let kit = Watched::start(with.client());
    sleep(Duration::from_hours(1)).await;
    drop(kit);
    assert_eq!(with.lists(KIND).len(), 1);
    let without = busy_cluster(false);
    let kit = Watched::start(without.client());
    sleep(Duration::from_hours(1)).await;
    assert_eq!(kit.held(), ["a 5"]);
    let lists = without.lists(KIND).len();
    assert!((2..=13).contains(&lists), "{lists}");
    println!("a quiet kind for an hour: 1 list with bookmarks, {lists} without");
}
