use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::duration::{days, hours, minutes};
use crate::{ImportEngine, SourceHosts};

fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

/// A policy in which no field has its default, so that a lost value shows.
fn last_good() -> Policy {
    Policy {
        concurrency: 7,
        retry_limit: 5,
        retry_backoff_duration: Duration::from_secs(90),
        retry_backoff_max: hours(2),
        workspace_concurrency: 9,
        provisioning_timeout: minutes(20),
        concurrency_per_host: Some(3),
        bandwidth_limit: Some(200 << 20),
        attempt_timeout: days(2),
        stall_timeout: minutes(1),
        bind_timeout: minutes(2),
        snapshot_concurrency: 11,
        snapshot_timeout: minutes(40),
        max_image_size: Some(50 << 30),
        allowed_source_hosts: "*.example.com,http://minio.local:9000".parse().unwrap(),
        import_engine: ImportEngine::Cdi,
        prune_unused_after: Some(days(30)),
        default_storage_class: Some("gp3".to_owned()),
        default_snapshot_class: Some("ebs".to_owned()),
        scratch_storage_class: Some("local.fast".to_owned()),
    }
}

/// One key set alone: the policy's text for it, and whether there was a problem.
fn read(key: &str, text: &str) -> (Option<String>, bool) {
    let (policy, problems) = document(&data(&[(key, text)]), &last_good());
    assert!(
        problems.len() <= 1
            && problems.iter().all(|p| p.key == key && p.severity == Severity::Error)
    );
    (policy.to_entries().get(key).cloned(), !problems.is_empty())
}

fn check_good(key: &str, text: &str, value: &str) {
    assert_eq!(read(key, text), (Some(value.to_owned()), false), "{key}: {text:?}");
}

fn check_bad(key: &str, text: &str) {
    let kept = last_good().to_entries().get(key).cloned();
    assert_eq!(read(key, text), (kept, true), "{key}: {text:?}");
}

#[test]
fn an_empty_document_is_the_defaults() {
    assert_eq!(document(&BTreeMap::new(), &last_good()), (Policy::default(), vec![]));
}

#[test]
fn the_table_of_keys_is_as_documented() {
    let table: Vec<String> = keys::keys()
        .map(|key| {
            format!(
                "{} | {} | {}",
                key.name,
                key.default.unwrap_or_default(),
                bounds(&key.accepted)
            )
        })
        .collect();
    let documented = [
        "concurrency | 4 | 0 to 1000",
        "retryLimit | 2 | 0 to 20",
        "retryBackoffDuration | 5m | 1s to 24h",
        "retryBackoffMax | 1h | 1s to 24h",
        "workspaceConcurrency | 4 | 0 to 1000",
        "provisioningTimeout | 15m | 1m to 24h",
        "concurrencyPerHost |  | 1 to 1000",
        "bandwidthLimit |  | 64Ki",
        "attemptTimeout | 6h | 1m to 7d",
        "stallTimeout | 10m | 10s to 24h",
        "bindTimeout | 10m | 10s to 24h",
        "snapshotConcurrency | 10 | 1 to 1000",
        "snapshotTimeout | 30m | 1m to 24h",
        "maxImageSize |  | 1Mi",
        "allowedSourceHosts | * | ",
        "importEngine | pod | ",
        "pruneUnusedAfter |  | 1h to 3650d",
        "defaultStorageClass |  | ",
        "defaultSnapshotClass |  | ",
        "scratchStorageClass |  | ",
    ];
    assert_eq!(table, documented);
}

/// The numbers in what a key accepts.
fn bounds(accepted: &str) -> String {
    let after = |word: &str| accepted.split_once(word).map(|(_, rest)| rest);
    let words =
        |text: &str, count| text.split([' ', ',']).take(count).collect::<Vec<_>>().join(" ");
    after("from ")
        .map(|rest| words(rest, 3))
        .or(after("at least ").map(|rest| words(rest, 1)))
        .unwrap_or_default()
}

#[test]
fn counts_are_whole_numbers_within_bounds() {
    for text in [
        "abc",
        "-1",
        "4.5",
        "",
        "1000000000",
        "+4",
        " 4",
        "4 ",
        "4\n",
        "0x4",
        "1001",
        "99999999999999999999",
        "٤",
    ] {
        check_bad("concurrency", text);
    }
    check_good("concurrency", "0", "0");
    check_good("concurrency", "1000", "1000");
    check_good("concurrency", "007", "7");
    check_bad("concurrencyPerHost", "0");
    check_bad("concurrencyPerHost", "");
    check_bad("snapshotConcurrency", "0");
    check_good("retryLimit", "20", "20");
    check_bad("retryLimit", "21");
}

