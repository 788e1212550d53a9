use super::workspace::tests::ready;
use super::*;

const MIB: u64 = 1 << 20;

fn hash(of: char) -> String {
    of.to_string().repeat(64)
}

/// 24 MiB that were cut twice, as they should be seen.
fn cut_twice() -> Seen {
    Seen {
        name: "cut-twice",
        expected: Expected::Disk { size: 32 * MIB, interruptions: 2 },
        phase: Some(Phase::Succeeded),
        reason: "Succeeded".to_owned(),
        attempts: 1,
        counts: Counts {
            requests: 4,
            downloads: 1,
            probes: 1,
            bytes: 24 * MIB + 64 * 1024,
            probe_bytes: 64 * 1024,
            ..Counts::default()
        },
        size: Some(24 * MIB),
        expected_sha256: Some(hash('a')),
        disk: Some(Ok(Disk { size: 32 * MIB, sha256: hash('a') })),
    }
}

/// A 404 as it should be seen.
fn not_found() -> Seen {
    Seen {
        name: "not-found",
        expected: Expected::Refusal { reason: "SourceNotFound", requests: Some(1) },
        phase: Some(Phase::Failed),
        reason: "SourceNotFound".to_owned(),
        attempts: 1,
        counts: Counts { requests: 1, probes: 1, ..Counts::default() },
        size: None,
        expected_sha256: None,
        disk: None,
    }
}

fn too_large() -> Seen {
    let expected = Expected::Refusal { reason: "TooSmall", requests: None };
    let counts =
        Counts { requests: 1, probes: 1, bytes: 65_536, probe_bytes: 65_536, ..Counts::default() };
    Seen {
        name: "too-large",
        expected,
        reason: "TooSmall".to_owned(),
        counts,
        size: Some(70_000),
        ..not_found()
    }
}

fn check(seen: &Seen, expected: &[&str]) {
    let problems = seen.problems();
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, part) in problems.iter().zip(expected) {
        assert!(problem.contains(part), "{problem:?} does not say {part:?}");
    }
}

#[test]
fn what_is_right_is_no_problem() {
    check(&cut_twice(), &[]);
    check(&not_found(), &[]);
    check(&too_large(), &[]);
}

#[test]
fn a_disk_that_is_not_there_is_one() {
    check(
        &Seen { phase: Some(Phase::Failed), reason: "Backoff".to_owned(), ..cut_twice() },
        &["Failed (Backoff)"],
    );
    check(&Seen { phase: None, ..cut_twice() }, &["without a phase"]);
}

#[test]
fn a_disk_that_is_another_is_one() {
    let with = |disk| Seen { disk, ..cut_twice() };
    check(&with(Some(Ok(Disk { size: 32 * MIB, sha256: hash('b') }))), &["hashes to bbbb"]);
    check(&with(Some(Ok(Disk { size: 24 * MIB, sha256: hash('a') }))), &["25165824 bytes"]);
    check(&with(Some(Err("no such file".to_owned()))), &["no such file"]);
    check(&with(None), &["not read back"]);
    check(&Seen { expected_sha256: None, ..cut_twice() }, &["the raw content to none"]);
}

#[test]
fn bytes_are_bounded_on_both_sides() {
    let with = |bytes| Seen { counts: Counts { bytes, ..cut_twice().counts }, ..cut_twice() };
    check(&with(26 * MIB + 64 * 1024), &[]);
    check(&with(26 * MIB + 64 * 1024 + 1), &["bytes were fetched"]);
    check(&with(24 * MIB + 64 * 1024 - 1), &["bytes were fetched"]);
}

#[test]
fn a_second_download_is_one() {
    let counts = Counts { downloads: 2, ..cut_twice().counts };
    check(&Seen { counts, ..cut_twice() }, &["2 downloads"]);
}

#[test]
fn a_refusal_for_another_reason_is_one() {
    check(&Seen { reason: "ServerError".to_owned(), ..not_found() }, &["Failed (ServerError)"]);
    check(&Seen { phase: Some(Phase::Queued), ..not_found() }, &["Queued (SourceNotFound)"]);
}

#[test]
fn a_refusal_that_asked_twice_or_fetched_is_one() {
    check(
        &Seen { counts: Counts { requests: 2, ..not_found().counts }, ..not_found() },
        &["asked for 2 times"],
    );
    let fetched = Counts { bytes: 65_537, ..too_large().counts };
    check(&Seen { counts: fetched, ..too_large() }, &["1 bytes were fetched"]);
    let looked = Counts { bytes: 65_537, probe_bytes: 65_537, ..too_large().counts };
    check(&Seen { counts: looked, ..too_large() }, &["first looks cost 65537"]);
}

#[test]
fn more_at_once_than_allowed_is_one_by_any_count() {
    let peak = |entries, pods, transfers| Peak { entries, pods, transfers };
    assert_eq!(peak_problem(peak(2, 2, 2)), None);
    assert_eq!(peak_problem(peak(1, 2, 1)), None);
    for over in [peak(3, 2, 2), peak(2, 3, 2), peak(2, 2, 3)] {
        assert!(peak_problem(over).unwrap().contains("3 were active"));
    }
    for blind in [peak(0, 2, 2), peak(2, 0, 2), peak(2, 2, 0)] {
        assert!(peak_problem(blind).unwrap().contains("saw nothing"));
    }
}

#[test]
fn the_report_names_the_image_and_says_the_verdict() {
    let peak = Peak { entries: 2, pods: 2, transfers: 2 };
    let right = Report { images: vec![cut_twice(), not_found()], peak, lab: ready() };
    assert!(right.problems().is_empty());
    assert!(right.text().contains("Everything is as it must be"));
    assert!(right.text().contains("aaaaaaaaaaaaaaaa… ok"));
    let line = right.text().lines().find(|line| line.contains("cut-twice ")).unwrap().to_owned();
    let figures = line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(figures.contains("1 64.0 KiB 24.0 MiB 24.0 MiB"), "looks are no downloads: {figures}");
    let mut lab = ready();
    lab.story.policy = None;
    let wrong = Report { images: vec![Seen { disk: None, ..cut_twice() }], peak, lab };
    assert_eq!(
        wrong.problems(),
        [
            "cut-twice: its disk was not read back",
            "workspace: there is no network policy that isolates it"
        ]
    );
    assert!(wrong.text().contains("Not as it must be"));
}
