//! One GET of the source: the request, redirects followed by ourselves so that every hop is
//! judged, and the body as it arrives. What a status means is `answer`'s matter, what the bytes
//! mean nobody's here.
//!
//! More than three redirects are `TooManyRedirects`, one to what is no http(s) url is
//! `AddressRefused`. An object store that redirects says that the bucket is elsewhere, which is `WrongRegion`.

use std::time::{Duration, SystemTime};

use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use otctl_types::import::ImportReason;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::answer::{Answer, answer, carries_bytes, is_page, short_text};
use crate::bandwidth::Bandwidth;
use crate::connection::{Connector, shown};
use crate::credentials::{Credentials, Keys};
use crate::failure::Failure;
use crate::s3::{self, Store};
use crate::settings::{Source, SourceType};

/// Redirects followed for one request.
const MAX_REDIRECTS: usize = 3;

/// What the http parser buffers; together with the socket's buffer it is what a kill loses.
const READ_BUFFER_BYTES: usize = 32 * 1024;

/// How much of an object store's refusal is read for its code, and how long that may take.
const REFUSAL_BYTES: usize = 8 * 1024;
const REFUSAL_TIME: Duration = Duration::from_secs(5);

/// Asks one source.
pub struct Client {
    url: Url,
    connector: Connector,
    identity: Identity,
    credentials: Credentials,
    stall: Duration,
    bandwidth: Bandwidth,
}

/// How a request says who asks.
enum Identity {
    /// With a user and a password, on a web server.
    Web(Option<Keys>),
    /// With a signature, on an object store.
    Store(Store),
}

