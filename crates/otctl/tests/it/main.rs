//! The program as people start it.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod end_state;
mod ending;
mod help;
mod kills;
mod processes;
mod queue;
mod stage;
mod timeline;

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
