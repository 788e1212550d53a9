//! What an import pod says of itself: the report it leaves as its termination message and the
//! progress it serves while it runs. Plain serde types, shared by the importer that writes them
//! and the controller that reads them. How an attempt is judged lives in the controller.

mod reason;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::reason::{FailureClass, ImportReason};

/// The longest termination message a kubelet keeps, in bytes.
pub const TERMINATION_MESSAGE_LIMIT: usize = 4096;

/// The longest entity tag that a status keeps, in bytes.
const TAG_LIMIT: usize = 1024;

/// The length of `sha256:` and 64 hexadecimal digits.
pub const SUM_LIMIT: usize = 71;

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
    /// The format by the image's first bytes, those inside where it is compressed as a whole.
    pub format: ImageFormat,
    /// What the whole image is compressed with; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<Compression>,
    /// The size of the disk inside the image in bytes; for a raw image its length. Absent for a
    /// raw image that is compressed as a whole: its first bytes do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_size: Option<u64>,
}

impl SourceFacts {
    /// Without a number that is none of Kubernetes', which are signed, and without an entity tag
    /// that is too long to be kept.
    fn that_fit(self) -> Self {
        let signed = |size: &u64| i64::try_from(*size).is_ok();
        Self {
            size: self.size.filter(signed),
            etag: self.etag.filter(|tag| tag.len() <= TAG_LIMIT),
            virtual_size: self.virtual_size.filter(signed),
            ..self
        }
    }

    /// The most bytes that an import of this source keeps on its scratch volume, besides its own
    /// records: the source as it came and, where that is a compressed qcow2 image, the image
    /// itself, whose tables can only be followed once it is unpacked.
    #[must_use]
    pub fn scratch_bytes(&self) -> Option<u64> {
        let unpacked = match (self.compression, self.format, self.virtual_size) {
            (Some(_), ImageFormat::Qcow2, Some(size)) => largest_qcow2(size),
            _ => 0,
        };
        Some(self.size?.saturating_add(unpacked))
    }
}

/// The most bytes that a qcow2 file takes for a disk of `virtual_size` bytes without snapshots
/// inside: the disk, and tables that for the smallest clusters are one part in 32 of it.
#[must_use]
pub const fn largest_qcow2(virtual_size: u64) -> u64 {
    const FIXED_TABLES: u64 = 32 << 20;
    virtual_size.saturating_add(virtual_size / 16).saturating_add(FIXED_TABLES)
}

/// What the whole image is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// `.gz`
    Gzip,
    /// `.xz`
    Xz,
    /// `.zst`
    Zstd,
}

impl Compression {
    /// The word used on the wire and for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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

/// Orders the shares that an import is told: first by term, then by serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    /// Which leader tells; each has a higher one than those before it.
    pub term: u64,
    /// Grows with whatever one leader tells.
    pub serial: u64,
}

/// The body of `POST /progress`: how fast the import may receive bytes from now on. The answer is
/// [`Standing`], as that of `GET /progress`, which leaves the share as it is; 409 with the same if
/// the share was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Share {
    /// In bytes per second; absent: as fast as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// The most that is allowed once the share has ended, in bytes per second; absent: as fast as
    /// it can. A share that is not above it does not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_bytes_per_second: Option<u64>,
    /// Refused unless it is above the highest that was taken. Absent from a controller that knows
    /// of none: taken as long as no fence was ever seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// When the share ends, on the clock of [`Standing::clock_ms`]. With a fence and without this
    /// nothing above the fallback is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// The answer to `GET /progress` and `POST /progress`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// What was done.
    #[serde(flatten)]
    pub progress: Progress,
    /// The importer's own clock when it answered, in milliseconds. It never jumps, and means
    /// nothing to any other process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_ms: Option<u64>,
    /// The highest that was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

