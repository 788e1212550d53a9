//! The program as people start it.

#![expect(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod ending;
mod help;
mod processes;
mod queue;

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
