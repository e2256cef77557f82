//! The two ends of a watch, and its status.
//!
//! Events pass through a bounded queue: a slow consumer makes the source wait at its position in the history of the server, instead of
//! buffering. The status is a separate value that can be read or awaited at any time.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Event, Selection};

/// Capacity of the queue, in events.
const QUEUE: usize = 256;

/// The state of a watch, for metrics and health checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Set while the consumer may not know the current state.
    pub out_of_sync: Option<OutOfSync>,
    /// Lists begun.
    pub lists: u64,
    /// Failures.
    pub failures: u64,
}

/// Since when and why a watch is not in sync.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutOfSync {
    /// When the watch was last in sync, or was started.
    pub since: Instant,
    /// The last failure; none before the first list is complete.
    pub reason: Option<Arc<str>>,
}

/// A handle on the status of a watch.
#[derive(Clone)]
pub struct WatchStatus {
    name: Arc<str>,
    health: watch::Receiver<Health>,
}

/// The consumer's end. Dropping it stops the watch.
pub struct Watch {
    events: mpsc::Receiver<Event>,
    status: WatchStatus,
    task: AbortHandle,
}

/// The source's end.
pub struct WatchSender {
    name: Arc<str>,
    events: mpsc::Sender<Event>,
    health: watch::Sender<Health>,
}

// === impl Watch ===

impl Watch {
    /// Runs the task of a source until it ends or the consumer drops the watch.
    pub fn run<F>(selection: &Selection, task: impl FnOnce(WatchSender) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(QUEUE);
        let out_of_sync = Some(OutOfSync { since: Instant::now(), reason: None });
        let (writer, health) = watch::channel(Health { out_of_sync, lists: 0, failures: 0 });
        let name: Arc<str> = selection.to_string().into();
        let sender = WatchSender { name: name.clone(), events: sender, health: writer };
        let task = tokio::spawn(task(sender)).abort_handle();
        Self { events, status: WatchStatus { name, health }, task }
    }

    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // A source ends only with the runtime.
            None => std::future::pending().await,
        }
    }

    /// The next event, if there is one in the queue.
    pub fn try_next(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// A handle on the status.
    #[must_use]
    pub fn status(&self) -> WatchStatus {
        self.status.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl WatchSender ===

impl WatchSender {
    /// Sends an event; waits while the queue is full. False when the consumer is gone.
    pub async fn send(&self, event: Event) -> bool {
        if event == Event::Init {
            self.health.send_modify(|health| health.lists += 1);
        }
        if event == Event::InitDone {
            // Before the event is delivered: a consumer that has received it must find the watch in sync.
            self.synced();
        }
        self.events.send(event).await.is_ok()
    }

    /// Marks the watch as in sync.
    pub fn synced(&self) {
        let mut before = None;
        self.health.send_if_modified(|health| {
            before = health.out_of_sync.take();
            before.is_some()
        });
        match before {
            Some(OutOfSync { since, reason: Some(_) }) => {
                tracing::info!(watch = %self.name, after = ?since.elapsed(), "watch in sync again");
            }
            Some(_) => tracing::debug!(watch = %self.name, "watch in sync"),
            None => {}
        }
    }

    /// Marks the watch as out of sync since this moment. Each reason is logged once.
    pub fn failed(&self, since: Instant, reason: &str) {
        let mut is_new = false;
        self.health.send_modify(|health| {
            let known = health.out_of_sync.as_ref();
            is_new = known.and_then(|known| known.reason.as_deref()) != Some(reason);
            let since = known.map_or(since, |known| known.since);
            health.out_of_sync = Some(OutOfSync { since, reason: Some(reason.into()) });
            health.failures += 1;
        });
        if is_new {
            tracing::warn!(watch = %self.name, reason, "watch failed, keeping the last known state");
        } else {
            tracing::debug!(watch = %self.name, reason, "watch failed again");
        }
    }
}

// === impl WatchStatus ===

impl WatchStatus {
    /// The selection, as text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the watch is in sync; events may still be in the queue.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.health.borrow().out_of_sync.is_none()
    }

    /// The present state.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Waits for the next change of the state; `None` when the watch has ended.
    pub async fn changed(&mut self) -> Option<Health> {
        self.health.changed().await.ok()?;
        Some(self.health.borrow_and_update().clone())
    }
}

impl fmt::Debug for WatchStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchStatus({}: {:?})", self.name, *self.health.borrow())
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)
    }
}

impl fmt::Debug for WatchSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchSender({})", self.name)
    }
}
