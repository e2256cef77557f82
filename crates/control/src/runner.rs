//! Runs the controllers of the [table](crate::CONTROLLERS): the only place where they meet the store and the clock.
//!
//! ```text
//! feed ─▶ world ─▶ concerns ─▶ queue ─▶ reconcile ─▶ transaction ─▶ store
//!           ▲                                                        │
//!           └────────────────── the feed brings our own writes back ─┘
//! ```
//! Everything but the waiting for the store happens in one task, so the world needs no lock and a controller sees no change
//! halfway. A key stays closed until the feed has brought back what was written for it: no controller ever decides on a world
//! that lacks its own last decision.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use store::{CommitError, Op, Revision, Store, Table, Txn};
use tokio::task::JoinSet;

use crate::CONTROLLERS;
use crate::admit;
use crate::controller::{Verdict, View, WHOLE, Wake, Wakes};
use crate::feed::{Feed, News, is_watched};
use crate::metrics::Metrics;
use crate::queue::{Due, Queue, Task};
use crate::report;
use crate::settings::Settings;
use crate::world::World;
use crate::write::{Refusal, Unfit, Write, Writer};

/// How many keys may wait for the store at once; the store writes them to disk together.
const IN_FLIGHT: usize = 256;
/// How many keys are looked at before news are read again.
const STEP: usize = 64;

/// Runs the controllers for as long as the future is polled.
pub async fn run(store: Arc<dyn Store>, settings: Settings, metrics: Arc<Metrics>) {
    loop {
        let lost = Round::new(store.clone(), settings.clone(), metrics.clone()).run().await;
        // The feed was too slow for the history that the store keeps; what is there is read anew.
        tracing::warn!(table = %lost, "a watch of the controllers was lost; everything is looked at again");
    }
}

/// Life from one full reading of the store to the loss of a watch.
struct Round {
    store: Arc<dyn Store>,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    world: World,
    queue: Queue,
    /// Up to which revision each table is known.
    known: HashMap<Table, Revision>,
    /// Keys that wait for the store.
    flying: JoinSet<Landed>,
    /// Keys that wait for the feed to bring their writes back.
    closed: Vec<(Due, Written, Option<Duration>)>,
    wakes: Vec<Wake>,
}

/// What became of the writes of a key.
struct Landed {
    due: Due,
    again: Option<Duration>,
    started: Instant,
    outcome: Result<Written, Failure>,
}

/// Up to which revision tables must be known so that they show what was written.
#[derive(Debug, Default)]
struct Written {
    tables: HashMap<Table, Revision>,
    writes: usize,
}

/// Why writes were not carried out.
#[derive(Debug)]
enum Failure {
    /// Somebody else was faster; the feed will tell.
    Conflict,
    /// Nothing new may be in the namespace: there is nothing more to do.
    Pointless,
    /// Admission refuses a new object; that may change.
    Refused(Box<Refusal>),
    /// Something else.
    Error(String),
}

impl Round {
    fn new(store: Arc<dyn Store>, settings: Settings, metrics: Arc<Metrics>) -> Self {
        Self {
            store,
            settings: Arc::new(settings),
            metrics,
            world: World::default(),
            queue: Queue::default(),
            known: HashMap::new(),
            flying: JoinSet::new(),
            closed: Vec::new(),
            wakes: Vec::new(),
        }
    }

    /// Runs until a watch is lost, and answers which.
    async fn run(mut self) -> Table {
        // Whoever ran before may have handed over writes that are still on their way; this one comes after them.
        let _ = self.store.commit(Txn::default()).await;
        let mut feed = Feed::start(&self.store);
        if let Err(lost) = self.load(&mut feed).await {
            return lost;
        }
        self.metrics.leads(true);
        let lost = self.live(&mut feed).await;
        while self.flying.join_next().await.is_some() {}
        lost
    }

    /// Hears, looks and writes until a watch is lost.
    async fn live(&mut self, feed: &mut Feed) -> Table {
        loop {
            let due = self.queue.next_due();
            let idle = !self.queue.has_ready() || self.flying.len() >= IN_FLIGHT;
            tokio::select! {
                biased;
                Some(landed) = self.flying.join_next(), if !self.flying.is_empty() => self.landed(landed),
                news = feed.next() => if let Err(lost) = self.hear(news) { return lost },
                () = sleep_until(due), if idle => {}
                () = std::future::ready(()), if !idle => {}
            }
            while let Some(news) = feed.more() {
                if let Err(lost) = self.hear(news) {
                    return lost;
                }
            }
            while let Some(landed) = self.flying.try_join_next() {
                self.landed(landed);
            }
            self.work();
            tokio::task::yield_now().await;
        }
    }

