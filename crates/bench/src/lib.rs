//! What the product costs, measured beside what one would use without it: in one run, on the same files and the same API
//! server, alternating. Nothing here fails on a figure; `cargo xtask bench` prints them, `docs/soak.md` keeps them.
//!
//! | file | measures |
//! |---|---|
//! | `cache` | CPU and memory of the controller with so many finished images, beside plain kube-rs reflectors of the same kinds |
//! | `lane` | hundreds of small images through the lane: times, writes and CPU of each |
//! | `order` | so many images created in a burst: the order of their tickets, over a crash, and what a slot costs while they wait |
//! | `import` | one file through the importer, beside `curl` and `qemu-img` |
//!
//! The rest is shared: `bed` (a control plane with the installation), `subject` (a process under measurement), `usage`
//! (what the kernel counts of it), `figures` and `table` (arithmetic and print).

mod bed;
mod cache;
mod cli;
mod figures;
mod import;
mod lane;
mod machine;
mod measured;
mod order;
mod out;
mod plain;
mod programs;
mod subject;
mod table;
mod usage;
mod waiting;

use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::{Cli, Command, Part, RunArgs};

/// Reads the command line, does what it says, and prints what went wrong.
pub async fn main() -> ExitCode {
    // An error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ended = match Cli::parse().command {
        Command::Run(args) => run(&args).await.map(|()| ExitCode::SUCCESS),
        Command::PlainCache(args) => plain::run(&args).await,
        Command::Measured(args) => measured::run(&args),
    };
    ended.unwrap_or_else(|error| {
        out::error(&error);
        ExitCode::FAILURE
    })
}

/// Every part that was asked for, also after one has failed.
async fn run(args: &RunArgs) -> anyhow::Result<()> {
    out::line(&machine::told());
    let mut failed = Vec::new();
    for part in args.parts() {
        out::title(part.title());
        let ended = match part {
            Part::Cache => cache::run(args).await,
            Part::Lane => lane::run(args).await,
            Part::Order => order::run(args).await,
            Part::Import => import::run().await,
        };
        if let Err(error) = ended {
            out::error(&error);
            failed.push(part.title());
        }
    }
    anyhow::ensure!(failed.is_empty(), "could not be measured: {}", failed.join("; "));
    Ok(())
}
