//! The `disk-importer` program; everything it does is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use disk_importer::cli::{Args, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    // Standard error only: standard output is nobody's, and the report goes to its own file.
    tracing_subscriber::fmt().json().with_writer(std::io::stderr).init();
    run(Args::parse()).await
}
