//! The importer against a real server that counts what it sends and fails as real ones do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it was")]

mod addresses;
mod download;
mod formats;
mod lab;
mod malformed;
mod probe;
mod program;
mod tls;