    /// Reads everything before anything is decided: half a list would look like a loss of the other half.
    async fn load(&mut self, feed: &mut Feed) -> Result<(), Table> {
        let (mut listed, mut entries, mut changes) = (0, Vec::new(), Vec::new());
        while listed < feed.tables {
            match feed.next().await {
                News::Listed(more) => {
                    entries.extend(more);
                    listed += 1;
                }
                News::Changed(table, events, known) => changes.push(News::Changed(table, events, known)),
                News::Lost(table) => return Err(table),
            }
        }
        let at = Instant::now();
        let loaded: Vec<_> = entries.iter().map(|entry| self.world.apply(entry, None, false, at)).collect();
        for mut change in loaded {
            change.initial = true;
            self.concern(&change, at);
        }
        for (index, controller) in CONTROLLERS.iter().enumerate() {
            if controller.every.is_some() && (controller.enabled)(&self.settings) {
                self.add(index, Wake { key: WHOLE.into(), trigger: None, delay: Duration::ZERO }, at);
            }
        }
        changes.into_iter().try_for_each(|news| self.hear(news))
    }

    fn hear(&mut self, news: News) -> Result<(), Table> {
        let at = Instant::now();
        match news {
            News::Lost(table) => return Err(table),
            News::Listed(entries) => {
                for entry in entries {
                    let change = self.world.apply(&entry, None, false, at);
                    self.concern(&change, at);
                }
            }
            News::Changed(table, events, known) => {
                for event in events {
                    let change = self.world.apply(&event.entry, event.previous.as_ref(), event.deleted, at);
                    self.concern(&change, at);
                }
                self.known.insert(table, known);
                self.open(at);
            }
        }
        Ok(())
    }

    /// Asks every controller which of its keys a change concerns.
    fn concern(&mut self, change: &crate::world::Change, at: Instant) {
        for (index, controller) in CONTROLLERS.iter().enumerate() {
            if !(controller.enabled)(&self.settings) {
                continue;
            }
            let mut wakes = std::mem::take(&mut self.wakes);
            (controller.concerns)(&self.view(at, None), change, &mut Wakes::new(&mut wakes));
            for wake in wakes.drain(..) {
                self.add(index, wake, at);
            }
            self.wakes = wakes;
        }
    }

    fn add(&mut self, controller: usize, wake: Wake, at: Instant) {
        let task = Task { controller, key: wake.key.into() };
        if self.queue.add(task, at, wake.delay, wake.trigger) {
            self.metrics.added(CONTROLLERS[controller].name);
        }
    }

    fn view<'a>(&'a self, instant: Instant, trigger: Option<&'a str>) -> View<'a> {
        let Self { world, store, settings, .. } = self;
        View { world, store: &**store, settings, now: Timestamp::now(), instant, trigger }
    }

    /// Looks at some of the keys whose time has come.
    fn work(&mut self) {
        for _ in 0..STEP {
            if self.flying.len() >= IN_FLIGHT {
                return;
            }
            let started = Instant::now();
            let Some(due) = self.queue.take(started) else { return };
            let controller = &CONTROLLERS[due.task.controller];
            self.metrics.started(controller.name, started.saturating_duration_since(due.since));
            let verdict = (controller.reconcile)(&self.view(started, due.trigger.as_deref()), &due.task.key);
            self.carry_out(due, verdict, started);
        }
    }

    fn carry_out(&mut self, due: Due, verdict: Verdict, started: Instant) {
        let Verdict { transactions, events, again } = verdict;
        let again = again.or(CONTROLLERS[due.task.controller].every);
        if transactions.is_empty() && events.is_empty() {
            self.finish(&due, again, started, 0);
            return;
        }
        let (store, settings) = (self.store.clone(), self.settings.clone());
        let name = CONTROLLERS[due.task.controller].name;
        self.flying.spawn(async move {
            let mut written = Written::default();
            let mut outcome = Ok(());
            for writes in &transactions {
                outcome = commit(&*store, &settings, writes, &mut written).await;
                if outcome.is_err() {
                    break;
                }
            }
            // Of what was not done nothing is said; whoever looks again will say it.
            let events = match &outcome {
                Err(Failure::Conflict) => Vec::new(),
                Err(Failure::Refused(refusal)) => vec![report::refused(name, refusal, Timestamp::now())],
                _ => events,
            };
            // Each stands alone: one of this name may be there already, or there is no place for it, and nobody is held up
            // by that. Handed over together, they are written to disk together.
            let events = events.into_iter().map(|event| {
                let (store, settings) = (&*store, &settings);
                async move { commit(store, settings, &[event], &mut Written::default()).await.is_ok() }
            });
            futures_util::future::join_all(events).await;
            Landed { due, again, started, outcome: outcome.map(|()| written) }
        });
    }

