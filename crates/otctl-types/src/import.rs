//! What an import pod says of itself: the report it leaves as its termination message and the
//! progress it serves while it runs. Plain serde types, shared by the importer that writes them
//! and the controller that reads them. How an attempt is judged lives in the controller.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The longest termination message a kubelet keeps, in bytes.
pub const TERMINATION_MESSAGE_LIMIT: usize = 4096;

/// The environment variable that carries the key of `/progress`.
pub const PROGRESS_KEY_VARIABLE: &str = "OTCTL_PROGRESS_KEY";

/// The environment variable that carries the UID of the importer's own pod.
pub const POD_UID_VARIABLE: &str = "POD_UID";

/// The result of one run of the importer, probe or import: one JSON object of at most
/// [`TERMINATION_MESSAGE_LIMIT`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImportReport {
    /// Whether the run did what it was started for.
    pub outcome: ImportOutcome,
    /// Why it failed; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ImportReason>,
    /// One sentence for a person. Holds no user-info, query string or secret of the source.
    #[serde(default)]
    pub message: String,
    /// Whether a request for the image's data was sent, so that the attempt is charged. A probe's
    /// look at the first bytes does not count.
    #[serde(default)]
    pub download_started: bool,
    /// Body bytes received from the source in this run.
    #[serde(default)]
    pub bytes: u64,
    /// What the source said of itself, as far as it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceFacts>,
    /// `sha256:<hex>` of the bytes at the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// `sha256:<hex>` of the whole disk as a VM sees it: all `disk-size` bytes, the zero tail
    /// included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_checksum: Option<String>,
    /// How long the source asked us to stay away, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

/// Whether a run of the importer reached its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImportOutcome {
    /// Everything that was asked for is done and verified.
    Complete,
    /// It is not; the report's reason says why.
    Failed,
}

/// What one look at the source told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceFacts {
    /// Length of the source in bytes; absent when the server does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The server's entity tag, quotes included, as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub etag: Option<String>,
    /// Whether the server answered a range request with that range.
    #[serde(default)]
    pub accepts_ranges: bool,
    /// The format by the image's first bytes.
    pub format: ImageFormat,
    /// The size of the disk inside the image in bytes; for a raw image its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_size: Option<u64>,
}

/// A disk image format the importer converts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageFormat {
    /// The disk's bytes as they are.
    Raw,
    /// QEMU's copy-on-write format, versions 2 and 3.
    Qcow2,
}

impl ImageFormat {
    /// The word used on the wire and for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a failure asks for. The classes of the retry policy; nothing else decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailureClass {
    /// A person must change something; trying again would give the same answer.
    Terminal,
    /// May pass by itself: retried by policy, charged when data was asked for.
    Transient,
    /// Something the image needs is not there yet: no slot is held, nothing is charged.
    Waiting,
}

/// Why a run of the importer, or an attempt as a whole, failed. The name of the variant is the
/// condition reason, the event reason and the metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ImportReason {
    /// The source answered that it does not have the image (404, 410).
    SourceNotFound,
    /// The source refuses these credentials, or asks for some (401, 403).
    Forbidden,
    /// The bytes are not those of the checksum in spec.
    ChecksumMismatch,
    /// `diskSize` is smaller than the disk inside the image.
    TooSmall,
    /// The source is larger than the policy's `maxImageSize`.
    TooLarge,
    /// What the source serves is not a disk image, or is a damaged one.
    BadFormat,
    /// A disk image that uses something this importer does not read.
    UnsupportedFormat,
    /// A kind of source that this importer does not speak.
    UnsupportedSource,
    /// The policy's `allowedSourceHosts` does not permit an address the source leads to.
    AddressRefused,
    /// The block device of the claim cannot be opened or is shorter than `diskSize`.
    BlockDeviceDenied,
    /// The server does not say how long the image is.
    SizeUnknown,
    /// The source cannot be reached, or the connection ended before its end.
    ConnectionLost,
    /// The source answered with an error of its own (5xx).
    ServerError,
    /// The source asks for fewer requests (429, or 503 with Retry-After).
    Throttled,
    /// No byte arrived for the policy's `stallTimeout`.
    NoProgress,
    /// The source sent another number of bytes than it announced. Terminal when it happens a
    /// second time with the same length, which only the controller can know.
    LengthMismatch,
    /// The image at the source was replaced while it was being fetched.
    SourceChanged,
    /// A volume has no room left for the bytes it was sized for.
    VolumeFull,
    /// The importer failed in a way that says nothing about the source.
    Internal,
    /// The Secret of `secretRef` does not exist.
    SecretNotFound,
    /// The Secret lacks a key that the source needs.
    SecretKeyMissing,
    /// The attempt ran longer than the policy's `attemptTimeout`. Set by the controller.
    AttemptTimeout,
    /// The pod was evicted from its node. Set by the controller.
    Evicted,
    /// The pod's node is gone. Set by the controller.
    NodeLost,
    /// The pod was told to stop, or ended without a report.
    Interrupted,
    /// The image was suspended while it was imported. Set by the controller.
    Suspended,
}

