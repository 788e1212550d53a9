//! `otctl wait`: for CI, until objects are decided. Also what `otctl apply --wait` tells and exits with.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::json;

use crate::cli::{Format, Goal, UntilArgs, WaitArgs};
use crate::client;
use crate::kind::{Found, Standing};
use crate::out;
use crate::selection::{self, Unnamed};
use crate::view::View;
use crate::wait::{Awaited, Outcome, wait};

/// One has failed, or is held up.
const FAILED: u8 = 3;
/// The time was up.
const TIMED_OUT: u8 = 4;

/// Waits, and says how each ended.
pub(crate) async fn run(args: &WaitArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.scope.place.cluster).await?;
    let found = selection::find(&cluster, &args.objects, &args.scope, Unnamed::Selected).await?;
    anyhow::ensure!(!found.is_empty(), "nothing is selected that could be waited for");
    let ended = until(&cluster.client, found, args.until, args.output).await?;
    if let Some(Format::Json) = args.output {
        out::line(&json(&ended)?);
    }
    Ok(exit_code(&ended))
}

/// Waits until each is decided or the time is up, and says how each ended.
pub(super) async fn until(
    client: &kube::Client,
    found: Vec<Found>,
    until: UntilArgs,
    output: Option<Format>,
) -> anyhow::Result<Vec<Awaited>> {
    let view = output.is_none().then(View::for_output);
    let ended = wait(client, once_each(found), (until.goal, until.timeout), view).await?;
    for one in &ended {
        match sentence(one, until) {
            Ok(reached) if output.is_none() => out::line(&reached),
            Ok(_) => {}
            Err(complaint) => out::complaint(&complaint),
        }
    }
    Ok(ended)
}

fn once_each(mut found: Vec<Found>) -> Vec<Found> {
    let mut seen = BTreeSet::new();
    found.retain(|one| seen.insert((one.reference(), one.object.namespace())));
    found
}

/// How it ended, in words for a log that has nothing else.
fn sentence(one: &Awaited, until: UntilArgs) -> Result<String, String> {
    let (name, why) = (name(one), why(&one.standing));
    match one.outcome {
        Some(Outcome::Reached) => Ok(format!("{name} {}", word(until.goal))),
        Some(Outcome::Failed) => Err(format!("{name} has failed{why}")),
        Some(Outcome::Suspended) => {
            Err(format!("{name} is suspended, and is not waited for: otctl resume lets it go on"))
        }
        Some(Outcome::Deleted) => Err(format!("{name} has failed: {}", one.standing.message)),
        Some(Outcome::TimedOut) | None => {
            let timeout = timeout(until.timeout);
            Err(format!("{name} was not {} {timeout}{why}", word(until.goal)))
        }
    }
}

/// Why it stands where it stands, as far as that was told: ` (SlotsBusy): waits for a slot`.
fn why(standing: &Standing) -> String {
    let Standing { phase, reason, message, .. } = standing;
    let word = if reason.is_empty() { phase } else { reason };
    let word = if word.is_empty() { String::new() } else { format!(" ({word})") };
    let message = out::one_line(message);
    if message.is_empty() { word } else { format!("{word}: {message}") }
}

fn name(one: &Awaited) -> String {
    let namespace = one.found.object.namespace();
    let place = namespace.map(|namespace| format!(" in namespace '{namespace}'"));
    format!("{}{}", one.found.reference(), place.unwrap_or_default())
}

fn word(goal: Goal) -> &'static str {
    match goal {
        Goal::Ready => "ready",
        Goal::Available => "available",
    }
}

fn timeout(timeout: Duration) -> String {
    if timeout.is_zero() {
        return "when it was looked at".to_owned();
    }
    format!("within {}", humantime::format_duration(timeout))
}

/// What programs read of each.
#[derive(Serialize)]
struct Ended<'a> {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    outcome: Option<Outcome>,
    #[serde(flatten)]
    standing: &'a Standing,
}

fn json(ended: &[Awaited]) -> anyhow::Result<String> {
    let objects: Vec<_> = ended.iter().map(told).collect();
    serde_json::to_string_pretty(&json!({"objects": objects}))
        .context("the outcome cannot be written as JSON")
}

/// How one ended, for programs.
pub(super) fn told(one: &Awaited) -> serde_json::Value {
    json!(Ended {
        kind: one.found.kind.resource().kind,
        namespace: one.found.object.namespace(),
        name: one.found.object.name_any(),
        outcome: one.outcome,
        standing: &one.standing,
    })
}

/// The worst of them; a failure is worse than a time that is up.
pub(super) fn exit_code(ended: &[Awaited]) -> ExitCode {
    match ended.iter().filter_map(|one| one.outcome).max() {
        None | Some(Outcome::Reached) => ExitCode::SUCCESS,
        Some(Outcome::TimedOut) => ExitCode::from(TIMED_OUT),
        Some(Outcome::Suspended | Outcome::Failed | Outcome::Deleted) => ExitCode::from(FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Verdict;
    use crate::progress::Progress;

    #[track_caller]
    fn check((phase, reason, message): (&str, &str, &str), expected: &str) {
        let standing = Standing {
            verdict: Verdict::Going,
            phase: phase.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            progress: Progress::default(),
        };
        assert_eq!(why(&standing), expected);
    }

    #[test]
    fn the_last_that_was_told_is_told_in_one_line() {
        check(("Queued", "SlotsBusy", "waits for a slot"), " (SlotsBusy): waits for a slot");
        check(("Unseen", "", "not looked at yet"), " (Unseen): not looked at yet");
        check(("Queued", "SlotsBusy", ""), " (SlotsBusy)");
        check(("", "", ""), "");
        check(("Failed", "Crashed", "exit code 3:\nno file\n"), " (Crashed): exit code 3: no file");
    }
}
