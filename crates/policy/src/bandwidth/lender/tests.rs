//! Imports as they are, behind the gate that they have and on clocks of their own: what they may use together is within
//! the limit at every instant, however exchanges are lost, late, doubled or out of order, and whoever lends.

mod scene;

use proptest::prelude::*;

use self::scene::*;
use super::*;

const LIMIT: u64 = 1200;
const CONCURRENCY: u32 = 4;
fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => Just(Fate::Answered), 1 => Just(Fate::RequestLost), 1 => Just(Fate::AnswerLost), 1 => Just(Fate::Late),
    ]
}

fn any_round() -> impl Strategy<Value = Event> {
    proptest::collection::vec(any_fate(), 1..6).prop_map(Event::Round)
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => any_round(), 4 => (10..2500_u64).prop_map(Event::Wait), 3 => Just(Event::Start),
        2 => (0..8_usize).prop_map(Event::End), 4 => (0..40_usize).prop_map(Event::Stale),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn never_more_than_the_limit_whatever_is_lost_and_whoever_lends(
        events in proptest::collection::vec(prop_oneof![
            12 => any_event(), 1 => Just(Event::NewLender), 1 => proptest::collection::vec(any_fate(), 1..6).prop_map(Event::OldWakes),
        ], 1..60)
    ) {
        let mut scene = Scene::new();
        events.iter().for_each(|event| scene.meet(event));
        scene.settle();
        prop_assert_eq!(&scene.excess, &None);
        prop_assert!(scene.asking.is_empty(), "whoever holds a slot starts");
        let equal = LIMIT / u64::try_from(scene.running.len().max(1)).unwrap();
        prop_assert!(scene.running.values().all(|it| it.uses(scene.now) == equal), "{:?}", scene.running);
    }

    #[test]
    fn a_change_is_heard_and_never_more_than_the_higher_limit_is_used(
        events in proptest::collection::vec(prop_oneof![
            12 => any_event(), 1 => (400..4000_u64, 1..6_u32).prop_map(|(limit, concurrency)| Event::Policy(limit, concurrency)),
        ], 1..60)
    ) {
        let mut scene = Scene::new();
        for (n, event) in events.iter().enumerate() {
            scene.meet(event);
            // Whoever is out of reach for ever cannot hear of a change; here nobody is for longer than some events.
            if n % 4 == 3 {
                scene.round(&[Fate::Answered]);
            }
        }
        scene.settle();
        prop_assert_eq!(&scene.excess, &None);
        let limit = scene.terms.limit.unwrap();
        prop_assert!(scene.uses() <= limit, "{} of {limit}", scene.uses());
    }
}

#[test]
fn one_alone_has_all_and_gives_before_another_starts() {
    let mut scene = Scene::new();
    scene.ask_to_start();
    assert!(scene.running.is_empty(), "nobody knows yet what runs");
    scene.settle();
    assert_eq!(scene.uses(), LIMIT);
    scene.ask_to_start();
    assert_eq!(scene.running.len(), 1, "nothing is left to start with");
    scene.round(&[Fate::Answered]);
    assert_eq!(scene.running.len(), 2, "the first has given");
    scene.settle();
    assert_eq!(scene.uses(), LIMIT);
    assert!(scene.running.values().all(|it| it.uses(scene.now) == LIMIT / 2));
}

#[test]
fn what_one_out_of_reach_has_borrowed_is_lent_again_when_it_has_lapsed() {
    let mut scene = Scene::new();
    scene.ask_to_start();
    scene.settle();
    scene.ask_to_start();
    let began = scene.now;
    while scene.running.len() < 2 {
        scene.round(&[Fate::RequestLost]);
    }
    let waited = scene.now - began;
    assert!(waited >= VALIDITY && waited < LAPSE + DEADLINE * 2, "{waited:?}");
    assert_eq!(scene.uses(), 2 * LIMIT / u64::from(CONCURRENCY), "both use their fallback");
}

#[test]
fn a_limit_that_is_set_acts_on_what_runs_without_one() {
    let mut scene = Scene::new();
    scene.terms.limit = None;
    scene.limits = vec![(Duration::ZERO, u64::MAX)];
    scene.run("a", None);
    scene.run("b", None);
    let free = Import { id: "a", fallback: None, is_started: true };
    scene.lender.observe([free, Import { id: "b", ..free }], scene.now);
    assert!(scene.lender.offers(&scene.terms, scene.now).iter().all(|offer| offer.share.is_none()));
    scene.terms.limit = Some(LIMIT);
    scene.settle();
    assert!(scene.running.values().all(|it| it.uses(scene.now) == LIMIT / 2));
}

/// One import runs and has all.
fn one_has_all(guards: Guards) -> Scene {
    let mut scene = Scene::with(guards);
    scene.ask_to_start();
    scene.settle();
    assert_eq!(scene.uses(), LIMIT);
    scene
}

