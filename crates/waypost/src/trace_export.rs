//! Export of spans to an OpenTelemetry collector by OTLP over HTTP.
//!
//! In: the URL of a collector. Out: a layer of the log that sends each finished span of a request, reconcile or sync, with the log lines of
//! level `info` and above as span events. Spans wait in a bounded queue and are dropped when it is full, so a slow or absent collector delays
//! no work. The variables of the OpenTelemetry specification (`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`,
//! `OTEL_BSP_*`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_CERTIFICATE`) apply.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use client::http::Client;
use client::kubeconfig::Access;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracer, SdkTracerProvider, Span, SpanData, SpanProcessor};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Path of the trace endpoint below the URL of a collector.
const TRACES_PATH: &str = "/v1/traces";
/// Time limit of one export, connection included.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Variable with the file of the CA that signed the collector's certificate; the CAs of the machine otherwise.
const CA_VARIABLE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// The export of this process. Dropping it does not flush: call [`TraceExport::shutdown`].
pub(crate) struct TraceExport(SdkTracerProvider);

impl TraceExport {
    /// Prepares the export of a command (`server`, `node`, …) to the collector at `endpoint`. Starts no thread: privileges may still have to be
    /// dropped, which a process with several threads cannot do.
    ///
    /// # Errors
    /// When the endpoint is not a URL, or its CA cannot be read.
    pub(crate) fn new(endpoint: &str, command: &str) -> anyhow::Result<Self> {
        let base = endpoint.trim_end_matches('/');
        let base = base.strip_suffix(TRACES_PATH).unwrap_or(base);
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(base)?)
            .with_endpoint(format!("{base}{TRACES_PATH}"))
            .with_timeout(EXPORT_TIMEOUT)
            .build()?;
        let resource = Resource::builder_empty()
            .with_service_name(format!("waypost-{command}"))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            // Last, so that the variables have precedence.
            .with_detector(Box::new(opentelemetry_sdk::resource::EnvResourceDetector::new()))
            .build();
        let processor =
            LazyProcessor { exporter: Mutex::new(Some(exporter)), resource: None, batches: OnceLock::new() };
        Ok(Self(SdkTracerProvider::builder().with_resource(resource).with_span_processor(processor).build()))
    }

    /// The tracer that the layer of the log writes to.
    pub(crate) fn tracer(&self) -> SdkTracer {
        self.0.tracer("waypost")
    }

    /// Sends what is queued; takes at most five seconds.
    pub(crate) fn shutdown(&self) {
        if let Err(error) = self.0.shutdown() {
            tracing::warn!(%error, "flush spans failed");
        }
    }
}

/// A batch processor that starts its thread with the first span.
struct LazyProcessor {
    exporter: Mutex<Option<SpanExporter>>,
    resource: Option<Resource>,
    batches: OnceLock<BatchSpanProcessor>,
}

impl std::fmt::Debug for LazyProcessor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyProcessor").field("started", &self.batches.get().is_some()).finish_non_exhaustive()
    }
}

impl LazyProcessor {
    /// The processor, started now if it was not; none after a start that lost its exporter, which cannot happen.
    fn started(&self) -> Option<&BatchSpanProcessor> {
        if self.batches.get().is_none() {
            let mut exporter = self.exporter.lock();
            if let Some(exporter) = exporter.take() {
                let mut batches = BatchSpanProcessor::builder(exporter).build();
                if let Some(resource) = &self.resource {
                    batches.set_resource(resource);
                }
                let _ = self.batches.set(batches);
            }
        }
        self.batches.get()
    }
}

impl SpanProcessor for LazyProcessor {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if let Some(batches) = self.started() {
            batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.get().map_or(Ok(()), SpanProcessor::force_flush)
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.get().map_or(Ok(()), |batches| batches.shutdown_with_timeout(timeout))
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = Some(resource.clone());
    }
}

/// How to reach a collector. Used by the thread of the batch processor, which runs outside the runtimes of the program.
struct Collector {
    access: Arc<Access>,
    /// Whether the last export failed: changes are logged, and not each export.
    is_failing: AtomicBool,
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collector").field("access", &self.access.address()).finish_non_exhaustive()
    }
}

impl Collector {
    fn new(url: &str) -> anyhow::Result<Self> {
        let mut server = json!({"server": url});
        if let Some(file) = std::env::var_os(CA_VARIABLE) {
            server["certificate-authority"] = file.to_string_lossy().into();
        }
        let access = Access::from_parts(&server, &Value::Null).with_context(|| format!("OTLP endpoint {url}"))?;
        Ok(Self { access: Arc::new(access), is_failing: AtomicBool::new(false) })
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // One runtime per export: exports are seconds apart, and a persistent runtime would need a thread to keep the connection.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut client = Client::new(self.access.clone());
            let sent = tokio::time::timeout(EXPORT_TIMEOUT, client.send(request)).await;
            Ok(sent.map_err(|_| "the collector did not respond in time")??)
        })
    }

    /// Logs when exports begin to fail, and when they succeed again: the SDK drops their spans without a message.
    fn report(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let problem = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("HTTP status {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let endpoint = self.access.address();
        match (self.is_failing.swap(problem.is_some(), Ordering::Relaxed), problem) {
            (false, Some(error)) => tracing::warn!(%error, endpoint, "failed to export spans; dropping them"),
            (true, None) => tracing::info!(endpoint, "exporting spans again"),
            _ => {}
        }
    }
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let sent = self.send(request);
        self.report(&sent);
        Box::pin(std::future::ready(sent))
    }
}
