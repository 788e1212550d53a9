//! The command line of otctl, and the one program that the demo and the process node start.
//!
//! | file | holds |
//! |---|---|
//! | [`cli`] | every flag and sub-command |
//! | `cmd` | one file a sub-command: what it does, step by step |
//! | `installation` | what the demo and `up` put on a cluster: kinds, policy, the controller's account and rights, the controller as a process of its own |
//! | `live` | images and their queue as the cluster tells of them |
//! | `queue` | the same as rows with positions: pure |
//! | `progress` | how far something is |
//! | `view` | what moves, as bars on a terminal and as lines elsewhere |
//! | `demo` | what the demo serves, counts, restores and holds against what is right |
//! | `out` | how anything is printed |
//!
//! Nothing here decides what a controller does; `demo` only holds what was seen against what must be.

pub mod cli;
mod client;
mod cmd;
pub mod demo;
pub mod installation;
mod live;
mod out;
mod progress;
mod queue;
mod signals;
mod view;

use std::process::ExitCode;

use crate::cli::{Cli, Command};

/// Reads the command line, does what it says, and prints what went wrong.
pub async fn main() -> ExitCode {
    // An error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::read();
    let ended = match cli.command {
        Command::Demo(args) => cmd::demo::run(args).await,
        Command::Up(args) => cmd::up::run(args).await,
        Command::Queue(args) => cmd::queue::run(&args).await,
        Command::Crds(args) => cmd::crds::run(&args).await,
        Command::RunController(controller) => cmd::run::controller(*controller).await,
        Command::RunImporter(args) => Ok(cmd::run::importer(*args).await),
        Command::RunContainer(args) => Ok(local_cluster::container::run(args).await),
    };
    ended.unwrap_or_else(|error| {
        out::error(&error);
        ExitCode::FAILURE
    })
}
