//! Logs and traces of a process: text on a terminal, JSON otherwise, spans to an OTLP collector when the environment
//! names one. Only a `main` installs this; everything else just logs. What goes wrong here never stops a controller.

#[cfg(test)]
mod tests;
mod traces;

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Dispatch, Span};
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

use crate::args::Build;

/// Lines that wait for a log sink that blocks; further ones are dropped and counted. Reconciling never waits for it.
const WAITING_LINES: usize = 8192;
/// The end of a process waits for the last spans this long.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);
/// kube logs an error for every request that fails. Ours are told where it is known what they mean; naming this target
/// in a filter brings kube's back.
const QUIET: &str = "kube_client::client::builder=off";
/// The field of a span that [`note_trace`] fills.
const TRACE_ID: &str = "trace_id";

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise
    Auto,
    /// For people
    Text,
    /// One JSON object per line
    Json,
}

/// What is logged, changeable while running.
#[derive(Clone, Debug)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

/// Why the log level was not changed.
#[derive(Debug, thiserror::Error)]
pub enum LogLevelError {
    /// The filter cannot be read.
    #[error("not a log filter")]
    Parse(#[from] ParseError),
    /// The subscriber is gone.
    #[error("nothing logs any more")]
    Gone(#[from] reload::Error),
}

impl LogLevel {
    /// `filter` as a layer's, and what changes it as long as the layer is there.
    pub(crate) fn of(filter: EnvFilter) -> (reload::Layer<EnvFilter, Registry>, Self) {
        let (layer, handle) = reload::Layer::new(filter);
        (layer, Self(handle))
    }

    /// Logs by `filter` from now on.
    ///
    /// # Errors
    /// When `filter` cannot be read; the old one stays.
    pub fn set(&self, filter: &str) -> Result<(), LogLevelError> {
        self.0.reload(self::filter(filter)?)?;
        tracing::warn!(filter, "changed what is logged");
        Ok(())
    }

    /// What is logged now; empty when nothing is.
    #[must_use]
    pub fn now(&self) -> String {
        self.0.with_current(ToString::to_string).unwrap_or_default()
    }
}

/// What the telemetry of a process needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Level or directives.
    pub filter: &'a str,
    /// How log lines look.
    pub format: LogFormat,
    /// What runs.
    pub build: Build,
    /// Which instance of it.
    pub instance: &'a str,
}

/// Why telemetry was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The filter cannot be read.
    #[error("the log filter cannot be read")]
    ParseFilter(#[from] ParseError),
    /// This process has a subscriber already.
    #[error("this process already logs elsewhere")]
    TakeGlobal(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// The installed telemetry. Dropping it sends what waits: the last log lines and spans.
#[derive(Debug)]
pub struct Telemetry {
    level: LogLevel,
    dropped: ErrorCounter,
    traces: Option<SdkTracerProvider>,
    _lines: WorkerGuard,
}

impl Telemetry {
    /// Installs logs, and traces if the environment names a collector, for the whole process. Call it inside a runtime:
    /// spans are sent by one.
    ///
    /// # Errors
    /// When the filter cannot be read or the process has a subscriber. A collector that cannot be used is a warning.
    pub fn install(settings: &Settings<'_>) -> Result<Self, InstallError> {
        let filter = filter(settings.filter)?;
        let sink = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES);
        let (writer, lines) = sink.finish(std::io::stderr());
        let dropped = writer.error_counter();
        let (traces, problem) = match traces::from_env(settings) {
            Ok(traces) => (traces, None),
            Err(error) => (None, Some(error)),
        };
        let (dispatch, level) = dispatch(writer, filter, look(settings.format), traces.as_ref());
        tracing::dispatcher::set_global_default(dispatch)?;
        if let Some(error) = problem {
            tracing::warn!(error = &error as &dyn std::error::Error, "traces are not exported");
        }
        Ok(Self { level, dropped, traces, _lines: lines })
    }

    /// Changes what is logged.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        self.level.clone()
    }

    /// Counts the lines that were dropped because the sink blocked.
    #[must_use]
    pub fn dropped_lines(&self) -> ErrorCounter {
        self.dropped.clone()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let Some(traces) = self.traces.take() else { return };
        if let Err(error) = traces.shutdown_with_timeout(FLUSH_DEADLINE) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// The filter that `text` means: a level or directives.
///
/// # Errors
/// When `text` cannot be read.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::try_new(format!("{QUIET},{text}"))
}

/// Puts the id of the trace that `span` belongs to on its log lines, if traces are exported. The span must have been
/// made with `trace_id = tracing::field::Empty`.
pub fn note_trace(span: &Span) {
    let context = span.context();
    let trace = context.span().span_context().clone();
    if trace.is_valid() {
        span.record(TRACE_ID, tracing::field::display(trace.trace_id()));
    }
}

/// How lines look where this process writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Plain,
    Coloured,
    Json,
}

fn look(format: LogFormat) -> Look {
    let is_terminal = std::io::stderr().is_terminal();
    let has_colours =
        is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    match format {
        LogFormat::Json => Look::Json,
        LogFormat::Auto if !is_terminal => Look::Json,
        LogFormat::Auto | LogFormat::Text if has_colours => Look::Coloured,
        LogFormat::Auto | LogFormat::Text => Look::Plain,
    }
}

/// The subscriber: lines of `filter` to `writer`, spans to `traces`.
fn dispatch<W>(
    writer: W,
    filter: EnvFilter,
    look: Look,
    traces: Option<&SdkTracerProvider>,
) -> (Dispatch, LogLevel)
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, level) = LogLevel::of(filter);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(look == Look::Coloured);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match look {
        Look::Json => {
            lines.json().flatten_event(true).with_span_list(false).with_filter(filter).boxed()
        }
        Look::Plain | Look::Coloured => lines.with_filter(filter).boxed(),
    };
    let layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> =
        std::iter::once(lines).chain(traces.map(traces::layer)).collect();
    (Dispatch::new(Registry::default().with(layers)), level)
}