    fn landed(&mut self, landed: Result<Landed, tokio::task::JoinError>) {
        // A task that panicked has said so; its key stays closed until the next round rather than being run for ever.
        let Ok(Landed { due, again, started, outcome }) = landed else { return };
        let controller = &CONTROLLERS[due.task.controller];
        match outcome {
            Ok(written) if written.is_known(&self.known) => self.finish(&due, again, started, written.writes),
            Ok(written) => {
                self.metrics.finished(controller.name, started.elapsed(), written.writes);
                self.closed.push((due, written, again));
            }
            Err(Failure::Pointless) => self.finish(&due, again, started, 0),
            Err(failure) => {
                self.metrics.retried(controller.name, matches!(failure, Failure::Error(_)));
                let key = due.task.key.clone();
                let wait = self.queue.failed(due, Instant::now(), fastrand::f64());
                self.metrics.added(controller.name);
                match failure {
                    Failure::Error(error) => {
                        tracing::warn!(controller = controller.name, %key, ?wait, %error, "could not write; will try again");
                    }
                    Failure::Refused(refusal) => {
                        tracing::info!(controller = controller.name, %key, ?wait, why = refusal.why, "admission refused object");
                    }
                    _ => {}
                }
            }
        }
    }

    fn finish(&mut self, due: &Due, again: Option<Duration>, started: Instant, writes: usize) {
        let name = CONTROLLERS[due.task.controller].name;
        self.metrics.finished(name, started.elapsed(), writes);
        if self.queue.succeeded(&due.task, Instant::now(), again) {
            self.metrics.added(name);
        }
    }

    /// Opens the keys whose writes the world shows now.
    fn open(&mut self, at: Instant) {
        let known = &self.known;
        for (due, _, again) in self.closed.extract_if(.., |(_, written, _)| written.is_known(known)) {
            if self.queue.succeeded(&due.task, at, again) {
                self.metrics.added(CONTROLLERS[due.task.controller].name);
            }
        }
    }
}

impl Written {
    fn is_known(&self, known: &HashMap<Table, Revision>) -> bool {
        self.tables.iter().all(|(table, revision)| known.get(table).is_some_and(|known| known >= revision))
    }
}

/// Carries out one transaction.
async fn commit(
    store: &dyn Store,
    settings: &Settings,
    writes: &[Write],
    written: &mut Written,
) -> Result<(), Failure> {
    let Settings { ranges, plugins, dynamic, .. } = settings;
    let dynamic = admit::needed(dynamic.as_ref());
    let mut writes = Cow::Borrowed(writes);
    if let Some(dynamic) = dynamic {
        admit::mutate(dynamic, writes.to_mut()).await.map_err(Failure::Refused)?;
    }
    let writer = Writer { store, ranges, now: Timestamp::now(), checked: true, plugins };
    let txn = writer.transaction(&writes).map_err(Failure::from)?;
    if let Some(dynamic) = dynamic {
        admit::validate(dynamic, &txn).await.map_err(Failure::Refused)?;
    }
    let tables: Vec<Table> = txn.ops.iter().map(table_of).collect();
    let revision = store.commit(txn).await.map_err(Failure::from)?;
    written.writes += tables.len();
    written.tables.extend(tables.into_iter().filter(|table| is_watched(*table)).map(|table| (table, revision)));
    Ok(())
}

fn table_of(op: &Op) -> Table {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => key.table,
    }
}

impl From<Unfit> for Failure {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Stale(_) => Self::Conflict,
            Unfit::NoNamespace(_) => Self::Pointless,
            Unfit::Invalid { .. } => Self::Error(unfit.to_string()),
            Unfit::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        if error.is_conflict() { Self::Conflict } else { Self::Error(error.to_string()) }
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
