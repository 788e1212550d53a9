//! Closing an attempt: what the status remembers of it, and what follows by the policy.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Attempt, Budget, Progress, VMDiskImageStatus};
use otctl_types::import::{FailureClass, ImportReason};
use policy::{Policy, Retry, backoff, retry};

use crate::image::ending::{Ending, Failure};
use crate::record::{Record, SUCCEEDED};

/// Attempts kept as history.
const HISTORY: usize = 10;
/// Longest message kept of an attempt, in characters.
const MESSAGE_LIMIT: usize = 500;
/// First wait for something that is missing; doubles up to [`WAITING_MAX`].
pub const WAITING_BASE: Duration = Duration::from_secs(30);
/// Longest wait between two looks at something that is missing.
pub const WAITING_MAX: Duration = Duration::from_secs(600);

/// Which attempt is closed.
#[derive(Clone, Copy, Debug)]
pub struct Closing<'a> {
    /// Its number.
    pub number: i64,
    /// The ticket it was admitted with.
    pub ticket: Option<&'a str>,
    /// When it was admitted.
    pub started_at: Option<&'a Time>,
    /// Class of the snapshot to take if it brought the data.
    pub snapshot_class: Option<&'a str>,
}

/// The memory of `record` with the attempt closed.
pub fn close(
    record: &Record,
    closing: Closing<'_>,
    ending: &Ending,
    policy: &Policy,
    now: Timestamp,
) -> VMDiskImageStatus {
    let ending = &paid(record, ending);
    let mut memory = with_budget(record);
    let made_under = made_under(record);
    let is_of_this_budget = made_under == record.budget_key;
    let sequel = match is_of_this_budget {
        true => sequel(record, ending, policy, now),
        // A person or a pipeline asked again meanwhile: nothing of what they asked before counts.
        false => Sequel { at: None, is_final: false },
    };
    memory.last_attempt = Some(closing.number.max(record.last()));
    memory.open_attempt = None;
    memory.progress = progress_after(ending, now);
    memory.revision = Some(record.revision.clone());
    if ending.is_charged
        && is_of_this_budget
        && let Some(budget) = &mut memory.budget
    {
        budget.charged = budget.charged.saturating_add(1);
    }
    memory.next_retry_at = sequel.at.map(Time);
    let transferred = memory.bytes_transferred.unwrap_or(0);
    memory.bytes_transferred = Some(transferred.saturating_add(ending.bytes.map_or(0, to_i64)));
    memory.source = source_after(record, ending);
    if !is_decided(record) {
        remember(&mut memory, attempt(record, closing, ending, sequel.is_final, now));
    }
    memory
}

/// A result that was lost costs nothing, since its download is kept. Lost twice in a row it is paid for like any other:
/// somebody takes away what was kept, too.
fn paid(record: &Record, ending: &Ending) -> Ending {
    let lost = Reason::Import(ImportReason::ResultLost);
    let is_lost = ending.failure.as_ref().is_some_and(|failure| failure.reason == lost);
    let was_lost =
        record.last_ended().is_some_and(|last| last.reason.as_deref() == Some(lost.as_str()));
    if is_lost && was_lost { ending.clone().charged() } else { ending.clone() }
}

/// The last attempt says how it ended for good, and this number was not used (I5): a slot that was given by a view from
/// before that end. As an attempt after the last it would hide that end, and another download would follow.
fn is_decided(record: &Record) -> bool {
    let is_unused = record.status.open_attempt.is_none();
    is_unused && (record.final_attempt().is_some() || record.has_fetched())
}

/// The memory with the budget that the object asks for now (I9 when it differs).
pub fn with_budget(record: &Record) -> VMDiskImageStatus {
    let mut memory = (*record.status).clone();
    if memory.budget.as_ref().is_none_or(|budget| budget.key != record.budget_key) {
        memory.budget = Some(Budget { key: record.budget_key.clone(), charged: 0 });
        memory.next_retry_at = None;
        memory.late_snapshots = None;
    }
    if memory.revision.as_ref().is_some_and(|revision| *revision != record.revision) {
        memory.source = None;
        memory.disk_size = None;
        memory.progress = None;
        memory.next_retry_at = None;
        memory.late_snapshots = None;
    }
    memory.revision = Some(record.revision.clone());
    memory
}

