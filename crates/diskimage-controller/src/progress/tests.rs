//! What is remembered of the talk with an import, on a time of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// A book and the hand that moves its time.
fn book() -> (ProgressBook, impl Fn(u64)) {
    let seconds = Arc::new(AtomicU64::new(100));
    let read = seconds.clone();
    let elapsed = Elapsed::new(move || Duration::from_secs(read.load(Ordering::SeqCst)));
    let wait = move |by| {
        seconds.fetch_add(by, Ordering::SeqCst);
    };
    (ProgressBook::new(elapsed), wait)
}

fn told(phase: ImportPhase, bytes: u64) -> Answer {
    Answer::Told(Progress { phase, bytes, total_bytes: Some(100), received: bytes, percent: 0 })
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn nothing_is_said_of_an_import_that_nobody_asked() {
    assert_eq!(book().0.talk("job"), None);
}

#[test]
fn one_that_moves_is_not_still_and_one_that_does_not_is() {
    let (book, wait) = book();
    for bytes in [1, 2, 3, 3, 3] {
        book.note("job", told(ImportPhase::Fetching, bytes));
        wait(10);
    }
    let talk = book.talk("job").unwrap();
    assert_eq!(
        (talk.still_for, talk.mute_for, talk.unknown_for),
        (Duration::from_secs(30), None, None)
    );
}

#[test]
fn to_convert_moves_no_byte_of_the_source_and_is_not_still() {
    let (book, wait) = book();
    book.note("job", told(ImportPhase::Converting, 100));
    wait(600);
    book.note("job", told(ImportPhase::Converting, 100));
    assert_eq!(book.talk("job").unwrap().still_for, Duration::ZERO);
}

#[test]
fn one_that_takes_connections_and_says_nothing_is_mute() {
    let (book, wait) = book();
    book.note("job", told(ImportPhase::Fetching, 5));
    wait(20);
    book.note("job", Answer::Mute);
    let talk = book.talk("job").unwrap();
    assert_eq!((talk.mute_for, talk.unknown_for), (seconds(20), seconds(20)));
    assert_eq!(talk.progress.unwrap().bytes, 5, "what it told before is kept");
    book.note("job", Answer::Unreachable);
    wait(20);
    assert_eq!(book.talk("job").unwrap().mute_for, seconds(40), "its backlog is full");
    book.note("job", told(ImportPhase::Fetching, 5));
    assert_eq!(book.talk("job").unwrap().mute_for, None);
}

#[test]
fn one_that_was_mute_from_the_first_question_on_is_mute_since_then() {
    let (book, wait) = book();
    book.note("job", Answer::Mute);
    wait(30);
    assert_eq!(book.talk("job").unwrap().mute_for, seconds(30));
}

#[test]
fn one_that_is_only_out_of_reach_is_unknown_and_nothing_else() {
    let (book, wait) = book();
    book.note("job", told(ImportPhase::Fetching, 5));
    book.note("job", Answer::Unreachable);
    wait(86_400);
    let talk = book.talk("job").unwrap();
    assert_eq!((talk.mute_for, talk.unknown_for), (None, seconds(86_400)));
    assert_eq!(talk.still_for, Duration::ZERO, "nobody knows whether it moves");
    book.note("job", Answer::Unusable);
    assert_eq!(book.talk("job").unwrap().mute_for, None, "something answers");
}

#[test]
fn what_runs_no_more_is_forgotten() {
    let (book, _) = book();
    book.note("a", Answer::Mute);
    book.note("b", Answer::Mute);
    book.keep(&HashSet::from(["b"]));
    assert!(book.talk("a").is_none() && book.talk("b").is_some());
}
