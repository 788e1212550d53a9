//! The program: parses flags and runs.

use std::process::ExitCode;

use clap::Parser;
use workspace_controller::{Args, run};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    Ok(run(Args::parse()).await?)
}
