//! The definitions as a user and an API server see them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod crds;
mod judge;
mod rules;
mod samples;
mod server;
mod support;
mod workspaces;
