//! A server elsewhere as a source of watches: ours, or any other that speaks the Kubernetes API.
//!
//! In: a kubeconfig. Out: the five events of [`store::source`], from one connection for each watch.
//!
//! ```text
//! follow: list (streamed, or in pages) ─▶ watch from there ─▶ resume where it broke ─▶ list again when history is gone
//!           └─ split: bytes ─▶ lines or items ─▶ slim: the stored form, without managedFields ─▶ events
//! ```
//! A server that cannot be reached is tried for ever, in growing intervals, and with what its kubeconfig says by then: its
//! address, certificates and tokens may be new. [`Teller`] says the other way round what people should know, as Kubernetes Events.

mod attempt;
mod follow;
mod path;
mod slim;
mod split;
mod tell;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
pub use store::source::{Event, Health, Known, Lost, Object, Source, Watched, Watching, What};

pub use tell::{Finding, Teller};

use crate::client::{Client, ClientError, Manner};
use crate::kubeconfig::Access;

/// A server elsewhere.
#[derive(Clone)]
pub struct Remote {
    server: Arc<Server>,
    timing: Timing,
}

/// How long a watch waits for what. The default suits a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// For a connection.
    pub connect: Duration,
    /// For the headers of an answer, and for each next piece of a list.
    pub answer: Duration,
    /// So long may a watch be silent before it is asked for anew. Servers that send bookmarks do so about every minute.
    pub silence: Duration,
    /// So often is a server with HTTP/2 asked for a sign of life, and so long has it to give one.
    pub ping: Duration,
    /// So long may a watch last, and up to as much again.
    pub lasting: Duration,
    /// After the first failure.
    pub first_pause: Duration,
    /// After many.
    pub longest_pause: Duration,
    /// Until a kind that the server did not have is asked for again.
    pub absent: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(10),
            answer: seconds(30),
            silence: seconds(100),
            ping: seconds(10),
            lasting: seconds(300),
            first_pause: Duration::from_millis(50),
            longest_pause: seconds(10),
            absent: seconds(60),
        }
    }
}

/// Where the server is, as far as is known.
struct Server {
    /// Where this is written, when it may change.
    kubeconfig: Option<PathBuf>,
    access: Mutex<(Arc<Access>, Option<Stamp>)>,
}

/// Identifies a version of a file: replacing the file changes it.
type Stamp = (u64, i64, i64);

/// The stamp of a file; nothing when it cannot be had.
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

    /// A server that is reached in this way, now and later.
    #[must_use]
    pub fn of(access: Arc<Access>) -> Self {
        Self::at(None, access, None)
    }

    fn at(kubeconfig: Option<PathBuf>, access: Arc<Access>, stamp: Option<Stamp>) -> Self {
        let server = Server { kubeconfig, access: Mutex::new((access, stamp)) };
        Self { server: Arc::new(server), timing: Timing::default() }
    }

    /// The same with other patience.
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

    /// Reads the kubeconfig again, for those who have changed it.
    pub fn refresh(&self) {
        self.server.reread();
    }

    /// A client for streams.
    fn streaming(&self) -> Client {
        let manner = Manner { connect: self.timing.connect, ping: Some(self.timing.ping) };
        Client::with(self.server.access(), manner)
    }
}

impl Source for Remote {
    fn watch(&self, what: What) -> Watching {
        Watching::run(&what.clone(), |feeder| follow::run(self.clone(), what, feeder))
    }
}

impl Server {
    /// How the server is reached, as the kubeconfig says now: certificates and CAs in it are replaced while both sides run.
    fn access(&self) -> Arc<Access> {
        let now = self.kubeconfig.as_deref().and_then(stamp);
        if now != self.access.lock().1 {
            self.reread();
        }
        self.access.lock().0.clone()
    }

    /// Reads the kubeconfig again. One that cannot be used is being written, perhaps: what is known stays.
    fn reread(&self) {
        let Some(kubeconfig) = &self.kubeconfig else { return };
        let stamp = stamp(kubeconfig);
        match Access::read(kubeconfig) {
            Ok(access) => *self.access.lock() = (Arc::new(access), stamp),
            Err(error) => tracing::debug!(%error, "the kubeconfig is not read anew"),
        }
    }
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Remote({:?})", self.server.access())
    }
}
