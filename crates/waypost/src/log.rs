//! The log: to standard error, as text or as JSON lines, and spans to an OpenTelemetry collector. Text has ANSI escapes on terminals that show
//! colours, and nowhere else.

use std::io::IsTerminal as _;

use cli::terminal::has_colour;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

use crate::config::LogArguments;
use crate::trace_export::TraceExport;

/// Starts logging, and the export of spans if a collector was given and `command` names a long-running one. An invalid filter is reported, and
/// `info` used instead.
///
/// # Errors
/// When the collector cannot be used.
pub(crate) fn init(
    arguments: &LogArguments,
    default: &str,
    command: Option<&str>,
) -> anyhow::Result<Option<TraceExport>> {
    let wanted = match arguments.verbose {
        0 => arguments.log.as_deref().unwrap_or(default),
        1 => "debug,h2=info,hyper=info,rustls=info",
        _ => "trace",
    };
    let (filter, problem) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let export = match (&arguments.otlp_endpoint, command) {
        (Some(endpoint), Some(command)) => Some(TraceExport::new(endpoint, command)?),
        _ => None,
    };
    match &export {
        // A filter for all layers: a line that is not logged costs one comparison.
        None => registry().with(filter).with(lines(arguments.log_json)).init(),
        Some(export) => {
            let spans = tracing_opentelemetry::layer().with_tracer(export.tracer()).with_filter(LevelFilter::INFO);
            registry().with(spans).with(lines(arguments.log_json).with_filter(filter)).init();
        }
    }
    if let Some(error) = problem {
        tracing::warn!(filter = wanted, %error, "invalid log filter; logging info");
    }
    Ok(export)
}

/// The layer that writes lines to standard error.
fn lines<S: Subscriber + for<'a> LookupSpan<'a>>(json: bool) -> Box<dyn Layer<S> + Send + Sync> {
    let is_coloured = has_colour(std::io::stderr().is_terminal());
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(true).with_ansi(is_coloured);
    if json { layer.json().boxed() } else { layer.boxed() }
}

/// Prints the error that ends the program.
pub(crate) fn fatal(error: &anyhow::Error) {
    eprintln!("waypost: {error:#}");
}
