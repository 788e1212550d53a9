//! What goes back to the sender: whole, cut off, or followed by something.

use std::convert::Infallible;

use futures::stream::{self, StreamExt as _};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use tokio::sync::mpsc;

use crate::fault::Answer;

/// A connection that ends without the answer it owes.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks here")]
pub(super) struct Broken;

pub(super) type Reply = Response<UnsyncBoxBody<Bytes, Broken>>;

/// An answer whose body is there.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Whole {
    /// An answer that the server did not give.
    pub(super) fn instead(answer: &Answer) -> Self {
        let status =
            StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = answer.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Self { status, headers, body: Bytes::from(answer.text()) }
    }

    /// All of it.
    pub(super) fn reply(self) -> Reply {
        let body = Full::new(self.body).map_err(never).boxed_unsync();
        with_head(self.status, &self.headers, body)
    }

    /// All of it; `after` is dropped when the last byte was taken.
    pub(super) fn reply_and(self, after: impl Send + 'static) -> Reply {
        let length = HeaderValue::from(self.body.len());
        let mut data = Some((self.body, after));
        let frames = stream::poll_fn(move |_| {
            let next = data.take().map(|(body, after)| {
                drop(after);
                Ok(Frame::data(body))
            });
            std::task::Poll::Ready(next)
        });
        let mut reply =
            with_head(self.status, &self.headers, StreamBody::new(frames).boxed_unsync());
        reply.headers_mut().insert(header::CONTENT_LENGTH, length);
        reply
    }

    /// So many bytes of it under the head of all of it.
    pub(super) fn cut(mut self, bytes: usize) -> Reply {
        let length = HeaderValue::from(self.body.len());
        self.body.truncate(bytes.min(self.body.len().saturating_sub(1)));
        let frames = stream::iter([Ok(Frame::data(self.body)), Err(Broken)]);
        // What was promised and is ready at once would be thrown away with the connection.
        let frames = frames.then(async |frame| {
            tokio::task::yield_now().await;
            frame
        });
        let body = StreamBody::new(frames).boxed_unsync();
        let mut reply = with_head(self.status, &self.headers, body);
        reply.headers_mut().insert(header::CONTENT_LENGTH, length);
        reply
    }
}

/// An answer that is still being written by whoever holds the other end.
pub(super) fn stream(
    status: StatusCode,
    headers: &HeaderMap,
    lines: mpsc::Receiver<Result<Bytes, Broken>>,
) -> Reply {
    let frames = stream::unfold(lines, async |mut lines| {
        let line = lines.recv().await?;
        Some((line.map(Frame::data), lines))
    });
    with_head(status, headers, StreamBody::new(frames).boxed_unsync())
}

fn with_head(status: StatusCode, headers: &HeaderMap, body: UnsyncBoxBody<Bytes, Broken>) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    *reply.headers_mut() = headers.clone();
    // These are about a connection, and each of ours has its own.
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH] {
        reply.headers_mut().remove(name);
    }
    reply
}

fn never(error: Infallible) -> Broken {
    match error {}
}
