//! Polls a condition from a separate thread until it holds.
//!
//! In: a condition. Out: the time at which it first held.
#![expect(clippy::disallowed_methods, reason = "between two looks at the world there must be a pause")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// See the module. Dropping it ends it.
pub struct Sentry {
    seen: JoinHandle<Option<Instant>>,
    enough: Arc<AtomicBool>,
    what: String,
}

/// The polling loop, for the thread that runs it.
pub struct Watch {
    pause: Duration,
    enough: Arc<AtomicBool>,
    begun: Option<oneshot::Sender<()>>,
}

impl Sentry {
    /// Starts polling the condition `what` with this interval; returns after the first poll. `keep` is called on the thread, which
    /// may have to enter a namespace.
    ///
    /// # Errors
    /// When it ends before.
    pub async fn post(
        what: String,
        pause: Duration,
        keep: impl FnOnce(Watch) -> Option<Instant> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let enough = Arc::new(AtomicBool::new(false));
        let (begun, has_begun) = oneshot::channel();
        let watch = Watch { pause, enough: Arc::clone(&enough), begun: Some(begun) };
        let seen = tokio::task::spawn_blocking(move || keep(watch));
        has_begun.await.context("the sentry has ended")?;
        Ok(Self { seen, enough, what })
    }

    /// The moment at which it was first so.
    ///
    /// # Errors
    /// When there is none in time.
    pub async fn seen(mut self, timeout: Duration) -> anyhow::Result<Instant> {
        match tokio::time::timeout(timeout, &mut self.seen).await {
            Ok(seen) => seen.context("a sentry")?.context("it was told to stop"),
            Err(_) => bail!("after {timeout:?} it was not yet so that {}", self.what),
        }
    }

    /// Whether it has come.
    #[must_use]
    pub fn has_seen(&self) -> bool {
        self.seen.is_finished()
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Polls until the condition holds, or the sentry is stopped.
    pub fn until(mut self, mut look: impl FnMut() -> bool) -> Option<Instant> {
        while !self.enough.load(Ordering::Relaxed) {
            let is_so = look();
            let at = Instant::now();
            // The receiver of the first result may be gone.
            let _ = self.begun.take().map(|begun| begun.send(()));
            if is_so {
                return Some(at);
            }
            std::thread::sleep(self.pause);
        }
        None
    }
}
