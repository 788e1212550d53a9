//! The command line of otctl, and the one program that the demo and the process node start.
//!
//! | file | holds |
//! |---|---|
//! | [`cli`] | every flag and sub-command |
//! | `cmd` | one file a sub-command: what it does, step by step |
//! | `installation` | what the demo and `up` put on a cluster: kinds, policy, the controllers' accounts and rights, each controller as a process of its own |
//! | `local` | the control plane of this machine that the demo and `up` run |
//! | `kind` | what commands know of a kind: its names, how it is judged, described and asked again |
//! | `selection` | which objects the words of a command line name |
//! | `wait` | objects until they are decided, or the time is up |
//! | `manifest` | files as objects |
//! | `apply` | manifests to the cluster |
//! | `progress` | how far something is |
//! | `tree` | a tree of words |
//! | `completion` | what a shell asks while somebody types |
//! | `live` | images and their queue as the cluster tells of them |
//! | `queue` | the same as rows with positions: pure |
//! | `view` | what moves, as bars on a terminal and as lines elsewhere |
//! | `demo` | what the demo serves, watches, counts, restores and holds against what is right |
//! | `out` | how anything is printed |
//!
//! Nothing here decides what a controller does; `demo` only holds what was seen against what must be.

mod apply;
pub mod cli;
mod client;
mod cmd;
mod completion;
pub mod demo;
pub mod installation;
mod kind;
mod live;
mod local;
mod manifest;
mod out;
mod progress;
mod queue;
mod selection;
mod signals;
mod tree;
mod view;
mod wait;

use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::{Cli, Command};
use crate::cmd::suspend::Wish;

/// What a command that cannot be understood exits with, as clap has it.
const USAGE: u8 = 2;

/// Reads the command line, does what it says, and prints what went wrong.
#[must_use]
pub fn main() -> ExitCode {
    // An error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Before there are threads: it takes a variable out of the environment.
    if completion::is_answered() {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a process may have threads");
    let ended = runtime.block_on(run(Cli::read().command)).and_then(|code| {
        out::finish().context("not everything could be printed")?;
        Ok(code)
    });
    ended.unwrap_or_else(|error| {
        out::error(&error);
        if error.is::<selection::Misnamed>() { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    })
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => cmd::demo::run(args).await,
        Command::Up(args) => cmd::up::run(args).await,
        Command::Get(args) => cmd::get::run(&args).await,
        Command::Describe(args) => cmd::describe::run(&args).await,
        Command::Apply(args) => cmd::apply::run(&args).await,
        Command::Wait(args) => cmd::wait::run(&args).await,
        Command::Retry(args) => cmd::retry::run(&args).await,
        Command::Suspend(args) => cmd::suspend::run(&args, Wish::Suspend).await,
        Command::Resume(args) => cmd::suspend::run(&args, Wish::Resume).await,
        Command::Queue(args) => cmd::queue::run(&args).await,
        Command::Crds(args) => cmd::crds::run(&args).await,
        Command::Completion(args) => cmd::completion::run(args),
        Command::RunController(controller) => cmd::run::controller(*controller).await,
        Command::RunImporter(args) => Ok(cmd::run::importer(*args).await),
        Command::RunContainer(args) => Ok(local_cluster::container::run(args).await),
    }
}
