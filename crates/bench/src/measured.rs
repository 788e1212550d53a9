//! A program run to its end, with what it used. A process of its own for each: the kernel adds up what all ended children
//! of a process used.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

use crate::cli::MeasuredArgs;

/// What a program used, its children included.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// The most that one of its processes had resident, in bytes.
    pub(crate) peak: u64,
}

/// Runs the program and leaves the report.
pub(crate) fn run(args: &MeasuredArgs) -> anyhow::Result<ExitCode> {
    let (program, arguments) = args.command.split_first().context("clap asks for a program")?;
    let began = Instant::now();
    let status = std::process::Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    let wall = began.elapsed();
    anyhow::ensure!(status.success(), "{program} ended with {status}");
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let micros = (used.user_time() + used.system_time()).num_microseconds();
    let spent = Spent {
        wall,
        cpu: Duration::from_micros(u64::try_from(micros)?),
        peak: u64::try_from(used.max_rss())? * 1024,
    };
    std::fs::write(&args.report, serde_json::to_vec(&spent)?)?;
    Ok(ExitCode::SUCCESS)
}
