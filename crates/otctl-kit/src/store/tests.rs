//! Versions never go back, a complete list replaces, and children are found by their owner.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use super::*;

fn config(name: &str, version: u64) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some("lab".to_owned()),
        name: Some(name.to_owned()),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn owned(name: &str, version: u64, uid: &str) -> ConfigMap {
    let owner =
        OwnerReference { uid: uid.to_owned(), controller: Some(true), ..OwnerReference::default() };
    let mut config = config(name, version);
    config.metadata.owner_references = Some(vec![owner]);
    config
}

fn store(objects: Vec<ConfigMap>) -> Store<ConfigMap> {
    let store = Store::default();
    store.apply(Change::All(objects));
    store
}

/// Name and version of everything held.
fn held(store: &Store<ConfigMap>) -> Vec<(String, u64)> {
    let mut held: Vec<_> =
        store.all().iter().map(|object| (Key::of(&**object).name, number(object))).collect();
    held.sort();
    held
}

fn number(object: &ConfigMap) -> u64 {
    object.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

fn names(objects: &[Arc<ConfigMap>]) -> Vec<String> {
    objects.iter().map(|object| Key::of(&**object).name).collect()
}

#[test]
fn an_object_never_goes_back_in_time() {
    let store = store(vec![config("a", 10)]);
    store.apply(Change::Present(config("a", 9)));
    store.apply(Change::All(vec![config("a", 8)]));
    store.apply(Change::Gone(config("a", 9)));
    assert_eq!(held(&store), [("a".to_owned(), 10)]);
    store.apply(Change::Present(config("a", 100)));
    assert_eq!(held(&store), [("a".to_owned(), 100)], "versions compare as numbers");
}

#[test]
fn an_object_goes_with_its_last_version() {
    let store = store(vec![config("a", 10), config("b", 10)]);
    store.apply(Change::Gone(config("a", 10)));
    store.apply(Change::Gone(config("b", 11)));
    store.apply(Change::Gone(config("never-seen", 12)));
    assert_eq!(held(&store), []);
}

#[test]
fn what_a_complete_list_lacks_is_gone() {
    let store = store(vec![config("a", 1), config("b", 2)]);
    store.apply(Change::All(vec![config("b", 2), config("c", 3)]));
    assert_eq!(held(&store), [("b".to_owned(), 2), ("c".to_owned(), 3)]);
}

#[test]
fn children_are_found_by_the_uid_of_their_controller() {
    let store = store(vec![
        owned("b", 1, "u-1"),
        owned("a", 2, "u-1"),
        owned("c", 3, "u-2"),
        config("d", 4),
    ]);
    assert_eq!(names(&store.owned_by("u-1")), ["a", "b"]);
    store.apply(Change::Present(owned("a", 5, "u-2")));
    assert_eq!(names(&store.owned_by("u-1")), ["b"]);
    assert_eq!(names(&store.owned_by("u-2")), ["a", "c"]);
    store.apply(Change::Gone(owned("b", 6, "u-1")));
    assert!(store.owned_by("u-1").is_empty());
}

#[test]
fn subscribers_are_woken_by_what_changed_and_by_nothing_else() {
    let store = store(vec![config("a", 1), config("b", 2)]);
    let woken: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = woken.clone();
    store.subscribe(move |object| log.lock().unwrap().push(Key::of(object).name));
    store.apply(Change::Present(config("a", 1)));
    store.apply(Change::All(vec![config("a", 1), config("c", 3)]));
    assert_eq!(*woken.lock().unwrap(), ["b", "c"]);
}

#[tokio::test]
async fn it_is_synced_by_a_complete_list_alone() {
    let store: Store<ConfigMap> = Store::default();
    store.apply(Change::Present(config("a", 1)));
    assert!(!store.is_synced());
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.synced().await }
    });
    store.apply(Change::All(vec![]));
    waiting.await.unwrap();
    assert!(store.is_synced());
}

fn expect<K: Resource<DynamicType = ()>>(fact: Fact) -> Expectation {
    Expectation { target: Target::new::<K>(Some("lab"), "a"), fact }
}

fn reached(version: &str) -> Expectation {
    expect::<ConfigMap>(Fact::Reached(Version::read(version)))
}

#[test]
fn a_written_version_is_seen_when_it_or_a_later_one_was_told() {
    let store = store(vec![config("a", 9)]);
    assert!(!store.has_seen(&reached("10")));
    store.apply(Change::Present(config("a", 10)));
    assert!(store.has_seen(&reached("10")));
    assert!(!store.has_seen(&reached("11")));
}

#[test]
fn an_object_that_went_before_it_was_seen_is_waited_for_no_longer() {
    let gone = store(vec![]);
    gone.apply(Change::Gone(config("a", 11)));
    assert!(gone.has_seen(&reached("10")));
    let listed = store(vec![config("b", 9)]);
    assert!(!listed.has_seen(&reached("10")));
    listed.reached(Version::read("12"));
    listed.reached(Version::read("8"));
    assert!(listed.has_seen(&reached("10")), "a list at 12 lacks it");
}

