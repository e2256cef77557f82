//! The sync loop: receive updates, plan, write, clean up, report.
//!
//! Nothing is written before the initial list of every input is complete: a partial list would look like deletions.
//! Updates that arrive together are written in one transaction; a single update is written at once. A failed sync is
//! retried as a full resync with exponential backoff; the rules in the kernel stay in force meanwhile.

mod snapshot;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use api::view::annotations::LAST_CHANGE_TRIGGER_TIME;
use jiff::Timestamp;
use kernel::conntrack::Conntrack;
use plan::{Frontend, Planner, PortKey, Problem, Protocol, Touched, Update};
use tokio::sync::watch;

use crate::conntrack::{self, RemovedFrontends};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::no_local_endpoints::NoLocalEndpoints;
use crate::report::SnapshotRequest;
use crate::{Backend, SyncScope, SyncStats};

/// Minimum and maximum time for which updates are coalesced after a transaction. Within these bounds it is as long as
/// the transaction took: small changes are fast, and many take at most half of the time.
const COALESCE_WINDOW: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Backoff after the first failure; doubled after each further one.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
/// Maximum backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How long a replaced backend stays after its successor is active: packets matched by its rules may still be in
/// flight.
const DRAIN_PERIOD: Duration = Duration::from_secs(2);
/// Maximum drain period while the replaced backend carries connections that cannot move.
const MAX_DRAIN_PERIOD: Duration = Duration::from_secs(15);
/// Wait when no deadline is pending.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

/// Messages to the sync loop.
#[derive(Debug)]
pub enum Message {
    /// An object changed.
    Update(Box<Update>),
    /// All initial lists are complete.
    Ready,
    /// Another program changed our rules.
    Tampered,
    /// Request for a [`crate::report::Snapshot`].
    Snapshot(SnapshotRequest),
    /// Replace the active backend.
    SwitchBackend(Box<ActiveBackend>),
    /// Stop the loop.
    Stop,
}

/// A backend and what belongs to it.
pub struct ActiveBackend {
    /// Writes rules.
    pub backend: Box<dyn Backend>,
    /// Connection tracking; none where the backend writes no rules.
    pub conntrack: Option<Box<dyn Conntrack>>,
    /// Called once after its first sync.
    pub on_active: Box<dyn FnMut() + Send>,
    /// Whether the previous backend still carries connections that would be cut.
    pub has_open_connections: Box<dyn FnMut() -> bool + Send>,
    /// Called once when the drain period of the previous backend is over.
    pub on_drained: Box<dyn FnMut() + Send>,
}

impl fmt::Debug for ActiveBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend.mode())
    }
}

/// Dependencies of the loop.
pub struct Dependencies {
    /// The backend at start.
    pub active: ActiveBackend,
    /// Health state for `/healthz` and health-check ports.
    pub health: Arc<Health>,
    /// Metrics of the loop.
    pub metrics: Arc<Metrics>,
    /// The Leases (`namespace/name`) whose holders are needed.
    pub leases: watch::Sender<BTreeSet<Arc<str>>>,
    /// Called once per problem while it lasts.
    pub report_problem: Box<dyn FnMut(&Problem) + Send>,
}

/// The sync loop.
pub struct SyncLoop {
    planner: Planner,
    deps: Dependencies,
    /// Sends to this loop, for tamper watchers.
    sender: Sender<Message>,
    is_watched: bool,
    /// Replaced backends, kept until their drain period is over.
    draining: Vec<ActiveBackend>,
    /// Earliest and latest end of the drain period.
    drain: Option<(Instant, Instant)>,
    /// Number of backend switches. Watchers of replaced backends stop when it has changed.
    generation: Arc<AtomicU32>,
    /// Frontends of UDP ports.
    udp: HashMap<PortKey, Vec<Frontend>>,
    no_local: NoLocalEndpoints,
    /// Problems that were reported and still exist.
    reported: BTreeSet<Problem>,
}

