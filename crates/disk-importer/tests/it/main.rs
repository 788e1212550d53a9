//! The importer against a real server that counts what it sends and fails as real ones do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where it was")]

mod addresses;
mod bandwidth;
mod block;
mod canned;
mod compressed;
mod download;
mod formats;
mod hostile;
mod lab;
mod malformed;
mod probe;
mod program;
mod s3;
mod secrets;
mod store;
mod tls;
