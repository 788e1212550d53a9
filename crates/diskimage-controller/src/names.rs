//! Names and hashes that are computed, never stored: of children, revisions and budgets.

use otctl_types::VMDiskImage;
use otctl_types::diskimage::VMDiskImageSpec;
use otctl_types::names::{LAST_ATTEMPT, RETRY_ANNOTATION};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Longest name of a Job, so that its pods' names and labels stay legal.
const JOB_NAME_LIMIT: usize = 63;
/// Longest name of a claim or snapshot.
const CHILD_NAME_LIMIT: usize = 253;

/// What a Job carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobRole {
    /// Reads the first bytes of the source.
    Probe,
    /// Downloads it.
    Import,
}

impl JobRole {
    /// The value of the role label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Import => "import",
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Probe => 'p',
            Self::Import => 'a',
        }
    }
}

/// Hash of the fields of spec that make the data, as written: defaults of the policy do not count, so that changing
/// them makes no new revision.
pub fn revision(spec: &VMDiskImageSpec) -> String {
    let fields = json!([
        spec.url,
        spec.source_type,
        spec.checksum,
        spec.disk_size,
        spec.storage_class,
        spec.snapshot_class,
        spec.volume_mode,
        spec.access_modes,
        spec.refresh,
    ]);
    short_hash(&fields.to_string(), 16)
}

/// Hash of what a person or a pipeline changes to ask for downloads; when it differs a new budget begins.
pub fn budget_key(image: &VMDiskImage) -> String {
    let spec = &image.spec;
    let retry = image
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(RETRY_ANNOTATION));
    let fields = json!([spec.url, spec.source_type, spec.checksum, spec.refresh, retry]);
    short_hash(&fields.to_string(), 16)
}

/// Name of the claim with the disk, and of the snapshot of it.
pub fn data_name(image: &str, revision: &str) -> String {
    with_suffix(image, &format!("-{}", short(revision)), CHILD_NAME_LIMIT)
}

/// Name of the claim with the download.
pub fn scratch_name(image: &str, revision: &str) -> String {
    with_suffix(image, &format!("-{}-scratch", short(revision)), CHILD_NAME_LIMIT)
}

/// What names tell of a revision. One that comes from a status may be anything.
fn short(revision: &str) -> String {
    revision.chars().filter(char::is_ascii_alphanumeric).take(6).collect()
}

/// Name of the Job of an attempt. Numbers never repeat within a UID, so while it is there the API server itself refuses a
/// second one; a create that comes late, after it went, makes a suspended Job that is swept.
pub fn job_name(image: &str, uid: &str, revision: &str, role: JobRole, number: i64) -> String {
    let owner = short_hash(&format!("{uid}/{revision}"), 8);
    let suffix = format!("-{owner}-{}{number}", role.letter());
    let label: String = image.chars().map(|c| if c == '.' { '-' } else { c }).collect();
    let room = JOB_NAME_LIMIT - suffix.len();
    let cut: String = label.chars().take(room).collect();
    format!("{}{suffix}", cut.trim_end_matches('-'))
}

/// The number of the attempt that a Job of this name carries out. The name cannot be edited, unlike an annotation. A
/// number with more digits than an image ever counts to is no number of ours.
pub fn attempt_number(job_name: &str, role: JobRole) -> Option<i64> {
    let (_, last) = job_name.rsplit_once('-')?;
    let digits = last.strip_prefix(role.letter())?;
    digits.parse().ok().filter(|number| (1..=LAST_ATTEMPT).contains(number))
}

/// `name` and `suffix`, hashed in the middle where that is too long.
fn with_suffix(name: &str, suffix: &str, limit: usize) -> String {
    if name.len() + suffix.len() <= limit {
        return format!("{name}{suffix}");
    }
    let hash = short_hash(name, 8);
    let room = limit - suffix.len() - hash.len() - 1;
    let cut: String = name.chars().take(room).collect();
    format!("{}-{hash}{suffix}", cut.trim_end_matches(['-', '.']))
}

/// The first `digits` hexadecimal digits of the sha256 of `text`.
fn short_hash(text: &str, digits: usize) -> String {
    let mut hash = hex::encode(Sha256::digest(text.as_bytes()));
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";

    fn long_name() -> String {
        format!("{}.x", "a".repeat(251))
    }

    #[test]
    fn job_names_fit_and_tell_their_number() {
        for name in ["web", "a.b", "lab-404", &long_name()] {
            let job = job_name(name, UID, "0123456789abcdef", JobRole::Import, 12);
            assert!(job.len() <= 63 && !job.contains('.'), "{job}");
            assert_eq!(attempt_number(&job, JobRole::Import), Some(12));
            assert_eq!(attempt_number(&job, JobRole::Probe), None);
        }
    }

    #[test]
    fn a_number_that_nobody_counts_to_is_none() {
        for name in ["web-a9223372036854775807", "web-a0", "web-a", "web-a-1", "a1"] {
            assert_eq!(attempt_number(name, JobRole::Import), None, "{name}");
        }
    }

    #[test]
    fn names_of_two_owners_differ() {
        let of = |uid| job_name("web", uid, "0123456789abcdef", JobRole::Import, 1);
        assert_ne!(of(UID), of("0b1d2c3e-0000-4000-8000-000000000002"));
    }

    #[test]
    fn long_names_of_children_are_hashed_not_cut_into_each_other() {
        let other = format!("{}.y", "a".repeat(251));
        let (one, two) =
            (data_name(&long_name(), "0123456789abcdef"), data_name(&other, "0123456789abcdef"));
        assert!(one.len() <= 253 && two.len() <= 253);
        assert_ne!(one, two);
        assert_eq!(data_name("web", "0123456789abcdef"), "web-012345");
        assert_eq!(scratch_name("web", "0123456789abcdef"), "web-012345-scratch");
        assert_eq!(data_name("web", "é\"1"), "web-1");
    }

    #[test]
    fn a_revision_follows_what_makes_the_data_and_nothing_else() {
        let spec =
            VMDiskImageSpec { url: "https://host/a".to_owned(), ..VMDiskImageSpec::default() };
        let same = VMDiskImageSpec {
            suspend: true,
            keep_volume: Some(true),
            name: Some("x".to_owned()),
            ..spec.clone()
        };
        assert_eq!(revision(&spec), revision(&same));
        let other = VMDiskImageSpec { disk_size: Some("1Gi".to_owned()), ..spec.clone() };
        assert_ne!(revision(&spec), revision(&other));
    }

    #[test]
    fn a_budget_is_given_by_the_source_and_the_retry_annotation_only() {
        let mut image = VMDiskImage::new(
            "a",
            VMDiskImageSpec { url: "https://host/a".to_owned(), ..Default::default() },
        );
        let before = budget_key(&image);
        image.spec.disk_size = Some("2Gi".to_owned());
        image.metadata.labels = Some([("touched".to_owned(), "yes".to_owned())].into());
        assert_eq!(budget_key(&image), before);
        image.metadata.annotations = Some([(RETRY_ANNOTATION.to_owned(), "1".to_owned())].into());
        assert_ne!(budget_key(&image), before);
    }
}