impl ImportReason {
    /// Every reason, for tables, tests and metric labels.
    pub const ALL: [Self; 26] = [
        Self::SourceNotFound,
        Self::Forbidden,
        Self::ChecksumMismatch,
        Self::TooSmall,
        Self::TooLarge,
        Self::BadFormat,
        Self::UnsupportedFormat,
        Self::UnsupportedSource,
        Self::AddressRefused,
        Self::BlockDeviceDenied,
        Self::SizeUnknown,
        Self::ConnectionLost,
        Self::ServerError,
        Self::Throttled,
        Self::NoProgress,
        Self::LengthMismatch,
        Self::SourceChanged,
        Self::VolumeFull,
        Self::Internal,
        Self::SecretNotFound,
        Self::SecretKeyMissing,
        Self::AttemptTimeout,
        Self::Evicted,
        Self::NodeLost,
        Self::Interrupted,
        Self::Suspended,
    ];

    /// What this failure asks for.
    ///
    /// `VolumeFull` is transient although a retry alone rarely frees space: the download is kept
    /// on the scratch volume, so a retry costs no bytes, and shared storage does get room again.
    #[must_use]
    pub const fn class(self) -> FailureClass {
        match self {
            Self::SourceNotFound
            | Self::Forbidden
            | Self::ChecksumMismatch
            | Self::TooSmall
            | Self::TooLarge
            | Self::BadFormat
            | Self::UnsupportedFormat
            | Self::UnsupportedSource
            | Self::AddressRefused
            | Self::BlockDeviceDenied
            | Self::SizeUnknown => FailureClass::Terminal,
            Self::ConnectionLost
            | Self::ServerError
            | Self::Throttled
            | Self::NoProgress
            | Self::LengthMismatch
            | Self::SourceChanged
            | Self::VolumeFull
            | Self::Internal
            | Self::AttemptTimeout
            | Self::Evicted
            | Self::NodeLost
            | Self::Interrupted => FailureClass::Transient,
            Self::SecretNotFound | Self::SecretKeyMissing | Self::Suspended => {
                FailureClass::Waiting
            }
        }
    }

    /// The CamelCase word that stands in conditions, events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SourceNotFound => "SourceNotFound",
            Self::Forbidden => "Forbidden",
            Self::ChecksumMismatch => "ChecksumMismatch",
            Self::TooSmall => "TooSmall",
            Self::TooLarge => "TooLarge",
            Self::BadFormat => "BadFormat",
            Self::UnsupportedFormat => "UnsupportedFormat",
            Self::UnsupportedSource => "UnsupportedSource",
            Self::AddressRefused => "AddressRefused",
            Self::BlockDeviceDenied => "BlockDeviceDenied",
            Self::SizeUnknown => "SizeUnknown",
            Self::ConnectionLost => "ConnectionLost",
            Self::ServerError => "ServerError",
            Self::Throttled => "Throttled",
            Self::NoProgress => "NoProgress",
            Self::LengthMismatch => "LengthMismatch",
            Self::SourceChanged => "SourceChanged",
            Self::VolumeFull => "VolumeFull",
            Self::Internal => "Internal",
            Self::SecretNotFound => "SecretNotFound",
            Self::SecretKeyMissing => "SecretKeyMissing",
            Self::AttemptTimeout => "AttemptTimeout",
            Self::Evicted => "Evicted",
            Self::NodeLost => "NodeLost",
            Self::Interrupted => "Interrupted",
            Self::Suspended => "Suspended",
        }
    }
}

impl fmt::Display for ImportReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a running import is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ImportPhase {
    /// Bytes of the source are being received, or kept ones read again from disk.
    Fetching,
    /// Length and checksum are being judged.
    Verifying,
    /// The disk is being written.
    Converting,
    /// The disk is in place.
    Done,
}

