//! The terms of one answer: a well-behaved server's, changed by each fault in turn.

use std::time::Duration;

use crate::{
    behaviour::{CutKind, Fault},
    content::Content,
};

/// What one answer promises and what it does instead.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) content: Content,
    /// The complete length that is claimed, in bytes.
    pub(crate) size: u64,
    pub(crate) gives_length: bool,
    pub(crate) etag: Option<String>,
    pub(crate) serves_ranges: bool,
    pub(crate) honours_if_range: bool,
    /// Bytes left out at the front of a range.
    pub(crate) shift: u64,
    pub(crate) authorization: Option<String>,
    pub(crate) instead: Option<Instead>,
    pub(crate) cut: Option<(u64, CutKind)>,
    pub(crate) stall: Option<u64>,
    pub(crate) pace: Option<Pace>,
}

/// What comes instead of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Instead {
    Status { code: u16, retry_after: Option<u64> },
    Redirect(String),
    HtmlPage,
    HangUp(CutKind),
    Mute,
}

/// So many bytes at a time, and the pause between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) bytes: u64,
    pub(crate) every: Duration,
}

impl Terms {
    /// A server that does nothing wrong; `revision` counts changed entity tags.
    pub(crate) fn honest(content: Content, revision: u32) -> Self {
        Self {
            size: content.size(),
            gives_length: true,
            etag: Some(format!("\"{}-{revision}\"", content.identity())),
            content,
            serves_ranges: true,
            honours_if_range: true,
            shift: 0,
            authorization: None,
            instead: None,
            cut: None,
            stall: None,
            pace: None,
        }
    }

    /// These terms, made worse.
    pub(crate) fn with(mut self, fault: Fault) -> Self {
        match fault {
            Fault::Cut { after, kind } => self.cut = Some((after, kind)),
            Fault::Stall { after } => self.stall = Some(after),
            Fault::Drip { bytes, every } => self.pace = Some(Pace { bytes: bytes.max(1), every }),
            // It outlives this answer, so it is in the revision already.
            Fault::ChangeEtag => {}
            Fault::NoEtag => self.etag = None,
            Fault::WeakEtag => self.etag = self.etag.map(|etag| format!("W/{etag}")),
            Fault::NoRanges => self.serves_ranges = false,
            Fault::IgnoreIfRange => self.honours_if_range = false,
            Fault::ShiftRange { by } => self.shift = by,
            Fault::WrongLength { announced } => self.size = announced,
            Fault::NoLength => self.gives_length = false,
            Fault::RequireAuthorization { value } => self.authorization = Some(value),
            Fault::Status { code, retry_after } => {
                self.instead = Some(Instead::Status { code, retry_after });
            }
            Fault::Redirect { to } => self.instead = Some(Instead::Redirect(to)),
            Fault::HtmlPage => self.instead = Some(Instead::HtmlPage),
            Fault::HangUp { kind } => self.instead = Some(Instead::HangUp(kind)),
            Fault::Mute => self.instead = Some(Instead::Mute),
        }
        self
    }
}
