//! One connection from its first request to its end.

use std::sync::Arc;

use crate::{
    answer::Answer,
    behaviour::CutKind,
    delivery::{Delivery, released},
    request::{self, Request},
    site::{Site, Visit},
    socket::{self, Socket},
    tally::{Counted, Exchange, Outcome},
    terms::Instead,
};

/// A connection and what it serves.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) number: u64,
    pub(crate) site: Arc<Site>,
}

/// What an exchange leaves of its connection.
enum After {
    NextRequest,
    Close(CutKind),
    Gone,
}

impl Connection {
    /// Answers requests until either side ends it.
    pub(crate) async fn serve(mut self) {
        while let Some(request) = self.next_request().await {
            match self.exchange(&request).await {
                After::NextRequest => {}
                After::Close(kind) => return self.socket.close(kind).await,
                After::Gone => return,
            }
        }
    }

    async fn next_request(&mut self) -> Option<Request> {
        loop {
            match request::parse(self.socket.inbox()) {
                Ok(Some((request, length))) => {
                    self.socket.take(length);
                    return Some(request);
                }
                Ok(None) if self.socket.receive().await => {}
                Ok(None) => return None,
                Err(error) => {
                    tracing::debug!(connection = self.number, %error, "no request was understood");
                    let head = Answer::empty(400).header("connection", "close").head();
                    socket::send(self.socket.stream(), head.as_bytes()).await.ok()?;
                    return None;
                }
            }
        }
    }

    async fn exchange(&mut self, request: &Request) -> After {
        let visit = self.site.visit(request);
        match visit.terms.instead {
            Some(Instead::HangUp(kind)) => {
                self.count(request, None, 0).end(Outcome::Cut);
                After::Close(kind)
            }
            Some(Instead::Mute) => self.stay_mute(request, visit).await,
            _ => self.answer(request, visit).await,
        }
    }

    /// Says nothing; a release ends the connection.
    async fn stay_mute(&mut self, request: &Request, mut visit: Visit) -> After {
        let counted = self.count(request, None, 0);
        tokio::select! {
            () = self.socket.gone() => counted.end(Outcome::PeerClosed),
            () = released(&mut visit.release) => counted.end(Outcome::Cut),
        }
        After::Close(CutKind::Graceful)
    }

    async fn answer(&mut self, request: &Request, mut visit: Visit) -> After {
        let mut answer = Answer::to(request, &visit.terms);
        let delivery = Delivery::plan(answer.body.take(), &visit.terms);
        let closes = !request.keep_alive || !visit.terms.gives_length;
        if closes {
            answer = answer.header("connection", "close");
        }
        let counted = self.count(request, Some(answer.status), delivery.length);
        let stream = Arc::clone(self.socket.stream());
        let written = async {
            let head = answer.head();
            socket::send(&stream, head.as_bytes()).await.map_err(|_| Outcome::PeerClosed)?;
            delivery.run(&stream, &counted, &mut visit.release).await
        };
        let written = tokio::select! {
            biased;
            () = self.socket.gone() => Err(Outcome::PeerClosed),
            written = written => written,
        };
        match written {
            Ok(()) => {
                counted.end(delivery.outcome);
                let end = delivery.end.or(closes.then_some(CutKind::Graceful));
                end.map_or(After::NextRequest, After::Close)
            }
            Err(outcome) => {
                counted.end(outcome);
                After::Gone
            }
        }
    }

    fn count(&self, request: &Request, status: Option<u16>, length: u64) -> Counted {
        let exchange = Exchange {
            connection: self.number,
            path: request.path.clone(),
            kind: request.kind,
            asked: request.asked,
            status,
            bytes: 0,
            outcome: Outcome::Underway,
        };
        self.site.tally.begin(exchange, self.socket.stream(), length)
    }
}
