//! The program: parses flags and runs.

use std::process::ExitCode;

use workspace_controller::cli::{Program, Task};
use workspace_controller::{release, run};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Program::read() {
        Program::Controller(args) => Ok(run(*args).await?),
        Program::Task(Task::ReleaseFinalizers(args)) => Ok(release::run(&args).await?),
    }
}
