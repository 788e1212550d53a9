//! `otctl run-controller` and `otctl run-importer`: this program in the place of the others, which is what makes it the
//! one file that the demo and the process node need.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::cli::Controller;

/// Runs a controller until a signal ends it.
pub(crate) async fn controller(controller: Controller) -> anyhow::Result<ExitCode> {
    match controller {
        Controller::Diskimage(args) => {
            diskimage_controller::cli::run(args).await.context("the disk image controller ended")
        }
        Controller::Workspace(args) => {
            workspace_controller::cli::run(args).await.context("the workspace controller ended")
        }
    }
}

/// Runs the importer to its end.
pub(crate) async fn importer(args: disk_importer::cli::Args) -> ExitCode {
    // Standard error only: standard output is nobody's, and the report goes to its own file.
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    disk_importer::cli::run(args).await
}
