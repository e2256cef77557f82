//! Runs the controllers of the [table](crate::CONTROLLERS): the only place with access to the store and the clock.
//!
//! ```text
//! feed ─▶ cache ─▶ affected keys ─▶ queue ─▶ reconcile ─▶ transaction ─▶ store
//!           ▲                                                        │
//!           └──────────────── the feed returns the runner's own writes ────────┘
//! ```
//! Everything except commits runs in one task, so the cache needs no lock and is consistent during a reconcile. A key is not reconciled again until
//! the feed has returned its writes: no controller decides on a cache that lacks its own last writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::kinds::customresourcedefinition;
use jiff::Timestamp;
use store::{Revision, Store, Table, Txn};
use tokio::task::JoinSet;
use tracing::{Instrument as _, Span};

use crate::CONTROLLERS;
use crate::cache::Cache;
use crate::commit::{Failure, WrittenRevisions, commit};
use crate::controller::{AffectedKeys, Outcome, QueuedKey, SINGLETON_KEY, View};
use crate::event;
use crate::feed::{Feed, FeedEvent};
use crate::metrics::Metrics;
use crate::queue::{Due, Queue, Task};
use crate::settings::Settings;

/// The most keys with commits in flight; the store writes them to disk together.
const IN_FLIGHT: usize = 256;
/// How many keys are reconciled before the feed is read again.
const BATCH: usize = 64;

/// Runs the controllers for as long as the future is polled.
pub async fn run(store: Arc<dyn Store>, settings: Settings, metrics: Arc<Metrics>) {
    loop {
        let lost_table = ReconcileLoop::new(store.clone(), settings.clone(), metrics.clone()).run().await;
        // The feed fell behind the history of the store: list everything again.
        tracing::warn!(table = %lost_table, "watch lost; relisting all tables");
    }
}

/// The state between a full list of the store and the loss of a watch.
struct ReconcileLoop {
    store: Arc<dyn Store>,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    cache: Cache,
    queue: Queue,
    /// The cached revision of each table.
    known: HashMap<Table, Revision>,
    /// Keys with commits in flight.
    in_flight: JoinSet<Completed>,
    /// Keys whose writes the feed has not returned yet.
    awaiting_watch: Vec<(Due, WrittenRevisions, Option<Duration>)>,
    affected: Vec<QueuedKey>,
}

/// The result of the writes of a key.
struct Completed {
    due: Due,
    requeue_after: Option<Duration>,
    started: Instant,
    outcome: Result<WrittenRevisions, Failure>,
}

