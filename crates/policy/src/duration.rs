//! Durations as Kubernetes users write them: `90s`, `5m`, `2h30m`, and `7d` for days.

use std::time::Duration;

/// Units from the longest to the shortest, in seconds.
const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not follow the form, or is longer than can be counted.
    #[error(
        "{found:?} is not a duration; accepted are whole numbers with the units d, h, m and s, \
         each at most once and in this order, such as 90s, 5m, 2h30m or 7d"
    )]
    ReadDuration {
        /// What was found.
        found: String,
    },
}

/// Reads a whole text as a duration.
///
/// # Errors
/// When the text is empty, has a sign, a fraction, a number without a unit, a unit twice or out
/// of order, or anything else beside.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    seconds(text)
        .map(Duration::from_secs)
        .ok_or_else(|| DurationError::ReadDuration { found: text.to_owned() })
}

fn seconds(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut units = UNITS.iter();
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let unit = tail.chars().next()?;
        // The iterator goes on from the last unit found, so none comes twice or out of order.
        let (_, factor) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*factor)?)?;
        rest = &tail[unit.len_utf8()..];
    }
    Some(total)
}

/// The shortest text that [`parse`] reads back; parts of a second are left out.
///
/// Days appear only for whole days beyond the first: `24h`, `36h`, `7d`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds > 86_400 && seconds.is_multiple_of(86_400) {
        return format!("{}d", seconds / 86_400);
    }
    let parts = [(seconds / 3_600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let text: String = parts
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, unit)| format!("{number}{unit}"))
        .collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

pub(crate) const fn minutes(number: u64) -> Duration {
    Duration::from_secs(number * 60)
}

pub(crate) const fn hours(number: u64) -> Duration {
    Duration::from_secs(number * 3_600)
}

pub(crate) const fn days(number: u64) -> Duration {
    Duration::from_secs(number * 86_400)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_users_write() {
        let check = |text: &str, seconds: u64| {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        };
        check("90s", 90);
        check("5m", 300);
        check("1h30m", 5_400);
        check("2h30m", 9_000);
        check("7d", 604_800);
        check("1d2h3m4s", 93_784);
        check("1h0m0s", 3_600);
        check("05m", 300);
        check("0s", 0);
    }

    #[test]
    fn refuses_everything_else() {
        let texts = [
            "",
            "5",
            "m",
            "-5m",
            "+5m",
            "5m ",
            " 5m",
            "5m\n",
            "5 m",
            "1.5h",
            "5M",
            "5min",
            "5ms",
            "5m5",
            "5m5m",
            "30m2h",
            "1w",
            "1y",
            "PT5M",
            "never",
            "5µ",
            "٥m",
            "18446744073709551616s",
            "18446744073709551615d",
            "18446744073709551615s1s",
            "213503982334602d",
        ];
        for text in texts {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_error_says_what_is_accepted() {
        let message = parse("5").unwrap_err().to_string();
        assert!(message.starts_with("\"5\" is not a duration; accepted are"), "{message}");
    }

    #[test]
    fn formats_as_users_write() {
        let check = |duration, text: &str| assert_eq!(format(duration), text);
        check(Duration::ZERO, "0s");
        check(Duration::from_millis(90_900), "1m30s");
        check(hours(24), "24h");
        check(hours(36), "36h");
        check(minutes(150), "2h30m");
        check(days(7), "7d");
        check(days(3650), "3650d");
    }

    proptest! {
        #[test]
        fn text_round_trips(seconds in any::<u64>()) {
            let duration = Duration::from_secs(seconds);
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*", near in "[0-9dhms.+ -]{0,8}") {
            let _ = (parse(&text), parse(&near));
        }
    }
}
