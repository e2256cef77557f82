//! Reloads a Corefile when its content changes.
//!
//! In: a path and an [`ApplyConfig`]. Out: one call per changed content, at the interval of the `reload` directive or
//! on request; and metrics. Content includes imported files; names and modification times are ignored. Invalid content
//! is reported once and the previous configuration stays active. The interval has jitter, so that the servers of a
//! cluster do not reload at the same time.

use std::cell::RefCell;
use std::fmt::{Display, Write as _};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use ring::digest::{Context, SHA512};
use tokio::sync::{Notify, watch};

use crate::config::{Config, Reload};
use crate::corefile::{self, Environment, ImportError, ParseError};
use crate::metrics::encode::{Labels, counters, gauges};

/// Minimum interval and minimum jitter, as in CoreDNS.
const MINIMUM: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(1));

/// Applies a new configuration to a running server.
pub trait ApplyConfig: Send {
    /// Why a configuration cannot be applied.
    type Error: Display;
    /// Applies the configuration. On error the previous configuration must stay active.
    fn apply(&mut self, config: Config) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Corefile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CorefileError {
    /// The file cannot be read.
    #[error("{path}: {1}", path = .0.display())]
    Read(PathBuf, std::io::Error),
    /// The text is invalid.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// Content of a Corefile.
#[derive(Debug)]
pub struct Content {
    /// Parsed configuration, or why there is none.
    pub config: Result<Config, CorefileError>,
    /// SHA-512 of everything that was read, in hexadecimal.
    pub version: String,
}

/// Status of reloads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReloadStatus {
    /// Number of contents that could not be applied.
    pub failed: u64,
    /// Version of the active content.
    pub version: String,
}

/// [`ReloadStatus`] for metrics and for waiting.
#[derive(Debug)]
pub struct ReloadMetrics(watch::Sender<ReloadStatus>);

impl ReloadMetrics {
    /// Starts with the active version and no failures.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self(watch::Sender::new(ReloadStatus { failed: 0, version: version.to_owned() }))
    }

    /// Reload status; changes with every attempt.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<ReloadStatus> {
        self.0.subscribe()
    }

    /// Collector of these metrics.
    #[must_use]
    pub fn collector(self: &Arc<Self>) -> Box<dyn Collector> {
        Box::new(self.clone())
    }
}

impl Collector for ReloadMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let ReloadStatus { failed, version } = self.0.borrow().clone();
        let help = "Corefile contents that could not be applied";
        counters(&mut encoder, "coredns_reload_failed", help, [(Labels::new(), failed)])?;
        let labels = vec![("hash", "sha512".to_owned()), ("value", version)];
        gauges(&mut encoder, "coredns_reload_version_info", "Active Corefile", [(labels, 1)])
    }
}

/// Reads a Corefile and the files it imports.
#[must_use]
pub fn read(path: &Path) -> Content {
    let environment = HashingEnvironment(RefCell::new(Context::new(&SHA512)));
    let config = std::fs::read_to_string(path).map_err(|error| CorefileError::Read(path.to_owned(), error));
    let config = config.and_then(|text| {
        environment.hash(&text);
        Ok(corefile::parse(&path.to_string_lossy(), &text, &environment)?)
    });
    if let Err(why) = &config {
        // An unreadable file has no content; its error identifies the version.
        environment.hash(&why.to_string());
    }
    let mut version = String::new();
    for byte in environment.0.into_inner().finish().as_ref() {
        let _ = write!(version, "{byte:02x}");
    }
    Content { config, version }
}

