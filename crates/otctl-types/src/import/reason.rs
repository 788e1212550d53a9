//! Why a run of the importer failed, and what each reason asks for.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// The source is larger than the policy's `maxImageSize`, or the disk is larger than the volume's file system lets a
    /// file be.
    TooLarge,
    /// What the source serves is not a disk image, or is a damaged one.
    BadFormat,
    /// A disk image that uses something this importer does not read.
    UnsupportedFormat,
    /// The bucket is in another region than the request was signed for or sent to.
    WrongRegion,
    /// The policy's `allowedSourceHosts` does not permit an address the source leads to.
    AddressRefused,
    /// The source redirects more often than three times.
    TooManyRedirects,
    /// The block device of the claim cannot be opened or is shorter than `diskSize`.
    BlockDeviceDenied,
    /// The server does not say how long the image is, or only unpacking would tell how large its
    /// disk is and `diskSize` is not set.
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
    /// Another run of the importer holds the lock on the scratch volume.
    ScratchInUse,
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
    /// The import was complete, and its pod was gone before its result was read. What it fetched is kept, so it is
    /// charged only when it happens twice in a row. Set by the controller.
    ResultLost,
    /// The image was suspended while it was imported. Set by the controller.
    Suspended,
}

impl ImportReason {
    /// Every reason, for tables, tests and metric labels.
    pub const ALL: [Self; 29] = [
        Self::SourceNotFound,
        Self::Forbidden,
        Self::ChecksumMismatch,
        Self::TooSmall,
        Self::TooLarge,
        Self::BadFormat,
        Self::UnsupportedFormat,
        Self::WrongRegion,
        Self::AddressRefused,
        Self::TooManyRedirects,
        Self::BlockDeviceDenied,
        Self::SizeUnknown,
        Self::ConnectionLost,
        Self::ServerError,
        Self::Throttled,
        Self::NoProgress,
        Self::LengthMismatch,
        Self::SourceChanged,
        Self::VolumeFull,
        Self::ScratchInUse,
        Self::Internal,
        Self::SecretNotFound,
        Self::SecretKeyMissing,
        Self::AttemptTimeout,
        Self::Evicted,
        Self::NodeLost,
        Self::Interrupted,
        Self::ResultLost,
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
            | Self::WrongRegion
            | Self::AddressRefused
            | Self::TooManyRedirects
            | Self::BlockDeviceDenied
            | Self::SizeUnknown => FailureClass::Terminal,
            Self::ConnectionLost
            | Self::ServerError
            | Self::Throttled
            | Self::NoProgress
            | Self::LengthMismatch
            | Self::SourceChanged
            | Self::VolumeFull
            | Self::ScratchInUse
            | Self::Internal
            | Self::AttemptTimeout
            | Self::Evicted
            | Self::NodeLost
            | Self::Interrupted => FailureClass::Transient,
            Self::SecretNotFound | Self::SecretKeyMissing | Self::ResultLost | Self::Suspended => {
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
            Self::WrongRegion => "WrongRegion",
            Self::AddressRefused => "AddressRefused",
            Self::TooManyRedirects => "TooManyRedirects",
            Self::BlockDeviceDenied => "BlockDeviceDenied",
            Self::SizeUnknown => "SizeUnknown",
            Self::ConnectionLost => "ConnectionLost",
            Self::ServerError => "ServerError",
            Self::Throttled => "Throttled",
            Self::NoProgress => "NoProgress",
            Self::LengthMismatch => "LengthMismatch",
            Self::SourceChanged => "SourceChanged",
            Self::VolumeFull => "VolumeFull",
            Self::ScratchInUse => "ScratchInUse",
            Self::Internal => "Internal",
            Self::SecretNotFound => "SecretNotFound",
            Self::SecretKeyMissing => "SecretKeyMissing",
            Self::AttemptTimeout => "AttemptTimeout",
            Self::Evicted => "Evicted",
            Self::NodeLost => "NodeLost",
            Self::Interrupted => "Interrupted",
            Self::ResultLost => "ResultLost",
            Self::Suspended => "Suspended",
        }
    }
}

impl fmt::Display for ImportReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
