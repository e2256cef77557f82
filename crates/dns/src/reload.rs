//! A Corefile that is followed while it is served from.
//!
//! In: a path, and whoever [`Takes`] a configuration over. Out: a call for each new content, at the interval that the file
//! itself names, or when somebody wishes; and figures. What counts is the content, with everything that is imported: names of
//! files and their times change without it. A content that cannot be used is refused once and said, and what was before stays.
//! The times are scattered, so that not all servers of a cluster look, and change, at once.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ring::digest::{Context, SHA512};
use tokio::sync::{Notify, watch};

use crate::config::{Config, Reload};
use crate::corefile::{self, Surroundings};

/// The least interval, and the least scatter, as in CoreDNS.
const LEAST: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(1));

/// Who takes a configuration over.
pub trait Takes: Send {
    /// Goes on with it, or says why that cannot be; then everything has to be as before.
    fn take(&mut self, config: Config) -> impl Future<Output = Result<(), String>> + Send;
}

/// What a file says.
#[derive(Debug)]
pub struct Content {
    /// What is to be done, or what is not understood, with its line.
    pub config: Result<Config, String>,
    /// The digest of all that was read.
    pub version: String,
}

/// What became of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How many contents could not be used.
    pub failed: u64,
    /// The version that is served.
    pub version: String,
}

/// The same, for the metrics and for those who wait for a change.
#[derive(Debug)]
pub struct Figures(watch::Sender<Outcome>);

impl Figures {
    /// Nothing failed yet, and this is served.
    #[must_use]
    pub fn new(version: &str) -> Self {
        Self(watch::Sender::new(Outcome { failed: 0, version: version.to_owned() }))
    }

    /// What became of the file, each time something did.
    #[must_use]
    pub fn outcomes(&self) -> watch::Receiver<Outcome> {
        self.0.subscribe()
    }

    /// The figures as text.
    #[must_use]
    pub fn text(&self) -> String {
        let (failed, version) = ("coredns_reload_failed_total", "coredns_reload_version_info");
        let (mut out, outcome) = (String::new(), self.0.borrow());
        let _ = writeln!(out, "# HELP {failed} Times a changed Corefile could not be used.\n# TYPE {failed} counter");
        let _ = writeln!(out, "{failed} {}", outcome.failed);
        let _ = writeln!(out, "# HELP {version} Which Corefile is served.\n# TYPE {version} gauge");
        let _ = writeln!(out, "{version}{{hash=\"sha512\",value=\"{}\"}} 1", outcome.version);
        out
    }
}

/// Reads a Corefile and what it imports.
#[must_use]
pub fn read(path: &Path) -> Content {
    let noted = Noted(RefCell::new(Context::new(&SHA512)));
    let config = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let config = config.and_then(|text| {
        noted.note(&text);
        corefile::parse(&path.to_string_lossy(), &text, &noted).map_err(|refused| refused.to_string())
    });
    if let Err(why) = &config {
        // A file that cannot be read has no content; how it fails is all there is to know it by.
        noted.note(why);
    }
    let mut version = String::new();
    for byte in noted.0.into_inner().finish().as_ref() {
        let _ = write!(version, "{byte:02x}");
    }
    Content { config, version }
}

/// Follows a file for as long as it is awaited. `first` is what is served already; `wish` has it looked at now.
pub async fn follow(path: PathBuf, first: Content, wish: Arc<Notify>, figures: Arc<Figures>, mut taker: impl Takes) {
    let mut seen = first.version;
    let mut pace = first.config.ok().and_then(|config| config.reload());
    loop {
        tokio::select! {
            () = pause(pace) => {}
            () = wish.notified() => {}
        }
        let from = path.clone();
        let Ok(content) = tokio::task::spawn_blocking(move || read(&from)).await else { continue };
        if content.version == seen {
            continue;
        }
        seen.clone_from(&content.version);
        let taken = match content.config {
            Ok(config) => {
                let next = config.reload();
                taker.take(config).await.map(|()| pace = next)
            }
            Err(why) => Err(why),
        };
        match taken {
            Ok(()) => {
                figures.0.send_modify(|outcome| outcome.version = content.version);
                tracing::info!(file = %path.display(), "the Corefile changed and was taken over");
            }
            Err(why) => {
                figures.0.send_modify(|outcome| outcome.failed += 1);
                tracing::error!(file = %path.display(), "the Corefile changed and is refused; the old one stays: {why}");
            }
        }
    }
}

/// Until the file is to be looked at again; for ever if it is not.
async fn pause(pace: Option<Reload>) {
    let Some(pace) = pace else { return std::future::pending().await };
    tokio::time::sleep(scattered(pace, fastrand::f64())).await;
}

/// The interval, more or less the jitter; `chance` is from 0 to 1.
fn scattered(pace: Reload, chance: f64) -> Duration {
    let interval = pace.interval.max(LEAST.0);
    let jitter = pace.jitter.max(LEAST.1).min(interval / 2);
    interval - jitter + (jitter * 2).mul_f64(chance)
}

impl Config {
    /// How often the file is to be looked at, if it says so.
    #[must_use]
    pub fn reload(&self) -> Option<Reload> {
        self.blocks.iter().find_map(|block| block.reload)
    }
}

/// This machine, with a note of what was read from it.
struct Noted(RefCell<Context>);

impl Noted {
    fn note(&self, text: &str) {
        // With its length, so that nothing moves from one text to the next unseen.
        let mut digest = self.0.borrow_mut();
        digest.update(&text.len().to_be_bytes());
        digest.update(text.as_bytes());
    }
}

impl Surroundings for Noted {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn files(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        if pattern.contains(['*', '?', '[']) {
            return Err("patterns are not understood; name each file".to_owned());
        }
        let text = std::fs::read_to_string(pattern).map_err(|error| error.to_string())?;
        self.note(&text);
        Ok(vec![(pattern.to_owned(), text)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_scattered_around_the_interval() {
        let pace =
            |interval, jitter| Reload { interval: Duration::from_secs(interval), jitter: Duration::from_secs(jitter) };
        let ends = |pace| [0.0, 1.0].map(|chance| scattered(pace, chance).as_secs());
        assert_eq!(ends(pace(30, 15)), [15, 45]);
        assert_eq!(ends(pace(30, 5)), [25, 35]);
        assert_eq!(ends(pace(0, 0)), [1, 3], "neither all the time nor all at once");
        assert_eq!(ends(pace(10, 60)), [5, 15], "not before it began");
    }

    #[test]
    fn content_is_all_that_was_read() {
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
        let refused = read(&main).config.expect_err("a typing error");
        assert!(refused.starts_with(&format!("{}:2: ", part.display())), "{refused}");
        std::fs::remove_file(&main).expect("removed");
        assert!(read(&main).config.is_err());
    }
}
