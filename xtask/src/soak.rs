//! `cargo xtask soak`: what takes too long for every change. Its printout is kept in `docs/soak.md`.

use std::fs;

use anyhow::Context as _;

use crate::command::cargo;
use crate::metadata::Metadata;
use crate::parts::{Part, chosen, run_all};
use crate::repository;
use crate::{fuzz, levels};

/// The only target whose standard library is installed everywhere.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The test of the limit under kills; its variables say how long it is.
const KILL_TEST: &str = "kills::";
/// A part's name, the filter of its tests, and the variables that say how long they are.
type LongTest = (&'static str, &'static str, &'static [(&'static str, &'static str)]);
/// Tests of faults that are longer here than in `ci`.
const LONG_TESTS: [LongTest; 7] = [
    ("crash points of every life", "faults::crash_points::", &[("OTCTL_CRASH_POINTS", "all")]),
    ("wrong answers to every write", "faults::answers::", &[("OTCTL_ANSWERS", "all")]),
    (
        "both acting, seed 1",
        "faults::acting::",
        &[("OTCTL_ACTING_IMAGES", "200"), ("OTCTL_ACTING_SEED", "1")],
    ),
    (
        "both acting, seed 2",
        "faults::acting::",
        &[("OTCTL_ACTING_IMAGES", "200"), ("OTCTL_ACTING_SEED", "2")],
    ),
    (
        "crash points of workspaces on a server",
        "workspaces::crash_points::",
        &[("OTCTL_CRASH_POINTS", "all")],
    ),
    (
        "fleet of workspaces, seed 1",
        "workspaces::fleet::",
        &[("OTCTL_FLEET", "120"), ("OTCTL_FLEET_SEED", "1")],
    ),
    (
        "fleet of workspaces, seed 2",
        "workspaces::fleet::",
        &[("OTCTL_FLEET", "120"), ("OTCTL_FLEET_SEED", "2")],
    ),
];
/// Sequences in the in-memory world, which are fewer in `ci`: the package, and the test.
const SEQUENCES: [(&str, LongTest); 3] = [
    (
        "workspace-controller",
        ("crash points of workspaces", "crash_points::", &[("OTCTL_CRASH_POINTS", "all")]),
    ),
    ("workspace-controller", ("orders of workspaces", "", &[("OTCTL_SEEDS", "20")])),
    ("diskimage-controller", ("orders of images", "", &[("OTCTL_SEEDS", "20")])),
];
/// The searches through every order of events: package and test.
const SEARCHES: [(&str, &str); 2] = [("diskimage-controller", "model"), ("testbed", "lease")];
/// For each fuzz target.
const FUZZ_SECONDS: u64 = 60;
/// Images of the long kill run.
const KILL_IMAGES: &str = "200";
/// Where each long kill run begins; a failure is repeated with its seed.
const KILL_SEEDS: [&str; 3] = ["1", "2", "3"];

/// Runs every part, or only those that are named.
///
/// # Errors
/// When one fails, or there is none of that name.
pub fn run(wanted: &[String]) -> anyhow::Result<()> {
    let mut parts = vec![
        Part::new("levels", levels::print),
        Part::new("each crate alone", each_crate_alone),
        Part::new("static importer", static_importer),
        Part::new("release demo", || {
            cargo(["run", "--locked", "--release", "-p", "otctl", "--", "demo"]).run()
        }),
    ];
    parts.push(Part::new("exhaustive search", || {
        SEARCHES.into_iter().try_for_each(exhaustive_search)
    }));
    parts.extend(
        KILL_SEEDS.map(|seed| Part::new(format!("kill run, seed {seed}"), move || kill_run(seed))),
    );
    parts.push(Part::new("fuzz", || fuzz::run(&[], FUZZ_SECONDS)));
    parts.extend(
        LONG_TESTS
            .map(|(name, test, variables)| Part::new(name, move || long_test(test, variables))),
    );
    parts.extend(SEQUENCES.map(|(package, (name, test, variables))| {
        Part::new(name, move || longer((package, "sim"), test, variables))
    }));
    run_all("soak", chosen(parts, wanted)?)
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
    let build = cargo(["build", "--locked", "--profile", "dist", "-p", "disk-importer"]);
    build.args(["--target", TARGET]).env("RUSTFLAGS", "-C target-feature=+crt-static").run()?;
    let path = repository::root().join("target").join(TARGET).join("dist/disk-importer");
    let program = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = path.file_name().unwrap_or_default().display();
    println!("{name}: {:.1} MB", program.len() as f64 / 1e6);
    let loader = b"/ld-linux";
    let is_dynamic = program.windows(loader.len()).any(|window| window == loader);
    anyhow::ensure!(!is_dynamic, "{} asks for a dynamic loader", path.display());
    Ok(())
}

/// What takes minutes in `ci` goes on for an hour here; it prints what was explored and whether to the end.
fn exhaustive_search((package, test): (&str, &str)) -> anyhow::Result<()> {
    let search = ["test", "--locked", "--release", "-p", package, "--test", test, "--"];
    cargo([&search[..], &["--nocapture", "--test-threads=1"]].concat())
        .env("OTCTL_MODEL", "large")
        .run()
}

/// The limit under kills, with more images than in `ci`.
fn kill_run(seed: &str) -> anyhow::Result<()> {
    long_test(KILL_TEST, &[("OTCTL_KILL_IMAGES", KILL_IMAGES), ("OTCTL_KILL_SEED", seed)])
}

/// A test on a real API server, made longer by variables.
fn long_test(name: &str, variables: &[(&str, &str)]) -> anyhow::Result<()> {
    longer(("otctl", "it"), name, variables)
}

fn longer(
    (package, test): (&str, &str),
    name: &str,
    variables: &[(&str, &str)],
) -> anyhow::Result<()> {
    let of = ["test", "--locked", "--release", "-p", package, "--test", test, name, "--"];
    // A filter that matches nothing succeeds.
    let names = cargo([&of[..], &["--list"]].concat()).output()?;
    anyhow::ensure!(names.contains(": test"), "there is no test named {name}");
    let test = cargo([&of[..], &["--nocapture"]].concat());
    variables.iter().fold(test, |test, (name, value)| test.env(name, value)).run()
}
