//! The charts as Helm renders them and as an API server takes them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod installed;
mod monitoring;
mod rendered;
mod support;
mod workspaces;
