//! `cargo xtask bench`: what the product costs, beside what one would use without it. What is measured, and how, is in
//! `crates/bench`; here it is built and started. Its printout is kept in `docs/soak.md`.

use crate::command::{Run, cargo};
use crate::repository;

/// What is measured, and what measures it, from one build.
const BUILD: [&str; 9] =
    ["build", "--locked", "--release", "-p", "otctl", "-p", "disk-importer", "-p", "bench"];

/// Builds, and runs the bench with these arguments.
///
/// # Errors
/// When something could not be measured; never because of a figure.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    cargo(BUILD).run()?;
    let program = repository::root().join("target/release/bench");
    Run::new(program).args(["run"]).args(arguments.iter().map(String::as_str)).run()
}
