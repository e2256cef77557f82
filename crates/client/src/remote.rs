//! An API server over HTTP as a source of watches: Waypost's, or a kube-apiserver.
//!
//! In: a kubeconfig. Out: the events of [`crate::watch`], from one connection for each watch.
//!
//! ```text
//! reflector: list (streaming, or in pages) ─▶ watch from there ─▶ resume where it broke ─▶ relist when the position has expired
//!           └─ split: bytes ─▶ lines or items ─▶ slim: the stored form, without managedFields ─▶ events
//! ```
//! A server that cannot be reached is retried for ever with exponential backoff, and with the kubeconfig as it is then: its
//! address, certificates and tokens may have changed.

mod attempt;
mod reflector;
mod slim;
mod split;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::http::{Client, ClientError, Protocol};
use crate::kubeconfig::Access;
use crate::watch::{Selection, Source, Watch};
use parking_lot::Mutex;

/// An API server.
#[derive(Clone)]
pub struct Remote {
    pub(crate) server: Arc<Server>,
    timing: Timing,
}

/// Timeouts and intervals of watches. The default suits a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Until a connection is established.
    pub connect: Duration,
    /// Until the headers of a response, and between chunks of a list.
    pub response: Duration,
    /// Until an idle watch is requested again. Servers send bookmarks about once a minute.
    pub idle: Duration,
    /// Interval and timeout of HTTP/2 keep-alive pings.
    pub ping: Duration,
    /// Requested duration of a watch; up to twice as much by jitter.
    pub max_duration: Duration,
    /// Backoff after the first failure.
    pub min_backoff: Duration,
    /// Upper limit of the backoff.
    pub max_backoff: Duration,
    /// Until a kind that the server did not serve is requested again.
    pub not_served: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(10),
            response: seconds(30),
            idle: seconds(100),
            ping: seconds(10),
            max_duration: seconds(300),
            min_backoff: Duration::from_millis(50),
            max_backoff: seconds(10),
            not_served: seconds(60),
        }
    }
}

/// How the server is reached.
pub(crate) struct Server {
    /// The file to read again, if it may change.
    kubeconfig: Option<PathBuf>,
    access: Mutex<(Arc<Access>, Option<Stamp>)>,
}

/// Identifies a version of a file: replacing the file changes it.
type Stamp = (u64, i64, i64);

/// The stamp of a file; none when there is no file.
fn stamp(path: &Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()))
}

impl Remote {
    /// The server of a kubeconfig's current context. Sends no request yet.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn new(kubeconfig: &Path) -> Result<Self, ClientError> {
        let stamp = stamp(kubeconfig);
        Ok(Self::at(Some(kubeconfig.to_owned()), Arc::new(Access::read(kubeconfig)?), stamp))
    }

    /// A server with a fixed address and identity.
    #[must_use]
    pub fn of(access: Arc<Access>) -> Self {
        Self::at(None, access, None)
    }

    fn at(kubeconfig: Option<PathBuf>, access: Arc<Access>, stamp: Option<Stamp>) -> Self {
        let server = Server { kubeconfig, access: Mutex::new((access, stamp)) };
        Self { server: Arc::new(server), timing: Timing::default() }
    }

    /// The same with other timeouts.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// A client for single requests.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.server.access())
    }

    /// Reads the kubeconfig again, after it was changed.
    pub fn refresh(&self) {
        self.server.reread();
    }

    /// A client for streams.
    fn streaming(&self) -> Client {
        let protocol = Protocol { connect: self.timing.connect, ping: Some(self.timing.ping) };
        Client::with(self.server.access(), protocol)
    }
}

impl Source for Remote {
    fn watch(&self, selection: Selection) -> Watch {
        Watch::run(&selection.clone(), |sender| reflector::run(self.clone(), selection, sender))
    }
}

impl Server {
    /// The access of the kubeconfig as it is now: certificates and CAs in it may be rotated at any time.
    fn access(&self) -> Arc<Access> {
        let now = self.kubeconfig.as_deref().and_then(stamp);
        if now != self.access.lock().1 {
            self.reread();
        }
        self.access.lock().0.clone()
    }

    /// Reads the kubeconfig again. A file that cannot be used may be half written: the old access stays.
    pub(crate) fn reread(&self) {
        let Some(kubeconfig) = &self.kubeconfig else { return };
        let stamp = stamp(kubeconfig);
        match Access::read(kubeconfig) {
            Ok(access) => *self.access.lock() = (Arc::new(access), stamp),
            Err(error) => tracing::debug!(%error, "kubeconfig not reloaded"),
        }
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({:?})", self.server.access())
    }
}
