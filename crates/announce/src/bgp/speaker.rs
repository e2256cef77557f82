//! BGP speaker of a node: reconciles sessions with the BGPPeers that select it.
//!
//! In: a [`View`] of the objects. Out: sessions, each a task of its own; Events; metrics. No session starts before all
//! initial lists are complete, so that a peer that kept our routes through a restart is not sent fewer. At shutdown, sessions
//! of peers with graceful restart are closed without NOTIFICATION.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::watch::Source;
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::connection::{self, EndReason, Observer, TaskInputs};
use super::metrics::Metrics;
use super::password::{Password, PasswordWatch};
use super::peers::{self, Peer, PeerError};
use super::session::{EndMode, Offer, Report, Session, State};
use super::wire::Notification;
use crate::inputs::View;

/// Time limit for ending all sessions at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// An Event of a BGPPeer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerEvent {
    /// The name of the BGPPeer.
    pub peer: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Whether it has the type Normal; Warning otherwise.
    pub normal: bool,
    /// Event reason.
    pub reason: &'static str,
    /// Event message.
    pub message: String,
}

/// Dependencies of a speaker.
#[derive(Clone)]
pub struct Dependencies {
    /// The name of this node.
    pub node: Box<str>,
    /// Source of Secrets.
    pub source: Arc<dyn Source>,
    /// Records Events; must not block.
    pub record: Arc<dyn Fn(PeerEvent) + Send + Sync>,
    /// Metrics.
    pub metrics: Metrics,
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dependencies of {}", self.node)
    }
}

/// A running session.
struct Running {
    peer: Peer,
    end: oneshot::Sender<EndMode>,
    /// Returns whether no session was ever established.
    task: JoinHandle<bool>,
}

/// The sessions of a node.
struct Speaker {
    deps: Dependencies,
    offers: watch::Sender<Offer>,
    running: BTreeMap<Box<str>, Running>,
    /// Invalid BGPPeers, and why; reported.
    invalid: BTreeMap<Box<str>, PeerError>,
    draining: Vec<JoinHandle<bool>>,
}

/// Runs until `stop` is sent or dropped; then ends all sessions with graceful restart.
pub async fn run(mut view: View, deps: Dependencies, stop: oneshot::Receiver<()>) {
    let mut speaker = Speaker {
        deps,
        offers: watch::channel(Offer::default()).0,
        running: BTreeMap::new(),
        invalid: BTreeMap::new(),
        draining: Vec::new(),
    };
    let sessions = async {
        view.ready().await;
        loop {
            let own = speaker.deps.node.clone();
            let (offer, peers) = view.read(|objects| (peers::offer(objects, &own), peers::peers(objects, &own)));
            speaker.offers.send_if_modified(|known| {
                let differs = **known != offer;
                *known = Arc::new(offer);
                differs
            });
            speaker.reconcile(peers);
            if !view.changed().await {
                return;
            }
        }
    };
    tokio::select! {
        () = sessions => {}
        _ = stop => {}
    }
    speaker.stop().await;
}

