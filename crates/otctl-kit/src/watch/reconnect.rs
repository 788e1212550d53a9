//! When and how a stream begins again: pure.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::backoff::jittered;

/// A stream begins no more often than this, however it ended: a server that closes at once is not stormed.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// The first delay after a failure, and the longest.
const BACKOFF: RangeInclusive<Duration> = INTERVAL..=Duration::from_secs(30);
/// After so many refusals in a row the version itself may be what the server refuses (it was restored, say). A server
/// that does not answer refuses nothing: to list every kind anew is the last thing it needs when it is back.
const REFUSALS_OF_A_VERSION: u32 = 3;

/// How a list or a watch ended; `progressed` if it brought anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A complete list.
    Listed,
    /// The server ended the watch, as it should.
    Closed { progressed: bool },
    /// The server ended nothing and sent nothing: the way to it is broken.
    Silent { progressed: bool },
    /// The version is too old (410, as the answer or as an event).
    Expired { progressed: bool },
    /// The server does not tell lists so; it is asked in pages.
    Unsupported,
    /// The server answered with anything else; `wait` is what it asked for.
    Refused { progressed: bool, wait: Duration },
    /// No answer came, or the way to the server broke.
    Unanswered { progressed: bool },
}

impl Ended {
    pub(super) fn after_progress(self, progressed: bool) -> Self {
        match self {
            Self::Listed | Self::Unsupported => self,
            Self::Closed { .. } => Self::Closed { progressed },
            Self::Silent { .. } => Self::Silent { progressed },
            Self::Expired { .. } => Self::Expired { progressed },
            Self::Refused { wait, .. } => Self::Refused { progressed, wait },
            Self::Unanswered { .. } => Self::Unanswered { progressed },
        }
    }
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    /// How long to wait first.
    pub(super) pause: Duration,
    /// Whether a list must come before the next watch.
    pub(super) relist: bool,
}

/// The memory of one stream.
#[derive(Debug, Default)]
pub(super) struct Reconnect {
    /// Failures in a row. A list that succeeds does not end the row: what follows it may fail each time.
    failures: u32,
    /// Refusals in a row since the last version was given up.
    refusals: u32,
}

impl Reconnect {
    /// What follows a list or watch that took `ran` and ended so. `jitter` is a random number in 0..1.
    pub(super) fn after(&mut self, ended: Ended, ran: Duration, jitter: f64) -> Again {
        let rest = INTERVAL.saturating_sub(ran);
        match ended {
            Ended::Listed | Ended::Unsupported => Again { pause: Duration::ZERO, relist: false },
            Ended::Closed { .. } => {
                (self.failures, self.refusals) = (0, 0);
                Again { pause: rest, relist: false }
            }
            Ended::Silent { progressed } => {
                self.fail(progressed);
                Again { pause: rest, relist: false }
            }
            Ended::Expired { progressed } => {
                self.fail(progressed);
                Again { pause: self.backoff(jitter).max(rest), relist: true }
            }
            Ended::Unanswered { progressed } => {
                self.fail(progressed);
                Again { pause: self.backoff(jitter).max(rest), relist: false }
            }
            Ended::Refused { progressed, wait } => {
                self.fail(progressed);
                self.refusals = if progressed { 1 } else { self.refusals + 1 };
                let relist = self.refusals >= REFUSALS_OF_A_VERSION;
                if relist {
                    self.refusals = 0;
                }
                Again { pause: self.backoff(jitter).max(rest).max(wait), relist }
            }
        }
    }

    fn fail(&mut self, progressed: bool) {
        self.failures = if progressed { 1 } else { self.failures.saturating_add(1) };
    }

    fn backoff(&self, jitter: f64) -> Duration {
        jittered(self.failures, BACKOFF, jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const CLOSED: Ended = Ended::Closed { progressed: false };
    const EXPIRED: Ended = Ended::Expired { progressed: false };
    const REFUSED: Ended = Ended::Refused { progressed: false, wait: Duration::ZERO };
    const UNANSWERED: Ended = Ended::Unanswered { progressed: false };

    fn pauses(ended: Ended, times: usize, jitter: f64) -> Vec<u64> {
        let mut reconnect = Reconnect::default();
        (0..times)
            .map(|_| reconnect.after(ended, NOW, jitter).pause.as_millis().try_into().unwrap())
            .collect()
    }

    #[test]
    fn a_watch_that_closes_at_once_begins_once_a_second() {
        assert_eq!(pauses(CLOSED, 3, 0.0), [1000, 1000, 1000]);
        let mut reconnect = Reconnect::default();
        let second = Duration::from_millis(400);
        assert_eq!(reconnect.after(CLOSED, second, 0.0).pause, Duration::from_millis(600));
        assert_eq!(reconnect.after(CLOSED, Duration::from_secs(30), 0.0).pause, NOW);
    }

    #[test]
    fn failures_back_off_to_half_a_minute_and_never_below_the_interval() {
        for ended in [REFUSED, UNANSWERED] {
            assert_eq!(pauses(ended, 7, 1.0), [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
            assert_eq!(pauses(ended, 7, 0.0), [1000, 1000, 2000, 4000, 8000, 15_000, 15_000]);
            assert_eq!(pauses(ended, 100, 1.0)[99], 30_000);
        }
    }

    #[test]
    fn an_expired_version_is_listed_again_soon_but_not_stormed() {
        let mut reconnect = Reconnect::default();
        let first = reconnect.after(EXPIRED, NOW, 1.0);
        assert!(first.relist && first.pause <= Duration::from_secs(5));
        reconnect.after(Ended::Listed, NOW, 1.0);
        assert_eq!(reconnect.after(EXPIRED, NOW, 1.0).pause, Duration::from_secs(2));
    }

    #[test]
    fn progress_ends_a_row_of_failures() {
        let mut reconnect = Reconnect::default();
        for _ in 0..5 {
            reconnect.after(REFUSED, NOW, 1.0);
        }
        let progressed = Ended::Refused { progressed: true, wait: Duration::ZERO };
        let pause = reconnect.after(progressed, NOW, 1.0).pause;
        assert_eq!(pause, Duration::from_secs(1));
    }

    #[test]
    fn the_server_is_given_the_time_it_asks_for() {
        let asked = Ended::Refused { progressed: false, wait: Duration::from_secs(20) };
        let pause = Reconnect::default().after(asked, NOW, 1.0).pause;
        assert_eq!(pause, Duration::from_secs(20));
    }

    #[test]
    fn a_version_that_keeps_being_refused_is_given_up() {
        let mut reconnect = Reconnect::default();
        let mut relists = |ended| [(); 4].map(|()| reconnect.after(ended, NOW, 1.0).relist);
        assert_eq!(relists(REFUSED), [false, false, true, false]);
    }

    #[test]
    fn a_server_that_is_away_is_asked_for_no_list_when_it_is_back() {
        let mut reconnect = Reconnect::default();
        let relists = [UNANSWERED, REFUSED, UNANSWERED, UNANSWERED, REFUSED, UNANSWERED]
            .map(|ended| reconnect.after(ended, NOW, 1.0).relist);
        assert!(!relists.contains(&true));
    }

    #[test]
    fn a_silent_watch_goes_on_where_it_was() {
        let mut reconnect = Reconnect::default();
        let again =
            reconnect.after(Ended::Silent { progressed: false }, Duration::from_secs(35), 1.0);
        assert_eq!(again, Again { pause: NOW, relist: false });
    }
}