/// An answer whose body is still to come, and the task that brings it.
struct Exchange {
    response: Response<Incoming>,
    connection: AbortOnDropHandle<()>,
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

/// A body as it arrives. Dropping it closes the connection.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    stall: Duration,
    bandwidth: Bandwidth,
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
        let (url, identity) = match source.source_type {
            SourceType::Http => {
                (source.url.clone(), Identity::Web(source.credentials.keys.clone()))
            }
            SourceType::S3 => {
                let url = s3::address(source.url.clone());
                let store = Store::new(&url, &source.credentials);
                (url, Identity::Store(store))
            }
        };
        Ok(Self {
            url,
            connector: Connector::new(source)?,
            identity,
            credentials: source.credentials.clone(),
            stall: source.timing.stall,
            bandwidth: source.bandwidth.clone(),
        })
    }

    /// Asks for `range` and reads the head of the answer.
    ///
    /// # Errors
    /// When no answer with bytes comes: the tables of `answer` and `s3`, `ConnectionLost`,
    /// `NoProgress`.
    pub async fn get(&self, range: &ByteRange) -> Result<Reply, Failure> {
        let reply = self.follow(range).await;
        reply.map_err(|failure| Failure {
            // A path that a server redirects to may repeat what it was told.
            message: self.credentials.redact(failure.message),
            ..failure
        })
    }

    async fn follow(&self, range: &ByteRange) -> Result<Reply, Failure> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let exchange = self.exchange(&url, range).await?;
            if let Identity::Store(store) = &self.identity
                && !carries_bytes(exchange.response.status())
            {
                return Err(refusal(store, exchange).await);
            }
            match redirect(&url, &exchange.response)? {
                Some(next) => url = next,
                None => return self.reply(&url, exchange),
            }
        }
        let message = format!("{} redirects more than {MAX_REDIRECTS} times", shown(&self.url));
        Err(Failure::new(ImportReason::TooManyRedirects, message))
    }

    async fn exchange(&self, url: &Url, range: &ByteRange) -> Result<Exchange, Failure> {
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
            Ok(response) => Ok(Exchange { response: response.map_err(lost)?, connection }),
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
        let mut request = request.body(Empty::new()).map_err(|error| {
            Failure::new(ImportReason::Internal, format!("cannot build the request: {error}"))
        })?;
        match &self.identity {
            Identity::Store(store) => store.sign(&mut request, SystemTime::now())?,
            // Another host than the image's own must not learn its password.
            Identity::Web(Some(keys)) if url.origin() == self.url.origin() => {
                request.headers_mut().insert(header::AUTHORIZATION, keys.basic_authorization()?);
            }
            Identity::Web(_) => {}
        }
        Ok(request)
    }

    fn reply(&self, url: &Url, exchange: Exchange) -> Result<Reply, Failure> {
        let Exchange { response, connection } = exchange;
        let answer = answer(url, response.status(), response.headers())?;
        // What a server says of its source is on record where others read it.
        let validator = |name| {
            short_text(response.headers(), &name).filter(|text| !self.credentials.are_in(text))
        };
        Ok(Reply {
            answer,
            etag: validator(header::ETAG),
            last_modified: validator(header::LAST_MODIFIED),
            is_page: is_page(response.headers()),
            body: Body {
                incoming: response.into_body(),
                stall: self.stall,
                bandwidth: self.bandwidth.clone(),
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
        let mut deadline = Instant::now() + self.stall;
        loop {
            match timeout_at(deadline, self.incoming.frame()).await {
                Err(_) => {
                    // While our own share kept bytes waiting, the source was not silent.
                    let allowed = self.bandwidth.held_until() + self.stall;
                    if allowed <= Instant::now() {
                        return Err(Cut::Stalled);
                    }
                    deadline = allowed;
                }
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

/// What an object store says besides the status, as far as it is known words: the body is read
/// for them and never repeated.
async fn refusal(store: &Store, exchange: Exchange) -> Failure {
    let Exchange { response, connection } = exchange;
    let (head, body) = response.into_parts();
    let whole = timeout(REFUSAL_TIME, Limited::new(body, REFUSAL_BYTES).collect()).await;
    drop(connection);
    // A body that is longer than any error document says nothing.
    let body = whole.ok().and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    store.refusal(head.status, &head.headers, &body)
}

/// Where a redirect leads; `None` when the answer is none.
fn redirect(url: &Url, response: &Response<Incoming>) -> Result<Option<Url>, Failure> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok());
    let Some(next) = next.filter(is_fetchable) else {
        let message =
            format!("{} redirects to what is no http or https url without a user", shown(url));
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
    use otctl_types::import::Share;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// The body of an answer of four bytes, three of which are there, at this pace.
    async fn body(bandwidth: &Bandwidth, stall: Duration) -> (Body, DuplexStream) {
        let (ours, mut theirs) = duplex(1024);
        let stream = TokioIo::new(bandwidth.pace(ours));
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let request = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
        let answer = async {
            theirs.read_u8().await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc";
            theirs.write_all(answer).await.unwrap();
        };
        let (response, ()) = tokio::join!(sender.send_request(request), answer);
        let incoming = response.unwrap().into_body();
        let bandwidth = bandwidth.clone();
        (Body { incoming, stall, bandwidth, _connection: connection }, theirs)
    }

    /// At a byte per second each byte waits longer than the source may be silent.
    #[tokio::test(start_paused = true)]
    async fn being_kept_waiting_by_our_share_is_no_silence_of_the_source() {
        let bandwidth = Bandwidth::new(Some(1));
        let stall = Duration::from_millis(300);
        let (mut body, _theirs) = body(&bandwidth, stall).await;
        for byte in ["a", "b", "c"] {
            assert_eq!(body.next().await.unwrap().unwrap(), byte);
        }
        let begun = Instant::now();
        assert_eq!(body.next().await, Err(Cut::Stalled));
        assert!(begun.elapsed() <= Duration::from_secs(1) + stall, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_is_silent_is_so_in_time() {
        let bandwidth = Bandwidth::default();
        bandwidth.grant(&Share::default()).unwrap();
        let stall = Duration::from_secs(10);
        let (mut body, _theirs) = body(&bandwidth, stall).await;
        assert_eq!(body.next().await.unwrap().unwrap(), "abc");
        let begun = Instant::now();
        assert_eq!(body.next().await, Err(Cut::Stalled));
        assert_eq!(begun.elapsed(), stall);
    }
}
