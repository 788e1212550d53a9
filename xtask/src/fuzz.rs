//! `cargo xtask fuzz`: builds the fuzz targets with what cargo-fuzz builds them with, and runs them from their seeds. Only
//! the crates of the workspace are instrumented; everything else is shared with the ordinary build.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::iter;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Context as _;

use crate::command::cargo;
use crate::repository;

/// Seconds for each target when nothing else is said.
pub const SECONDS: u64 = 30;
/// The most memory that a target may take, in MiB.
const MEMORY: u64 = 1024;
/// The longest that one input may take, in seconds, on a busy machine.
const PATIENCE: u64 = 30;
/// The longest input, in bytes.
const LONGEST: u64 = 16 << 10;
/// Lines shown of what a failed target says.
const MOST_LINES: usize = 30;
const CRATE: &str = "crates/fuzz";

/// Where a run keeps what it makes: grown corpora and findings, never among the seeds.
struct Folders {
    corpus: PathBuf,
    findings: PathBuf,
}

/// What a target's run came to.
#[derive(Debug, PartialEq, Eq)]
struct Tally {
    executions: u64,
    coverage: u64,
    corpus: String,
}

/// Builds targets, all of them when none is named, and runs each for so many seconds.
///
/// # Errors
/// When one cannot be built, finds something, or tests nothing; the error names the command that repeats a finding.
pub fn run(wanted: &[String], seconds: u64) -> anyhow::Result<()> {
    let all = targets()?;
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        anyhow::bail!("there is no target {unknown}; there are {}", all.join(", "));
    }
    let chosen: Vec<_> =
        all.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    build(&chosen)?;
    let mut table =
        format!("{:<16} {:>12} {:>9} {:>14}\n", "target", "executions", "coverage", "corpus");
    let mut failures = Vec::new();
    for (target, tally) in at_once(&chosen, |target| fuzz(target, seconds)) {
        match tally {
            Ok(Tally { executions, coverage, corpus }) => {
                let _ = writeln!(table, "{target:<16} {executions:>12} {coverage:>9} {corpus:>14}");
            }
            Err(error) => {
                let _ = writeln!(table, "{target:<16} FAILED");
                println!("{target}: {error:#}");
                failures.push(target);
            }
        }
    }
    println!("\n{}", table.trim_end());
    anyhow::ensure!(failures.is_empty(), "fuzzing failed: {}", failures.join(", "));
    Ok(())
}

/// What `run` comes to for each, in their order. A fuzzer takes one core: as many run at once as there are.
fn at_once<T: Send>(targets: &[String], run: impl Fn(&str) -> T + Sync) -> Vec<(&str, T)> {
    let waiting = Mutex::new(targets.iter().enumerate());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || iter::from_fn(next).map(|(at, target)| (at, run(target))).collect::<Vec<_>>();
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let ended: BTreeMap<usize, T> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores.min(targets.len())).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|it| it.join().unwrap_or_else(|it| resume_unwind(it)));
        ended.flatten().collect()
    });
    targets.iter().map(String::as_str).zip(ended.into_values()).collect()
}

/// A file each in `fuzz_targets/`, in the order of their names.
fn targets() -> anyhow::Result<Vec<String>> {
    let folder = repository::root().join(CRATE).join("fuzz_targets");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn build(targets: &[String]) -> anyhow::Result<()> {
    // Of the whole workspace and, with `--examples`, with what tests alone ask for (there are no examples), so that
    // dependencies have the features that they have in the ordinary build.
    let mut arguments = vec!["build", "--locked", "--workspace", "--examples"];
    arguments.extend(targets.iter().flat_map(|target| ["--bin", target]));
    let instrument = repository::root().join(CRATE).join("instrument");
    cargo(arguments)
        .env("RUSTC_WORKSPACE_WRAPPER", instrument)
        .env("CARGO_TARGET_DIR", target_folder())
        .run()
        .context("the fuzzer's runtime is C++, so a C++ compiler is needed as well")
}

fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| repository::root().join("target"), PathBuf::from)
}

