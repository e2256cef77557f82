//! Settings of the access log of the gateway.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use gateway::{AccessLog, AccessLogFormat, AccessLogOptions};

/// Settings of the access log.
#[derive(Args, Debug, Clone)]
pub(crate) struct AccessLogArguments {
    /// Write a line for each request of the gateway, and for each connection that it forwards
    #[arg(long, env = "WAYPOST_GATEWAY_ACCESS_LOG", default_value = "off", value_name = "FORMAT")]
    gateway_access_log: Format,
    /// Write the access log of the gateway to this file; `-`: standard output. SIGHUP reopens it
    #[arg(long, env = "WAYPOST_GATEWAY_ACCESS_LOG_FILE", default_value = "-", value_name = "FILE")]
    gateway_access_log_file: PathBuf,
}

/// Forms of the access log.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    /// No access log.
    Off,
    /// An object of JSON per line.
    Json,
    /// The Common Log Format with referer and user agent (combined log format).
    Common,
}

impl AccessLogArguments {
    /// Opens the log, if there is one.
    pub(crate) fn open(&self) -> anyhow::Result<Option<AccessLog>> {
        let opened = self.options().as_ref().map(AccessLog::open).transpose();
        opened.with_context(|| format!("opening --gateway-access-log-file {}", self.gateway_access_log_file.display()))
    }

    fn options(&self) -> Option<AccessLogOptions> {
        let format = match self.gateway_access_log {
            Format::Off => return None,
            Format::Json => AccessLogFormat::Json,
            Format::Common => AccessLogFormat::Common,
        };
        let path = Some(&self.gateway_access_log_file).filter(|path| **path != Path::new("-"));
        Some(AccessLogOptions { format, path: path.cloned() })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        arguments: AccessLogArguments,
    }

    fn options(words: &[&str]) -> Result<Option<AccessLogOptions>, clap::Error> {
        let all = ["x"].iter().chain(words);
        Whole::try_parse_from(all).map(|whole| whole.arguments.options())
    }

    #[test]
    fn there_is_a_log_when_its_form_is_named() {
        assert_eq!(options(&[]).expect("good arguments"), None);
        assert_eq!(options(&["--gateway-access-log-file", "/x"]).expect("good arguments"), None);
        for (words, format, path) in [
            (&["--gateway-access-log", "json"][..], AccessLogFormat::Json, None),
            (&["--gateway-access-log=common", "--gateway-access-log-file=-"], AccessLogFormat::Common, None),
            (&["--gateway-access-log=json", "--gateway-access-log-file=/x"], AccessLogFormat::Json, Some("/x".into())),
        ] {
            assert_eq!(options(words).expect("good arguments"), Some(AccessLogOptions { format, path }), "{words:?}");
        }
        assert!(options(&["--gateway-access-log", "xml"]).is_err());
    }
}
