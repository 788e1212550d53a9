//! The program as people start it.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "seeds and figures of a run are part of its result"
)]

mod at_rest;
mod bandwidth;
mod changes;
mod controller_log;
mod egress;
mod end_state;
mod ending;
mod faults;
mod frozen;
mod hands;
mod help;
mod kills;
mod lanes;
mod ledger;
mod pipeline;
mod places;
mod policy;
mod processes;
mod queue;
mod restarts;
mod retries;
mod rights;
mod s3;
mod snapshots;
mod sources;
mod stage;
mod strangers;
mod timeline;
mod up;
mod volumes;
mod workspaces;
mod writes;

use std::process::{Command, Output};

/// The program under test.
fn otctl() -> Command {
    Command::new(env!("CARGO_BIN_EXE_otctl"))
}

/// What it printed; it must have ended well.
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}
