//! One GET of the source: the request, redirects followed by ourselves so that every hop is
//! judged, the answer's head, and its body as it arrives. What the bytes mean is not known here.
//!
//! | status | reason |
//! |---|---|
//! | 404, 410 | `SourceNotFound` |
//! | 401, 403 and every other 4xx but 408 and 429 | `Forbidden` |
//! | 429, and 503 that says `Retry-After` | `Throttled` |
//! | 408 and every other 5xx | `ServerError` |
//! | another 2xx than 200 and 206 | `BadFormat` |
//! | more than three redirects, or one to what is no http(s) url | `AddressRefused` |

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use otctl_types::import::ImportReason;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::connection::{Connector, shown};
use crate::failure::Failure;
use crate::settings::Source;

/// Redirects followed for one request.
const MAX_REDIRECTS: usize = 3;

/// What the http parser buffers; together with the socket's buffer it is what a kill loses.
const READ_BUFFER_BYTES: usize = 32 * 1024;

/// Entity tags and dates longer than this are not kept: they would not fit a report.
const LONGEST_VALIDATOR: usize = 512;

/// Asks one source.
pub struct Client {
    url: Url,
    connector: Connector,
    authorization: Option<header::HeaderValue>,
    stall: Duration,
}

/// Which bytes are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte; absent: to the end.
    pub last: Option<u64>,
    /// The entity tag that the source must still have for a part of it to be of use.
    pub if_range: Option<String>,
}

/// The head of an answer that carries bytes, and its body.
#[derive(Debug)]
pub struct Reply {
    /// Which bytes the body holds.
    pub answer: Answer,
    /// The entity tag as sent.
    pub etag: Option<String>,
    /// When the source was last modified, as sent.
    pub last_modified: Option<String>,
    /// Whether the server calls the body an HTML page.
    pub is_page: bool,
    /// The bytes.
    pub body: Body,
}

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

/// A body as it arrives. Dropping it closes the connection.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    stall: Duration,
    _connection: AbortOnDropHandle<()>,
}

/// How a body ended before its announced end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The peer closed the connection in good order.
    Closed,
    /// The connection broke.
    Broken(String),
    /// No byte came in time.
    Stalled,
}

impl Client {
    /// A client for `source`.
    ///
    /// # Errors
    /// When the Secret's `ca.crt` is of no use.
    pub fn new(source: &Source) -> Result<Self, Failure> {
        let credentials = &source.credentials;
        let authority = credentials.authority.as_deref();
        Ok(Self {
            url: source.url.clone(),
            connector: Connector::new(source.access.clone(), source.timing, authority)?,
            authorization: credentials.authorization.clone(),
            stall: source.timing.stall,
        })
    }

    /// Asks for `range` and reads the head of the answer.
    ///
    /// # Errors
    /// When no answer with bytes comes: the table above, `ConnectionLost`, `NoProgress`.
    pub async fn get(&self, range: &ByteRange) -> Result<Reply, Failure> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let (response, connection) = self.exchange(&url, range).await?;
            match redirect(&url, &response)? {
                Some(next) => url = next,
                None => return self.reply(&url, response, connection),
            }
        }
        let message = format!("{} redirects more than {MAX_REDIRECTS} times", shown(&self.url));
        Err(Failure::new(ImportReason::AddressRefused, message))
    }

    async fn exchange(
        &self,
        url: &Url,
        range: &ByteRange,
    ) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), Failure> {
        let stream = self.connector.connect(url).await?;
        let lost = |error: hyper::Error| no_answer(url, &error);
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        let connection = tokio::spawn(async move {
            // What went wrong on the connection is told to the request or the body.
            let _ = connection.await;
        });
        let connection = AbortOnDropHandle::new(connection);
        match timeout(self.stall, sender.send_request(self.request(url, range)?)).await {
            Ok(response) => Ok((response.map_err(lost)?, connection)),
            Err(_) => Err(stalled(url, self.stall)),
        }
    }

    fn request(&self, url: &Url, range: &ByteRange) -> Result<Request<Empty<Bytes>>, Failure> {
        let last = range.last.map(|last| last.to_string()).unwrap_or_default();
        let mut request = Request::get(&url[url::Position::BeforePath..url::Position::AfterQuery])
            .header(header::HOST, &url[url::Position::BeforeHost..url::Position::AfterPort])
            .header(header::USER_AGENT, concat!("otctl-disk-importer/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "*/*")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::RANGE, format!("bytes={}-{last}", range.first));
        if let Some(etag) = &range.if_range {
            request = request.header(header::IF_RANGE, etag);
        }
        // Another host than the image's own must not learn its password.
        if let Some(authorization) = &self.authorization
            && url.origin() == self.url.origin()
        {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request.body(Empty::new()).map_err(|error| {
            Failure::new(ImportReason::Internal, format!("cannot build the request: {error}"))
        })
    }

    fn reply(
        &self,
        url: &Url,
        response: Response<Incoming>,
        connection: AbortOnDropHandle<()>,
    ) -> Result<Reply, Failure> {
        let answer = answer(url, response.status(), response.headers())?;
        Ok(Reply {
            answer,
            etag: short_text(response.headers(), &header::ETAG),
            last_modified: short_text(response.headers(), &header::LAST_MODIFIED),
            is_page: is_page(response.headers()),
            body: Body {
                incoming: response.into_body(),
                stall: self.stall,
                _connection: connection,
            },
        })
    }
}

impl Body {
    /// The next bytes; `None` at the announced end.
    ///
    /// # Errors
    /// When the body ends before that.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        loop {
            match timeout(self.stall, self.incoming.frame()).await {
                Err(_) => return Err(Cut::Stalled),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(cut(&error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// Where a redirect leads; `None` when the answer is none.
fn redirect(url: &Url, response: &Response<Incoming>) -> Result<Option<Url>, Failure> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok());
    let Some(next) = next.filter(is_fetchable) else {
        let message = format!("{} redirects to what is no http or https url", shown(url));
        return Err(Failure::new(ImportReason::AddressRefused, message));
    };
    Ok(Some(next))
}

/// Whether a url can be asked at all: http or https, a host, no user-info.
#[must_use]
pub fn is_fetchable(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
}

fn answer(url: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Answer, Failure> {
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

fn refusal(url: &Url, status: StatusCode, headers: &HeaderMap) -> Failure {
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

fn short_text(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (!text.is_empty() && text.len() <= LONGEST_VALIDATOR).then(|| text.to_owned())
}

fn is_page(headers: &HeaderMap) -> bool {
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

fn cut(error: &hyper::Error) -> Cut {
    use std::error::Error as _;
    let mut source = error.source();
    while let Some(cause) = source {
        let io = cause.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::UnexpectedEof) {
            return Cut::Closed;
        }
        source = cause.source();
    }
    if error.is_incomplete_message() { Cut::Closed } else { Cut::Broken(error.to_string()) }
}

fn no_answer(url: &Url, error: &hyper::Error) -> Failure {
    let message = format!("{} gave no answer: {error}", shown(url));
    Failure::new(ImportReason::ConnectionLost, message)
}

fn stalled(url: &Url, stall: Duration) -> Failure {
    let message = format!("{} gave no answer for {} s", shown(url), stall.as_secs());
    Failure::new(ImportReason::NoProgress, message)
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
