//! `cargo xtask ci`: what every change must pass. Cheap parts first; one target folder for all.

use std::num::NonZero;
use std::{env, thread};

use local_cluster::Progress;
use local_cluster::programs::{Program, Sources};

use crate::command::{Run, cargo};
use crate::parts::{Part, chosen, run_all};
use crate::{charts, codegen, repository, tidy};

/// Runs every part, or only those that are named.
///
/// # Errors
/// When one fails, or there is none of that name.
pub fn run(wanted: &[String]) -> anyhow::Result<()> {
    run_all("ci", chosen(parts(), wanted)?)
}

/// A line for the help.
#[must_use]
pub fn names() -> String {
    format!("Parts: {}", crate::parts::names(&parts()).join(", "))
}

fn parts() -> Vec<Part<'static>> {
    vec![
        Part::new("fmt", || cargo(["fmt", "--all", "--check"]).run()),
        Part::new("tidy", tidy::run),
        Part::new("codegen", || codegen::run(true)),
        Part::new("clippy", || {
            cargo(["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])
                .run()
        }),
        Part::new("doc", || {
            let doc = cargo(["doc", "--locked", "--workspace", "--no-deps"]);
            doc.env("RUSTDOCFLAGS", "-D warnings").run()
        }),
        Part::new("build", || cargo(["build", "--locked", "--workspace", "--all-targets"]).run()),
        Part::new("programs", programs),
        Part::new("charts", charts::lint),
        Part::new("tests", tests),
        Part::new("demo", demo),
    ]
}

/// What takes long waits for API servers at times, so that few cores carry three tests each, and many one each, as ever: a
/// test takes up to a gigabyte. It is the API servers who compute most; a sixth of that is collecting garbage, which those
/// that live for seconds can do without.
fn tests() -> anyhow::Result<()> {
    const THREADS: &str = "RUST_TEST_THREADS";
    const GARBAGE: &str = "GOGC";
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let threads = env::var(THREADS).unwrap_or_else(|_| cores.max(6.min(3 * cores)).to_string());
    let garbage = env::var(GARBAGE).unwrap_or_else(|_| "400".to_owned());
    let tests = cargo(["test", "--locked", "--workspace", "--no-fail-fast"]);
    tests.env(THREADS, &threads).env(GARBAGE, &garbage).run()
}

/// Finds or builds what tests and demo run, so that it shows as a part of its own.
fn programs() -> anyhow::Result<()> {
    let progress = Progress::new(|line| println!("{line}"));
    for (program, path) in Sources::from_env()?.find_or_build(&Program::ALL, &progress)? {
        println!("{:<24} {}", program.file_name(), path.display());
    }
    Ok(())
}

/// The main job on the build that is there already.
fn demo() -> anyhow::Result<()> {
    Run::new(repository::root().join("target/debug/otctl")).args(["demo"]).run()
}
