//! Settings of the log.

use clap::Args;

/// Settings of the log.
#[derive(Args, Debug, Clone)]
pub(crate) struct LogArguments {
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,rest=debug`
    /// [default: info in long-running commands, warn in others and in `up` on a terminal]
    #[arg(long, global = true, env = "WAYPOST_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log more: once for debug, twice for trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Write the log as JSON lines
    #[arg(long, global = true, env = "WAYPOST_LOG_JSON")]
    pub(crate) log_json: bool,
    /// Send spans of requests, reconciles and syncs to this OpenTelemetry collector (OTLP over HTTP, such as <http://127.0.0.1:4318>)
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
}