/// Changes since the last transaction.
struct Pending {
    scope: SyncScope,
    ready: bool,
    /// Whether the first write waits for the holders of Leases: without them it would cut off the leaders.
    awaits_leases: bool,
    /// Whether a write is needed.
    dirty: bool,
    removed: RemovedFrontends,
    udp: bool,
    /// Whether connections to former leaders have to be cut.
    exclusive: bool,
    /// Trigger times of the pending changes, for the programming latency.
    triggers: Vec<Timestamp>,
    failures: u32,
    /// Earliest time of the next attempt.
    not_before: Instant,
}

impl Pending {
    fn empty(scope: SyncScope, not_before: Instant) -> Self {
        let (removed, triggers) = (RemovedFrontends::new(), Vec::new());
        Self {
            scope,
            ready: true,
            awaits_leases: false,
            dirty: false,
            removed,
            udp: false,
            exclusive: false,
            triggers,
            failures: 0,
            not_before,
        }
    }

    /// Time until the next attempt.
    fn wait(&self) -> Duration {
        if self.is_due() { self.not_before.saturating_duration_since(Instant::now()) } else { IDLE_WAIT }
    }

    const fn is_due(&self) -> bool {
        self.dirty && self.ready && !self.awaits_leases
    }
}

impl SyncLoop {
    /// A loop that has not synced yet. `sender` sends to it.
    #[must_use]
    pub fn new(mut planner: Planner, mut deps: Dependencies, sender: Sender<Message>) -> Self {
        planner.update(Update::DataPlane(deps.active.backend.data_plane()));
        let (udp, no_local, reported) = (HashMap::new(), NoLocalEndpoints::default(), BTreeSet::new());
        let (draining, drain, generation) = (Vec::new(), None, Arc::default());
        Self { planner, deps, sender, is_watched: false, draining, drain, generation, udp, no_local, reported }
    }

    /// Runs until [`Message::Stop`].
    pub fn run(mut self, messages: &Receiver<Message>) {
        // The kernel may contain rules and stale flows of an earlier run.
        let first = Pending::empty(SyncScope::FullResync, Instant::now());
        let mut pending =
            Pending { ready: false, awaits_leases: true, dirty: true, udp: true, exclusive: true, ..first };
        loop {
            let mut next = match messages.recv_timeout(self.wait(&pending)) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            while let Some(message) = next {
                if matches!(message, Message::Stop) {
                    return;
                }
                self.handle(message, &mut pending);
                next = messages.try_recv().ok();
            }
            if pending.is_due() && Instant::now() >= pending.not_before {
                self.sync(&mut pending);
            } else if !pending.dirty && self.deps.active.backend.next_maintenance().is_some_and(|wait| wait.is_zero()) {
                self.maintain(&mut pending);
            }
            if let Some((_, latest)) = self.drain.filter(|(at, _)| Instant::now() >= *at) {
                self.finish_drain(latest);
            }
        }
    }

    /// Time until the next deadline: pending changes, backend maintenance or the end of a drain period.
    fn wait(&self, pending: &Pending) -> Duration {
        let maintenance = self.deps.active.backend.next_maintenance().filter(|_| !pending.dirty);
        let drain = self.drain.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        pending.wait().min(maintenance.unwrap_or(IDLE_WAIT)).min(drain.unwrap_or(IDLE_WAIT))
    }

    /// Runs the periodic maintenance of the backend.
    fn maintain(&mut self, pending: &mut Pending) {
        match self.deps.active.backend.maintain(self.planner.plan()) {
            Ok(SyncStats { changes, cleanup_failures }) => {
                self.deps.metrics.cleanup_failed(cleanup_failures);
                if changes > 0 {
                    tracing::debug!(changes, "maintained rules");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "maintenance failed; scheduling a full resync");
                (pending.scope, pending.dirty) = (SyncScope::FullResync, true);
            }
        }
    }