fn fuzz(target: &str, seconds: u64) -> anyhow::Result<Tally> {
    let folders = Folders::of(target)?;
    println!("{target}: {seconds} s");
    let output = Command::new(program(target))
        .arg(&folders.corpus)
        .arg(seeds(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-timeout={PATIENCE}"))
        .arg(format!("-max_len={LONGEST}"))
        .arg(format!("-artifact_prefix={}/", folders.findings.display()))
        .arg("-print_final_stats=1")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {target}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        anyhow::bail!("{}\n{}", finding(&told), repeat(target, &told));
    }
    let tally = Tally::read(&told).with_context(|| format!("{target} did not tell what it did"))?;
    tally.check()?;
    Ok(tally)
}

fn program(target: &str) -> PathBuf {
    target_folder().join("debug").join(target)
}

fn seeds(target: &str) -> PathBuf {
    Path::new(CRATE).join("seeds").join(target)
}

impl Folders {
    fn of(target: &str) -> anyhow::Result<Self> {
        let root = target_folder().join("fuzz");
        let folders = Self {
            corpus: root.join("corpus").join(target),
            findings: root.join("findings").join(target),
        };
        for folder in [&folders.corpus, &folders.findings] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        Ok(folders)
    }
}

/// The command that tries a finding again, without the fuzzer.
fn repeat(target: &str, told: &str) -> String {
    let written = told.lines().find_map(|line| line.split_once("Test unit written to "));
    match written {
        Some((_, path)) => {
            format!("to repeat it: cargo run -p fuzz --bin {target} -- {}", path.trim())
        }
        None => "it left no input".to_owned(),
    }
}

/// What was found: from the first panic on, else the end of what was said. The fuzzer's own lines tell nothing.
fn finding(told: &str) -> String {
    let is_said = |line: &&str| !line.starts_with('#') && !line.trim().is_empty();
    let lines: Vec<_> = told.lines().filter(is_said).collect();
    let tail = lines.len().saturating_sub(MOST_LINES);
    let start = lines.iter().position(|line| line.contains(" panicked at ")).unwrap_or(tail);
    lines[start..].iter().take(MOST_LINES).copied().collect::<Vec<_>>().join("\n")
}

impl Tally {
    /// From the last line of the kind `#4096 pulse cov: 120 ft: 300 corp: 12/340b …`, and the count at the end.
    fn read(told: &str) -> Option<Self> {
        let count =
            told.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
        let mut lines = told.lines().rev().filter(|line| line.starts_with('#'));
        let last: Vec<_> = lines.find(|line| line.contains(" cov: "))?.split_whitespace().collect();
        let after = |name: &str| last.iter().skip_while(|word| **word != name).nth(1).copied();
        Some(Self {
            executions: count.trim().parse().ok()?,
            coverage: after("cov:")?.parse().ok()?,
            corpus: after("corp:")?.to_owned(),
        })
    }

    /// A fuzzer that runs nothing, or that does not see where its inputs lead, finds nothing either.
    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.executions >= 10, "only {} inputs were tried", self.executions);
        anyhow::ensure!(
            self.coverage > 50,
            "only {} places were seen: is it instrumented?",
            self.coverage
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const TOLD: &str = "INFO: Seed: 1\n#2\tINITED cov: 61 ft: 62 corp: 1/4b exec/s: 0 rss: 40Mb\n\
        #4096\tpulse  cov: 120 ft: 300 corp: 12/340b exec/s: 99 rss: 50Mb\nDone 4200 runs in 3 second(s)\n\
        stat::number_of_executed_units: 4200\n";

    #[test]
    fn each_target_is_run_once_and_told_in_its_place() {
        let targets: Vec<String> = (0..9).map(|number| format!("target-{number}")).collect();
        let ran = AtomicUsize::new(0);
        let tallies = at_once(&targets, |target| {
            ran.fetch_add(1, Ordering::Relaxed);
            target.to_owned()
        });
        assert_eq!(ran.into_inner(), 9);
        assert_eq!(tallies.len(), 9);
        assert!(
            tallies.iter().zip(&targets).all(|((it, own), target)| it == target && own == target)
        );
    }

    #[test]
    fn what_was_done_is_read() {
        let tally = Tally::read(TOLD).unwrap();
        assert_eq!(tally, Tally { executions: 4200, coverage: 120, corpus: "12/340b".to_owned() });
        assert!(tally.check().is_ok());
        assert_eq!(Tally::read("INFO: Seed: 1\n"), None);
    }

    #[test]
    fn a_fuzzer_that_tests_nothing_fails() {
        let tally = |executions, coverage| Tally { executions, coverage, corpus: String::new() };
        assert!(tally(1, 120).check().is_err());
        assert!(tally(4200, 0).check().is_err());
    }

    #[test]
    fn a_finding_comes_with_the_command_that_repeats_it() {
        let told =
            "panicked\nartifact_prefix='f/'; Test unit written to /f/crash-1\nBase64: AA==\n";
        assert_eq!(
            repeat("policy", told),
            "to repeat it: cargo run -p fuzz --bin policy -- /f/crash-1"
        );
    }

    #[test]
    fn a_finding_is_told_before_the_frames_that_lead_to_it() {
        let frames: String = (0..40).map(|at| format!("  {at}: frame\n")).collect();
        let told = format!("#2 INITED\nthread 'x' panicked at a.rs:1:2:\nthe only copy\n{frames}");
        assert!(finding(&told).starts_with("thread 'x' panicked at a.rs:1:2:\nthe only copy\n"));
        assert!(finding(&frames).ends_with("39: frame"));
    }

    #[test]
    fn every_target_has_seeds() {
        for target in targets().unwrap() {
            assert!(repository::root().join(seeds(&target)).is_dir(), "{target}");
        }
    }
}
