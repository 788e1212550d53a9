//! Amounts of Kubernetes by their value. The API server writes them in a form of its own: `1000m` as `1`, `1.5Gi` as
//! `1536Mi`. Exact down to a billionth, which is as far as the API server counts.

/// Suffixes of two, and the power.
const BINARY: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
/// Suffixes of ten, and the power.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Whether two texts are one amount. What is no amount is compared as text.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one == other || billionths(one).is_some_and(|it| billionths(other) == Some(it))
}

/// The amount in billionths, rounded up; none when it cannot be read, or is larger than any of use.
fn billionths(text: &str) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let binary = BINARY.iter().find(|(name, _)| *name == suffix).map(|(_, power)| 1_u128 << power);
    let ten = if binary.is_some() { 0 } else { power_of_ten(suffix)? };
    let scaled = digits.checked_mul(binary.unwrap_or(1))?;
    let power = ten.checked_add(9)?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let factor = 10_u128.checked_pow(power.unsigned_abs())?;
    if power < 0 { Some(scaled.div_ceil(factor)) } else { scaled.checked_mul(factor) }
}

fn power_of_ten(suffix: &str) -> Option<i32> {
    let known = DECIMAL.iter().find(|(name, _)| *name == suffix).map(|(_, power)| *power);
    known.or_else(|| suffix.strip_prefix(['e', 'E'])?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_amount_has_many_forms() {
        for (one, other) in [
            ("1", "1000m"),
            ("0.1", "100m"),
            ("1.5Gi", "1536Mi"),
            ("1k", "1000"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("0.5Ki", "512"),
            ("0", "0m"),
            ("64Ti", "65536Gi"),
            ("100n", "0.1u"),
            ("not an amount", "not an amount"),
        ] {
            assert!(is_same(one, other) && is_same(other, one), "{one} {other}");
        }
    }

    #[test]
    fn amounts_that_are_close_are_two() {
        for (one, other) in [
            ("1", "999m"),
            ("500m", "1"),
            ("1Gi", "1G"),
            ("1Ei", "1E"),
            ("8Ei", "9Ei"),
            ("1", "1x"),
            ("", "0"),
            ("1.2.3", "1.23"),
        ] {
            assert!(!is_same(one, other) && !is_same(other, one), "{one} {other}");
        }
    }
}
