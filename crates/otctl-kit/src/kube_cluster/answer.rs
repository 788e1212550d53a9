//! A whole HTTP answer, before anybody knows what it means.

use http::{Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;

use super::refusal;

/// A whole answer.
pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) retry_after_seconds: Option<u64>,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    /// Reads the answer to its end.
    pub(crate) async fn read(response: Response<Body>) -> Result<Self, kube::Error> {
        let (head, body) = response.into_parts();
        Ok(Self {
            status: head.status,
            retry_after_seconds: refusal::retry_after(&head.headers),
            body: body.collect().await?.to_bytes().to_vec(),
        })
    }
}
