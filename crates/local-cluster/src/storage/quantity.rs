//! Kubernetes quantities as numbers of bytes.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::StorageError;

const SUFFIXES: [(&str, u32, u32); 12] = [
    ("Ki", 1024, 1),
    ("Mi", 1024, 2),
    ("Gi", 1024, 3),
    ("Ti", 1024, 4),
    ("Pi", 1024, 5),
    ("Ei", 1024, 6),
    ("k", 1000, 1),
    ("M", 1000, 2),
    ("G", 1000, 3),
    ("T", 1000, 4),
    ("P", 1000, 5),
    ("E", 1000, 6),
];

/// The number of bytes, rounded up.
pub(super) fn bytes(quantity: &Quantity) -> Result<u64, StorageError> {
    let text = quantity.0.as_str();
    let unreadable = || StorageError::ReadQuantity(text.to_owned());
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, base, power)| {
            Some((text.strip_suffix(suffix)?, u64::from(*base).pow(*power)))
        })
        .unwrap_or((text, 1));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| unreadable())?;
    let base = whole.checked_mul(factor).ok_or_else(unreadable)?;
    if fraction.is_empty() {
        return Ok(base);
    }
    let digits: u64 = fraction.parse().map_err(|_| unreadable())?;
    let scale = u32::try_from(fraction.len()).ok().and_then(|n| 10_u64.checked_pow(n));
    let part = scale.and_then(|scale| Some(digits.checked_mul(factor)?.div_ceil(scale)));
    part.and_then(|part| base.checked_add(part)).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_become_bytes() {
        let cases = [
            ("0", Some(0)),
            ("512", Some(512)),
            ("1Ki", Some(1024)),
            ("64Mi", Some(64 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("5G", Some(5_000_000_000)),
            ("0.1k", Some(100)),
            ("", None),
            ("-1Gi", None),
            ("1Xi", None),
            ("99999999999Ei", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(bytes(&Quantity(text.to_owned())).ok(), wanted, "{text}");
        }
    }
}
