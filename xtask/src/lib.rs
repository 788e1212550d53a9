//! What `cargo xtask` does. Nothing of otctl runs here: only its repository is looked at. (`alerts` starts this program once
//! more, as a controller.)

#![expect(clippy::print_stdout, reason = "its output is read by people and in logs of CI")]

pub mod alerts;
pub mod bench;
pub mod charts;
pub mod ci;
pub mod codegen;
pub mod command;
pub mod families;
pub mod fuzz;
pub mod levels;
pub mod metadata;
pub mod parts;
pub mod repository;
pub mod soak;
pub mod tidy;
