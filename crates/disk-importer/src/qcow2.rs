//! The strict gate in front of the qcow2 reader: everything that must hold before foreign
//! metadata is followed. The header is judged from the first bytes, by the probe already; the
//! tables once the file is complete. Reading itself is imago's matter.
//!
//! Refused here: other files as sources of data (a backing file, an external data file), features
//! we do not read, and tables that lie outside the file, overlap, or would need more memory than
//! an image of this size has.

mod header;
mod tables;

pub use header::{Header, MAGIC};
pub use tables::check_tables;

use otctl_types::import::ImportReason;

use crate::failure::Failure;

fn damaged(what: &str) -> Failure {
    Failure::new(ImportReason::BadFormat, format!("the qcow2 image is damaged: {what}"))
}

fn unread(what: &str, way_out: &str) -> Failure {
    let message = format!("the qcow2 image {what}; {way_out}");
    Failure::new(ImportReason::UnsupportedFormat, message)
}