#[test]
fn durations_have_units_and_bounds() {
    check_bad("retryBackoffDuration", "5");
    check_good("retryBackoffDuration", "5m", "5m");
    check_good("retryBackoffDuration", "1h30m", "1h30m");
    check_bad("retryBackoffDuration", "-5m");
    check_bad("retryBackoffDuration", "0s");
    check_good("retryBackoffDuration", "1s", "1s");
    check_good("retryBackoffDuration", "1d", "24h");
    check_bad("retryBackoffDuration", "24h1s");
    check_bad("pruneUnusedAfter", "never");
    check_bad("pruneUnusedAfter", "59m");
}

#[test]
fn sizes_are_quantities_of_at_least_the_bound() {
    check_good("bandwidthLimit", "200Mi", "200Mi");
    check_good("bandwidthLimit", "65536", "64Ki");
    check_bad("bandwidthLimit", "65535");
    check_good("maxImageSize", "1.5Gi", "1536Mi");
    check_bad("maxImageSize", "1M");
    check_bad("maxImageSize", "-1Gi");
}

#[test]
fn names_engines_and_hosts() {
    check_good("defaultStorageClass", "gp3.fast-1", "gp3.fast-1");
    let long = "a".repeat(254);
    for text in ["", "GP3", "a..b", "-a", "a-", "a b", ".a", "a_b", &long] {
        check_bad("defaultStorageClass", text);
    }
    check_good("importEngine", "cdi", "cdi");
    check_good("importEngine", "pod", "pod");
    check_bad("importEngine", "Pod");
    check_good("allowedSourceHosts", "*", "*");
    check_good(
        "allowedSourceHosts",
        "a.example, HTTP://B.example:80",
        "https://a.example,http://b.example",
    );
    check_bad("allowedSourceHosts", "");
    check_bad("allowedSourceHosts", "ftp://a.example");
}

#[test]
fn a_missing_key_among_bad_ones_has_its_default() {
    let (policy, problems) =
        document(&data(&[("concurrency", "abc"), ("retryLimit", "3")]), &last_good());
    assert_eq!((policy.concurrency, policy.retry_limit), (7, 3));
    assert_eq!(policy.retry_backoff_duration, minutes(5));
    assert_eq!(problems.len(), 1);
}

#[test]
fn each_problem_says_what_to_write() {
    let entries =
        [("concurency", "9"), ("retryLimit", "many"), ("maxImageSize", "x"), ("color", "blue")];
    let (_, problems) = document(&data(&entries), &Policy::default());
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said[0],
        "retryLimit: \"many\" cannot be used, \"2\" stays in force; accepted is a whole number from 0 to 20"
    );
    assert_eq!(
        said[1],
        "maxImageSize: \"x\" cannot be used, it stays unset; accepted is a size of at least 1Mi such as 200Mi or 1.5Gi, or no such key for no limit"
    );
    assert!(said[2].starts_with(
        "color: no such key, \"blue\" has no effect; accepted is one of concurrency, retryLimit,"
    ));
    assert_eq!(said[3], "concurency: no such key, \"9\" has no effect; accepted is concurrency");
}

#[test]
fn a_key_that_nothing_acts_on_is_kept_and_not_in_force() {
    for key in crate::NOT_ACTED_ON {
        let (_, problems) = document(&data(&[(key, "Pod")]), &last_good());
        let said = problems[0].to_string();
        assert!(said.contains("is kept") && !said.contains("in force"), "{said}");
    }
    let marked: Vec<&str> =
        keys::keys().filter(|key| !key.is_acted_on).map(|key| key.name).collect();
    assert_eq!(marked.len(), crate::NOT_ACTED_ON.len(), "each of them is a key: {marked:?}");
}

#[test]
fn a_bad_host_entry_is_named() {
    let (_, problems) =
        document(&data(&[("allowedSourceHosts", "a.example,ftp://b.example")]), &last_good());
    assert!(problems[0].accepted.contains("\"ftp://b.example\""), "{}", problems[0]);
}

#[test]
fn a_long_value_is_cut() {
    let (_, problems) = document(&data(&[("concurrency", &"ä".repeat(100_000))]), &last_good());
    assert_eq!(problems[0].found.chars().count(), EXCERPT + 1);
    assert!(problems[0].to_string().len() < 500);
}

