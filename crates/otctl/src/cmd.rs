//! One file a sub-command.

pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod up;
