//! The loop: takes updates, plans, writes, tidies up, tells.
//!
//! Nothing is written before every input was read once: half a list would look like the loss of the other half. Updates that
//! come together are written together; one that comes alone is written at once. What fails is tried again in full, later and
//! later, and the rules that are there stay as they are meanwhile.

mod answer;

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

use crate::conntrack::{self, Gone};
use crate::health::Health;
use crate::lacking::Lacking;
use crate::metrics::Metrics;
use crate::report::Question;
use crate::{Backend, Brought, Since};

/// How long updates are gathered after a transaction before the next one: as long as that took, within these bounds, so that
/// small changes are quick and many do not take more than half of the time.
const WINDOW: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// The first wait after a failure; doubled after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long those who served before stay after another has begun: what came to them by their rules is on its way still.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long they stay at most, when they still carry connections that nobody else can.
const LONGEST_FAREWELL: Duration = Duration::from_secs(15);
/// How long to sleep when there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

/// What the loop is told.
#[derive(Debug)]
pub enum Message {
    /// Something changed.
    Update(Box<Update>),
    /// Every input has been read once.
    Ready,
    /// Somebody else changed our rules.
    Foreign,
    /// Somebody wants to know how things stand.
    Ask(Question),
    /// From now on Services are served so.
    Serve(Box<Serving>),
    /// The end.
    Stop,
}

/// How Services are served.
pub struct Serving {
    /// Writes rules.
    pub backend: Box<dyn Backend>,
    /// Knows flows; nobody does where there are no rules.
    pub conntrack: Option<Box<dyn Conntrack>>,
    /// Called once, when Services are served so for the first time.
    pub begun: Box<dyn FnMut() + Send>,
    /// Whether what served before still carries connections that end with it.
    pub is_awaited: Box<dyn FnMut() -> bool + Send>,
    /// Called once, a while later: what came by the rules of before has arrived.
    pub parted: Box<dyn FnMut() + Send>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.backend.mode())
    }
}

/// What the loop needs of the world.
pub struct Tools {
    /// How Services are served at first.
    pub serving: Serving,
    /// Tells load balancers.
    pub health: Arc<Health>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Tells people, about each problem once while it lasts.
    pub tell: Box<dyn FnMut(&Problem) + Send>,
}

/// The loop.
pub struct Loop {
    planner: Planner,
    tools: Tools,
    /// Where the loop hears from, for those who tell it of changes by others.
    own: Sender<Message>,
    guarded: bool,
    /// Who served before: kept until the one that serves now has begun, so that at no time nobody is there, and a while longer.
    before: Vec<Serving>,
    /// When whatever served before may go, and when it must.
    leaving: Option<(Instant, Instant)>,
    /// How often another has begun to serve. Guards of those before look here to see that nobody listens to them any more.
    turn: Arc<AtomicU32>,
    /// The frontends of UDP ports.
    udp: HashMap<PortKey, Vec<Frontend>>,
    lacking: Lacking,
    /// Problems that were told, and are so still.
    told: BTreeSet<Problem>,
}

/// What has happened since the last transaction.
struct Pending {
    since: Since,
    ready: bool,
    /// Whether something must be written.
    dirty: bool,
    gone: Gone,
    udp: bool,
    /// When the changes happened that wait.
    triggers: Vec<Timestamp>,
    failures: u32,
    /// Not before then.
    not_before: Instant,
}

impl Pending {
    fn nothing(since: Since, not_before: Instant) -> Self {
        let (gone, triggers) = (Gone::new(), Vec::new());
        Self { since, ready: true, dirty: false, gone, udp: false, triggers, failures: 0, not_before }
    }

    /// How long the loop may sleep.
    fn wait(&self) -> Duration {
        if self.is_due() { self.not_before.saturating_duration_since(Instant::now()) } else { LONG }
    }

    const fn is_due(&self) -> bool {
        self.dirty && self.ready
    }
}

