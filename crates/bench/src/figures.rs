//! The arithmetic of figures, and how they are written.

use std::time::Duration;

/// What so many measured times come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) most: Duration,
}

impl Spread {
    /// All zero when there are none.
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.into_iter().collect();
        times.sort_unstable();
        Self {
            count: times.len(),
            p50: percentile(&times, 50),
            p99: percentile(&times, 99),
            most: times.last().copied().unwrap_or_default(),
        }
    }
}

/// The smallest value that so many percent of all are not above (nearest rank).
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// The middle one; the lower of two.
pub(crate) fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("figures are numbers"));
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// How many times the other one.
pub(crate) fn ratio(this: f64, other: f64) -> String {
    if other > 0.0 { format!("{:.2} ×", this / other) } else { "–".to_owned() }
}

pub(crate) fn mib(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.1} MiB")
}

pub(crate) fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 10.0 => format!("{seconds:.1} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.2} s"),
        seconds => format!("{:.1} ms", seconds * 1000.0),
    }
}

/// A quotient of counts, for people.
pub(crate) fn each(count: usize, of: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let each = count as f64 / of.max(1) as f64;
    format!("{each:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(values: impl IntoIterator<Item = u64>) -> Spread {
        Spread::of(values.into_iter().map(Duration::from_millis))
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let spread = millis((1..=200).rev());
        assert_eq!(spread.p50, Duration::from_millis(100));
        assert_eq!(spread.p99, Duration::from_millis(198));
        assert_eq!((spread.most, spread.count), (Duration::from_millis(200), 200));
        assert_eq!(millis([7]).p50, millis([7]).p99);
        assert_eq!(millis([3, 1]).p50, Duration::from_millis(1));
        assert_eq!(millis([]), Spread::default());
    }

    #[test]
    fn the_median_is_one_of_them() {
        assert_eq!(median([5, 1, 3]), Some(3));
        assert_eq!(median([2.0, 1.0]), Some(1.0));
        assert_eq!(median::<u8>([]), None);
    }

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(ratio(1.0, 4.0), "0.25 ×");
        assert_eq!(ratio(1.0, 0.0), "–");
        assert_eq!(mib(3 << 19), "1.5 MiB");
        assert_eq!(time(Duration::from_micros(1500)), "1.5 ms");
        assert_eq!(time(Duration::from_millis(1500)), "1.50 s");
        assert_eq!(time(Duration::from_secs(75)), "75.0 s");
        assert_eq!(each(1, 4), "0.25");
        assert_eq!(each(0, 0), "0.00");
    }
}
