//! Flags and sub-commands. Only `run` is for people; the others are processes that `run` starts and measures.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};

/// Measures what the product costs.
#[derive(Debug, Parser)]
#[command(name = "bench")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure these parts, or all, and print the figures.
    Run(RunArgs),
    /// Keep plain kube-rs reflectors of what the controller watches.
    #[command(hide = true)]
    PlainCache(PlainArgs),
    /// Run a program and report what it used.
    #[command(hide = true)]
    Measured(MeasuredArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// How many images; may be given more than once.
    #[arg(long, value_name = "COUNT", default_values_t = [1_000, 10_000])]
    images: Vec<usize>,
    /// How long a process at rest is watched.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    rest: u64,
    /// How many images go through the lane.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    pub(crate) imports: usize,
    /// What to measure; without any, everything.
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// CPU and memory with many finished images.
    Cache,
    /// Times, writes and CPU of an image.
    Lane,
    /// The order of a burst.
    Order,
    /// An import beside curl and qemu-img.
    Import,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PlainArgs {
    /// The way into the cluster.
    #[arg(long)]
    pub(crate) kubeconfig: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MeasuredArgs {
    /// Where the report goes.
    #[arg(long)]
    pub(crate) report: PathBuf,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

impl RunArgs {
    /// The parts that were asked for.
    pub(crate) fn parts(&self) -> Vec<Part> {
        if self.parts.is_empty() { Part::value_variants().to_vec() } else { self.parts.clone() }
    }

    /// How many images, ascending.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let mut sizes = self.images.clone();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The most images.
    pub(crate) fn most(&self) -> usize {
        self.images.iter().copied().max().unwrap_or(0)
    }

    pub(crate) fn rest(&self) -> Duration {
        Duration::from_secs(self.rest)
    }
}

impl Part {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cache => "Many images at rest",
            Self::Lane => "An image through the lane",
            Self::Order => "A burst",
            Self::Import => "One file",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(arguments: &[&str]) -> RunArgs {
        let all = [&["bench", "run"], arguments].concat();
        match Cli::try_parse_from(all).unwrap().command {
            Command::Run(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_is_measured_unless_told_otherwise() {
        assert_eq!(parsed(&[]).parts().len(), 4);
        assert_eq!(parsed(&["order", "lane"]).parts(), [Part::Order, Part::Lane]);
        assert_eq!(parsed(&[]).sizes(), [1_000, 10_000]);
        assert_eq!(parsed(&["--images", "50", "--images", "7", "--images", "50"]).sizes(), [7, 50]);
    }
}