impl Loop {
    /// A loop that has done nothing yet. `own` leads to it.
    #[must_use]
    pub fn new(planner: Planner, tools: Tools, own: Sender<Message>) -> Self {
        let (udp, lacking, told) = (HashMap::new(), Lacking::default(), BTreeSet::new());
        let (before, leaving, turn) = (Vec::new(), None, Arc::default());
        Self { planner, tools, own, guarded: false, before, leaving, turn, udp, lacking, told }
    }

    /// Runs until it is told to stop.
    pub fn run(mut self, messages: &Receiver<Message>) {
        // What the kernel has was left by an earlier run, and so were flows that may be stale by now.
        let first = Pending::nothing(Since::Ever, Instant::now());
        let mut pending = Pending { ready: false, dirty: true, udp: true, ..first };
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
                self.take(message, &mut pending);
                next = messages.try_recv().ok();
            }
            if pending.is_due() && Instant::now() >= pending.not_before {
                self.bring(&mut pending);
            } else if !pending.dirty && self.tools.serving.backend.rest().is_some_and(|rest| rest.is_zero()) {
                self.tend(&mut pending);
            }
            if let Some((_, latest)) = self.leaving.filter(|(at, _)| Instant::now() >= *at) {
                self.let_go(latest);
            }
        }
    }

    /// How long the loop may sleep: until something is due, or until the backend needs it.
    fn wait(&self, pending: &Pending) -> Duration {
        let rest = self.tools.serving.backend.rest().filter(|_| !pending.dirty);
        let leaving = self.leaving.map(|(at, _)| at.saturating_duration_since(Instant::now()));
        pending.wait().min(rest.unwrap_or(LONG)).min(leaving.unwrap_or(LONG))
    }

    /// Lets the backend do what is due although nothing has changed.
    fn tend(&mut self, pending: &mut Pending) {
        match self.tools.serving.backend.tend(self.planner.plan()) {
            Ok(Brought { changes, untidy }) => {
                self.tools.metrics.untidy(untidy);
                if changes > 0 {
                    tracing::debug!(changes, "rules were looked after");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the rules could not be looked after; they are read and written anew");
                (pending.since, pending.dirty) = (Since::Ever, true);
            }
        }
    }

    fn take(&mut self, message: Message, pending: &mut Pending) {
        match message {
            Message::Ready => pending.ready = true,
            Message::Foreign => {
                tracing::warn!("somebody else changed our rules; they are read and set right");
                self.tools.metrics.healed();
                pending.since = Since::Tampered;
                pending.dirty = true;
                pending.not_before = Instant::now();
            }
            Message::Update(update) => self.follow(*update, pending),
            Message::Ask(question) => self.answer(question, pending),
            Message::Serve(serving) => self.hand_over(*serving, pending),
            Message::Stop => {}
        }
        if pending.dirty {
            self.tools.health.queued();
        }
    }

    /// Lets another serve: first everything is written its way, then the one before goes.
    fn hand_over(&mut self, next: Serving, pending: &mut Pending) {
        self.before.push(std::mem::replace(&mut self.tools.serving, next));
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.guarded = false;
        (pending.since, pending.dirty) = (Since::Ever, true);
        pending.not_before = Instant::now();
    }

    /// Lets those go who served before. Flows that only they can carry begin anew with the rules that are in force, and before
    /// they go: in between there would be nobody. While they carry connections that end with them, they get more time.
    fn let_go(&mut self, latest: Instant) {
        let now = Instant::now();
        if now < latest && (self.tools.serving.is_awaited)() {
            self.leaving = Some((latest.min(now + FAREWELL), latest));
            return;
        }
        self.leaving = None;
        if !self.before.is_empty() {
            self.forget_flows(&Gone::new());
        }
        (self.tools.serving.parted)();
        self.before.clear();
    }

    fn follow(&mut self, update: Update, pending: &mut Pending) {
        self.tools.metrics.seen(&update);
        pending.triggers.extend(trigger(&update));
        let touched = self.planner.update(update);
        for key in &touched.ports {
            self.lacking.follow(self.planner.plan(), key);
            if key.protocol == Protocol::Udp {
                pending.udp = true;
                self.note_gone(key, &mut pending.gone);
            }
        }
        pending.dirty |= !touched.is_empty();
        if let Since::Last(all) = &mut pending.since {
            all.absorb(touched);
        }
    }

    /// Notes the frontends that a UDP port had and no longer has.
    fn note_gone(&mut self, key: &PortKey, gone: &mut Gone) {
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

    fn bring(&mut self, pending: &mut Pending) {
        let started = Instant::now();
        let is_full = !matches!(pending.since, Since::Last(_));
        match self.tools.serving.backend.bring(self.planner.plan(), &pending.since) {
            Ok(Brought { changes, untidy }) => {
                self.tools.metrics.synced(started.elapsed(), is_full, changes);
                self.tools.metrics.untidy(untidy);
                self.brought(pending);
                let window = started.elapsed().clamp(WINDOW.0, WINDOW.1);
                *pending = Pending::nothing(Since::Last(Touched::default()), Instant::now() + window);
            }
            Err(error) => {
                let wait = FIRST_WAIT.saturating_mul(1 << pending.failures.min(16)).min(LONGEST_WAIT);
                tracing::warn!(%error, ?wait, "the rules could not be written; those that are there stay; will try again");
                self.tools.metrics.failed();
                self.tools.health.failed(&error.what);
                if !is_full {
                    pending.since = Since::Ever;
                }
                pending.failures += 1;
                pending.not_before = Instant::now() + wait;
            }
        }
    }

    /// The rules are as planned: everything that waits for that.
    fn brought(&mut self, pending: &Pending) {
        if !self.guarded {
            self.guard();
        }
        self.tools.metrics.programmed(&pending.triggers);
        if pending.udp {
            self.forget_flows(&pending.gone);
        }
        self.tools.health.synced(self.planner.plan());
        self.tools.metrics.lacking(self.lacking.counts());
        let news = match &pending.since {
            Since::Ever | Since::Tampered => true,
            Since::Last(touched) => touched.problems || !touched.ports.is_empty(),
        };
        if news {
            self.tell();
        }
    }

    /// Has our rules watched, once they are there.
    fn guard(&mut self) {
        let (own, turns) = (self.own.clone(), self.turn.clone());
        let turn = turns.load(Ordering::Relaxed);
        // When the loop has ended, or another serves, nobody needs to know.
        let tampered = Box::new(move || turns.load(Ordering::Relaxed) == turn && own.send(Message::Foreign).is_ok());
        if let Err(error) = self.tools.serving.backend.guard(tampered) {
            tracing::warn!(%error, "our rules cannot be watched; changes by others stay until the next start");
        }
        self.guarded = true;
        (self.tools.serving.begun)();
        let now = Instant::now();
        self.leaving = Some((now + FAREWELL, now + LONGEST_FAREWELL));
    }

    /// Tells of problems that are new.
    fn tell(&mut self) {
        let problems: BTreeSet<Problem> =
            self.planner.problems().chain(self.tools.serving.backend.problems()).collect();
        for problem in problems.difference(&self.told) {
            tracing::warn!(service = %problem.service, "{}", problem.what);
            (self.tools.tell)(problem);
        }
        self.told = problems;
    }

    /// Removes UDP flows that lead to endpoints that are gone.
    fn forget_flows(&mut self, gone: &Gone) {
        let Some(flows) = &mut self.tools.serving.conntrack else { return };
        let started = Instant::now();
        let by_ipvs = self.tools.serving.backend.is_ipvs();
        match conntrack::reconcile(&mut **flows, self.planner.plan(), gone, by_ipvs) {
            Ok(removed) => self.tools.metrics.flows(started.elapsed(), removed),
            Err(error) => tracing::warn!(%error, "stale UDP flows could not be looked for"),
        }
    }
}

/// When the change happened that an update tells of.
fn trigger(update: &Update) -> Option<Timestamp> {
    let Update::Slice(slice) = update else { return None };
    slice.metadata.annotations.get(LAST_CHANGE_TRIGGER_TIME)?.parse().ok()
}

#[cfg(test)]
mod tests;
