//! `local-cluster programs`: finds or builds every program and prints where each is.
//! `local-cluster up`: a cluster until Ctrl-C or SIGTERM; prints one JSON line once it works.
//! `local-cluster container`: what nodes start in the place of an image's program.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Parser;
use local_cluster::{
    LocalCluster, Options, Progress, container,
    node::{Image, Images},
    programs::{Program, Sources},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

/// The image of [`container`] on every node.
const SERVER: &str = "local-cluster/server";

/// A Kubernetes control plane on this machine.
#[derive(Debug, Parser)]
enum Command {
    /// Find or build every program and print where each is.
    Programs,
    /// Run a cluster until Ctrl-C, and print one JSON line once it works. Pods of the image local-cluster/server run a
    /// small server; others are only reported Running.
    Up,
    /// Run in the place of an image's program.
    #[command(hide = true)]
    Container(container::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let command = Command::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    match command {
        Command::Programs => print_programs()?,
        Command::Up => runtime.block_on(up())?,
        Command::Container(args) => return Ok(runtime.block_on(container::run(args))),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_programs() -> anyhow::Result<()> {
    let programs = Sources::from_env()?.find_or_build(&Program::ALL, &to_stderr())?;
    for (program, path) in programs {
        writeln!(io::stdout(), "{:<24} {}", program.file_name(), path.display())?;
    }
    Ok(())
}

async fn up() -> anyhow::Result<()> {
    // From here on, so that whoever reads our line may end us at once.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let own = std::env::current_exe()?.display().to_string();
    let images = Images::any().with(SERVER, Image::new([own.as_str(), "container"]));
    let options = Options { progress: to_stderr(), images, ..Options::default() };
    let cluster = tokio::select! {
        cluster = LocalCluster::start(options) => cluster.context("the cluster did not start")?,
        _ = terminated.recv() => return Ok(()),
        _ = interrupted.recv() => return Ok(()),
    };
    writeln!(io::stdout(), "{}", description(&cluster))?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    cluster.shutdown().await;
    Ok(())
}

fn description(cluster: &LocalCluster) -> Value {
    json!({
        "kubeconfig": cluster.kubeconfig_path(),
        "stateDir": cluster.state_dir(),
        "processes": cluster.process_ids().map(|(_, id)| id).collect::<Vec<_>>(),
        "guard": cluster.guard_id(),
    })
}

/// A closed stderr is no reason to stop.
fn to_stderr() -> Progress {
    Progress::new(|line| drop(writeln!(io::stderr(), "{line}")))
}
