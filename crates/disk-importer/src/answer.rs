//! The head of an answer: which bytes it carries, or why it carries none.
//!
//! | status | reason |
//! |---|---|
//! | 404, 410 | `SourceNotFound` |
//! | 401, 403 and every other 4xx but 408 and 429 | `Forbidden` |
//! | 429, and 503 that says `Retry-After` | `Throttled` |
//! | 408 and every other 5xx | `ServerError` |
//! | another 2xx than 200 and 206 | `BadFormat` |
//!
//! What object stores say besides the status is `s3`'s matter.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use otctl_types::import::ImportReason;
use url::Url;

use crate::connection::shown;
use crate::failure::Failure;

/// Entity tags and dates longer than this are not kept: they would not fit a report.
const LONGEST_VALIDATOR: usize = 512;

/// Which bytes of the source an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A part that begins at `first`, of `total` bytes.
    Part {
        /// Offset of the body's first byte.
        first: u64,
        /// Length of the source.
        total: Option<u64>,
    },
    /// All of it.
    Whole {
        /// Length of the source.
        length: Option<u64>,
    },
    /// None: the source ends before the range begins.
    BeyondEnd {
        /// Length of the source.
        length: Option<u64>,
    },
}

/// Whether an answer of this status may carry bytes of the source, or tell that it has none there.
#[must_use]
pub fn carries_bytes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::OK | StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE
    )
}

/// Which bytes an answer with this head carries.
///
/// # Errors
/// When it carries none: the table above.
pub fn answer(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Answer, Failure> {
    match status {
        StatusCode::OK => Ok(Answer::Whole { length: content_length(headers) }),
        StatusCode::PARTIAL_CONTENT => match content_range(headers) {
            Some((Some(first), total)) => Ok(Answer::Part { first, total }),
            _ => {
                let message = format!("{} sent a part without saying which", shown(url));
                Err(Failure::new(ImportReason::ServerError, message))
            }
        },
        StatusCode::RANGE_NOT_SATISFIABLE => {
            Ok(Answer::BeyondEnd { length: content_range(headers).and_then(|(_, total)| total) })
        }
        _ => Err(refusal(url, status, headers)),
    }
}

/// Why an answer of this status carries nothing.
#[must_use]
pub fn refusal(url: &Url, status: StatusCode, headers: &HeaderMap) -> Failure {
    let retry_after = retry_after(headers);
    let reason = match status.as_u16() {
        404 | 410 => ImportReason::SourceNotFound,
        429 => ImportReason::Throttled,
        503 if retry_after.is_some() => ImportReason::Throttled,
        408 => ImportReason::ServerError,
        400..=499 => ImportReason::Forbidden,
        200..=299 => ImportReason::BadFormat,
        _ => ImportReason::ServerError,
    };
    let message = format!("{} answered {status}", shown(url));
    Failure { reason, message, retry_after }
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// First byte and total length of `bytes 5-9/10`, `bytes */10` or `bytes 5-9/*`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.trim().strip_prefix("bytes ")?.trim().split_once('/')?;
    let first = range.split_once('-').and_then(|(first, _)| first.trim().parse().ok());
    Some((first, total.trim().parse().ok()))
}

/// A validator as it was sent, unless it is too long to be kept.
#[must_use]
pub fn short_text(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (!text.is_empty() && text.len() <= LONGEST_VALIDATOR).then(|| text.to_owned())
}

/// Whether the server calls the body an HTML page.
#[must_use]
pub fn is_page(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.is_some_and(|text| text.trim().to_ascii_lowercase().starts_with("text/html"))
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?;
    let wait = date.timestamp().duration_since(jiff::Timestamp::now());
    Some(Duration::from_secs(wait.as_secs().try_into().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn reason(status: u16, pairs: &[(&'static str, &str)]) -> ImportReason {
        let url = Url::parse("http://h.example/i").unwrap();
        answer(&url, StatusCode::from_u16(status).unwrap(), &headers(pairs)).unwrap_err().reason
    }

    #[test]
    fn every_status_has_its_reason() {
        let table = [
            (ImportReason::SourceNotFound, &[404, 410][..]),
            (ImportReason::Forbidden, &[400, 401, 402, 403, 405, 407, 451]),
            (ImportReason::Throttled, &[429]),
            (ImportReason::ServerError, &[300, 304, 408, 500, 502, 503, 504, 599]),
            (ImportReason::BadFormat, &[201, 202, 204]),
        ];
        for (expected, statuses) in table {
            for status in statuses {
                assert_eq!(reason(*status, &[]), expected, "{status}");
            }
        }
        assert_eq!(reason(503, &[("retry-after", "7")]), ImportReason::Throttled);
        assert_eq!(reason(500, &[("retry-after", "7")]), ImportReason::ServerError);
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after(&headers(&[("retry-after", "120")])).unwrap().as_secs(), 120);
        let past = headers(&[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        assert_eq!(retry_after(&past).unwrap().as_secs(), 0);
        let future = headers(&[("retry-after", "Fri, 01 Jan 2100 00:00:00 GMT")]);
        assert!(retry_after(&future).unwrap().as_secs() > 1_000_000);
        assert_eq!(retry_after(&headers(&[("retry-after", "soon")])), None);
    }

    #[test]
    fn content_ranges_are_read_in_all_forms() {
        let read = |text: &str| content_range(&headers(&[("content-range", text)]));
        assert_eq!(read("bytes 5-9/10"), Some((Some(5), Some(10))));
        assert_eq!(read("bytes 5-9/*"), Some((Some(5), None)));
        assert_eq!(read("bytes */10"), Some((None, Some(10))));
        assert_eq!(read("pages 5-9/10"), None);
        assert_eq!(reason(206, &[]), ImportReason::ServerError);
    }

    #[test]
    fn overlong_entity_tags_are_not_kept() {
        let etag = |text: &str| short_text(&headers(&[("etag", text)]), &header::ETAG);
        assert_eq!(etag("W/\"a\"").unwrap(), "W/\"a\"");
        assert_eq!(etag(&"a".repeat(600)), None);
    }
}
