//! The log: to standard error, as text or as JSON lines. Text has ANSI escapes on terminals that show colours, and nowhere else.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::cli::terminal::has_colour;
use crate::config::LogArguments;

/// Begins to log. A filter that cannot be read is said, and `info` used instead.
pub(crate) fn begin(arguments: &LogArguments, default: &str) {
    let wanted = match arguments.verbose {
        0 => arguments.log.as_deref().unwrap_or(default),
        1 => "debug,h2=info,hyper=info,rustls=info",
        _ => "trace",
    };
    let (filter, problem) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let is_coloured = has_colour(std::io::stderr().is_terminal());
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(true).with_ansi(is_coloured);
    if arguments.log_json {
        builder.json().init();
    } else {
        builder.init();
    }
    if let Some(error) = problem {
        tracing::warn!(filter = wanted, %error, "this log filter cannot be read; logging info");
    }
}

/// Says why the program ends.
pub(crate) fn fatal(error: &anyhow::Error) {
    eprintln!("waypost: {error:#}");
}
