//! Lines and spans as they come out, to a buffer and to a socket.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use jiff::Timestamp;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tracing::instrument::WithSubscriber;

use super::*;
use crate::clock::SystemClock;
use crate::cluster::{Answer, ApiError, Cluster, Request};
use crate::driver;
use crate::plan::Plan;
use crate::reconciler::{Observation, Reconciler, Subject};
use crate::report::Reporter;
use crate::store::Key;

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[derive(Clone, Debug, Default)]
struct Collector(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

fn subscriber(look: Look, traces: Option<&SdkTracerProvider>) -> (Buffer, Dispatch, LogLevel) {
    let buffer = Buffer::default();
    let writer = buffer.clone();
    let (dispatch, level) = dispatch(move || writer.clone(), EnvFilter::new("info"), look, traces);
    (buffer, dispatch, level)
}

/// A pass as the driver makes its span.
fn pass() {
    let span = tracing::info_span!("pass", object = "lab/a", trace_id = tracing::field::Empty);
    note_trace(&span);
    span.in_scope(|| tracing::info!(verdict = "Queued", "changed its verdict"));
}

#[test]
fn a_json_line_carries_the_fields_of_event_and_span() {
    let (buffer, dispatch, _level) = subscriber(Look::Json, None);
    tracing::dispatcher::with_default(&dispatch, pass);
    let lines = buffer.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(
        (&lines[0]["level"], &lines[0]["verdict"]),
        (&Value::from("INFO"), &Value::from("Queued"))
    );
    assert_eq!(lines[0]["message"], "changed its verdict");
    assert_eq!(lines[0]["span"]["object"], "lab/a");
    assert_eq!(lines[0]["span"].get(TRACE_ID), None, "no trace is exported, so a line names none");
}

#[test]
fn a_line_names_the_trace_that_is_exported() {
    let collector = Collector::default();
    let traces = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
    let (buffer, dispatch, _level) = subscriber(Look::Json, Some(&traces));
    tracing::dispatcher::with_default(&dispatch, || {
        pass();
        pass();
    });
    let exported: Vec<String> = collector
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|span| span.span_context.trace_id().to_string())
        .collect();
    let logged: Vec<String> = buffer
        .lines()
        .iter()
        .map(|line| line["span"][TRACE_ID].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(exported, logged);
    assert_ne!(logged[0], logged[1], "each pass is a trace of its own");
}

/// A reconciler of nothing, and an API server that is never asked.
struct Resting;

impl Observation for Resting {
    fn subject(&self) -> Option<Subject> {
        None
    }
}

impl Reconciler for Resting {
    type Observed = Self;
    type Status = Value;
    const NAME: &'static str = "image";

    async fn observe(&self, _key: &Key) -> Result<Self, ApiError> {
        tracing::info!("observing");
        Ok(Self)
    }

    fn decide(_observed: &Self, _now: Timestamp) -> Plan<Value> {
        Plan::rest("Queued")
    }
}

impl Cluster for Resting {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        panic!("a pass that rests asked to {}", request.verb())
    }
}

#[tokio::test]
async fn what_is_logged_in_and_about_a_pass_names_its_trace() {
    let collector = Collector::default();
    let traces = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
    let (buffer, dispatch, _level) = subscriber(Look::Json, Some(&traces));
    let key = Key::new("lab", "a");
    let pass = driver::pass(&Resting, &Resting, &key, &SystemClock);
    let passed = pass.with_subscriber(dispatch.clone()).await;
    tracing::dispatcher::with_default(&dispatch, || {
        Reporter::new("image", None).tell(&key, &passed, Duration::ZERO);
    });
    drop(passed);
    let exported = collector.0.lock().unwrap()[0].span_context.trace_id().to_string();
    let lines = buffer.lines();
    let messages: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
    assert_eq!(messages, ["observing", "verdict changed"]);
    for line in &lines {
        assert_eq!(line["span"][TRACE_ID], exported.as_str(), "{line}");
    }
}

#[test]
fn spans_are_exported_whatever_is_logged_but_not_those_of_the_exporter() {
    let collector = Collector::default();
    let traces = SdkTracerProvider::builder().with_simple_exporter(collector.clone()).build();
    let (buffer, dispatch, level) = subscriber(Look::Json, Some(&traces));
    tracing::dispatcher::with_default(&dispatch, || {
        level.set("off").unwrap();
        pass();
        drop(tracing::info_span!(target: "tonic::transport", "send").entered());
    });
    assert_eq!(buffer.text(), "");
    let names: Vec<String> =
        collector.0.lock().unwrap().iter().map(|span| span.name.to_string()).collect();
    assert_eq!(names, ["pass"]);
}

