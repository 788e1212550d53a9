//! `local-cluster programs`: finds or builds every program and prints where each is.
//! `local-cluster up`: a cluster until Ctrl-C or SIGTERM; prints one JSON line once it works.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use local_cluster::{
    LocalCluster, Options, Progress,
    programs::{Program, Sources},
};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: local-cluster programs | up";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["programs"] => print_programs()?,
        ["up"] => tokio::runtime::Runtime::new()?.block_on(up())?,
        _ => {
            writeln!(io::stderr(), "{USAGE}")?;
            return Ok(ExitCode::from(2));
        }
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
    let options = Options { progress: to_stderr(), ..Options::default() };
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
