//! The same scenario once for every write and every way to die at it: the end must be the same.

use crate::fault::{Point, What, at};
use crate::mask;

use super::Sim;

/// The ways to go wrong at a write.
const WAYS: [(What, Point); 4] = [
    (What::Kill, Point::Before),
    (What::Kill, Point::Commit),
    (What::Kill, Point::UnderWay),
    (What::Lose, Point::Commit),
];

/// In which ways a write goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    /// Each write in every way.
    All,
    /// Each write in one way, the next one in the next.
    InTurns,
}

impl Ways {
    fn of(self, nth: usize) -> &'static [(What, Point)] {
        match self {
            Self::All => &WAYS,
            Self::InTurns => &WAYS[nth % WAYS.len()..][..1],
        }
    }
}

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPoints {
    /// Writes of the run without faults.
    pub writes: usize,
    /// Runs with one fault each.
    pub runs: usize,
}

/// Runs `scenario` without a fault, then once for each of its writes and each of: death before it, death after it, death
/// while it is under way, its answer lost. Every run must end in the same state, and `judge` must accept it.
///
/// # Panics
/// When one ends otherwise, with the difference and its story; or when `judge` panics.
pub fn every_crash_point(
    make: impl Fn() -> Sim,
    scenario: impl Fn(&mut Sim),
    judge: impl Fn(&Sim),
) -> CrashPoints {
    crash_points(Ways::All, make, scenario, judge)
}

/// As [`every_crash_point`], in these ways only.
///
/// # Panics
/// As that does.
pub fn crash_points(
    ways: Ways,
    make: impl Fn() -> Sim,
    scenario: impl Fn(&mut Sim),
    judge: impl Fn(&Sim),
) -> CrashPoints {
    let mut clean = make();
    scenario(&mut clean);
    judge(&clean);
    let (writes, wanted) = (clean.faults().writes(), clean.end_state());
    assert!(writes > 0, "a scenario without writes has no crash points");
    let mut runs = 0;
    for nth in 1..=writes {
        for (what, point) in ways.of(nth) {
            let fault = at("write").nth(nth).point(*point).then(what.clone());
            let told = format!("{fault} of {writes}");
            let mut sim = make().with_fault(fault);
            scenario(&mut sim);
            assert!(sim.faults().unmet().is_empty(), "{told} was never met");
            let difference = mask::difference(&wanted, &sim.end_state());
            if !difference.is_empty() {
                sim.fail(&format!("{told} ends otherwise:\n{difference}"));
            }
            judge(&sim);
            runs += 1;
        }
    }
    CrashPoints { writes, runs }
}
