//! The speaker of a node: a session with each peer that means it, begun, changed and ended as BGPPeers are.
//!
//! In: a [`View`] of the objects. Out: sessions, each a task of its own; words for people; figures. Nothing is said to anybody before all
//! objects were read once, so a peer that kept our routes through a restart is never told of fewer. When the program ends, peers that can
//! keep the routes are left without a word.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::watch::Source;
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::connection::{self, Over, Watcher, Wishes};
use super::metrics::Metrics;
use super::password::{Followed, Password};
use super::peers::{self, Peer};
use super::session::{Farewell, Offer, Report, Session, State};
use super::wire::Notification;
use crate::inputs::View;

/// How long sessions may take to end with the program.
const LEAVING: Duration = Duration::from_secs(3);

/// Something that people should know of a BGPPeer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// The name of the BGPPeer.
    pub peer: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Whether it is no warning.
    pub normal: bool,
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

/// What a speaker needs.
#[derive(Clone)]
pub struct Tools {
    /// The name of this node.
    pub node: Box<str>,
    /// Where Secrets come from.
    pub source: Arc<dyn Source>,
    /// Tells people; never waits.
    pub tell: Arc<dyn Fn(News) + Send + Sync>,
    /// Where things are counted.
    pub metrics: Metrics,
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tools of {}", self.node)
    }
}

/// A session that runs.
struct Running {
    peer: Peer,
    end: oneshot::Sender<Farewell>,
    /// Says at its end whether no session ever stood.
    task: JoinHandle<bool>,
}

/// The sessions of a node.
struct Speaker {
    tools: Tools,
    offers: watch::Sender<Offer>,
    running: BTreeMap<Box<str>, Running>,
    /// BGPPeers that cannot be spoken to, and why: people were told.
    refused: BTreeMap<Box<str>, String>,
    leaving: Vec<JoinHandle<bool>>,
}

/// Speaks until `stop` is told, or whoever could tell it is gone; then ends all sessions as one who comes back.
pub async fn run(mut view: View, tools: Tools, stop: oneshot::Receiver<()>) {
    let mut speaker = Speaker {
        tools,
        offers: watch::channel(Offer::default()).0,
        running: BTreeMap::new(),
        refused: BTreeMap::new(),
        leaving: Vec::new(),
    };
    let speaking = async {
        view.ready().await;
        loop {
            let own = speaker.tools.node.clone();
            let (offer, peers) = view.read(|objects| (peers::offer(objects, &own), peers::peers(objects, &own)));
            speaker.offers.send_if_modified(|known| {
                let differs = **known != offer;
                *known = Arc::new(offer);
                differs
            });
            speaker.follow(peers);
            if !view.changed().await {
                return;
            }
        }
    };
    tokio::select! {
        () = speaking => {}
        _ = stop => {}
    }
    speaker.stop().await;
}

impl Speaker {
    /// Makes the sessions what BGPPeers say.
    fn follow(&mut self, wanted: BTreeMap<Box<str>, Result<Peer, String>>) {
        self.leaving.retain(|task| !task.is_finished());
        let gone = |name: &str| !matches!(wanted.get(name), Some(Ok(_)));
        let gone: Vec<Box<str>> = self.running.keys().filter(|name| gone(name)).cloned().collect();
        for name in gone {
            if let Some(running) = self.running.remove(&name) {
                tracing::info!(peer = %name, "the BGP session ends: no BGPPeer asks this node for it any more");
                let _ = running.end.send(Farewell::Leave(Notification::DECONFIGURED));
                self.leaving.push(running.task);
            }
        }
        self.refused.retain(|name, _| matches!(wanted.get(name), Some(Err(_))));
        for (name, peer) in wanted {
            match peer {
                Ok(peer) if self.running.get(&name).is_some_and(|running| running.peer == peer) => {}
                Ok(peer) => self.start(name, peer),
                Err(why) => self.refuse(name, why),
            }
        }
    }