#[test]
fn a_refused_version_must_be_left() {
    let store = store(vec![config("a", 9)]);
    let left = expect::<ConfigMap>(Fact::Left(Version::read("9")));
    store.apply(Change::Present(config("b", 12)));
    assert!(!store.has_seen(&left), "another object proves nothing");
    store.apply(Change::Present(config("a", 13)));
    assert!(store.has_seen(&left));
    store.apply(Change::Gone(config("a", 14)));
    assert!(store.has_seen(&left));
}

#[test]
fn a_uid_that_is_gone_is_not_held_any_more() {
    let with_uid = |version, uid: &str| {
        let mut object = config("a", version);
        object.metadata.uid = Some(uid.to_owned());
        object
    };
    let store = store(vec![with_uid(9, "u-1")]);
    let gone = expect::<ConfigMap>(Fact::Gone { uid: "u-1".to_owned() });
    assert!(!store.has_seen(&gone));
    store.apply(Change::Present(with_uid(12, "u-2")));
    assert!(store.has_seen(&gone), "its successor has another UID");
    store.apply(Change::Gone(with_uid(13, "u-2")));
    assert!(store.has_seen(&gone));
}

#[test]
fn of_other_kinds_it_has_seen_everything() {
    let fact = Fact::Reached(Version::read("10"));
    assert!(store(vec![]).has_seen(&expect::<Secret>(fact)));
}

fn version(number: u64) -> Version {
    Version::read(&number.to_string())
}

#[test]
fn what_went_is_not_brought_back_by_an_older_event() {
    let store = store(vec![config("a", 10), config("b", 11)]);
    store.apply(Change::Gone(config("a", 12)));
    store.apply(Change::All(vec![]));
    store.apply(Change::Present(config("a", 10)));
    store.apply(Change::Present(config("b", 11)));
    let mut late = store.listing();
    late.present(config("a", 12));
    store.apply(Change::Gone(config("c", 15)));
    store.apply(Change::Present(config("c", 14)));
    assert_eq!(held(&store), []);
    store.apply(Change::Present(config("a", 13)));
    assert_eq!(held(&store), [("a".to_owned(), 13)], "its successor is another object");
}

#[test]
fn a_list_that_comes_in_pieces_takes_nothing_away_before_its_end() {
    let store = store(vec![config("a", 1), config("b", 2)]);
    let mut half = store.listing();
    half.present(config("a", 7));
    drop(half);
    assert_eq!(held(&store), [("a".to_owned(), 7), ("b".to_owned(), 2)]);
    let mut whole = store.listing();
    whole.present(config("a", 7));
    whole.complete(version(9)).unwrap();
    assert_eq!(held(&store), [("a".to_owned(), 7)]);
}

#[test]
fn a_list_under_way_does_not_tell_how_far_the_kind_was_seen() {
    let store = store(vec![config("a", 1)]);
    let mut listing = store.listing();
    listing.present(config("z", 100));
    assert!(!store.has_seen(&reached("50")), "an object of version 50 may come yet");
    listing.complete(version(101)).unwrap();
    assert!(store.has_seen(&reached("101")));
}

#[test]
fn an_older_list_proves_nothing() {
    let store = store(vec![config("a", 10), config("b", 11)]);
    let mut older = store.listing();
    older.present(config("a", 5));
    let refused = older.complete(version(6)).unwrap_err();
    assert_eq!(refused, OlderList { listed: version(6), reached: version(11) });
    assert_eq!(held(&store), [("a".to_owned(), 10), ("b".to_owned(), 11)]);
}

#[test]
fn what_cannot_be_read_is_not_gone() {
    let store = store(vec![config("a", 1), config("b", 2)]);
    let mut listing = store.listing();
    listing.unreadable(Some(Key::new("lab", "a")));
    listing.complete(version(9)).unwrap();
    assert_eq!(names(&store.all()), ["a"]);
    let mut listing = store.listing();
    listing.unreadable(None);
    listing.complete(version(10)).unwrap();
    assert_eq!(names(&store.all()), ["a"], "it may be the one without a name");
    assert!(store.is_synced());
}

#[test]
fn the_first_complete_list_wakes_though_it_be_empty() {
    let (store, woken) = (Store::<ConfigMap>::default(), Arc::new(Mutex::new(0)));
    let count = woken.clone();
    store.when_installed(move || *count.lock().unwrap() += 1);
    store.apply(Change::Present(config("a", 1)));
    assert_eq!(*woken.lock().unwrap(), 0, "one object is no list");
    store.apply(Change::All(Vec::new()));
    store.apply(Change::All(Vec::new()));
    assert_eq!(*woken.lock().unwrap(), 1);
}