/// Watches a file until the future is dropped. `first` is the active content; `trigger` requests an immediate check.
pub async fn watch(
    path: PathBuf,
    first: Content,
    trigger: Arc<Notify>,
    metrics: Arc<ReloadMetrics>,
    mut target: impl ApplyConfig,
) {
    let mut version = first.version;
    let mut settings = first.config.ok().and_then(|config| config.reload());
    loop {
        tokio::select! {
            () = wait_for_interval(settings) => {}
            () = trigger.notified() => {}
        }
        let from = path.clone();
        let Ok(content) = tokio::task::spawn_blocking(move || read(&from)).await else { continue };
        if content.version == version {
            continue;
        }
        version.clone_from(&content.version);
        let result = match content.config {
            Ok(config) => {
                let next = config.reload();
                target.apply(config).await.map(|()| settings = next).map_err(|error| format!("{error:#}"))
            }
            Err(error) => Err(error.to_string()),
        };
        match result {
            Ok(()) => {
                metrics.0.send_modify(|status| status.version = content.version);
                tracing::info!(file = %path.display(), "reloaded Corefile");
            }
            Err(why) => {
                metrics.0.send_modify(|status| status.failed += 1);
                tracing::error!(file = %path.display(), error = why, "failed to reload Corefile, keeping the previous configuration");
            }
        }
    }
}

/// Sleeps until the next check; forever if reload is disabled.
async fn wait_for_interval(settings: Option<Reload>) {
    let Some(settings) = settings else { return std::future::pending().await };
    tokio::time::sleep(with_jitter(settings, fastrand::f64())).await;
}

/// Interval plus or minus jitter; `chance` is from 0 to 1.
fn with_jitter(settings: Reload, chance: f64) -> Duration {
    let interval = settings.interval.max(MINIMUM.0);
    let jitter = settings.jitter.max(MINIMUM.1).min(interval / 2);
    interval - jitter + (jitter * 2).mul_f64(chance)
}

impl Config {
    /// Reload settings, if any block has them.
    #[must_use]
    pub fn reload(&self) -> Option<Reload> {
        self.blocks.iter().find_map(|block| block.reload)
    }
}

/// Environment of this process that hashes everything read from it.
struct HashingEnvironment(RefCell<Context>);

impl HashingEnvironment {
    fn hash(&self, text: &str) {
        // The length is hashed too, so that text cannot move between files without changing the digest.
        let mut digest = self.0.borrow_mut();
        digest.update(&text.len().to_be_bytes());
        digest.update(text.as_bytes());
    }
}

impl Environment for HashingEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn files(&self, pattern: &str) -> Result<Vec<(String, String)>, ImportError> {
        if pattern.contains(['*', '?', '[']) {
            return Err(ImportError::Glob);
        }
        let text = std::fs::read_to_string(pattern)?;
        self.hash(&text);
        Ok(vec![(pattern.to_owned(), text)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reload_intervals_have_jitter() {
        let settings =
            |interval, jitter| Reload { interval: Duration::from_secs(interval), jitter: Duration::from_secs(jitter) };
        let ends = |settings| [0.0, 1.0].map(|chance| with_jitter(settings, chance).as_secs());
        assert_eq!(ends(settings(30, 15)), [15, 45]);
        assert_eq!(ends(settings(30, 5)), [25, 35]);
        assert_eq!(ends(settings(0, 0)), [1, 3], "neither all the time nor all at once");
        assert_eq!(ends(settings(10, 60)), [5, 15], "not before it began");
    }

    #[test]
    fn imported_files_are_part_of_the_content() {
        let dir = tempfile::tempdir().expect("a directory");
        let (main, part) = (dir.path().join("Corefile"), dir.path().join("part"));
        let write = |path: &Path, text: &str| std::fs::write(path, text).expect("written");
        write(&main, &format!("import {}\n", part.display()));
        write(&part, ". {\nerrors\nreload 7s 3s\n}\n");
        let first = read(&main);
        let reload = first.config.as_ref().ok().and_then(Config::reload).expect("an interval");
        assert_eq!((reload.interval, reload.jitter), (Duration::from_secs(7), Duration::from_secs(3)));
        assert_eq!((first.version.len(), &first.version), (128, &read(&main).version));
        write(&part, ". {\nerrors\nlog\n}\n");
        assert_ne!(read(&main).version, first.version, "what is imported counts");
        write(&part, ". {\nerors\n}\n");
        let error = read(&main).config.expect_err("a typing error").to_string();
        assert!(error.starts_with(&format!("{}:2: ", part.display())), "{error}");
        std::fs::remove_file(&main).expect("removed");
        assert!(read(&main).config.is_err());
    }
}
