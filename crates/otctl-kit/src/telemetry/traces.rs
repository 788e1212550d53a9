//! Spans to an OTLP collector over gRPC, when the environment names one by the variables of OpenTelemetry.

use std::env;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use opentelemetry_semantic_conventions::resource::{
    SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION,
};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

use super::Settings;

/// Spans of the way to the collector itself would beget more spans, and those of clients say little: our own calls
/// have spans.
const SILENT: [&str; 8] =
    ["h2", "hyper", "hyper_util", "kube", "opentelemetry", "rustls", "tonic", "tower"];

/// Why traces are not exported.
#[derive(Debug, thiserror::Error)]
pub(super) enum TracesError {
    /// The exporter was not built.
    #[error("the OTLP exporter was not built")]
    BuildExporter(#[from] ExporterBuildError),
    /// The environment asks for a protocol that is not built in.
    #[error("OTEL_EXPORTER_OTLP_PROTOCOL is '{0}', but only 'grpc' is supported")]
    ChooseProtocol(String),
}

/// The export that the environment asks for; none if it asks for none.
pub(super) fn from_env(settings: &Settings<'_>) -> Result<Option<SdkTracerProvider>, TracesError> {
    let Some(endpoint) = endpoint(|name| env::var(name).ok())? else { return Ok(None) };
    let service = env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    to(&endpoint, service.as_deref().unwrap_or(settings.build.program), settings).map(Some)
}

/// The collector's address, from `variable`, by the rules of the specification.
pub(super) fn endpoint(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<String>, TracesError> {
    let get = |name: &str| variable(name).filter(|value| !value.is_empty());
    let is =
        |name: &str, value: &str| get(name).is_some_and(|held| held.eq_ignore_ascii_case(value));
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let Some(endpoint) =
        get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| get("OTEL_EXPORTER_OTLP_ENDPOINT"))
    else {
        return Ok(None);
    };
    let protocol =
        get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| get("OTEL_EXPORTER_OTLP_PROTOCOL"));
    match protocol {
        Some(protocol) if !protocol.eq_ignore_ascii_case("grpc") => {
            Err(TracesError::ChooseProtocol(protocol))
        }
        _ => Ok(Some(endpoint)),
    }
}

/// An export to `endpoint`, in batches, by a thread of its own. The gRPC client runs on the runtime that is current
/// here; the http client with a batch exporter was tried and panics for want of one.
pub(super) fn to(
    endpoint: &str,
    service: &str,
    settings: &Settings<'_>,
) -> Result<SdkTracerProvider, TracesError> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_protocol(Protocol::Grpc)
        .build()?;
    let resource = Resource::builder()
        .with_attributes([
            KeyValue::new(SERVICE_NAME, service.to_owned()),
            KeyValue::new(SERVICE_VERSION, settings.build.version),
            KeyValue::new(SERVICE_INSTANCE_ID, settings.instance.to_owned()),
        ])
        .build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

/// The layer that makes spans of our own spans, whatever is logged.
pub(super) fn layer(traces: &SdkTracerProvider) -> Box<dyn Layer<Registry> + Send + Sync> {
    let filter = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_targets(SILENT.map(|target| (target, LevelFilter::OFF)));
    tracing_opentelemetry::layer().with_tracer(traces.tracer("otctl")).with_filter(filter).boxed()
}
