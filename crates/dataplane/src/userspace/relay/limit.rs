//! Limits the number of connections.
//!
//! Every connection uses file descriptors. At the limit, new connections wait in the kernel's backlog until others end;
//! a warning is logged.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Assumed limit of open files where the kernel sets none.
const DEFAULT_FILES: usize = 1 << 20;
/// Minimum interval between warnings.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Backoff after `accept` fails with EMFILE.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Raises the soft limit of open files to the hard limit and returns it.
pub(super) fn raise_file_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(DEFAULT_FILES).min(DEFAULT_FILES)
}

/// Connections for a limit of open files: two files each, from half of them. The rest is for pipes, listeners and the
/// rest of the process.
pub(super) fn connections(files: usize) -> usize {
    (files / 4).max(1)
}

/// Pipes for a limit of open files: two files each, from a quarter of them.
pub(super) const fn pipes(files: usize) -> usize {
    files / 8
}

/// A limit on connections.
pub(super) struct Limit {
    most: usize,
    free: Arc<Semaphore>,
    said: Mutex<Option<Instant>>,
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self { most, free: Arc::new(Semaphore::new(most)), said: Mutex::new(None) }
    }

    /// Waits for a permit. Dropping it releases it.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        if let Some(permit) = self.try_acquire_logged() {
            return Some(permit);
        }
        // The semaphore is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// A permit, if one is free; does not log.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// A permit, if one is free; otherwise logs a warning.
    pub(super) fn try_acquire_logged(&self) -> Option<OwnedSemaphorePermit> {
        let permit = self.try_acquire();
        if permit.is_none() && self.may_log() {
            tracing::warn!(
                connections = self.most,
                "as many connections as allowed are open; new ones wait until others end \
                 (raise the limit of open files, or --proxy-max-connections)"
            );
        }
        permit
    }

    /// Waits after a failed `accept`.
    pub(super) async fn back_off(&self, error: &io::Error) {
        if self.may_log() {
            tracing::warn!(%error, "cannot accept connection; retrying (is the limit of open files too low?)");
        }
        tokio::time::sleep(ACCEPT_BACKOFF).await;
    }

    /// Whether the last warning is old enough.
    fn may_log(&self) -> bool {
        let (mut said, now) = (self.said.lock(), Instant::now());
        let may = said.is_none_or(|last| now.saturating_duration_since(last) >= LOG_INTERVAL);
        if may {
            *said = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_pipes_fit_into_the_file_limit() {
        for files in [64, 1024, 20_000, 1 << 20] {
            assert!(2 * connections(files) + 2 * pipes(files) <= files * 3 / 4, "{files}");
        }
        assert_eq!(connections(1), 1);
    }

    #[test]
    fn connections_above_the_limit_are_refused_and_logged_once() {
        let limit = Limit::new(2);
        let held = [limit.try_acquire_logged(), limit.try_acquire_logged()];
        assert!(held.iter().all(Option::is_some) && limit.try_acquire_logged().is_none());
        assert!(limit.said.lock().is_some() && !limit.may_log());
        drop(held);
        assert!(limit.try_acquire_logged().is_some());
    }
}
