//! The two ends of a watch: who feeds it, who listens, and what both may know of how it goes.
//!
//! Events flow through a short queue: a listener that is slow makes the source wait, and a source that waits holds a position
//! in somebody's history, not a growing list. Health flows beside it, as a value that can be read or waited for at any time.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Event, What};

/// How many events may wait for the listener.
const WAITING: usize = 256;

/// How a watch goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Since when, and why, the listener may not know the present. `None` while it does.
    pub lost: Option<Lost>,
    /// How many lists were begun.
    pub lists: u64,
    /// How many times something went wrong.
    pub breaks: u64,
}

/// A watch that is not in sync.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// When the listener last knew the present, or when the watch was begun.
    pub since: Instant,
    /// What went wrong last; nothing while the first list is still on its way.
    pub why: Option<Arc<str>>,
}

/// A handle that says how a watch goes, for metrics, health pages and people.
#[derive(Clone)]
pub struct Watched {
    name: Arc<str>,
    health: watch::Receiver<Health>,
}

/// The listener's end. Dropping it ends the watch.
pub struct Watching {
    events: mpsc::Receiver<Event>,
    watched: Watched,
    task: AbortHandle,
}

/// The source's end.
pub struct Feeder {
    name: Arc<str>,
    events: mpsc::Sender<Event>,
    health: watch::Sender<Health>,
}

// === impl Watching ===

impl Watching {
    /// Runs a source's task, to which the feeder belongs, until it ends or the listener goes.
    pub fn run<F>(what: &What, task: impl FnOnce(Feeder) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, events) = mpsc::channel(WAITING);
        let lost = Lost { since: Instant::now(), why: None };
        let (writer, health) = watch::channel(Health { lost: Some(lost), lists: 0, breaks: 0 });
        let name: Arc<str> = what.to_string().into();
        let feeder = Feeder { name: name.clone(), events: sender, health: writer };
        let task = tokio::spawn(task(feeder)).abort_handle();
        Self { events, watched: Watched { name, health }, task }
    }

    /// Waits for the next event, for ever if need be. Dropping the future before it is ready loses nothing.
    pub async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            // A source ends only with the runtime.
            None => std::future::pending().await,
        }
    }

    /// The next event, if it is here already.
    pub fn more(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// How it goes.
    #[must_use]
    pub fn watched(&self) -> Watched {
        self.watched.clone()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Feeder ===

impl Feeder {
    /// Hands an event on; waits while the queue is full. False when nobody listens any more.
    pub async fn send(&self, event: Event) -> bool {
        if event == Event::Init {
            self.health.send_modify(|health| health.lists += 1);
        }
        if event == Event::InitDone {
            // Before the listener can have it: whoever has heard the end of a list finds the watch in sync.
            self.synced();
        }
        self.events.send(event).await.is_ok()
    }

    /// The listener knows the present, or will when it has read what was sent.
    pub fn synced(&self) {
        let mut before = None;
        self.health.send_if_modified(|health| {
            before = health.lost.take();
            before.is_some()
        });
        match before {
            Some(Lost { since, why: Some(_) }) => {
                tracing::info!(watch = %self.name, away = ?since.elapsed(), "the watch is in sync again");
            }
            Some(_) => tracing::debug!(watch = %self.name, "the watch is in sync"),
            None => {}
        }
    }

    /// The listener may not know the present since this moment. Said in the log once for each reason.
    pub fn lost(&self, since: Instant, why: &str) {
        let mut news = false;
        self.health.send_modify(|health| {
            let known = health.lost.as_ref();
            news = known.and_then(|lost| lost.why.as_deref()) != Some(why);
            let since = known.map_or(since, |lost| lost.since);
            health.lost = Some(Lost { since, why: Some(why.into()) });
            health.breaks += 1;
        });
        if news {
            tracing::warn!(watch = %self.name, why, "the watch is lost; what is known stays as it is until it is back");
        } else {
            tracing::debug!(watch = %self.name, why, "the watch is still lost");
        }
    }
}

// === impl Watched ===

impl Watched {
    /// What is watched, in words.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the listener knows the present, but for what is on its way.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.health.borrow().lost.is_none()
    }

    /// How it goes.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Waits until something about it changes, and says how it goes then; `None` when the watch has ended.
    pub async fn changed(&mut self) -> Option<Health> {
        self.health.changed().await.ok()?;
        Some(self.health.borrow_and_update().clone())
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watched({}: {:?})", self.name, *self.health.borrow())
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watched.fmt(f)
    }
}

impl fmt::Debug for Feeder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Feeder({})", self.name)
    }
}
