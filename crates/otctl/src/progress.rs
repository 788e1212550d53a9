//! How far something is, whatever it is that is counted.

use serde::Serialize;

use crate::out;

/// How far something is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Progress {
    /// Number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<i64>,
    /// What is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) done: Option<u64>,
    /// What there is to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    /// Both for people; empty when neither is known.
    pub(crate) text: String,
}

impl Progress {
    /// Of bytes: `8.0 MiB of 24.0 MiB`.
    pub(crate) fn of_bytes(attempt: Option<i64>, done: Option<u64>, total: Option<u64>) -> Self {
        let text = match (done, total) {
            (Some(done), Some(total)) => format!("{} of {}", out::size(done), out::size(total)),
            (Some(done), None) => out::size(done),
            (None, Some(total)) => format!("of {}", out::size(total)),
            (None, None) => String::new(),
        };
        Self { attempt, done, total, text }
    }

    /// Of parts: `3 of 5 parts`.
    pub(crate) fn of_parts(done: u64, total: u64) -> Self {
        let text = format!("{done} of {total} parts");
        Self { attempt: None, done: Some(done), total: Some(total), text }
    }

    /// Of parts, as a status tells them: `3/5`.
    pub(crate) fn of_told_parts(told: &str) -> Option<Self> {
        let (ready, all) = told.split_once('/')?;
        Some(Self::of_parts(ready.parse().ok()?, all.parse().ok()?))
    }

    /// The hundredths that are done, where the whole is known.
    pub(crate) fn percent(&self) -> Option<u64> {
        let (done, total) = self.done.zip(self.total.filter(|total| *total > 0))?;
        Some(done.min(total).saturating_mul(100) / total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_told() {
        let cases = [
            (None, None, "", None),
            (None, Some(1024), "of 1.0 KiB", None),
            (Some(512), None, "512 B", None),
            (Some(512), Some(1024), "512 B of 1.0 KiB", Some(50)),
            (Some(2048), Some(1024), "2.0 KiB of 1.0 KiB", Some(100)),
            (Some(0), Some(0), "0 B of 0 B", None),
        ];
        for (done, total, text, percent) in cases {
            let progress = Progress::of_bytes(None, done, total);
            assert_eq!((progress.text.as_str(), progress.percent()), (text, percent));
        }
    }
}
