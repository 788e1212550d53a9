//! The program in an import pod: it looks at an image's source, fetches it resumably, verifies it
//! and writes it as the raw disk that a VM mounts.
//!
//! | step | where | what it may do |
//! |---|---|---|
//! | arguments | [`cli`] | the only part that reads arguments, environment and signals |
//! | secret | [`credentials`] | reads the mounted Secret |
//! | source | [`client`], [`answer`], [`connection`] | the only parts that open connections; every address is judged |
//! | object store | [`s3`] | signs requests; reads the code of a refusal |
//! | share | [`bandwidth`], [`pacer`] | no byte leaves a socket before its turn |
//! | first look | [`look`], [`qcow2`], [`unpack`] | judges the image by its first bytes, before anything is paid for |
//! | probe | [`probe`] | one request, at most [`look::LOOK_BYTES`] |
//! | import | [`import`] | [`download`] into the [`scratch`] volume, verify, [`convert`] to a [`disk`] |
//! | report | [`report`], [`progress`] | what the controller sees |
//!
//! Invariants:
//! - A run sends at most one request that starts at byte 0 of the image.
//! - Nothing of the source's query string, user-info or credentials reaches a message or a log.
//! - The disk gets its name only after the bytes were verified; a block device is never created,
//!   truncated or extended.
//! - Foreign bytes never panic the process, and nothing outside the image's own file is read.
//! - What is unpacked is never more than the disk takes, whatever the packed bytes say.

pub mod answer;
pub mod bandwidth;
pub mod cli;
pub mod client;
pub mod connection;
pub mod convert;
pub mod credentials;
pub mod disk;
pub mod download;
pub mod failure;
pub mod import;
pub mod look;
pub mod pacer;
pub mod probe;
pub mod progress;
pub mod qcow2;
pub mod report;
pub mod s3;
pub mod scratch;
pub mod settings;
pub mod sha256;
pub mod unpack;
pub mod version;
