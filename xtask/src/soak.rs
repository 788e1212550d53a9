//! `cargo xtask soak`: what takes too long for every change. Its printout is kept in `docs/soak.md`.

use std::fs;

use anyhow::Context as _;

use crate::command::cargo;
use crate::metadata::Metadata;
use crate::parts::{Part, run_all};
use crate::repository;

/// The only target whose standard library is installed everywhere.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The test of the limit under kills; its variables say how long it is.
const KILL_TEST: &str = "kills::";
/// Images of the long kill run.
const KILL_IMAGES: &str = "200";
/// Where each long kill run begins; a failure is repeated with its seed.
const KILL_SEEDS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// Runs every part.
///
/// # Errors
/// When one fails.
pub fn run() -> anyhow::Result<()> {
    let mut parts = vec![
        Part::new("each crate alone", each_crate_alone),
        Part::new("static importer", static_importer),
        Part::new("release demo", || {
            cargo(["run", "--locked", "--release", "-p", "otctl", "--", "demo"]).run()
        }),
    ];
    parts.extend(
        KILL_SEEDS.map(|seed| Part::new(format!("kill run, seed {seed}"), move || kill_run(seed))),
    );
    run_all("soak", parts)
}

/// A crate that compiles only beside others has a feature or dependency missing.
fn each_crate_alone() -> anyhow::Result<()> {
    for package in Metadata::read()?.members() {
        cargo(["check", "--locked", "--all-targets", "-p", &package.name]).run()?;
    }
    Ok(())
}

/// The importer's image holds one file.
fn static_importer() -> anyhow::Result<()> {
    let build =
        cargo(["build", "--locked", "--release", "-p", "disk-importer", "--target", TARGET]);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static").run()?;
    let path = repository::root().join("target").join(TARGET).join("release/disk-importer");
    let program = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    println!("{}: {:.1} MB", path.display(), program.len() as f64 / 1e6);
    let loader = b"/ld-linux";
    let is_dynamic = program.windows(loader.len()).any(|window| window == loader);
    anyhow::ensure!(!is_dynamic, "{} asks for a dynamic loader", path.display());
    Ok(())
}

/// The limit under kills, with more images than in `ci`.
fn kill_run(seed: &str) -> anyhow::Result<()> {
    // A filter that matches nothing succeeds.
    let names = cargo(kill_test(&["--list"])).output()?;
    anyhow::ensure!(names.contains(": test"), "there is no test named {KILL_TEST}");
    let test = cargo(kill_test(&["--nocapture"]));
    test.env("OTCTL_KILL_IMAGES", KILL_IMAGES).env("OTCTL_KILL_SEED", seed).run()
}

fn kill_test<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let test = ["test", "--locked", "--release", "-p", "otctl", "--test", "it", KILL_TEST, "--"];
    [&test, options].concat()
}
