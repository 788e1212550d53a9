//! One request and its answer, with what a fault makes of them.

use std::future::pending;
use std::sync::Arc;

use http::{Request, header};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use kube::client::Body;

use super::log::Outcome;
use super::reply::{Broken, Reply, Whole};
use super::{Shared, events, route};
use crate::fault::{Answer, Call, Fault, Point, Verb, What};

/// A request that has arrived here.
pub(super) struct Exchange {
    shared: Arc<Shared>,
    call: Call,
    request: Request<Bytes>,
    fault: Option<Fault>,
}

/// What its sender gets.
enum End {
    Reply(Reply),
    /// The connection breaks.
    Break,
    /// Nothing, ever.
    Silence,
}

/// The server's answer: of a watch it goes on.
enum Answered {
    Whole(Whole),
    Watch(http::Response<Body>),
}

/// Whether a request goes on after what struck it.
enum Course {
    On,
    Instead(Answer),
    Break,
    Silence,
}

impl Exchange {
    /// Answers, or breaks the connection.
    pub(super) async fn serve(
        shared: Arc<Shared>,
        request: Request<Incoming>,
    ) -> Result<Reply, Broken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        shared.process.pass().await;
        let call = route::call(&head, &body);
        let fault = shared.faults.strike(&call);
        let place = shared.log.enter(&call, fault.as_ref());
        let request = Request::from_parts(head, body);
        let exchange = Self { shared: shared.clone(), call, request, fault };
        // What has left its sender arrives, whatever becomes of the sender.
        let end = tokio::spawn(exchange.run()).await.unwrap_or(End::Break);
        match end {
            End::Reply(reply) => {
                shared.log.end(place, Outcome::Answered(reply.status().as_u16()));
                Ok(reply)
            }
            End::Break => {
                shared.log.end(place, Outcome::Broken);
                Err(Broken)
            }
            End::Silence => pending().await,
        }
    }

    async fn run(self) -> End {
        let Some(fault) = self.fault.clone() else {
            return match self.forward().await {
                Ok(answered) => End::Reply(self.reply(answered)),
                Err(Broken) => End::Break,
            };
        };
        match self.meet(&fault).await {
            Ok(end) => end,
            Err(Broken) => End::Break,
        }
    }

    /// The way of a request that a fault strikes.
    async fn meet(self, fault: &Fault) -> Result<End, Broken> {
        let (what, point) = (fault.what(), fault.point());
        if point == Point::Before
            && let Some(end) = self.strike(what).await
        {
            return Ok(end);
        }
        if point == Point::UnderWay {
            self.shared.process.kill();
        }
        if *what == What::Duplicate {
            self.forward().await?;
        }
        let answered = self.forward().await?;
        match what {
            What::Lose => return Ok(End::Break),
            What::Cut(bytes) => {
                return Ok(End::Reply(answered.whole().await?.cut(*bytes)));
            }
            _ => {}
        }
        if point == Point::Commit
            && let Some(end) = self.strike(what).await
        {
            return Ok(end);
        }
        if point != Point::Reply {
            return Ok(End::Reply(self.reply(answered)));
        }
        let after = After { shared: self.shared.clone(), what: what.clone() };
        Ok(End::Reply(answered.whole().await?.reply_and(after)))
    }

    /// What happens here and now; the end, if it goes no further.
    async fn strike(&self, what: &What) -> Option<End> {
        match self.shared.strike(what).await {
            Course::On => None,
            Course::Instead(answer) => Some(End::Reply(Whole::instead(&answer).reply())),
            Course::Break => Some(End::Break),
            Course::Silence => Some(End::Silence),
        }
    }

    /// Sends it on, and waits for the answer: the whole of it, but of a watch.
    async fn forward(&self) -> Result<Answered, Broken> {
        let mut request = self.request.clone().map(|body| Body::from(body.to_vec()));
        for name in [header::HOST, header::CONNECTION] {
            request.headers_mut().remove(name);
        }
        let response = self.shared.server.send(request).await.map_err(|error| {
            tracing::debug!(%error, call = %self.call, "the server did not answer");
            Broken
        })?;
        if self.call.verb == Verb::Watch && response.status().is_success() {
            return Ok(Answered::Watch(response));
        }
        Ok(Answered::Whole(whole(response).await?))
    }

    fn reply(&self, answered: Answered) -> Reply {
        match answered {
            Answered::Whole(whole) => whole.reply(),
            Answered::Watch(response) => events::pass_on(&self.shared, &self.call, response),
        }
    }
}

impl Answered {
    async fn whole(self) -> Result<Whole, Broken> {
        match self {
            Self::Whole(answer) => Ok(answer),
            Self::Watch(response) => whole(response).await,
        }
    }
}

async fn whole(response: http::Response<Body>) -> Result<Whole, Broken> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
    Ok(Whole { status: head.status, headers: head.headers, body })
}

impl Shared {
    /// What a fault does to the sender or to the time; what it does to the answer is done elsewhere.
    async fn strike(&self, what: &What) -> Course {
        match what {
            What::Delay(time) => tokio::time::sleep(*time).await,
            What::Hold => self.held().await,
            What::Stop(time) => self.process.stop(*time).await,
            What::Continue => self.process.resume(),
            What::Answer(answer) => return Course::Instead(answer.clone()),
            What::Blackhole => return Course::Silence,
            What::Kill => {
                self.process.kill();
                return Course::Break;
            }
            // What becomes of the answer, or that there are two of it, is seen where it is sent on.
            What::Cut(_) | What::Lose | What::Duplicate => {}
            What::Drop | What::Replay(_) | What::Coalesce(_) => {
                unreachable!("{what} does not happen to requests")
            }
        }
        Course::On
    }

    /// Until everything that is held is let go.
    pub(super) async fn held(&self) {
        let mut released = self.released.subscribe();
        // The sender lives in self.
        let _ = released.changed().await;
    }
}

/// Happens to the sender when it has its answer.
struct After {
    shared: Arc<Shared>,
    what: What,
}

impl Drop for After {
    fn drop(&mut self) {
        let (shared, what) = (self.shared.clone(), self.what.clone());
        if what == What::Kill {
            shared.process.doom();
        }
        tokio::spawn(async move { shared.after_reading(&what).await });
    }
}

impl Shared {
    /// A signal to a sender that was just answered.
    pub(super) async fn after_reading(&self, what: &What) {
        match what {
            What::Kill => self.process.kill_after_reading().await,
            What::Stop(time) => self.process.stop(*time).await,
            What::Continue => self.process.resume(),
            other => unreachable!("{other} is no signal"),
        }
    }
}
