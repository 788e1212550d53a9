//! What an image's status may remember: the truth, or something else in the bounds of its schema.

use diskimage_controller::names;
use serde_json::{Value, json};

use super::{DEAD, Owner, source};
use crate::choices::Choices;

/// What a status may hold of this image.
pub(super) struct Memory<'a>(pub(super) &'a Owner);

/// Each takes its choices in the order in which its fields stand here: seeds depend on it.
impl Memory<'_> {
    pub(super) fn all(&self, choices: &mut Choices<'_>) -> Value {
        choices.some(&[
            ("phase", &|choices| {
                json!(choices.of(&["Queued", "Syncing", "Snapshotting", "Succeeded", "Failed"]))
            }),
            ("ticket", &ticket),
            ("queuedAt", &Choices::time),
            ("source", &source),
            ("lastAttempt", &Choices::attempt),
            ("openAttempt", &|choices| self.open(choices)),
            (
                "budget",
                &|choices| json!({"for": self.budget(choices), "charged": choices.number()}),
            ),
            ("attempts", &|choices| choices.list(3, |choices| self.attempt(choices))),
            ("nextRetryAt", &Choices::time),
            ("lastLossAt", &Choices::time),
            (
                "lateSnapshots",
                &|choices| json!({"count": choices.number(), "lastUID": choices.text(&["s"])}),
            ),
            ("progress", &progress),
            ("bytesTransferred", &Choices::number),
            ("revision", &|choices| self.revision(choices)),
            ("current", &|choices| self.current(choices)),
        ])
    }

    fn revision(&self, choices: &mut Choices<'_>) -> Value {
        choices.text(&[&self.0.revision, &self.0.revision, "0123456789abcdef"])
    }

    fn budget(&self, choices: &mut Choices<'_>) -> Value {
        choices.text(&[&self.0.budget, &self.0.budget, "fedcba9876543210"])
    }

    fn job(&self, choices: &mut Choices<'_>) -> Value {
        let jobs: Vec<&str> = self.0.jobs.iter().map(String::as_str).chain([DEAD]).collect();
        choices.text(&jobs)
    }

    fn open(&self, choices: &mut Choices<'_>) -> Value {
        let mut open = choices.some(&[
            ("startedAt", &Choices::time),
            ("ticket", &ticket),
            ("budget", &|choices| self.budget(choices)),
            ("revision", &|choices| self.revision(choices)),
            ("neverRan", &Choices::truth),
            ("cut", &cut),
        ]);
        (open["number"], open["jobUID"]) = (choices.attempt(), self.job(choices));
        open
    }

    fn attempt(&self, choices: &mut Choices<'_>) -> Value {
        let mut attempt = choices.some(&[
            ("ticket", &ticket),
            ("startedAt", &Choices::time),
            ("endedAt", &Choices::time),
            ("bytes", &Choices::number),
            ("reason", &reason),
            ("message", &|choices| choices.text(&["what happened"])),
            ("totalBytes", &Choices::number),
            ("snapshotClass", &class),
            ("budget", &|choices| self.budget(choices)),
            ("revision", &|choices| self.revision(choices)),
            ("final", &Choices::truth),
        ]);
        (attempt["number"], attempt["charged"]) = (choices.attempt(), choices.truth());
        attempt
    }

    fn current(&self, choices: &mut Choices<'_>) -> Value {
        let name = names::data_name(&self.0.key.name, &self.0.revision);
        let named = |choices: &mut Choices<'_>| choices.text(&[&name]);
        let mut current = choices.some(&[
            ("volume", &named),
            ("snapshot", &named),
            ("snapshotClass", &class),
            ("minimumSize", &Choices::number),
            ("syncedAt", &Choices::time),
        ]);
        current["revision"] = self.revision(choices);
        current
    }
}

fn ticket(choices: &mut Choices<'_>) -> Value {
    choices.text(&["1", "2", "7+2026-01-01T11:00:00Z", "18446744073709551615"])
}

fn class(choices: &mut Choices<'_>) -> Value {
    choices.text(&["snapshots"])
}

fn cut(choices: &mut Choices<'_>) -> Value {
    json!({
        "reason": choices.text(&["NoProgress", "Suspended"]), "message": choices.text(&["it was"]),
        "charged": choices.truth(),
    })
}

fn reason(choices: &mut Choices<'_>) -> Value {
    choices.text(&[
        "Succeeded",
        "Succeeded",
        "ConnectionLost",
        "SourceNotFound",
        "Lost",
        "LengthMismatch",
        "NameConflict",
    ])
}

fn progress(choices: &mut Choices<'_>) -> Value {
    json!({
        "bytes": choices.number(), "percent": choices.text(&["50%", "unknown"]), "at": choices.time(),
    })
}