    fn handle(&mut self, message: Message, pending: &mut Pending) {
        match message {
            Message::Ready => pending.ready = true,
            Message::Tampered => {
                tracing::warn!("another program changed the proxy's rules; resyncing");
                self.deps.metrics.tampering_detected();
                pending.scope = SyncScope::Tampered;
                pending.dirty = true;
                pending.not_before = Instant::now();
            }
            Message::Update(update) => self.apply_update(*update, pending),
            Message::Snapshot(request) => self.take_snapshot(request, pending),
            Message::SwitchBackend(next) => self.switch_backend(*next, pending),
            Message::Stop => {}
        }
        if pending.awaits_leases && pending.ready {
            pending.awaits_leases = !self.planner.knows_leases();
        }
        if pending.dirty {
            self.deps.health.queued();
        }
    }

    /// Replaces the active backend: its successor writes everything first, then the old one drains.
    fn switch_backend(&mut self, next: ActiveBackend, pending: &mut Pending) {
        self.draining.push(std::mem::replace(&mut self.deps.active, next));
        self.planner.update(Update::DataPlane(self.deps.active.backend.data_plane()));
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.is_watched = false;
        (pending.scope, pending.dirty) = (SyncScope::FullResync, true);
        pending.not_before = Instant::now();
    }

    /// Drops replaced backends at the end of their drain period. UDP flows that only they can carry are deleted first,
    /// so that the active rules create them anew. Open connections extend the period up to its maximum.
    fn finish_drain(&mut self, latest: Instant) {
        let now = Instant::now();
        if now < latest && (self.deps.active.has_open_connections)() {
            self.drain = Some((latest.min(now + DRAIN_PERIOD), latest));
            return;
        }
        self.drain = None;
        if !self.draining.is_empty() {
            self.delete_stale_flows(&RemovedFrontends::new());
        }
        (self.deps.active.on_drained)();
        self.draining.clear();
    }

    fn apply_update(&mut self, update: Update, pending: &mut Pending) {
        self.deps.metrics.update_received(&update);
        pending.triggers.extend(trigger(&update));
        let touched = self.planner.update(update);
        if let Some(needed) = self.planner.changed_leases() {
            self.deps.leases.send_replace(needed);
        }
        for key in &touched.ports {
            self.no_local.update(self.planner.plan(), key);
            pending.exclusive |= self.planner.plan().ports.get(key).is_some_and(|port| port.balancing.is_exclusive());
            if key.protocol == Protocol::Udp {
                pending.udp = true;
                self.note_removed_frontends(key, &mut pending.removed);
            }
        }
        pending.dirty |= !touched.is_empty();
        if let SyncScope::Changed(all) = &mut pending.scope {
            all.absorb(touched);
        }
    }

    /// Records the frontends that a UDP port no longer has.
    fn note_removed_frontends(&mut self, key: &PortKey, gone: &mut RemovedFrontends) {
        let port = self.planner.plan().ports.get(key);
        let now: Vec<Frontend> =
            port.map(|port| port.frontends().into_iter().map(|(frontend, _)| frontend).collect()).unwrap_or_default();
        let before = match port {
            Some(_) => self.udp.insert(key.clone(), now.clone()),
            None => self.udp.remove(key),
        };
        gone.extend(before.into_iter().flatten().filter(|frontend| !now.contains(frontend)));
        for frontend in &now {
            gone.remove(frontend);
        }
    }

    fn sync(&mut self, pending: &mut Pending) {
        let started = Instant::now();
        let is_full = !matches!(pending.scope, SyncScope::Changed(_));
        let _span = tracing::error_span!("sync", full = is_full).entered();
        match self.deps.active.backend.sync(self.planner.plan(), &pending.scope) {
            Ok(SyncStats { changes, cleanup_failures }) => {
                self.deps.metrics.synced(started.elapsed(), is_full, changes);
                self.deps.metrics.cleanup_failed(cleanup_failures);
                self.synced(pending);
                let window = started.elapsed().clamp(COALESCE_WINDOW.0, COALESCE_WINDOW.1);
                *pending = Pending::empty(SyncScope::Changed(Touched::default()), Instant::now() + window);
            }
            Err(error) => {
                let wait = INITIAL_BACKOFF.saturating_mul(1 << pending.failures.min(16)).min(MAX_BACKOFF);
                tracing::warn!(%error, ?wait, "sync failed; keeping the current rules and retrying");
                self.deps.metrics.sync_failed();
                self.deps.health.failed(&error.message);
                if !is_full {
                    pending.scope = SyncScope::FullResync;
                }
                pending.failures += 1;
                pending.not_before = Instant::now() + wait;
            }
        }
    }