/// The memory with the loss of the last copy in it: one more download, but not twice within a day.
pub fn lose(record: &Record, policy: &Policy, now: Timestamp) -> VMDiskImageStatus {
    let mut memory = with_budget(record);
    let day = jiff::SignedDuration::from_hours(24);
    let is_second = memory.last_loss_at.as_ref().is_some_and(|at| now.duration_since(at.0) < day);
    let reason = if is_second { Reason::LostRepeatedly } else { Reason::Lost };
    let message = match is_second {
        true => {
            "the volume and the snapshot were lost twice within 24 hours; find out what deletes them"
        }
        false => "the volume and the snapshot are gone; the data is fetched once more",
    };
    memory.current = None;
    memory.progress = None;
    memory.late_snapshots = None;
    memory.last_loss_at = Some(Time(now));
    memory.next_retry_at = None;
    let limit = i32::try_from(policy.retry_limit).unwrap_or(i32::MAX);
    memory.budget = Some(Budget { key: record.budget_key.clone(), charged: limit });
    let number = record.last().max(1);
    let told = memory.attempts.iter().find(|attempt| attempt.number == number).cloned();
    let told = told.unwrap_or_default();
    remember(
        &mut memory,
        Attempt {
            number,
            ticket: record.status.ticket.clone().or(told.ticket),
            ended_at: told.ended_at.or(Some(Time(now))),
            reason: Some(reason.to_string()),
            message: Some(message.to_owned()),
            snapshot_class: None,
            checksum: None,
            disk_checksum: None,
            budget: Some(made_under(record)),
            revision: Some(made_for(record)),
            is_final: is_second,
            ..told
        },
    );
    memory
}

struct Sequel {
    at: Option<Timestamp>,
    is_final: bool,
}

/// What follows: nothing, another attempt at a time, or nothing without a person.
fn sequel(record: &Record, ending: &Ending, policy: &Policy, now: Timestamp) -> Sequel {
    let Some(failure) = &ending.failure else {
        return Sequel { at: None, is_final: false };
    };
    let charged = record.charged() + u32::from(ending.is_charged);
    let class = class_of(record, ending, failure);
    let asked = ending.retry_after_seconds.map(Duration::from_secs);
    match retry::decide(charged, class, &policy.retry_limits(), now, seed(record), asked) {
        Retry::At(at) => Sequel { at: Some(at), is_final: false },
        Retry::Exhausted | Retry::Terminal => Sequel { at: None, is_final: true },
        Retry::Waiting => Sequel { at: waiting_until(record, failure, now), is_final: false },
    }
}

/// The class of a failure, with the one rule that needs history: a source that sends another number of bytes than the
/// same announced length twice will do so for ever.
fn class_of(record: &Record, ending: &Ending, failure: &Failure) -> policy::FailureClass {
    let is_mismatch = failure.reason == Reason::Import(ImportReason::LengthMismatch);
    let announced = ending.source.as_ref().and_then(|source| source.size).map(to_i64);
    let is_repeated = is_mismatch
        && record.last_ended().is_some_and(|last| {
            last.reason.as_deref() == Some(failure.reason.as_str()) && last.total_bytes == announced
        });
    match failure.class {
        _ if is_repeated => policy::FailureClass::Terminal,
        FailureClass::Waiting if ending.is_charged => policy::FailureClass::Transient,
        FailureClass::Terminal => policy::FailureClass::Terminal,
        FailureClass::Transient => policy::FailureClass::Transient,
        FailureClass::Waiting => policy::FailureClass::Waiting,
    }
}

