//! What fuzzers try on everything here that reads foreign bytes or what people write, and what must hold besides that
//! nothing panics, hangs or takes memory without end.
//!
//! | target | it tries | what must hold |
//! |---|---|---|
//! | [`answer`] | heads and bodies of sources and object stores | nothing secret or foreign in a message, bounded words |
//! | [`decide`] | images, ledgers and children, as anybody may have left them, and what happens next | the promises of the ledger, ownership, bounds of every status, rest in the end |
//! | [`duration`] | durations | the value, as Kubernetes reads it |
//! | [`image`] | image files | the disk is what a second reader sees; a file and a device get the same; nothing beyond the disk |
//! | [`policy`] | policy documents over an earlier one | every key in its bounds or named with what stays; written and read back |
//! | [`quantity`] | sizes | the value, by arithmetic on digits |
//! | [`report`] | termination messages and progress | bounds of what is remembered of them |
//! | [`source_hosts`] | rules, addresses and urls | nothing dangerous is reached under any spelling, but by its full name |
//! | [`unpack`] | compressed files | bounded output, the same at the first look and in the end |
//! | [`workspace`] | Workspaces, ledgers, children and strangers, as anybody may have left them, and what happens next | ownership, the policy before the pods and gone after them, nothing made without a turn, bounds of every status, rest in the end |
//!
//! `cargo xtask fuzz` builds and runs them; `cargo fuzz run -s none --fuzz-dir crates/fuzz TARGET` does too, where
//! cargo-fuzz is installed. Without a fuzzer a target tries the files it is given: `cargo run -p fuzz --bin TARGET FILE`.
//!
//! `seeds/TARGET/` is where the fuzzer begins, and what `cargo test` tries each time. `seeds/make.py` writes them: by
//! hand where a person would write such a text, from the formats' own rules where they are binary. A file there whose
//! name begins with `found-` is an input that once broke something, as the fuzzer left it.

pub mod answer;
mod choices;
mod cluster;
mod controller;
pub mod decide;
pub mod duration;
pub mod image;
mod people;
pub mod policy;
mod promises;
pub mod quantity;
pub mod report;
mod schema;
pub mod source_hosts;
pub mod unpack;
pub mod workspace;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// One input is tried by this; it panics when something does not hold.
pub type Check = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: [(&str, Check); 10] = [
    ("answer", answer::check),
    ("decide", decide::check),
    ("duration", duration::check),
    ("image", image::check),
    ("policy", policy::check),
    ("quantity", quantity::check),
    ("report", report::check),
    ("source_hosts", source_hosts::check),
    ("unpack", unpack::check),
    ("workspace", workspace::check),
];

/// Tries the files that the arguments name.
///
/// # Errors
/// When one cannot be read.
pub fn replay(check: Check) -> io::Result<()> {
    env::args_os().skip(1).try_for_each(|path| {
        check(&fs::read(path)?);
        Ok(())
    })
}

/// The seeds of a target, in the order of their names.
///
/// # Errors
/// When they cannot be listed.
pub fn seeds(target: &str) -> io::Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    Ok(paths)
}
