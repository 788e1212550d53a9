//! The program that stands for what is in an image: a small server that a test can make slow to become ready, crash, or
//! read the disks of a virtual machine.
//!
//! It listens on the address and ports that the node tells it, since there is no network namespace, and answers every
//! path alike: 200 and what it was started with, or 503 while it is not ready. `PUT /ready` makes it ready,
//! `DELETE /ready` ends that, `PUT /exit/CODE` ends the program.

mod answer;
mod disk;

use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use self::answer::Server;
pub use self::disk::sums_in;
use crate::node::{ADDRESS_VARIABLE, HOSTS_VARIABLE, PORTS_VARIABLE};

/// What the program does.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// End at once with this code.
    #[arg(long, value_name = "CODE")]
    pub exit_code: Option<u8>,
    /// Be ready only after this time, such as 2s.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "0s")]
    pub ready_after: Duration,
    /// Read this file to its end before being ready, and say what it hashes to. Can be repeated.
    #[arg(long = "disk", value_name = "FILE")]
    pub disks: Vec<PathBuf>,
    /// Address to listen on.
    #[arg(long, env = ADDRESS_VARIABLE, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// Ports to listen on.
    #[arg(long, env = PORTS_VARIABLE, value_name = "PORT", value_delimiter = ',')]
    pub ports: Vec<u16>,
    /// What stands for /etc/hosts.
    #[arg(long, env = HOSTS_VARIABLE, value_name = "FILE")]
    pub hosts: Option<PathBuf>,
    /// What was meant for the program that this one stands for; without effect.
    #[arg(last = true, value_name = "ARGUMENT")]
    pub rest: Vec<String>,
}

/// Runs until it is told to end, by a signal or a request.
pub async fn run(args: Args) -> ExitCode {
    if let Some(code) = args.exit_code {
        return ExitCode::from(code);
    }
    serve(args).await.unwrap_or_else(|error| {
        // Nobody reads it: nothing to be done.
        let _ = writeln!(io::stderr(), "{error:#}");
        ExitCode::FAILURE
    })
}

async fn serve(args: Args) -> anyhow::Result<ExitCode> {
    let mut terminated = signal(SignalKind::terminate())?;
    let (server, mut exits) = Server::new(&args)?;
    let mut tasks = JoinSet::new();
    for port in &args.ports {
        let listening = TcpListener::bind((args.address, *port)).await;
        let listener = listening.with_context(|| format!("listen on {}:{port}", args.address))?;
        let router = server.clone().router();
        tasks.spawn(async { axum::serve(listener, router).await.context("serve") });
    }
    tasks.spawn(become_ready(server, args));
    loop {
        tokio::select! {
            _ = terminated.recv() => return Ok(ExitCode::SUCCESS),
            Some(code) = exits.recv() => return Ok(ExitCode::from(code)),
            Some(ended) = tasks.join_next() => ended??,
        }
    }
}

/// Reads the disks and waits as it was told.
async fn become_ready(server: Server, args: Args) -> anyhow::Result<()> {
    let reading = tokio::task::spawn_blocking(move || disk::read_all(&args.disks));
    for (file, sum) in reading.await?? {
        writeln!(io::stdout(), "{}", disk::line(&file, &sum))?;
        server.add_disk(&file, sum);
    }
    tokio::time::sleep(args.ready_after).await;
    server.set_ready(true);
    Ok(())
}
