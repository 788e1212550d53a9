//! A watch, event by event. One task reads the server's and stamps when each came; another writes to the controller, in
//! order, what faults leave of them.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Shared;
use super::reply::{Broken, Reply, stream};
use crate::fault::{Answer, Call, Fault, Point, Verb, What, key};

/// So many events of a kind can be told again.
const REMEMBERED: usize = 200;

/// The events of each kind that were told, the latest last, over all its watches.
#[derive(Debug, Default)]
pub(super) struct Histories {
    of_kinds: Mutex<HashMap<String, VecDeque<Bytes>>>,
}

impl Histories {
    fn add(&self, kind: &str, line: Bytes) {
        let mut kinds = self.of_kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let history = kinds.entry(kind.to_owned()).or_default();
        history.push_back(line);
        if history.len() > REMEMBERED {
            history.pop_front();
        }
    }

    /// So many before the latest one.
    fn before_last(&self, kind: &str, count: usize) -> Vec<Bytes> {
        let kinds = self.of_kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(history) = kinds.get(kind) else { return Vec::new() };
        let last = history.len().saturating_sub(1);
        history.range(last.saturating_sub(count)..last).cloned().collect()
    }
}

/// An event as it came.
struct Arrived {
    line: Bytes,
    call: Call,
    at: Instant,
    number: u64,
    fault: Option<Fault>,
}

/// The number of the latest event of each object on one watch.
type Latest = Arc<Mutex<HashMap<String, u64>>>;

/// The reply to a watch that the server has begun to answer.
pub(super) fn pass_on(shared: &Arc<Shared>, call: &Call, response: Response<Body>) -> Reply {
    let (head, body) = response.into_parts();
    let (told, lines) = mpsc::channel(1);
    let (arrived, arriving) = mpsc::unbounded_channel();
    let latest = Latest::default();
    let reader = Reader {
        shared: shared.clone(),
        kind: call.kind.clone(),
        latest: latest.clone(),
        number: 0,
    };
    let writer = Writer { shared: shared.clone(), told, latest };
    tokio::spawn(async move {
        let gone = writer.told.clone();
        tokio::select! {
            // It ends after all that was read, or at once where a fault ends it.
            () = writer.write(arriving) => {}
            () = gone.closed() => {}
            () = async { reader.read(body, arrived).await; pending().await } => {}
        }
    });
    stream(head.status, &head.headers, lines)
}

struct Reader {
    shared: Arc<Shared>,
    kind: String,
    latest: Latest,
    number: u64,
}

impl Reader {
    /// Until the server ends the watch, well or not.
    async fn read(mut self, body: Body, arrived: mpsc::UnboundedSender<Result<Arrived, Broken>>) {
        let mut chunks = body.into_data_stream();
        let mut rest = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let Ok(chunk) = chunk else {
                let _ = arrived.send(Err(Broken));
                return;
            };
            rest.extend_from_slice(&chunk);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                let _ = arrived.send(Ok(self.arrived(line.into())));
            }
        }
    }

    fn arrived(&mut self, line: Bytes) -> Arrived {
        let call = call(&self.kind, &line);
        self.number += 1;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.insert(call.name.clone(), self.number);
        let fault = self.shared.faults.strike(&call);
        if fault.is_some() {
            self.shared.log.enter(&call, fault.as_ref());
        }
        Arrived { line, call, at: Instant::now(), number: self.number, fault }
    }
}

/// The line of an event.
fn call(kind: &str, line: &[u8]) -> Call {
    let event: Value = serde_json::from_slice(line).unwrap_or_default();
    let metadata = &event["object"]["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Call {
        verb: Verb::Event,
        part: text(&event["type"]).to_ascii_lowercase(),
        kind: kind.to_owned(),
        name: key(&text(&metadata["namespace"]), &text(&metadata["name"])),
    }
}

struct Writer {
    shared: Arc<Shared>,
    told: mpsc::Sender<Result<Bytes, Broken>>,
    latest: Latest,
}

/// The watch ends here.
struct Ended;

impl Writer {
    async fn write(self, mut arriving: mpsc::UnboundedReceiver<Result<Arrived, Broken>>) {
        while let Some(arrived) = arriving.recv().await {
            let Ok(arrived) = arrived else {
                let _ = self.told.send(Err(Broken)).await;
                return;
            };
            if self.pass_on(arrived).await.is_err() {
                return;
            }
        }
    }

    async fn pass_on(&self, arrived: Arrived) -> Result<(), Ended> {
        let Some(fault) = arrived.fault.clone() else { return self.tell(&arrived).await };
        if fault.point() == Point::Reply {
            self.tell(&arrived).await?;
            self.shared.after_reading(fault.what()).await;
            return Ok(());
        }
        match fault.what() {
            What::Delay(time) => tokio::time::sleep_until(arrived.at + *time).await,
            What::Hold => self.shared.held().await,
            What::Stop(time) => self.shared.process.stop(*time).await,
            What::Continue => self.shared.process.resume(),
            What::Duplicate => self.tell(&arrived).await?,
            What::Drop => return Ok(()),
            What::Coalesce(time) => {
                tokio::time::sleep_until(arrived.at + *time).await;
                if !self.is_latest(&arrived) {
                    return Ok(());
                }
            }
            What::Replay(count) => return self.replay(&arrived, *count).await,
            What::Lose => unreachable!("it does not happen to events"),
            What::Cut(_) | What::Answer(_) | What::Blackhole | What::Kill => {
                return self.end(&arrived, fault.what()).await;
            }
        }
        self.tell(&arrived).await
    }

    /// What ends a watch.
    async fn end(&self, arrived: &Arrived, what: &What) -> Result<(), Ended> {
        match what {
            What::Cut(bytes) => {
                let bytes = (*bytes).min(arrived.line.len());
                self.send(Ok(arrived.line.slice(..bytes))).await?;
            }
            What::Answer(answer) => {
                self.send(Ok(error(answer))).await?;
                return Err(Ended);
            }
            What::Blackhole => self.told.closed().await,
            What::Kill => self.shared.process.kill(),
            other => unreachable!("{other} ends no watch"),
        }
        self.send(Err(Broken)).await?;
        Err(Ended)
    }

    async fn replay(&self, arrived: &Arrived, count: usize) -> Result<(), Ended> {
        self.tell(arrived).await?;
        for line in self.shared.histories.before_last(&arrived.call.kind, count) {
            self.send(Ok(line)).await?;
        }
        Ok(())
    }

    async fn tell(&self, arrived: &Arrived) -> Result<(), Ended> {
        if arrived.call.part != "bookmark" {
            self.shared.histories.add(&arrived.call.kind, arrived.line.clone());
        }
        self.send(Ok(arrived.line.clone())).await
    }

    async fn send(&self, line: Result<Bytes, Broken>) -> Result<(), Ended> {
        self.told.send(line).await.map_err(|_| Ended)
    }

    fn is_latest(&self, arrived: &Arrived) -> bool {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.get(&arrived.call.name) == Some(&arrived.number)
    }
}

/// An event of type ERROR.
fn error(answer: &Answer) -> Bytes {
    let event = json!({"type": "ERROR", "object": answer.object()});
    Bytes::from(format!("{event}\n"))
}