/// What is missing is looked at again after 30 s, doubling to 10 min; a suspended or replaced attempt at once.
fn waiting_until(record: &Record, failure: &Failure, now: Timestamp) -> Option<Timestamp> {
    if matches!(failure.reason, Reason::Import(ImportReason::Suspended) | Reason::Superseded) {
        return None;
    }
    let is_same = |attempt: &&Attempt| attempt.reason.as_deref() == Some(failure.reason.as_str());
    let times = record.status.attempts.iter().rev().take_while(is_same).count();
    let wait = backoff::delay(
        u32::try_from(times).unwrap_or(u32::MAX).saturating_add(1),
        WAITING_BASE,
        WAITING_MAX,
        None,
    );
    now.checked_add(wait).ok()
}

/// Complete data is shown as such; whatever else was fetched is the next attempt's to tell.
fn progress_after(ending: &Ending, now: Timestamp) -> Option<Progress> {
    let is_complete = ending.failure.is_none();
    let total = ending.source.as_ref().and_then(|source| source.size).map(to_i64);
    is_complete.then(|| Progress {
        bytes: total.unwrap_or_default(),
        total_bytes: total,
        percent: Some("100%".to_owned()),
        at: Some(Time(now)),
    })
}

/// What is known of the source after this attempt. A source that changed is looked at anew.
fn source_after(record: &Record, ending: &Ending) -> Option<otctl_types::import::SourceFacts> {
    let reason = ending.failure.as_ref().map(|failure| failure.reason);
    if reason == Some(Reason::Import(ImportReason::SourceChanged)) {
        return None;
    }
    ending.source.clone().or_else(|| with_budget(record).source)
}

fn attempt(
    record: &Record,
    closing: Closing<'_>,
    ending: &Ending,
    is_final: bool,
    now: Timestamp,
) -> Attempt {
    let failure = ending.failure.as_ref();
    Attempt {
        number: closing.number,
        ticket: closing.ticket.map(str::to_owned),
        charged: ending.is_charged,
        started_at: closing.started_at.cloned(),
        ended_at: Some(Time(now)),
        bytes: ending.bytes.map(to_i64),
        reason: Some(failure.map_or(SUCCEEDED, |failure| failure.reason.as_str()).to_owned()),
        message: failure.map(|failure| failure.message.chars().take(MESSAGE_LIMIT).collect()),
        snapshot_class: closing.snapshot_class.filter(|_| failure.is_none()).map(str::to_owned),
        total_bytes: ending.source.as_ref().and_then(|source| source.size).map(to_i64),
        checksum: ending.checksum.clone().filter(|_| failure.is_none()),
        disk_checksum: ending.disk_checksum.clone().filter(|_| failure.is_none()),
        budget: Some(made_under(record)),
        revision: Some(made_for(record)),
        is_final,
    }
}

/// The revision that the open attempt fetched; without one on record, the one in spec.
fn made_for(record: &Record) -> String {
    let open = record.status.open_attempt.as_ref();
    open.and_then(|open| open.revision.clone()).unwrap_or_else(|| record.revision.clone())
}

/// The budget that the open attempt is paid from; without one on record, the one that the object asks for now.
fn made_under(record: &Record) -> String {
    let open = record.status.open_attempt.as_ref();
    open.and_then(|open| open.budget.clone()).unwrap_or_else(|| record.budget_key.clone())
}

/// One entry for each number: what is learned of an attempt later replaces what was known.
fn remember(memory: &mut VMDiskImageStatus, attempt: Attempt) {
    memory.attempts.retain(|known| known.number != attempt.number);
    memory.attempts.push(attempt);
    let surplus = memory.attempts.len().saturating_sub(HISTORY);
    memory.attempts.drain(..surplus);
}

/// Differs between images and attempts, and is the same when the same end is decided on again after a crash.
fn seed(record: &Record) -> u64 {
    let text = format!("{}{}", record.budget_key, record.last());
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Kubernetes' integers are signed; no image has 8 EiB.
pub fn to_i64(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
