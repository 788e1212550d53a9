//! Sizes in bytes, against arithmetic on digits that shares nothing with the parser.

use policy::quantity::{self, QuantityError};

const MOST_BYTES: u128 = i64::MAX as u128;
/// Digits before and behind the point up to which a text must be read.
const WHOLE: usize = 20;
const FRACTION: usize = 18;

/// What is read is the value, rounded up; what is written is read back.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    if let Some(bytes) = input.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) {
        let bytes = bytes >> 1;
        assert_eq!(quantity::parse(&quantity::format(bytes)), Ok(bytes), "written and read");
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let found = quantity::parse(text);
    let Some(number) = Number::read(text) else {
        assert!(matches!(found, Err(QuantityError::ReadNumber { .. })), "{text:?}: {found:?}");
        return;
    };
    match (number.value(), &found) {
        (Some(value), Ok(bytes)) => assert_eq!(value, u128::from(*bytes), "{text:?}"),
        (Some(value), Err(error)) => {
            let has_room = number.whole.len() <= WHOLE && number.fraction.len() <= FRACTION;
            assert!(!has_room, "{text:?} is {value}: {error}");
            assert!(!matches!(error, QuantityError::FitBytes { .. }), "{text:?} fits: {error}");
        }
        (None, Ok(bytes)) => panic!("{text:?} is too large, and was read as {bytes}"),
        (None, Err(_)) => {}
    }
    assert!(found.is_err() || found == quantity::parse(&format!("0{text}")), "{text:?}");
}

/// `whole.fraction * 2^twos * 10^tens`, without needless zeros.
struct Number<'a> {
    whole: &'a str,
    fraction: &'a str,
    twos: u32,
    tens: i64,
}

impl<'a> Number<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let whole = &text[..text.len() - number.len()];
        let (fraction, suffix) = match number.strip_prefix('.') {
            Some(rest) => {
                let suffix = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                (&rest[..rest.len() - suffix.len()], suffix)
            }
            None => ("", number),
        };
        let (twos, tens) = scale(suffix)?;
        (!whole.is_empty() || !fraction.is_empty()).then(|| Self {
            whole: whole.trim_start_matches('0'),
            fraction: fraction.trim_end_matches('0'),
            twos,
            tens,
        })
    }

    /// Rounded up; none above what can be held.
    fn value(&self) -> Option<u128> {
        let mut digits: Vec<u8> = self.whole.bytes().chain(self.fraction.bytes()).collect();
        digits.iter_mut().for_each(|digit| *digit -= b'0');
        (0..self.twos).for_each(|_| double(&mut digits));
        let point = digits.len() as i64 - self.fraction.len() as i64 + self.tens;
        let Some(first) = digits.iter().position(|digit| *digit > 0) else { return Some(0) };
        if point - first as i64 > 20 {
            return None;
        }
        let digit = |at: i64| usize::try_from(at).ok().and_then(|at| digits.get(at).copied());
        let whole =
            (first as i64..point).fold(0, |sum, at| sum * 10 + u128::from(digit(at).unwrap_or(0)));
        let has_rest =
            digits.iter().enumerate().any(|(at, digit)| at as i64 >= point && *digit > 0);
        Some(whole + u128::from(has_rest)).filter(|value| *value <= MOST_BYTES)
    }
}

fn scale(suffix: &str) -> Option<(u32, i64)> {
    let known = match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.trim_start_matches(['+', '-']);
            let signs = exponent.len() - digits.len();
            let is_number = signs <= 1
                && !digits.is_empty()
                && digits.bytes().all(|byte| byte.is_ascii_digit());
            // Kubernetes holds exponents in 32 bits.
            (0, i64::from(exponent.parse::<i32>().ok().filter(|_| is_number)?))
        }
    };
    Some(known)
}

/// One more digit in front, where it overflows.
fn double(digits: &mut Vec<u8>) {
    let mut carry = 0;
    for digit in digits.iter_mut().rev() {
        let twice = *digit * 2 + carry;
        (*digit, carry) = (twice % 10, twice / 10);
    }
    if carry > 0 {
        digits.insert(0, carry);
    }
}
