//! The Lease: which one of several processes reconciles. [`step`] is the whole choice, pure; [`Elector`] is the loop
//! that carries it out.
//!
//! What keeps two from leading at once:
//! - The lease changes hands only by a PUT with the resourceVersion that was read, so of two claims one is refused.
//!   (An apply or a merge patch of `holderIdentity` was tried: both candidates won.) Creation is an apply of metadata
//!   alone, which claims nothing and may be done by both.
//! - A holder counts its own validity from *before* it sent the renewal and stops working after `renew_deadline`.
//!   Another counts `duration` from when *it saw* the lease change. The first ends before the second by the difference
//!   of the two, whatever the delays; what is left of it covers clocks that run at different speeds.
//! - Both are read from a clock that goes on while the machine sleeps. Wall-clock fields of the lease are for people:
//!   [`Record`] does not even carry them.
//!
//! What people do by hand is outside of that, in two cases: an empty holder that is written into the lease gives it back
//! before its holder has noticed, and a lease that is deleted before a candidate has read who holds it is to that
//! candidate one that was never there. Were it to wait, so would everybody after an installation.
//!
//! A lease only saves work, it does not fence: a request that was sent before the deadline may arrive after it, though
//! none is begun after it ([`crate::tenure`]). What must never happen twice is guarded where it is written.
//!
//! ```text
//!            claimed (PUT went through)
//!   Standby ────────────────────────────▶ Leading ──┐ renewed
//!      ▲                                   │  ▲─────┘
//!      └───────────────────────────────────┘
//!        renew deadline passed · another's name in the lease · lease gone · vacated
//! ```

mod elector;
mod lease;
mod step;
#[cfg(test)]
mod tests;

pub use elector::{CALL_DEADLINE, Candidate, Elector, Role};
pub use lease::Record;
pub use step::{Step, Timing, TimingError, View, step};

use std::time::Duration;

use nix::time::ClockId;

/// A point on the boot-time clock: time since the machine started, sleep included.
pub type Moment = Duration;

/// Reads the boot-time clock; tests read a virtual one.
pub type BootClock = std::sync::Arc<dyn Fn() -> Moment + Send + Sync>;

/// The machine's boot-time clock. `Instant` would stand still while the machine sleeps, and a holder that wakes up
/// would believe in a lease that others have long taken.
#[must_use]
pub fn boot_clock() -> BootClock {
    std::sync::Arc::new(|| {
        Duration::from(ClockId::CLOCK_BOOTTIME.now().expect("Linux has CLOCK_BOOTTIME"))
    })
}
