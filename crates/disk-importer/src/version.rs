//! Which version of a source bytes are of, and whether two answers speak of the same bytes.

use serde::{Deserialize, Serialize};

use crate::settings::Expected;

/// Which version of the source the kept bytes are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The entity tag, when the server gives one.
    pub etag: Option<String>,
    /// When it was last modified, as the server writes it; says something only without a tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// The source's length in bytes.
    pub size: u64,
    /// Whether the server answered a range request with a range.
    pub accepts_ranges: bool,
}

impl Version {
    /// What this is to what the probe saw; what either does not say is not compared.
    #[must_use]
    pub fn beside_probe(&self, expected: &Expected) -> Likeness {
        let same_etag = both_say_the_same(self.etag.as_ref(), expected.etag.as_ref());
        Likeness::of(same_etag, expected.size.is_none_or(|size| size == self.size))
    }

    /// What two answers are to each other. Dates differ between the servers behind one name, so
    /// they are asked only where there is no tag.
    #[must_use]
    pub fn beside(&self, other: &Self) -> Likeness {
        let same_etag = both_say_the_same(self.etag.as_ref(), other.etag.as_ref());
        let same_date =
            || both_say_the_same(self.last_modified.as_ref(), other.last_modified.as_ref());
        Likeness::of(same_etag.or_else(same_date), self.size == other.size)
    }
}

/// What two answers of a source are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// About the same bytes.
    Same,
    /// Vouched to be about the same bytes, and of another length: one of them lies.
    OtherLength,
    /// About other bytes.
    Replaced,
}

impl Likeness {
    /// Where nothing vouches for the bytes, another length means other bytes.
    fn of(vouched: Option<bool>, same_length: bool) -> Self {
        match (vouched, same_length) {
            (Some(false), _) | (None, false) => Self::Replaced,
            (Some(true), false) => Self::OtherLength,
            (Some(true) | None, true) => Self::Same,
        }
    }
}

fn both_say_the_same(ours: Option<&String>, theirs: Option<&String>) -> Option<bool> {
    Some(ours? == theirs?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(etag: Option<&str>, date: Option<&str>) -> Version {
        Version {
            etag: etag.map(str::to_owned),
            last_modified: date.map(str::to_owned),
            size: 7,
            accepts_ranges: true,
        }
    }

    #[test]
    fn tags_decide_and_dates_only_without_them() {
        let same = |a: &Version, b: &Version| a.beside(b) == Likeness::Same;
        assert!(same(&version(Some("a"), Some("1")), &version(Some("a"), Some("2"))));
        assert!(!same(&version(Some("a"), Some("1")), &version(Some("b"), Some("1"))));
        assert!(!same(&version(None, Some("1")), &version(None, Some("2"))));
        assert!(!same(&version(Some("a"), Some("1")), &version(None, Some("2"))));
        assert!(same(&version(None, Some("1")), &version(Some("a"), None)));
        assert!(!same(&version(None, None), &Version { size: 8, ..version(None, None) }));
    }

    #[test]
    fn another_length_is_a_lie_where_something_vouches_for_the_bytes() {
        let longer = |etag, date| Version { size: 8, ..version(etag, date) };
        let beside = |etag, date| version(etag, date).beside(&longer(etag, date));
        assert_eq!(beside(Some("a"), None), Likeness::OtherLength);
        assert_eq!(beside(None, Some("1")), Likeness::OtherLength);
        assert_eq!(beside(None, None), Likeness::Replaced);
        let other = version(Some("a"), None).beside(&longer(Some("b"), None));
        assert_eq!(other, Likeness::Replaced);
    }
}
