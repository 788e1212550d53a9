//! Sizes in bytes as Kubernetes quantities: `200Mi`, `1.5Gi`, `10G`, `1e9`, `1500m`.
//!
//! Exact in whole numbers, never through floating point; a part of a byte counts as a whole one.
//! Signs are refused: no size here is negative.

/// Binary suffixes, from the largest, with their power of two.
const BINARY: [(&str, u32); 6] =
    [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];

/// Decimal suffixes with their power of ten.
const DECIMAL: [(&str, i32); 10] = [
    ("", 0),
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Kubernetes holds sizes as signed 64-bit numbers.
const MAX_BYTES: u64 = i64::MAX as u64;

/// With as many digits every size up to `MAX_BYTES` times any scale fits 128 bits, so that an
/// overflow below can only mean that the size is too large.
const MAX_FRACTION_DIGITS: usize = 18;
const MAX_WHOLE_DIGITS: usize = 20;

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not follow the form.
    #[error(
        "{found:?} is not a size; accepted is a number, fractions included, with no suffix or one \
         of Ki, Mi, Gi, Ti, Pi, Ei, k, M, G, T, P, E, m or an exponent, such as 200Mi, 1.5Gi or 1e9"
    )]
    ReadNumber {
        /// What was found.
        found: String,
    },
    /// The number has more digits than are counted.
    #[error(
        "{found:?} has too many digits; accepted are up to {MAX_WHOLE_DIGITS} before the point and \
         {MAX_FRACTION_DIGITS} after it"
    )]
    KeepDigits {
        /// What was found.
        found: String,
    },
    /// The size is beyond what Kubernetes can hold.
    #[error("{found:?} is too large; accepted is at most {MAX_BYTES} bytes")]
    FitBytes {
        /// What was found.
        found: String,
    },
}

/// The number before the suffix is `digits / 10^fraction`; the suffix multiplies it.
#[derive(Clone, Copy)]
enum Scale {
    Binary(u32),
    Decimal(i32),
}

/// Reads a whole text as bytes, rounding up.
///
/// # Errors
/// When the text is no quantity, has a sign, or is beyond 2^63 − 1 bytes.
pub fn parse(text: &str) -> Result<u64, QuantityError> {
    let unread = || QuantityError::ReadNumber { found: text.to_owned() };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err(unread());
    }
    let scale = scale(suffix).ok_or_else(unread)?;
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    // What is scaled down may have many digits and be no large size.
    let is_scaled_down = matches!(scale, Scale::Decimal(power) if power < 0);
    if fraction.len() > MAX_FRACTION_DIGITS || is_scaled_down && whole.len() > MAX_WHOLE_DIGITS {
        return Err(QuantityError::KeepDigits { found: text.to_owned() });
    }
    bytes(whole, fraction, scale).ok_or_else(|| QuantityError::FitBytes { found: text.to_owned() })
}

fn scale(suffix: &str) -> Option<Scale> {
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some(Scale::Binary(*power));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some(Scale::Decimal(*power));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    // Rust reads an exponent's sign as Kubernetes does; one beyond 32 bits is refused by both.
    is_number.then(|| exponent.parse().ok().map(Scale::Decimal))?
}

/// The size, or `None` when it is too large.
fn bytes(whole: &str, fraction: &str, scale: Scale) -> Option<u64> {
    if whole.len() > MAX_WHOLE_DIGITS {
        return None;
    }
    let digits = format!("0{whole}{fraction}");
    let mantissa: u128 = digits.parse().expect("at most 38 digits and nothing else");
    let fraction_digits = i32::try_from(fraction.len()).expect("at most 18");
    let (factor, power) = match scale {
        Scale::Binary(power) => (1_u128 << power, -fraction_digits),
        Scale::Decimal(power) => (1, power.saturating_sub(fraction_digits)),
    };
    let scaled = mantissa.checked_mul(factor)?;
    let exact = if power < 0 {
        divide_up(scaled, power.unsigned_abs())
    } else {
        raise(scaled, power.unsigned_abs())?
    };
    u64::try_from(exact).ok().filter(|bytes| *bytes <= MAX_BYTES)
}

/// `number * 10^power`, or `None` beyond 128 bits.
fn raise(number: u128, power: u32) -> Option<u128> {
    if number == 0 {
        return Some(0);
    }
    number.checked_mul(10_u128.checked_pow(power)?)
}

/// `number / 10^power`, rounded up.
fn divide_up(number: u128, power: u32) -> u128 {
    match 10_u128.checked_pow(power) {
        Some(divisor) => number.div_ceil(divisor),
        // The divisor is above 10^38 and so above any number: a part of a byte, or none.
        None => u128::from(number > 0),
    }
}

/// The shortest text with a binary suffix, or none, that [`parse`] reads back.
#[must_use]
pub fn format(bytes: u64) -> String {
    let fits = |power: &u32| bytes > 0 && bytes.trailing_zeros() >= *power;
    match BINARY.iter().find(|(_, power)| fits(power)) {
        Some((suffix, power)) => format!("{}{suffix}", bytes >> power),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests;