#[test]
fn a_policy_without_defaults_survives_its_entries() {
    assert_eq!(last_good().to_entries().len(), KEYS.len());
    assert_eq!(Policy::from_entries(&last_good().to_entries()), last_good());
    assert_eq!(Policy::from_entries(&Policy::default().to_entries()), Policy::default());
}

#[test]
fn entries_that_cannot_be_read_are_passed_over() {
    let mut entries = last_good().to_entries();
    entries.insert("concurrency".to_owned(), "lots".to_owned());
    entries.insert("futureKey".to_owned(), "1".to_owned());
    assert_eq!(Policy::from_entries(&entries), Policy { concurrency: 4, ..last_good() });
}

/// Among good entries, each broken one is reported and keeps its value.
#[test]
fn every_combination_of_two_broken_keys_is_reported() {
    for first in &KEYS {
        for second in &KEYS {
            let mut entries = last_good().to_entries();
            entries.insert(first.name.to_owned(), "!".to_owned());
            entries.insert(second.name.to_owned(), String::new());
            let (policy, problems) = document(&entries, &last_good());
            let mut named: Vec<&str> =
                problems.iter().map(|problem| problem.key.as_str()).collect();
            named.sort_unstable();
            let mut broken = vec![first.name, second.name];
            broken.sort_unstable();
            broken.dedup();
            assert_eq!(named, broken);
            assert_eq!(policy, last_good());
        }
    }
}

fn any_entry() -> impl Strategy<Value = (String, String)> {
    let known = (0..KEYS.len()).prop_map(|index| KEYS[index].name.to_owned());
    let near =
        "[0-9]{1,4}(s|m|h|d|Ki|Mi|Gi)?|pod|cdi|[a-z]{1,5}(\\.[a-z]{1,5})?(:[0-9]{1,5})?(,\\*)?";
    (
        prop_oneof![4 => known, 1 => "\\PC*", 1 => "[a-zA-Z]{1,20}"],
        prop_oneof![any::<String>(), near.prop_map(|s| s)],
    )
}

fn any_document() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::vec(any_entry(), 0..30).prop_map(|entries| entries.into_iter().collect())
}

proptest! {
    #[test]
    fn any_document_gives_a_policy_and_names_every_bad_key(data in any_document(), before in any_document()) {
        let before = document(&before, &last_good()).0;
        let (policy, problems) = document(&data, &before);
        for (name, text) in &data {
            let reported: Vec<_> = problems.iter().filter(|problem| problem.key == *name).collect();
            let Some(key) = keys::find(name) else {
                prop_assert_eq!(reported.len(), 1);
                prop_assert_eq!(reported[0].severity, Severity::Warning);
                continue;
            };
            let is_good = key.read(text, &mut Policy::default()).is_ok();
            prop_assert_eq!(reported.len(), usize::from(!is_good));
            let (now, then) = (key.text(&mut policy.clone()), key.text(&mut before.clone()));
            prop_assert!(is_good || now == then, "{} was {:?} and became {:?}", name, then, now);
        }
        prop_assert!(problems.iter().all(|problem| data.contains_key(&problem.key)));
        prop_assert!(problems.iter().all(|problem| !problem.to_string().contains('\n')));
    }

    #[test]
    fn absent_keys_have_their_defaults(data in any_document()) {
        let entries = document(&data, &last_good()).0.to_entries();
        let defaults = Policy::default().to_entries();
        for key in KEYS.iter().filter(|key| !data.contains_key(key.name)) {
            prop_assert_eq!(entries.get(key.name), defaults.get(key.name));
        }
    }

    #[test]
    fn any_policy_survives_its_entries(data in any_document()) {
        let (policy, _) = document(&data, &last_good());
        let entries = policy.to_entries();
        prop_assert_eq!(&Policy::from_entries(&entries), &policy);
        prop_assert_eq!(document(&entries, &Policy::default()), (policy, vec![]));
    }

    #[test]
    fn remembered_entries_of_any_kind_give_a_policy_within_bounds(entries in any_document()) {
        let policy = Policy::from_entries(&entries);
        prop_assert_eq!(document(&policy.to_entries(), &last_good()), (policy, vec![]));
    }
}

#[test]
fn hosts_default_to_any() {
    assert_eq!(Policy::default().allowed_source_hosts, SourceHosts::default());
    assert_eq!(SourceHosts::default().to_string(), "*");
}
