//! What can happen to a request or to an event.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// What happens.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// It, or with point `commit` its answer, comes so much later. Events of one watch stay in order.
    Delay(#[serde(deserialize_with = "time")] Duration),
    /// It, or its answer, waits until it is let go.
    Hold,
    /// So many bytes of the answer, or of the event, arrive; then the connection breaks.
    Cut(usize),
    /// This is the answer. With point `commit` the server has carried it out all the same. To an event: it is an error
    /// instead, and ends the watch.
    Answer(Answer),
    /// The server carries it out, and the connection breaks before the answer.
    Lose,
    /// It arrives twice; the answer is that to the second.
    Duplicate,
    /// The event is not told.
    Drop,
    /// After the event, so many that came before it on watches of its kind are told again.
    Replay(usize),
    /// Of the events of an object that come within this time only the last one is told.
    Coalesce(#[serde(deserialize_with = "time")] Duration),
    /// No answer ever comes, and the connection stays. Of an event: nothing comes on that watch any more.
    Blackhole,
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT so much later; the request waits as well.
    Stop(#[serde(deserialize_with = "time")] Duration),
    /// SIGCONT.
    Continue,
}

/// An answer that the server did not give.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// Machine-readable reason, such as `AlreadyExists`.
    #[serde(default)]
    pub reason: String,
    /// Seconds in `Retry-After`; none without that header.
    #[serde(default)]
    pub retry_after: Option<u64>,
    /// The body, instead of a Status with the reason.
    #[serde(default)]
    pub body: Option<String>,
}

impl Answer {
    /// A refusal as the API server words it.
    #[must_use]
    pub fn refusal(status: u16, reason: &str) -> Self {
        Self { status, reason: reason.to_owned(), retry_after: None, body: None }
    }

    /// The body that is sent.
    #[must_use]
    pub fn text(&self) -> String {
        self.body.clone().unwrap_or_else(|| self.object().to_string())
    }

    /// As a Status.
    #[must_use]
    pub fn object(&self) -> Value {
        let message = format!("a fault: {} {}", self.status, self.reason);
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message.trim(), "reason": self.reason, "code": self.status,
        })
    }
}

impl What {
    pub(super) fn happens_to_events(&self) -> bool {
        !matches!(self, Self::Lose)
    }

    /// Whether it happens to the sender and not to what it sends.
    pub(super) fn is_signal(&self) -> bool {
        matches!(self, Self::Kill | Self::Stop(_) | Self::Continue)
    }

    pub(super) fn happens_to_requests(&self) -> bool {
        !matches!(self, Self::Drop | Self::Replay(_) | Self::Coalesce(_))
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delay(time) => write!(f, "delay {time:?}"),
            Self::Hold => f.write_str("hold"),
            Self::Cut(bytes) => write!(f, "cut after {bytes} bytes"),
            Self::Answer(answer) => write!(f, "answer {}", answer.status),
            Self::Lose => f.write_str("lose"),
            Self::Duplicate => f.write_str("duplicate"),
            Self::Drop => f.write_str("drop"),
            Self::Replay(events) => write!(f, "replay {events}"),
            Self::Coalesce(time) => write!(f, "coalesce {time:?}"),
            Self::Blackhole => f.write_str("blackhole"),
            Self::Kill => f.write_str("kill"),
            Self::Stop(time) => write!(f, "stop {time:?}"),
            Self::Continue => f.write_str("continue"),
        }
    }
}

/// `5s`, `250ms`.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text).map_err(serde::de::Error::custom)
}
