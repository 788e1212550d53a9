//! Durations, against the reader of Kubernetes' own, which knows no days and more of everything else.

use std::time::Duration;

use policy::duration;

/// Beyond so many digits in a row the other reader, which counts in floating point, is not asked.
const EXACT_DIGITS: usize = 9;
const UNITS: [(char, u128); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// What is read is the sum of its parts, as the other reader says too; what is written is read back.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    if let Some(seconds) = input.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) {
        let time = Duration::from_secs(seconds);
        assert_eq!(duration::parse(&duration::format(time)), Ok(time), "written and read");
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let found = duration::parse(text).ok();
    let expected =
        sum(text).and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    assert_eq!(found, expected, "{text:?}");
    if let Some(time) = found {
        assert_eq!(duration::parse(&duration::format(time)), Ok(time), "{text:?}");
        // The other reader panics on some of what is no duration, such as `1m-2s`, so it is not asked about that.
        assert_eq!(time, as_kubernetes(text).unwrap_or(time), "{text:?}");
    }
}

/// The seconds of a text whose parts each have a unit, in the order of the units and none twice.
fn sum(text: &str) -> Option<u128> {
    let parts: Vec<&str> = text.split_inclusive(|c: char| !c.is_ascii_digit()).collect();
    let mut total = 0_u128;
    let mut least = usize::MIN;
    for part in &parts {
        let unit = part.chars().next_back()?;
        let place =
            UNITS.iter().position(|(name, _)| *name == unit).filter(|place| *place >= least)?;
        let number: u64 = part[..part.len() - 1].parse().ok()?;
        total = total.checked_add(u128::from(number) * UNITS[place].1)?;
        least = place + 1;
    }
    (!parts.is_empty()).then_some(total)
}

fn as_kubernetes(text: &str) -> Option<Duration> {
    let has_exact_numbers =
        text.split(|c: char| !c.is_ascii_digit()).all(|digits| digits.len() <= EXACT_DIGITS);
    let text = Some(text).filter(|text| has_exact_numbers && !text.contains('d'))?;
    text.parse::<kube::core::Duration>().ok().map(Duration::from)
}
