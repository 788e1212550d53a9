//! Leader election with one rule taken out, by what the model makes of requests and answers.

use crate::model::{Config, PLAIN};

/// A rule that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// The PUT does not carry the resourceVersion that was read.
    Unguarded,
    /// Another's lease is judged by the time of day that stands in it.
    WallClock,
    /// A holder counts its validity from the answer to its renewal, not from when it sent it.
    ValidFromAnswer,
}

pub(crate) const MUTANTS: [(Twist, Config); 3] =
    [(Twist::Unguarded, PLAIN), (Twist::WallClock, PLAIN), (Twist::ValidFromAnswer, PLAIN)];
