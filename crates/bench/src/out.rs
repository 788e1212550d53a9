//! How anything is printed: Markdown, so that a printout can be kept as it is.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the one place that prints")]

use std::fmt::Display;

pub(crate) fn title(text: &str) {
    println!("\n### {text}\n");
}

pub(crate) fn line(text: &impl Display) {
    println!("{text}");
}

/// What a long part is at; not part of the printout.
pub(crate) fn doing(text: &str) {
    eprintln!("… {text}");
}

pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