/// The answer to `GET /progress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// What the importer is doing.
    pub phase: ImportPhase,
    /// How many of the source's bytes are on the scratch volume.
    pub bytes: u64,
    /// The source's length in bytes, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Body bytes received from the source in this run.
    pub received: u64,
    /// `bytes` of `total_bytes`, 0 to 100; 0 while the length is unknown.
    pub percent: u8,
}

impl ImportReport {
    /// The report as a termination message: JSON of at most [`TERMINATION_MESSAGE_LIMIT`] bytes.
    /// A message that does not fit is cut at its end; the other fields are short by construction,
    /// except an entity tag, which is dropped when even an empty message does not fit.
    #[must_use]
    pub fn to_termination_message(&self) -> String {
        let mut report = self.clone();
        loop {
            let json = serde_json::to_string(&report).expect("plain fields always serialize");
            let excess = json.len().saturating_sub(TERMINATION_MESSAGE_LIMIT);
            if excess == 0 {
                return json;
            }
            if report.message.is_empty() {
                report.checksum = report.checksum.filter(|sum| sum.len() <= 128);
                report.disk_checksum = report.disk_checksum.filter(|sum| sum.len() <= 128);
                if let Some(source) = &mut report.source {
                    source.etag = None;
                }
            }
            cut_end(&mut report.message, excess);
        }
    }

    /// Reads a termination message.
    ///
    /// # Errors
    /// When `text` is not a report, for instance because the process died before it wrote one.
    pub fn from_termination_message(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Drops characters at the end until about `bytes` bytes of JSON are gone. How many an escaped
/// one takes is guessed, so the caller looks again; one goes at least, so that comes to an end.
fn cut_end(text: &mut String, bytes: usize) {
    let mut dropped = 0;
    while dropped < bytes {
        let Some(last) = text.pop() else { return };
        dropped += if last.is_ascii_control() { 6 } else { last.len_utf8() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str) -> ImportReport {
        ImportReport {
            outcome: ImportOutcome::Failed,
            reason: Some(ImportReason::TooSmall),
            message: message.to_owned(),
            download_started: false,
            bytes: 65536,
            source: Some(SourceFacts {
                size: Some(7),
                etag: Some("\"a\"".to_owned()),
                accepts_ranges: true,
                format: ImageFormat::Qcow2,
                virtual_size: Some(1 << 30),
            }),
            checksum: None,
            disk_checksum: None,
            retry_after_seconds: None,
        }
    }

    #[test]
    fn names_are_the_same_on_the_wire_and_for_people() {
        for reason in ImportReason::ALL {
            let wire = serde_json::to_value(reason).unwrap();
            assert_eq!(wire, serde_json::Value::String(reason.as_str().to_owned()));
        }
        for format in [ImageFormat::Raw, ImageFormat::Qcow2] {
            let wire = serde_json::to_value(format).unwrap();
            assert_eq!(wire, serde_json::Value::String(format.as_str().to_owned()));
        }
    }

    #[test]
    fn all_lists_each_reason_once() {
        let mut sorted = ImportReason::ALL.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), ImportReason::ALL.len());
    }

    #[test]
    fn report_is_camel_case_and_reads_back() {
        let json = failed("too small").to_termination_message();
        for key in ["\"downloadStarted\":false", "\"acceptsRanges\":true", "\"virtualSize\":"] {
            assert!(json.contains(key), "{json}");
        }
        assert_eq!(ImportReport::from_termination_message(&json).unwrap(), failed("too small"));
    }

    #[test]
    fn long_messages_are_cut_to_the_limit() {
        for message in ["x".repeat(9000), "é".repeat(5000), "\u{1}".repeat(5000)] {
            let json = failed(&message).to_termination_message();
            assert!(json.len() <= TERMINATION_MESSAGE_LIMIT, "{} bytes", json.len());
            let read = ImportReport::from_termination_message(&json).unwrap();
            assert!(message.starts_with(&read.message) && !read.message.is_empty());
        }
    }

    #[test]
    fn an_entity_tag_that_does_not_fit_is_dropped() {
        let mut report = failed("");
        report.source.as_mut().unwrap().etag = Some("\"".repeat(9000));
        let json = report.to_termination_message();
        assert!(json.len() <= TERMINATION_MESSAGE_LIMIT);
        assert_eq!(ImportReport::from_termination_message(&json).unwrap().bytes, 65536);
    }

    #[test]
    fn a_message_that_is_no_report_is_an_error() {
        assert!(ImportReport::from_termination_message("").is_err());
        assert!(ImportReport::from_termination_message("{\"outcome\":\"Maybe\"}").is_err());
    }
}