impl Speaker {
    /// Reconciles sessions with BGPPeers.
    fn reconcile(&mut self, wanted: BTreeMap<Box<str>, Result<Peer, PeerError>>) {
        self.draining.retain(|task| !task.is_finished());
        let gone = |name: &str| !matches!(wanted.get(name), Some(Ok(_)));
        let gone: Vec<Box<str>> = self.running.keys().filter(|name| gone(name)).cloned().collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                tracing::info!(peer = %name, "ending BGP session: no BGPPeer selects this node");
                let _ = running.end.send(EndMode::Cease(Notification::DECONFIGURED));
                self.draining.push(running.task);
            }
        }
        self.invalid.retain(|name, _| matches!(wanted.get(name), Some(Err(_))));
        for (name, peer) in wanted {
            match peer {
                Ok(peer) if self.running.get(&name).is_some_and(|running| running.peer == peer) => {}
                Ok(peer) => self.start(name, peer),
                Err(why) => self.report_invalid(name, why),
            }
        }
    }

    /// Starts a session; one with other settings is ended before.
    fn start(&mut self, name: Box<str>, peer: Peer) {
        let before = self.running.remove(&name).map(|running| {
            tracing::info!(peer = %name, "BGPPeer changed; restarting BGP session");
            // Another router gets no graceful restart.
            let mode = match running.peer.address == peer.address {
                true => EndMode::GracefulRestart,
                false => EndMode::Cease(Notification::DECONFIGURED),
            };
            let _ = running.end.send(mode);
            running.task
        });
        let (end, ended) = oneshot::channel();
        let (deps, offers) = (self.deps.clone(), self.offers.subscribe());
        let task_state = PeerTask { name: name.clone(), peer: peer.clone(), deps };
        let task = tokio::spawn(async move {
            let fresh = match before {
                Some(before) => before.await.unwrap_or(true),
                None => true,
            };
            let fresh = task_state.run(offers, ended, fresh).await;
            task_state.deps.metrics.remove(&task_state.name);
            fresh
        });
        self.running.insert(name, Running { peer, end, task });
    }

    fn report_invalid(&mut self, name: Box<str>, why: PeerError) {
        if self.invalid.get(&name) != Some(&why) {
            tracing::warn!(peer = %name, %why, "invalid BGPPeer");
            let message = format!("node {}: {why}", self.deps.node);
            let event = PeerEvent { peer: name.clone(), uid: "".into(), normal: false, reason: "NotUsable", message };
            (self.deps.record)(event);
            self.invalid.insert(name, why);
        }
    }

    /// Ends all sessions with graceful restart.
    async fn stop(mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            let _ = running.end.send(EndMode::GracefulRestart);
            self.draining.push(running.task);
        }
        let all = async {
            for task in self.draining {
                let _ = task.await;
            }
        };
        if timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!("BGP sessions did not end in time; aborting them");
        }
    }
}

/// Task of one peer.
struct PeerTask {
    name: Box<str>,
    peer: Peer,
    deps: Dependencies,
}

impl PeerTask {
    /// Runs sessions until the end; returns whether none was ever established.
    async fn run(&self, offers: watch::Receiver<Offer>, end: oneshot::Receiver<EndMode>, mut fresh: bool) -> bool {
        let password = PasswordWatch::start(&*self.deps.source, self.peer.password.as_ref());
        let mut inputs = TaskInputs { offers, end, password };
        loop {
            let password = tokio::select! {
                password = inputs.password.known() => password,
                _ = &mut inputs.end => return fresh,
            };
            if let Password::Missing(why) = &password {
                tracing::warn!(peer = %self.name, why, "cannot start BGP session without its password");
                self.record(false, "SessionDown", &format!("there is no session: {why}"));
                tokio::select! {
                    () = inputs.password.changed() => continue,
                    _ = &mut inputs.end => return fresh,
                }
            }
            let offer = inputs.offers.borrow_and_update().clone();
            let settings = self.peer.settings.clone();
            let mut session = Session::new(settings, offer, fresh, fastrand::u64(..), Instant::now());
            let over = connection::run(&mut session, &self.peer, &password, &mut inputs, self).await;
            fresh = session.is_fresh();
            match over {
                EndReason::Requested => return fresh,
                EndReason::NewPassword => {
                    tracing::info!(peer = %self.name, "password changed; restarting BGP session");
                }
            }
        }
    }

    fn record(&self, normal: bool, reason: &'static str, what: &str) {
        let (peer, uid) = (self.name.clone(), self.peer.uid.clone());
        // The time makes each message unique, so that repeated Events are recorded.
        let time = Timestamp::now().strftime("%H:%M:%S UTC");
        let (node, address, asn) = (&self.deps.node, self.peer.address, self.peer.settings.peer_asn);
        let message = format!("node {node}, {address} (AS {asn}), {time}: {what}");
        (self.deps.record)(PeerEvent { peer, uid, normal, reason, message });
    }
}

impl Observer for PeerTask {
    fn sent(&self) {
        self.deps.metrics.sent(&self.name);
    }

    fn report(&self, report: Report, session: &Session) {
        let (peer, address) = (&self.name, self.peer.address);
        match report {
            Report::Up => {
                let routes = session.announced();
                tracing::info!(%peer, %address, "BGP session established");
                self.record(true, "SessionUp", &format!("the session is up; {routes} routes are announced"));
            }
            Report::Down(why) => {
                tracing::warn!(%peer, %address, %why, "BGP session down");
                self.record(false, "SessionDown", &format!("there is no session: {why}"));
            }
            Report::MalformedUpdate(what) => {
                tracing::warn!(%peer, %address, what, "malformed UPDATE; routes of the peer are not used");
            }
        }
    }

    fn update(&self, session: &Session) {
        if session.state() != State::Stopped {
            self.deps.metrics.update(&self.name, session);
        }
    }
}