impl ReconcileLoop {
    fn new(store: Arc<dyn Store>, settings: Settings, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            cache: Cache::new(&settings),
            settings: Arc::new(settings),
            metrics,
            queue: Queue::default(),
            known: HashMap::new(),
            in_flight: JoinSet::new(),
            awaiting_watch: Vec::new(),
            affected: Vec::new(),
        }
    }

    /// Runs until a watch is lost; returns its table.
    async fn run(mut self) -> Table {
        // A barrier: writes of a previous runner may still be in the queue of the store.
        let _ = self.store.commit(Txn::default()).await;
        let mut feed = Feed::start(&self.store);
        if let Err(lost_table) = self.initial_sync(&mut feed).await {
            return lost_table;
        }
        self.metrics.set_leader(true);
        let lost_table = self.process(&mut feed).await;
        while self.in_flight.join_next().await.is_some() {}
        lost_table
    }

    /// The main loop; returns the table of a lost watch.
    async fn process(&mut self, feed: &mut Feed) -> Table {
        loop {
            let due = self.queue.next_due();
            let idle = !self.queue.has_ready() || self.in_flight.len() >= IN_FLIGHT;
            tokio::select! {
                biased;
                Some(completed) = self.in_flight.join_next(), if !self.in_flight.is_empty() => self.completed(completed),
                events = feed.next() => if let Err(lost_table) = self.handle(events, feed) { return lost_table },
                () = sleep_until(due), if idle => {}
                () = std::future::ready(()), if !idle => {}
            }
            while let Some(events) = feed.try_next() {
                if let Err(lost_table) = self.handle(events, feed) {
                    return lost_table;
                }
            }
            while let Some(completed) = self.in_flight.try_join_next() {
                self.completed(completed);
            }
            self.work();
            tokio::task::yield_now().await;
        }
    }

    /// Lists all tables before the first reconcile: missing objects would look like deleted ones. Those of custom resources
    /// are known when the definitions have been listed.
    async fn initial_sync(&mut self, feed: &mut Feed) -> Result<(), Table> {
        let (mut listed, mut loaded, mut changes) = (0, Vec::new(), Vec::new());
        let at = Instant::now();
        while listed < feed.len() {
            match feed.next().await {
                FeedEvent::Listed(entries) => {
                    loaded.extend(entries.iter().map(|entry| self.cache.apply(&*self.store, entry, None, false, at)));
                    listed += 1;
                    if listed == feed.len() {
                        feed.follow(&self.store, self.cache.kinds.kinds());
                    }
                }
                FeedEvent::Changed(table, events, known) => changes.push(FeedEvent::Changed(table, events, known)),
                FeedEvent::WatchLost(table) => return Err(table),
            }
        }
        for mut change in loaded {
            change.initial = true;
            self.enqueue_affected(&change, at);
        }
        for (index, controller) in CONTROLLERS.iter().enumerate() {
            if controller.resync_period.is_some() && (controller.enabled)(&self.settings) {
                self.add(index, QueuedKey { key: SINGLETON_KEY.into(), trigger: None, delay: Duration::ZERO }, at);
            }
        }
        changes.into_iter().try_for_each(|events| self.handle(events, feed))
    }

    fn handle(&mut self, events: FeedEvent, feed: &mut Feed) -> Result<(), Table> {
        let at = Instant::now();
        match events {
            FeedEvent::WatchLost(table) => return Err(table),
            FeedEvent::Listed(entries) => {
                for entry in entries {
                    let change = self.cache.apply(&*self.store, &entry, None, false, at);
                    self.enqueue_affected(&change, at);
                }
            }
            FeedEvent::Changed(table, events, known) => {
                for event in events {
                    let change =
                        self.cache.apply(&*self.store, &event.entry, event.previous.as_ref(), event.deleted, at);
                    self.enqueue_affected(&change, at);
                }
                self.known.insert(table, known);
                self.release_written(at);
                if table.as_str() == customresourcedefinition::KIND.table {
                    feed.follow(&self.store, self.cache.kinds.kinds());
                }
            }
        }
        Ok(())
    }

    /// Enqueues the keys of all controllers that a change affects.
    fn enqueue_affected(&mut self, change: &crate::cache::Change, at: Instant) {
        for (index, controller) in CONTROLLERS.iter().enumerate() {
            if !(controller.enabled)(&self.settings) {
                continue;
            }
            let mut affected = std::mem::take(&mut self.affected);
            (controller.affected_keys)(&self.view(at, None), change, &mut AffectedKeys::new(&mut affected));
            for item in affected.drain(..) {
                self.add(index, item, at);
            }
            self.affected = affected;
        }
    }

    fn add(&mut self, controller: usize, item: QueuedKey, at: Instant) {
        let task = Task { controller, key: item.key.into() };
        if self.queue.add(task, at, item.delay, item.trigger) {
            self.metrics.added(CONTROLLERS[controller].name);
        }
    }

    fn view<'a>(&'a self, instant: Instant, trigger: Option<&'a str>) -> View<'a> {
        let Self { cache, store, settings, .. } = self;
        View { cache, store: &**store, settings, now: Timestamp::now(), instant, trigger }
    }

    /// Reconciles a batch of due keys.
    fn work(&mut self) {
        for _ in 0..BATCH {
            if self.in_flight.len() >= IN_FLIGHT {
                return;
            }
            let started = Instant::now();
            let Some(due) = self.queue.take(started) else { return };
            let controller = &CONTROLLERS[due.task.controller];
            self.metrics.started(controller.name, started.saturating_duration_since(due.since));
            let span = tracing::error_span!("reconcile", controller = controller.name, key = &*due.task.key);
            let outcome =
                span.in_scope(|| (controller.reconcile)(&self.view(started, due.trigger.as_deref()), &due.task.key));
            self.commit_outcome(due, outcome, started, span);
        }
    }

    fn commit_outcome(&mut self, due: Due, outcome: Outcome, started: Instant, span: Span) {
        let Outcome { transactions, events, requeue_after, certificates } = outcome;
        if let (Some(acme), Some(wanted)) = (&self.settings.acme, certificates) {
            acme.want(wanted);
        }
        let requeue_after = requeue_after.or(CONTROLLERS[due.task.controller].resync_period);
        if transactions.is_empty() && events.is_empty() {
            self.finish(&due, requeue_after, started, 0);
            return;
        }
        let (store, settings, kinds) = (self.store.clone(), self.settings.clone(), self.cache.kinds.kinds().clone());
        let name = CONTROLLERS[due.task.controller].name;
        let commit_all = async move {
            let mut written = WrittenRevisions::default();
            let mut outcome = Ok(());
            for writes in &transactions {
                outcome = commit(&*store, &settings, &kinds, writes, &mut written).await;
                if outcome.is_err() {
                    break;
                }
            }
            // After a conflict the Events are dropped; the retry creates them again.
            let events = match &outcome {
                Err(Failure::Conflict) => Vec::new(),
                Err(Failure::Refused(refusal)) => vec![event::refused(name, refusal, Timestamp::now())],
                _ => events,
            };
            // Each Event is its own transaction: its name may be taken or its namespace gone. They are submitted together and so written to disk
            // together.
            let events = events.into_iter().map(|event| {
                let (store, settings, kinds) = (&*store, &settings, &kinds);
                async move { commit(store, settings, kinds, &[event], &mut WrittenRevisions::default()).await.is_ok() }
            });
            futures_util::future::join_all(events).await;
            Completed { due, requeue_after, started, outcome: outcome.map(|()| written) }
        };
        self.in_flight.spawn(commit_all.instrument(span));
    }

    fn completed(&mut self, completed: Result<Completed, tokio::task::JoinError>) {
        // The task panicked: its key is not retried until the next relist, to avoid a crash loop.
        let Ok(Completed { due, requeue_after, started, outcome }) = completed else { return };
        let controller = &CONTROLLERS[due.task.controller];
        match outcome {
            Ok(written) if written.is_known(&self.known) => self.finish(&due, requeue_after, started, written.writes),
            Ok(written) => {
                self.metrics.finished(controller.name, started.elapsed(), written.writes);
                self.awaiting_watch.push((due, written, requeue_after));
            }
            Err(Failure::NamespaceTerminating) => self.finish(&due, requeue_after, started, 0),
            Err(failure) => {
                self.metrics.retried(controller.name, matches!(failure, Failure::Error(_)));
                let key = due.task.key.clone();
                let wait = self.queue.failed(due, Instant::now(), fastrand::f64());
                self.metrics.added(controller.name);
                match failure {
                    Failure::Error(error) => {
                        tracing::warn!(controller = controller.name, %key, ?wait, %error, "write failed; retrying");
                    }
                    Failure::Refused(refusal) => {
                        tracing::info!(controller = controller.name, %key, ?wait, why = refusal.why, "admission refused object");
                    }
                    _ => {}
                }
            }
        }
    }

    fn finish(&mut self, due: &Due, requeue_after: Option<Duration>, started: Instant, writes: usize) {
        let name = CONTROLLERS[due.task.controller].name;
        self.metrics.finished(name, started.elapsed(), writes);
        if self.queue.succeeded(&due.task, Instant::now(), requeue_after) {
            self.metrics.added(name);
        }
    }

    /// Releases the keys whose writes are in the cache now.
    fn release_written(&mut self, at: Instant) {
        let known = &self.known;
        for (due, _, requeue_after) in self.awaiting_watch.extract_if(.., |(_, written, _)| written.is_known(known)) {
            if self.queue.succeeded(&due.task, at, requeue_after) {
                self.metrics.added(CONTROLLERS[due.task.controller].name);
            }
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