    /// Work after a successful sync.
    fn synced(&mut self, pending: &Pending) {
        if !self.is_watched {
            self.watch_tampering();
        }
        self.deps.metrics.programmed(&pending.triggers);
        if pending.udp {
            self.delete_stale_flows(&pending.removed);
        }
        if pending.exclusive {
            self.cut_off_former_leaders();
        }
        self.deps.health.synced(self.planner.plan());
        self.deps.health.set_redirected(self.planner.redirected_cluster_ips());
        self.deps.metrics.no_local_endpoints(self.no_local.counts());
        let may_have_changed = match &pending.scope {
            SyncScope::FullResync | SyncScope::Tampered => true,
            SyncScope::Changed(touched) => touched.problems || !touched.ports.is_empty(),
        };
        if may_have_changed {
            self.report_problems();
        }
    }

    /// Starts to watch for changes by other programs after the first sync, and starts the drain period of the previous
    /// backend.
    fn watch_tampering(&mut self) {
        let (sender, generations) = (self.sender.clone(), self.generation.clone());
        let generation = generations.load(Ordering::Relaxed);
        // The watcher stops when the loop has ended or another backend is active.
        let on_tampering = Box::new(move || {
            generations.load(Ordering::Relaxed) == generation && sender.send(Message::Tampered).is_ok()
        });
        if let Err(error) = self.deps.active.backend.watch_tampering(on_tampering) {
            tracing::warn!(%error, "cannot watch rules; changes by other programs persist until the next full resync");
        }
        self.is_watched = true;
        (self.deps.active.on_active)();
        let now = Instant::now();
        self.drain = Some((now + DRAIN_PERIOD, now + MAX_DRAIN_PERIOD));
    }

    /// Reports new problems.
    fn report_problems(&mut self) {
        let problems: BTreeSet<Problem> = self.planner.problems().chain(self.deps.active.backend.problems()).collect();
        for problem in problems.difference(&self.reported) {
            tracing::warn!(service = %problem.service, "{}", problem.what);
            (self.deps.report_problem)(problem);
        }
        self.reported = problems;
    }

    /// Cuts connections to endpoints that are no longer leaders.
    fn cut_off_former_leaders(&mut self) {
        let Some(flows) = &mut self.deps.active.conntrack else { return };
        match conntrack::cut(&mut **flows, self.planner.plan()) {
            Ok(0) => {}
            Ok(connections) => tracing::info!(connections, "cut connections to former leaders"),
            Err(error) => tracing::warn!(%error, "cannot cut connections to former leaders"),
        }
    }

    /// Deletes UDP flows to endpoints that no longer exist.
    fn delete_stale_flows(&mut self, gone: &RemovedFrontends) {
        let Some(flows) = &mut self.deps.active.conntrack else { return };
        let started = Instant::now();
        let by_ipvs = self.deps.active.backend.is_ipvs();
        match conntrack::reconcile(&mut **flows, self.planner.plan(), gone, by_ipvs) {
            Ok(removed) => self.deps.metrics.conntrack_synced(started.elapsed(), removed),
            Err(error) => tracing::warn!(%error, "cannot reconcile UDP conntrack entries"),
        }
    }
}

/// Time of the change that caused an update, from its annotation.
fn trigger(update: &Update) -> Option<Timestamp> {
    let Update::Slice(slice) = update else { return None };
    slice.metadata.annotations.get(LAST_CHANGE_TRIGGER_TIME)?.parse().ok()
}

#[cfg(test)]
mod tests;
