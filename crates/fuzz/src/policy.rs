//! Policy documents. The input is lines of `key=value`; after a line `---` comes the document that was read before.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use policy::{Policy, Problem, Severity, document, keys};

/// Longest sentence about one entry, in bytes.
const LONGEST_SENTENCE: usize = 2048;

/// Each key has its value, its default, or what it had before and a problem that names it; all are in their bounds, and
/// what is written is read back.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (now, before) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let (last_good, _) = document(&entries(before), &Policy::default());
    let entries = entries(now);
    let (policy, problems) = document(&entries, &last_good);
    check_bounds(&policy);
    check_keys(&entries, &problems, (&policy, &last_good));
    check_writing(&policy);
    let backoff = policy.retry_limits().backoff;
    assert!(backoff.base() <= backoff.cap(), "{backoff:?}");
}

/// A value may hold line ends and anything else: `\n` stands for one.
fn entries(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.replace("\\n", "\n"))).collect()
}

fn check_keys(
    entries: &BTreeMap<String, String>,
    problems: &[Problem],
    (policy, last_good): (&Policy, &Policy),
) {
    let [set, kept] = [policy, last_good].map(Policy::to_entries);
    let problem = |name: &str| problems.iter().find(|problem| problem.key == name);
    for key in keys() {
        let (name, value) = (key.name, set.get(key.name));
        match (entries.get(name), problem(name)) {
            (None, None) => assert_eq!(value, key.default.as_ref(), "{name} is absent"),
            (Some(_), Some(problem)) => {
                assert_eq!(problem.severity, Severity::Error, "{problem}");
                assert_eq!(problem.kept.as_ref(), kept.get(name), "{problem}");
                assert_eq!(value, kept.get(name), "{problem}");
            }
            (Some(text), None) => {
                assert!(value.is_some(), "{name}: {text:?} was taken and sets nothing");
            }
            (None, Some(problem)) => panic!("nobody wrote this: {problem}"),
        }
    }
    let is_known = |name: &str| keys().any(|key| key.name == name);
    for unknown in entries.keys().filter(|name| !is_known(name)) {
        let problem = problem(unknown).expect("an unknown key is told");
        assert_eq!(problem.severity, Severity::Warning, "{problem}");
    }
    assert!(problems.len() <= entries.len(), "one problem for an entry: {problems:?}");
    for problem in problems {
        let sentence = problem.to_string();
        assert!(sentence.len() <= LONGEST_SENTENCE, "{} bytes: {sentence}", sentence.len());
        assert!(!sentence.contains(char::is_control), "{sentence:?}");
    }
}

fn check_writing(policy: &Policy) {
    let written = policy.to_entries();
    let (read, problems) = document(&written, &Policy::default());
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(read, *policy, "written and read");
    assert_eq!(Policy::from_entries(&written), *policy, "remembered");
    let longest = written.values().map(String::len).max().unwrap_or(0);
    assert!(longest <= 4096, "a value of {longest} bytes does not fit the status of the ledger");
}

/// As `docs/reference/policy.md` says them.
fn check_bounds(policy: &Policy) {
    let count = |name: &str, found: u32, bounds: RangeInclusive<u32>| {
        assert!(bounds.contains(&found), "{name} is {found}");
    };
    let time = |name: &str, found: Duration, least: u64, most: u64| {
        assert!((least..=most).contains(&found.as_secs()), "{name} is {found:?}");
    };
    let (minute, hour, day) = (60, 3600, 86_400);
    count("concurrency", policy.concurrency, 0..=1000);
    count("retryLimit", policy.retry_limit, 0..=20);
    count("workspaceConcurrency", policy.workspace_concurrency, 0..=1000);
    count("concurrencyPerHost", policy.concurrency_per_host.unwrap_or(1), 1..=1000);
    count("snapshotConcurrency", policy.snapshot_concurrency, 1..=1000);
    time("retryBackoffDuration", policy.retry_backoff_duration, 1, day);
    time("retryBackoffMax", policy.retry_backoff_max, 1, day);
    time("provisioningTimeout", policy.provisioning_timeout, minute, day);
    time("attemptTimeout", policy.attempt_timeout, minute, 7 * day);
    time("stallTimeout", policy.stall_timeout, 10, day);
    time("bindTimeout", policy.bind_timeout, 10, day);
    time("snapshotTimeout", policy.snapshot_timeout, minute, day);
    time(
        "pruneUnusedAfter",
        policy.prune_unused_after.unwrap_or_default().max(Duration::from_secs(hour)),
        hour,
        3650 * day,
    );
    assert!(policy.bandwidth_limit.is_none_or(|limit| limit >= 64 << 10), "bandwidthLimit");
    assert!(policy.max_image_size.is_none_or(|limit| limit >= 1 << 20), "maxImageSize");
    let names = [
        &policy.default_storage_class,
        &policy.default_snapshot_class,
        &policy.scratch_storage_class,
    ];
    assert!(names.into_iter().flatten().all(|name| (1..=253).contains(&name.len())), "{names:?}");
}
