//! How many connections there may be at a time.
//!
//! Every connection takes files, and a process has only so many. Where they end, new connections wait in the queue of the
//! kernel until others are over; nothing is torn down, and one line in the log says so.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is assumed where the kernel sets no bound.
const MANY: usize = 1 << 20;
/// How often the log may say that there are too many.
const AGAIN: Duration = Duration::from_secs(60);
/// How long nobody is taken in after the kernel had no file for one.
const PAUSE: Duration = Duration::from_millis(50);

/// Raises the number of files that this process may have to the highest allowed; answers it.
pub(super) fn raise_files() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    files.and_then(|files| usize::try_from(files).ok()).unwrap_or(MANY).min(MANY)
}

/// How many connections there may be with so many files: two each, from half of them. The rest is for pipes, for listeners and
/// for everything else that this process does.
pub(super) fn connections(files: usize) -> usize {
    (files / 4).max(1)
}

/// How many pipes there may be with so many files: two each, from a quarter of them.
pub(super) const fn pipes(files: usize) -> usize {
    files / 8
}

/// Lets in only so many.
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

    /// Waits until there is room for one more. Dropping the permit makes room.
    pub(super) async fn admit(&self) -> Option<OwnedSemaphorePermit> {
        if let Some(permit) = self.try_admit() {
            return Some(permit);
        }
        // It is never closed.
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Room for one more, if there is some now; if not, nothing is said yet.
    pub(super) fn spare(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    /// Room for one more, if there is some now.
    pub(super) fn try_admit(&self) -> Option<OwnedSemaphorePermit> {
        let permit = self.spare();
        if permit.is_none() && self.may_say() {
            tracing::warn!(
                connections = self.most,
                "as many connections as allowed are open; new ones wait until others end \
                 (raise the limit of open files, or --proxy-max-connections)"
            );
        }
        permit
    }

    /// Waits a little after a connection could not be taken.
    pub(super) async fn pause(&self, error: &io::Error) {
        if self.may_say() {
            tracing::warn!(%error, "a connection could not be taken; will try again (is the limit of open files too low?)");
        }
        tokio::time::sleep(PAUSE).await;
    }

    /// Whether the log has been silent about this for long enough.
    fn may_say(&self) -> bool {
        let (mut said, now) = (self.said.lock(), Instant::now());
        let may = said.is_none_or(|last| now.saturating_duration_since(last) >= AGAIN);
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
    fn files_are_enough_for_all() {
        for files in [64, 1024, 20_000, 1 << 20] {
            assert!(2 * connections(files) + 2 * pipes(files) <= files * 3 / 4, "{files}");
        }
        assert_eq!(connections(1), 1);
    }

    #[test]
    fn too_many_is_said_once_and_not_admitted() {
        let limit = Limit::new(2);
        let held = [limit.try_admit(), limit.try_admit()];
        assert!(held.iter().all(Option::is_some) && limit.try_admit().is_none());
        assert!(limit.said.lock().is_some() && !limit.may_say());
        drop(held);
        assert!(limit.try_admit().is_some());
    }
}
