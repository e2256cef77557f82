//! Somebody who looks again and again, from a thread of its own, until something is so.
//!
//! In: a look at the world. Out: the moment at which it was first so.
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

/// The looking, for the thread that does it.
pub struct Watch {
    pause: Duration,
    enough: Arc<AtomicBool>,
    begun: Option<oneshot::Sender<()>>,
}

impl Sentry {
    /// Begins to look whether `what` is so, with so long a pause between two looks; returns after the first look. `keep` is called on
    /// the thread, which may have to be somewhere.
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
        has_begun.await.context("nobody looks")?;
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
    /// Looks until it is so, or enough.
    pub fn until(mut self, mut look: impl FnMut() -> bool) -> Option<Instant> {
        while !self.enough.load(Ordering::Relaxed) {
            let is_so = look();
            let at = Instant::now();
            // Whoever waits for the first look may have gone.
            let _ = self.begun.take().map(|begun| begun.send(()));
            if is_so {
                return Some(at);
            }
            std::thread::sleep(self.pause);
        }
        None
    }
}
