//! Tells the kit which commit it is built from: what `OTCTL_COMMIT` says, else what git says of this repository.
//!
//! Only optimized builds ask git. They would all be compiled again with each commit otherwise, for a word that nobody
//! reads in a program that is not installed anywhere.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=OTCTL_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let is_optimized = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = match env::var("OTCTL_COMMIT") {
        Ok(given) if !given.is_empty() => given,
        _ if is_optimized => head().unwrap_or_else(|| "unknown".to_owned()),
        _ => "not recorded in debug builds".to_owned(),
    };
    println!("cargo::rustc-env=OTCTL_COMMIT={commit}");
}

/// The checked out commit, if these sources are a repository of their own and there is a git to ask.
fn head() -> Option<String> {
    let is_ours = git(&["rev-parse", "--show-cdup"])? == "../../";
    // It gets a line with every commit and every checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if is_ours && Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"]).filter(|_| is_ours)
}

/// What git says in the directory of this crate.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
