//! `otctl completion`: the script that a shell reads at its start.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::CompletionArgs;
use crate::{completion, out};

/// Prints the script.
pub(crate) fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    let script = completion::script(args.shell)
        .with_context(|| format!("there is no script for {}", args.shell))?;
    out::text(&script);
    Ok(ExitCode::SUCCESS)
}
