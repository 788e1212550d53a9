//! One file a sub-command.

pub(crate) mod apply;
pub(crate) mod completion;
pub(crate) mod crds;
pub(crate) mod demo;
pub(crate) mod describe;
pub(crate) mod get;
pub(crate) mod queue;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod suspend;
pub(crate) mod up;
pub(crate) mod wait;
