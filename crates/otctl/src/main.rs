//! The `otctl` program; everything it does is in the library.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    otctl::main().await
}