    /// Begins a session; one with other settings ends before.
    fn start(&mut self, name: Box<str>, peer: Peer) {
        let before = self.running.remove(&name).map(|running| {
            tracing::info!(peer = %name, "the BGPPeer has changed; the session begins anew");
            // To another router we do not come back.
            let farewell = match running.peer.address == peer.address {
                true => Farewell::ComeBack,
                false => Farewell::Leave(Notification::DECONFIGURED),
            };
            let _ = running.end.send(farewell);
            running.task
        });
        let (end, ended) = oneshot::channel();
        let (tools, offers) = (self.tools.clone(), self.offers.subscribe());
        let conversation = Conversation { name: name.clone(), peer: peer.clone(), tools };
        let task = tokio::spawn(async move {
            let fresh = match before {
                Some(before) => before.await.unwrap_or(true),
                None => true,
            };
            let fresh = conversation.hold(offers, ended, fresh).await;
            conversation.tools.metrics.forget(&conversation.name);
            fresh
        });
        self.running.insert(name, Running { peer, end, task });
    }

    fn refuse(&mut self, name: Box<str>, why: String) {
        if self.refused.get(&name) != Some(&why) {
            tracing::warn!(peer = %name, why, "a BGPPeer cannot be used");
            let message = format!("node {}: {why}", self.tools.node);
            let news = News { peer: name.clone(), uid: "".into(), normal: false, reason: "NotUsable", message };
            (self.tools.tell)(news);
            self.refused.insert(name, why);
        }
    }

    /// Ends all sessions as one who comes back.
    async fn stop(mut self) {
        for (_, running) in std::mem::take(&mut self.running) {
            let _ = running.end.send(Farewell::ComeBack);
            self.leaving.push(running.task);
        }
        let all = async {
            for task in self.leaving {
                let _ = task.await;
            }
        };
        if timeout(LEAVING, all).await.is_err() {
            tracing::warn!("some BGP sessions did not end in time; they are cut");
        }
    }
}

/// All that is said to one peer.
struct Conversation {
    name: Box<str>,
    peer: Peer,
    tools: Tools,
}

impl Conversation {
    /// Holds a session until it is to end; says whether none ever stood.
    async fn hold(&self, offers: watch::Receiver<Offer>, end: oneshot::Receiver<Farewell>, mut fresh: bool) -> bool {
        let password = Followed::start(&*self.tools.source, self.peer.password.as_ref());
        let mut wishes = Wishes { offers, end, password };
        loop {
            let password = tokio::select! {
                password = wishes.password.known() => password,
                _ = &mut wishes.end => return fresh,
            };
            if let Password::Missing(why) = &password {
                tracing::warn!(peer = %self.name, why, "no BGP session without its password");
                self.tell(false, "SessionDown", &format!("no session: {why}"));
                tokio::select! {
                    () = wishes.password.changed() => continue,
                    _ = &mut wishes.end => return fresh,
                }
            }
            let offer = wishes.offers.borrow_and_update().clone();
            let settings = self.peer.settings.clone();
            let mut session = Session::new(settings, offer, fresh, fastrand::u64(..), Instant::now());
            let over = connection::hold(&mut session, &self.peer, &password, &mut wishes, self).await;
            fresh = session.is_fresh();
            match over {
                Over::Ended => return fresh,
                Over::NewPassword => {
                    tracing::info!(peer = %self.name, "the password has changed; the BGP session begins anew");
                }
            }
        }
    }

    fn tell(&self, normal: bool, reason: &'static str, what: &str) {
        let (peer, uid) = (self.name.clone(), self.peer.uid.clone());
        // The time makes each a word of its own: the second time that a session is up is news, too.
        let time = Timestamp::now().strftime("%H:%M:%S UTC");
        let (node, address, asn) = (&self.tools.node, self.peer.address, self.peer.settings.peer_asn);
        let message = format!("node {node}, {address} (AS {asn}), {time}: {what}");
        (self.tools.tell)(News { peer, uid, normal, reason, message });
    }
}

impl Watcher for Conversation {
    fn sent(&self) {
        self.tools.metrics.sent(&self.name);
    }

    fn report(&self, report: Report, session: &Session) {
        let (peer, address) = (&self.name, self.peer.address);
        match report {
            Report::Up => {
                let routes = session.announced();
                tracing::info!(%peer, %address, "the BGP session is up");
                self.tell(true, "SessionUp", &format!("the session is up; {routes} routes are announced"));
            }
            Report::Down(why) => {
                tracing::warn!(%peer, %address, %why, "there is no BGP session");
                self.tell(false, "SessionDown", &format!("there is no session: {why}"));
            }
            Report::Odd(what) => {
                tracing::warn!(%peer, %address, what, "an UPDATE with a fault; its routes mean nothing to this node");
            }
        }
    }

    fn see(&self, session: &Session) {
        if session.state() != State::Stopped {
            self.tools.metrics.see(&self.name, session);
        }
    }
}
