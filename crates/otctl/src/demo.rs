//! What the demo is made of: what it serves (`scenario`), the workspace that it asks for (`lab`), what it was told of that
//! (`chronicle`, `story`), what it counts (`peak`), what it restores (`verify`), and what it says of all that (`report`).
//! The order of things is in `cmd::demo`.

pub(crate) mod chronicle;
pub(crate) mod lab;
pub mod peak;
pub(crate) mod report;
pub(crate) mod scenario;
pub(crate) mod story;
pub mod verify;
pub(crate) mod view;
