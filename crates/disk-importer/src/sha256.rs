//! The one hash used here, in the form specs and statuses have it: `sha256:<64 hex digits>`.

use std::fmt;
use std::str::FromStr;

use sha2::Digest as _;

/// A SHA-256 sum.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sum([u8; 32]);

/// A SHA-256 sum in the making.
#[derive(Clone, Debug, Default)]
pub struct Hasher(sha2::Sha256);

/// Text that is no `sha256:<64 hex digits>`.
#[derive(Debug, thiserror::Error)]
#[error("expected sha256: and 64 hexadecimal digits")]
pub struct ParseSumError;

impl Hasher {
    /// Adds `bytes` at the end of what is hashed.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum of everything added.
    #[must_use]
    pub fn sum(self) -> Sum {
        Sum(self.0.finalize().into())
    }
}

impl Sum {
    /// The sum of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.sum()
    }
}

impl FromStr for Sum {
    type Err = ParseSumError;

    fn from_str(text: &str) -> Result<Self, ParseSumError> {
        let digits = text.strip_prefix("sha256:").ok_or(ParseSumError)?;
        let mut sum = [0; 32];
        hex::decode_to_slice(digits, &mut sum).map_err(|_| ParseSumError)?;
        Ok(Self(sum))
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        let sum = Sum::of(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sum.to_string(), text);
        assert_eq!(text.to_uppercase().replace("SHA256", "sha256").parse::<Sum>().unwrap(), sum);
    }

    #[test]
    fn refuses_other_text() {
        for text in ["", "sha256:", "sha256:00", "md5:e3b0", &format!("sha256:{}", "g".repeat(64))]
        {
            assert!(text.parse::<Sum>().is_err(), "{text}");
        }
    }
}
