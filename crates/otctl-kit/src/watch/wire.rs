//! What one stream asks of the API server, and its answers as pages and lines. No retries, a deadline on everything but
//! the events of an open watch, whose end its reader waits for.

use std::io;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future};
use http::{HeaderValue, StatusCode, header};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Request;
use kube::core::params::{ListParams, WatchParams};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::io::StreamReader;

use crate::backoff::RETRY_AFTER_MAX;
use crate::cluster::ApiError;
use crate::kube_cluster::answer::HttpAnswer;
use crate::kube_cluster::refusal;
use crate::page::Page;
use crate::store::OlderList;

/// For one page, for the beginning of a watch, and for each object of a list that a watch tells.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);
/// Small: a page is held whole, as it came.
const PAGE_SIZE: u32 = 50;

/// The requests of one stream.
pub(super) struct Wire {
    pub(super) client: Client,
    /// Where the kind is.
    pub(super) path: Request,
    pub(super) labels: String,
    pub(super) fields: String,
}

/// The lines of an open watch.
pub(super) type Lines = BoxStream<'static, Result<String, LinesCodecError>>;

/// Where a watch begins.
#[derive(Clone, Copy)]
pub(super) enum Start<'a> {
    /// With all objects as they are now, then a bookmark that says so.
    Everything,
    /// After this version.
    After(&'a str),
}

impl Wire {
    /// One page of a consistent list.
    pub(super) async fn page(&self, token: Option<String>) -> Result<Page<Value>, StreamError> {
        let params = ListParams {
            continue_token: token,
            ..ListParams::default().limit(PAGE_SIZE).labels(&self.labels).fields(&self.fields)
        };
        let request = self.path.list(&params)?;
        let answer = timeout(ANSWER_DEADLINE, async {
            HttpAnswer::read(self.client.send(request.map(Body::from)).await?).await
        });
        let answer = answer.await.map_err(|_| StreamError::TimedOut)??;
        if !answer.status.is_success() {
            return Err(StreamError::refused(&answer));
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// A watch that the server ends after `seconds`.
    pub(super) async fn watch(&self, start: Start<'_>, seconds: u32) -> Result<Lines, StreamError> {
        let selector = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let params = WatchParams {
            label_selector: selector(&self.labels),
            field_selector: selector(&self.fields),
            timeout: Some(seconds),
            send_initial_events: matches!(start, Start::Everything),
            ..WatchParams::default()
        };
        let version = match start {
            // Without a version it is a consistent read.
            Start::Everything => "",
            Start::After(version) => version,
        };
        let mut request = self.path.watch(&params, version)?;
        // Some servers compress each event on its own, which the client's decoder does not read on from.
        let identity = HeaderValue::from_static("identity");
        request.headers_mut().insert(header::ACCEPT_ENCODING, identity);
        timeout(ANSWER_DEADLINE, self.open(request)).await.map_err(|_| StreamError::TimedOut)?
    }

    async fn open(&self, request: http::Request<Vec<u8>>) -> Result<Lines, StreamError> {
        let response = self.client.send(request.map(Body::from)).await?;
        if response.status().is_success() {
            Ok(lines(response.into_body()))
        } else {
            Err(StreamError::refused(&HttpAnswer::read(response).await?))
        }
    }
}

fn lines(body: Body) -> Lines {
    let bytes = body.into_data_stream().map_err(io::Error::other);
    let lines = FramedRead::new(StreamReader::new(bytes), LinesCodec::new());
    // What keeps a connection open says nothing.
    lines.try_filter(|line| future::ready(!line.trim().is_empty())).boxed()
}

/// Why a list or a watch failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("the request cannot be made")]
    BuildRequest(#[from] kube::core::request::Error),
    #[error("{error}")]
    Refused { code: u16, error: ApiError },
    #[error("the way to the server broke")]
    Exchange(#[from] kube::Error),
    #[error("the watch broke off")]
    ReadLine(#[from] LinesCodecError),
    #[error("no answer within {ANSWER_DEADLINE:?}")]
    TimedOut,
    #[error("the watch ended before all objects were told")]
    EndEarly,
    #[error("the page cannot be read")]
    ReadPage(#[from] serde_json::Error),
    #[error("a list without a version")]
    Unversioned,
    #[error(transparent)]
    Older(#[from] OlderList),
}

impl StreamError {
    pub(super) fn refused(answer: &HttpAnswer) -> Self {
        Self::Refused { code: answer.status.as_u16(), error: refusal::of(answer) }
    }

    /// The status that the server answered with; none when it did not.
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::ReadPage(_) | Self::Unversioned | Self::Older(_) => Some(StatusCode::OK.as_u16()),
            Self::BuildRequest(_)
            | Self::Exchange(_)
            | Self::ReadLine(_)
            | Self::TimedOut
            | Self::EndEarly => None,
        }
    }

    /// Whether the version that was asked for is too old.
    pub(super) fn is_expired(&self) -> bool {
        self.code() == Some(StatusCode::GONE.as_u16())
    }

    /// Whether the server does not know what was asked.
    pub(super) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused { error: ApiError::Invalid { .. }, .. })
    }

    /// How long the server asked us to wait, within reason.
    pub(super) fn wait(&self) -> Duration {
        match self {
            Self::Refused {
                error: ApiError::Throttled { retry_after_seconds: Some(seconds) },
                ..
            } => Duration::from_secs(*seconds).min(RETRY_AFTER_MAX),
            _ => Duration::ZERO,
        }
    }
}
