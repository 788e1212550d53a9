//! The controller of workspaces.
//!
//! What is here is pure: which objects a Workspace is made of ([`children`], [`names`]), whether one of them is still as
//! it was applied ([`owned`]), what its parts say of themselves ([`aggregate`]), and whether its isolation holds
//! ([`isolation`]).

pub mod children;
pub mod config;
pub mod machines;
pub mod names;
pub mod owned;
