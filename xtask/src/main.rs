//! `cargo xtask`: everything that is done to this repository as a whole.

use clap::Parser;

/// Checks, generates and measures the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Every check and test that needs neither root nor more than the Rust and Go tools
    Ci {
        /// Only these parts, as the table at the end names them
        parts: Vec<String>,
    },
    /// Writes what is generated from the code: definitions, roles, reference pages
    Codegen {
        /// Change nothing, and fail when something would be changed
        #[arg(long)]
        check: bool,
    },
    /// Rules of the workspace that no compiler knows: layers, writers, clocks, cases, licences, sizes
    Tidy,
    /// What takes too long for every change; run before a capability is called done
    Soak,
}

fn main() -> anyhow::Result<()> {
    match Task::parse() {
        Task::Ci { parts } => xtask::ci::run(&parts),
        Task::Codegen { check } => xtask::codegen::run(check),
        Task::Tidy => xtask::tidy::run(),
        Task::Soak => xtask::soak::run(),
    }
}
