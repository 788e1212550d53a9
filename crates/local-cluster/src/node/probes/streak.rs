//! How many attempts in a row decide a probe. Pure.

use k8s_openapi::api::core::v1::Probe;

/// The attempts of one probe so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Streak {
    success_threshold: i32,
    failure_threshold: i32,
    verdict: Option<bool>,
    last: Option<bool>,
    length: i32,
}

impl Streak {
    /// Of a probe that passes until it has failed often enough.
    pub(super) fn passing(probe: &Probe) -> Self {
        Self::with(probe, Some(true))
    }

    /// Of a probe that fails until it has succeeded often enough.
    pub(super) fn failing(probe: &Probe) -> Self {
        Self::with(probe, Some(false))
    }

    /// Of a probe that is either only once it has been so often enough.
    pub(super) fn undecided(probe: &Probe) -> Self {
        Self::with(probe, None)
    }

    fn with(probe: &Probe, verdict: Option<bool>) -> Self {
        Self {
            success_threshold: probe.success_threshold.unwrap_or(1),
            failure_threshold: probe.failure_threshold.unwrap_or(3),
            verdict,
            last: None,
            length: 0,
        }
    }

    /// Counts an attempt; the new verdict, if it is another one than before.
    pub(super) fn count(&mut self, passed: bool) -> Option<bool> {
        self.length = if self.last == Some(passed) { self.length + 1 } else { 1 };
        self.last = Some(passed);
        let threshold = if passed { self.success_threshold } else { self.failure_threshold };
        let is_new = self.length >= threshold && self.verdict != Some(passed);
        is_new.then(|| {
            self.verdict = Some(passed);
            passed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdicts after each attempt: `+` it passes now, `-` it fails now, `.` as before.
    fn check(streak: fn(&Probe) -> Streak, attempts: &str, wanted: &str) {
        let probe =
            Probe { success_threshold: Some(2), failure_threshold: Some(3), ..Probe::default() };
        let mut streak = streak(&probe);
        let verdict = |attempt| match streak.count(attempt == 'p') {
            Some(true) => '+',
            Some(false) => '-',
            None => '.',
        };
        assert_eq!(attempts.chars().map(verdict).collect::<String>(), wanted, "{attempts}");
    }

    #[test]
    fn a_verdict_changes_after_enough_attempts_in_a_row() {
        check(Streak::failing, "ppp", ".+.");
        check(Streak::failing, "pfpp", "...+");
        check(Streak::failing, "ffff", "....");
        check(Streak::passing, "ffpfff", ".....-");
        check(Streak::passing, "fffpp", "..-.+");
        check(Streak::undecided, "fff", "..-");
        check(Streak::undecided, "fpp", "..+");
    }
}
