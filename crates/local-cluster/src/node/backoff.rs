//! How long a node waits before it tries again what has failed, and how kubelet words it.

use std::time::Duration;

/// The longest wait is this many times the first one: 10 s become 5 minutes.
const GROWTH: u32 = 30;

/// The wait after the `failures`-th failure in a row: the first one, then twice as long each time.
pub(super) fn delay(first: Duration, failures: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
    first.saturating_mul(doubled).min(longest(first))
}

/// The longest wait.
pub(super) fn longest(first: Duration) -> Duration {
    first.saturating_mul(GROWTH)
}

/// A duration as Go prints it: `250ms`, `10s`, `1m20s`.
pub(super) fn in_go(duration: Duration) -> String {
    let (seconds, milliseconds) = (duration.as_secs(), duration.subsec_millis());
    match (seconds, milliseconds) {
        (0, milliseconds) => format!("{milliseconds}ms"),
        (seconds, _) if seconds < 60 => format!("{}s", duration.as_secs_f64()),
        (seconds, _) => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_and_is_bounded() {
        let first = Duration::from_secs(10);
        let delays = [1, 2, 3, 5, 6, 40].map(|failures| delay(first, failures).as_secs());
        assert_eq!(delays, [10, 20, 40, 160, 300, 300]);
    }

    #[test]
    fn durations_read_as_kubelet_writes_them() {
        let cases =
            [(250, "250ms"), (1500, "1.5s"), (10_000, "10s"), (80_000, "1m20s"), (300_000, "5m0s")];
        for (milliseconds, wanted) in cases {
            assert_eq!(in_go(Duration::from_millis(milliseconds)), wanted);
        }
    }
}