#[test]
fn the_log_level_changes_while_running() {
    let (buffer, dispatch, level) = subscriber(Look::Json, None);
    tracing::dispatcher::with_default(&dispatch, || {
        tracing::debug!("before");
        level.set("debug").unwrap();
        tracing::debug!("after");
        assert!(level.set("otctl=loud").is_err());
        tracing::debug!("still");
    });
    let messages: Vec<Value> = buffer.lines().iter().map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["changed what is logged", "after", "still"]);
    assert!(level.now().contains("debug"), "{}", level.now());
}

#[test]
fn what_kube_says_of_each_failed_request_is_heard_only_by_its_name() {
    let (buffer, dispatch, level) = subscriber(Look::Json, None);
    let speak = || tracing::error!(target: "kube_client::client::builder", "failed with error");
    tracing::dispatcher::with_default(&dispatch, || {
        level.set("debug").unwrap();
        speak();
        level.set("info,kube_client::client::builder=error").unwrap();
        speak();
    });
    let messages: Vec<Value> = buffer.lines().iter().map(|line| line["message"].clone()).collect();
    assert_eq!(messages, ["changed what is logged", "changed what is logged", "failed with error"]);
}

#[test]
fn text_is_for_people() {
    let (buffer, dispatch, _level) = subscriber(Look::Plain, None);
    tracing::dispatcher::with_default(&dispatch, pass);
    assert!(buffer.text().contains(r#"pass{object="lab/a"}"#), "{}", buffer.text());
    assert!(!buffer.text().contains('\u{1b}'), "colours where no terminal is");
    assert_eq!(look(LogFormat::Json), Look::Json);
}

fn endpoint_of(variables: &[(&str, &str)]) -> Result<Option<String>, traces::TracesError> {
    let held: HashMap<&str, &str> = variables.iter().copied().collect();
    traces::endpoint(|name| held.get(name).map(|value| (*value).to_owned()))
}

#[test]
fn traces_are_exported_only_when_the_environment_names_a_collector() {
    const ALL: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317");
    const TRACES: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://b:4317");
    assert_eq!(endpoint_of(&[]).unwrap(), None);
    assert_eq!(endpoint_of(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]).unwrap(), None);
    assert_eq!(endpoint_of(&[ALL]).unwrap().as_deref(), Some("http://a:4317"));
    assert_eq!(endpoint_of(&[ALL, TRACES]).unwrap().as_deref(), Some("http://b:4317"));
    assert_eq!(endpoint_of(&[ALL, ("OTEL_SDK_DISABLED", "true")]).unwrap(), None);
    assert_eq!(endpoint_of(&[ALL, ("OTEL_TRACES_EXPORTER", "none")]).unwrap(), None);
    assert!(endpoint_of(&[ALL, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]).is_err());
}

fn settings() -> Settings<'static> {
    let build = Build::of("test-controller");
    Settings { filter: "info", format: LogFormat::Json, build, instance: "pod-1_abc" }
}

/// Reads one connection until all of `words` came by, then closes it.
fn reads_until(listener: TcpListener, words: [&'static str; 3]) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut seen = Vec::new();
        while !words
            .iter()
            .all(|word| seen.windows(word.len()).any(|window| window == word.as_bytes()))
        {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0, "the exporter hung up early");
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_guard_sends_the_last_spans_to_the_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collected = tokio::spawn(reads_until(listener, ["test-controller", "pod-1_abc", "pass"]));
    let traces = traces::to(&format!("http://{address}"), "test-controller", &settings()).unwrap();
    let (_buffer, dispatch, level) = subscriber(Look::Json, Some(&traces));
    tracing::dispatcher::with_default(&dispatch, pass);
    let (writer, lines) = tracing_appender::non_blocking(io::sink());
    drop(Telemetry { level, dropped: writer.error_counter(), traces: Some(traces), _lines: lines });
    tokio::time::timeout(Duration::from_secs(30), collected).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_cannot_be_used_is_an_error_not_a_panic() {
    assert!(traces::to("not an address", "test-controller", &settings()).is_err());
}