/// It gives to a second one; then what it was told before arrives once more.
fn doubled(guards: Guards) -> Option<String> {
    let mut scene = one_has_all(guards);
    scene.ask_to_start();
    scene.round(&[Fate::Answered]);
    assert_eq!(scene.running.len(), 2);
    scene.largest_arrives();
    scene.excess
}

/// It is frozen, and a second one starts when what it has borrowed has lapsed; then it reads what it was sent meanwhile.
fn frozen(guards: Guards) -> Option<String> {
    let mut scene = one_has_all(guards);
    scene.send_in_vain();
    scene.ask_to_start();
    while scene.running.len() < 2 {
        scene.round(&[Fate::RequestLost]);
    }
    scene.largest_arrives();
    scene.excess
}

/// Another lends, and does not reach it; a second one starts when what it has borrowed has lapsed. Then the old lender
/// wakes, which reaches the first and has not heard of the second.
fn overtaken(guards: Guards) -> Option<String> {
    let mut scene = one_has_all(guards);
    scene.meet(&Event::NewLender);
    scene.ask_to_start();
    while scene.running.len() < 2 {
        scene.round(&[Fate::RequestLost]);
    }
    for _ in 0..2 {
        scene.meet(&Event::OldWakes(vec![Fate::Answered]));
    }
    scene.excess
}

#[test]
fn each_guard_is_needed() {
    for scene in [doubled, frozen, overtaken] {
        assert_eq!(scene(ALL), None);
    }
    assert!(doubled(Guards { fence: false, ..ALL }).is_some());
    assert!(frozen(Guards { until: false, ..ALL }).is_some());
    assert!(overtaken(Guards { tenure: false, ..ALL }).is_some());
}

#[test]
fn whose_clock_is_not_known_is_lent_nothing() {
    let mut lender = Lender::default();
    let import = Import { id: "a", fallback: Some(300), is_started: true };
    lender.observe([import], Duration::ZERO);
    for second in 0..10 {
        let now = Duration::from_secs(second);
        let offer = lender.offers(&terms(), now).pop().unwrap();
        assert_eq!((offer.share, offer.until), (Some(300), None));
        lender.put(&offer, now);
        lender.heard(&offer, None, now);
    }
}

#[test]
fn a_share_is_counted_from_the_reading_and_not_from_when_it_is_sent() {
    let (mut lender, clock) = (Lender::default(), Duration::from_secs(77));
    lender.observe([Import { id: "a", fallback: Some(300), is_started: false }], Duration::ZERO);
    let first = lender.offers(&terms(), Duration::ZERO).pop().unwrap();
    lender.put(&first, Duration::ZERO);
    lender.heard(&first, Some(clock), Duration::ZERO);
    let later = VALIDITY - Duration::from_secs(1);
    let lent = lender.offers(&terms(), later).pop().unwrap();
    assert_eq!((lent.share, lent.until), (Some(LIMIT), Some(clock + VALIDITY)));
    lender.put(&lent, later);
    lender.unheard(&lent, later + DEADLINE);
    let newcomer = Import { id: "b", fallback: Some(300), is_started: false };
    assert!(!lender.reserve(newcomer, &terms(), LAPSE - Duration::from_millis(1)));
    assert!(lender.reserve(newcomer, &terms(), LAPSE));
}

#[test]
fn terms_that_began_anew_are_raised_above_what_an_import_has_taken() {
    let mut lender = Lender::default();
    lender.take_over(3);
    lender.outbid(Fence { term: 2, serial: 900 });
    let fence = |lender: &mut Lender| {
        lender.observe([Import { id: "a", fallback: None, is_started: true }], Duration::ZERO);
        lender.offers(&terms(), Duration::ZERO)[0].fence
    };
    let before = fence(&mut lender);
    assert_eq!(before.term, 3);
    lender.outbid(Fence { term: 7, serial: 1 });
    assert_eq!(fence(&mut lender).term, 8);
    lender.take_over(3);
    assert!(fence(&mut lender) > before, "the same term is held once more");
}

#[test]
fn a_fallback_that_rises_waits_until_others_have_given() {
    let mut lender = Lender::default();
    let import = |id, fallback| Import { id, fallback: Some(fallback), is_started: false };
    lender.observe([import("a", 900), import("b", 300)], Duration::ZERO);
    let terms = Terms { limit: Some(1000), concurrency: 1 };
    let mut told = || {
        let offers = lender.offers(&terms, Duration::ZERO);
        lender.heard(&offers[0], None, Duration::ZERO);
        offers.iter().map(|it| (it.share.unwrap(), it.fallback.unwrap())).collect::<Vec<_>>()
    };
    assert_eq!(told(), [(500, 500), (300, 300)]);
    assert_eq!(told(), [(500, 500), (500, 500)]);
}