/// How far an import is.
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
                report.leave_out_what_is_no_sum();
                if let Some(source) = &mut report.source {
                    source.etag = None;
                }
            }
            cut_end(&mut report.message, excess);
        }
    }

    fn leave_out_what_is_no_sum(&mut self) {
        for sum in [&mut self.checksum, &mut self.disk_checksum] {
            *sum = sum.take().filter(|sum| sum.len() <= SUM_LIMIT);
        }
    }

    /// Reads a termination message. The pod has read foreign bytes and is not trusted: what a status
    /// has no room for is left out, or no status with it would ever be stored.
    ///
    /// # Errors
    /// When `text` is not a report, for instance because the process died before it wrote one.
    pub fn from_termination_message(text: &str) -> Result<Self, serde_json::Error> {
        let mut report: Self = serde_json::from_str(text)?;
        report.leave_out_what_is_no_sum();
        report.source = report.source.map(SourceFacts::that_fit);
        Ok(report)
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
                compression: None,
                virtual_size: Some(1 << 30),
            }),
            checksum: None,
            disk_checksum: None,
            retry_after_seconds: None,
        }
    }

    #[test]
    fn scratch_holds_the_source_and_what_must_be_unpacked() {
        let source = failed("").source.unwrap();
        assert_eq!(source.scratch_bytes(), Some(7));
        let packed = SourceFacts { compression: Some(Compression::Xz), ..source.clone() };
        assert_eq!(packed.scratch_bytes(), Some(7 + (1 << 30) + (1 << 26) + (32 << 20)));
        let raw = SourceFacts { format: ImageFormat::Raw, virtual_size: None, ..packed };
        assert_eq!(raw.scratch_bytes(), Some(7));
        assert_eq!(SourceFacts { size: None, ..source }.scratch_bytes(), None);
    }

    #[test]
    fn a_share_without_numbers_is_no_limit() {
        assert_eq!(serde_json::from_str::<Share>("{}").unwrap(), Share::default());
        let share = Share { bytes_per_second: Some(7), ..Share::default() };
        let wire = serde_json::to_string(&share).unwrap();
        assert_eq!(wire, r#"{"bytesPerSecond":7}"#);
        assert_eq!(serde_json::from_str::<Share>(&wire).unwrap(), share);
    }

    #[test]
    fn an_older_importer_tells_no_clock_and_an_older_controller_reads_past_it() {
        let older = r#"{"phase":"Fetching","bytes":7,"received":7,"percent":1}"#;
        let standing: Standing = serde_json::from_str(older).unwrap();
        assert_eq!((standing.clock_ms, standing.fence), (None, None));
        assert_eq!(serde_json::to_string(&standing).unwrap(), older);
        let fence = Some(Fence { term: 1, serial: 2 });
        let newer = Standing { clock_ms: Some(5), fence, ..standing.clone() };
        let wire = serde_json::to_string(&newer).unwrap();
        assert!(wire.ends_with(r#""clockMs":5,"fence":{"term":1,"serial":2}}"#), "{wire}");
        assert_eq!(serde_json::from_str::<Progress>(&wire).unwrap(), standing.progress);
        assert_eq!(serde_json::from_str::<Standing>(&wire).unwrap(), newer);
    }

    #[test]
    fn names_are_the_same_on_the_wire_and_for_people() {
        for reason in ImportReason::ALL {
            let wire = serde_json::to_value(reason).unwrap();
            assert_eq!(wire, serde_json::Value::String(reason.as_str().to_owned()));
        }
        for compression in [Compression::Gzip, Compression::Xz, Compression::Zstd] {
            let wire = serde_json::to_value(compression).unwrap();
            assert_eq!(wire, serde_json::Value::String(compression.as_str().to_owned()));
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
    fn what_no_status_has_room_for_is_left_out() {
        let mut report = failed("it ended");
        report.checksum = Some(format!("sha256:{}", "0".repeat(64)));
        report.disk_checksum = Some("d".repeat(72));
        let source = report.source.as_mut().unwrap();
        source.etag = Some("x".repeat(1025));
        (source.size, source.virtual_size) = (Some(u64::MAX), Some(1 << 63));
        let json = serde_json::to_string(&report).unwrap();
        let read = ImportReport::from_termination_message(&json).unwrap();
        assert_eq!((&read.checksum, &read.disk_checksum), (&report.checksum, &None));
        let source = read.source.unwrap();
        assert_eq!((source.etag, source.size, source.virtual_size), (None, None, None));
    }

    #[test]
    fn a_message_that_is_no_report_is_an_error() {
        assert!(ImportReport::from_termination_message("").is_err());
        assert!(ImportReport::from_termination_message("{\"outcome\":\"Maybe\"}").is_err());
    }
}
