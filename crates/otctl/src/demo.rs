//! What the demo is made of: what it serves (`scenario`), what it counts (`peak`), what it restores (`verify`), and
//! what it says of all that (`report`). The order of things is in `cmd::demo`.

pub mod peak;
pub(crate) mod report;
pub(crate) mod scenario;
pub mod verify;
pub(crate) mod view;
