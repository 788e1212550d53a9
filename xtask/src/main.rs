//! `cargo xtask`: everything that is done to this repository as a whole.

use clap::{Parser, Subcommand};

/// Checks, generates and measures the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Every check and test that needs neither root nor more than the Rust and Go tools
    #[command(after_help = xtask::ci::names())]
    Ci {
        /// Only these parts
        parts: Vec<String>,
    },
    /// Alerts and dashboards by Prometheus' own tools: needs the distribution's package `prometheus`
    Alerts,
    /// Writes what is generated from the code: definitions, roles, reference pages
    Codegen {
        /// Change nothing, and fail when something would be changed
        #[arg(long)]
        check: bool,
    },
    /// Rules of the workspace that no compiler knows: layers, writers, clocks, cases, licences, sizes
    Tidy,
    /// Fuzzes what reads foreign bytes or what people write, from the seeds in `crates/fuzz`
    Fuzz {
        /// How long, for each target
        #[arg(long, default_value_t = xtask::fuzz::SECONDS)]
        seconds: u64,
        /// Only these targets
        targets: Vec<String>,
    },
    /// What takes too long for every change; run before a capability is called done
    Soak {
        /// Only these parts, as the table at the end names them
        parts: Vec<String>,
    },
    /// What the product costs, beside what one would use without it: printed, never failed
    Bench {
        /// Parts, `--images N` and others, as `cargo xtask bench -- --help` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// A controller, for who checks what it measures
    #[command(hide = true, subcommand)]
    RunController(Controller),
}

/// A controller, by the name of its program
#[derive(Subcommand)]
enum Controller {
    DiskimageController(Box<diskimage_controller::Args>),
    WorkspaceController(Box<workspace_controller::Args>),
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Ci { parts } => xtask::ci::run(&parts),
        Task::Alerts => xtask::alerts::run(),
        Task::Codegen { check } => xtask::codegen::run(check),
        Task::Tidy => xtask::tidy::run(),
        Task::Fuzz { seconds, targets } => xtask::fuzz::run(&targets, seconds),
        Task::Soak { parts } => xtask::soak::run(&parts),
        Task::Bench { arguments } => xtask::bench::run(&arguments),
        Task::RunController(controller) => run_controller(controller),
    }
}

#[tokio::main]
async fn run_controller(controller: Controller) -> anyhow::Result<()> {
    match controller {
        Controller::DiskimageController(args) => diskimage_controller::run(*args).await?,
        Controller::WorkspaceController(args) => workspace_controller::run(*args).await?,
    };
    Ok(())
}
