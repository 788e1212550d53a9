//! What sequence tests need: a cluster in memory in which nothing happens by itself, the order in which its parts take
//! their turns, faults, and checks over everything that was ever written.
//!
//! - [`world`] holds objects with the parts of the API server's behaviour that controllers lean on, a history of every
//!   committed version, and the other components of a cluster (Job controller, kubelet, provisioner, snapshotter,
//!   garbage collector) as single acts that a test or a [`sim`] carries out.
//! - [`views`] feeds the kit's stores from that history, late if wanted.
//! - [`wire`] is the line between one controller process and the world, where [`mod@fault`]s happen: the process dies
//!   before or after a request, an answer is replaced or lost, a request lands after its sender died.
//! - [`proxy`] is the line between one controller process and a real API server, with the same faults.
//! - [`sim`] gives turns: in a fixed order, or in a random one from a seed, down to single requests of two passes.
//! - [`effort`] says how many of these a test tries.
//! - [`explore`] visits every state of a model that is small enough.
//! - [`check`] says what no plan and no history may ever contain; [`mask`] makes end states comparable; [`mod@golden`]
//!   compares stories with files.
//!
//! Tests in the world are plain `#[test]` functions: there is no runtime, no sleep and no wall clock. It is no second
//! API server: schemas, field ownership and admission are the real one's business (`local-cluster`).

pub mod builders;
pub mod check;
pub mod clock;
pub mod effort;
pub mod explore;
pub mod fault;
pub mod golden;
mod json;
pub mod mask;
pub mod proxy;
pub mod script;
pub mod sim;
pub mod story;
pub mod views;
pub mod wire;
pub mod world;

pub use clock::VirtualClock;
pub use effort::setting;
pub use fault::Fault;
pub use script::Ending;
pub use sim::{Instance, Loop, Sim, Told, Wakes};
pub use views::Feed;
pub use world::{Health, World};
