//! Announcing by layer 2: this machine answers neighbours who ask for an address, if it is the one node that may.
//!
//! In: what is wanted, Leases, frames. Out: Leases, frames, Events. Two pure parts decide, [`owner`] (who answers) and [`speaker`] (what
//! is said); a task does what the first says, a thread what the second says:
//!
//! ```text
//! View ─▶ task: owner ──asks──▶ API          neighbours ◀──frames──▶ thread: speaker
//!                  └── claims, and until when (shared without a lock) ──▶┘
//! ```
//! Sockets are open only while there is something to answer for. Where nothing is wanted, nothing runs and no Lease is written.

pub mod frame;
pub mod owner;
pub mod speaker;
mod voice;

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use client::events::ObjectEvent;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use kernel::packets::{Packets, PacketsError};
use tokio::sync::{mpsc, oneshot};

use self::owner::{Claims, Owner};
use self::speaker::Told;
use self::voice::Voice;
use super::inputs::View;
use super::lease::Key;
use super::leases::{Answer, Api, Ask};
use super::metrics::Figures;
use super::wanted::{Wanted, wanted};

/// How long it may take to give everything back at the end.
const FAREWELL: Duration = Duration::from_millis(1500);
/// How long until sockets are tried again that could not be opened.
const REOPEN: Duration = Duration::from_secs(10);

/// Opens the wires of this machine.
pub type Open = Box<dyn Fn() -> Result<Box<dyn Packets>, PacketsError> + Send>;

/// What an announcer works with.
pub struct Tools {
    /// The name of this node.
    pub node: String,
    /// The name of this process, which no other ever had.
    pub process: String,
    /// Opens the wires.
    pub open: Open,
    /// The time that goes on while the machine sleeps.
    pub clock: fn() -> Duration,
    /// The API.
    pub api: Arc<dyn Api>,
    /// What is counted.
    pub figures: Figures,
}

/// An answer on its way.
type Asking = Pin<Box<dyn Future<Output = (u64, Answer)> + Send>>;

/// See the module.
struct Announcer {
    tools: Tools,
    owner: Owner,
    wanted: BTreeMap<IpAddr, Wanted>,
    uids: BTreeMap<Box<str>, Box<str>>,
    asking: FuturesUnordered<Asking>,
    voice: Option<Voice>,
    /// When sockets may be tried again.
    reopen: Duration,
    published: Claims,
    told: (mpsc::UnboundedSender<Told>, mpsc::UnboundedReceiver<Told>),
}

/// Announces until `stop` is heard or dropped; then gives everything back.
pub async fn run(mut view: View, tools: Tools, mut stop: oneshot::Receiver<()>) {
    view.ready().await;
    let mut beats = view.clone();
    let mut announcer = Announcer {
        owner: Owner::new(&tools.node, &tools.process),
        tools,
        wanted: BTreeMap::new(),
        uids: BTreeMap::new(),
        asking: FuturesUnordered::new(),
        voice: None,
        reopen: Duration::ZERO,
        published: Claims::default(),
        told: mpsc::unbounded_channel(),
    };
    announcer.look(&view);
    announcer.see(&view);
    let mut stopping = false;
    loop {
        let wake = announcer.turn();
        if stopping && announcer.owner.is_done() {
            return;
        }
        let wake = async {
            match wake {
                Some(wake) => tokio::time::sleep(wake).await,
                None => pending().await,
            }
        };
        tokio::select! {
            more = view.changed() => if more { announcer.look(&view) } else { return },
            more = beats.beat() => if more { announcer.see(&view) } else { return },
            Some((id, answer)) = announcer.asking.next() => announcer.answer(id, answer),
            Some(told) = announcer.told.1.recv() => announcer.tell(told),
            _ = &mut stop, if !stopping => {
                stopping = true;
                announcer.owner.stop();
            }
            () = wake => {}
        }
    }
}

/// The same, and the end of it takes no longer than it may.
pub async fn leave(stop: oneshot::Sender<()>, task: tokio::task::JoinHandle<()>) {
    // It may have ended already.
    let _ = stop.send(());
    let _ = tokio::time::timeout(FAREWELL, task).await;
}

impl Announcer {
    /// What is wanted may be another now.
    fn look(&mut self, view: &View) {
        let node = &self.tools.node;
        (self.wanted, self.uids) = view.read(|objects| {
            let wanted = wanted(objects, node);
            let uids = objects.services.iter().map(|(key, service)| (key.clone(), service.uid.clone())).collect();
            (wanted, uids)
        });
        self.wanted.retain(|_, wanted| wanted.l2);
        self.owner.want(self.wanted.iter().map(|(ip, wanted)| (*ip, wanted.nodes.clone())).collect());
    }

    /// Leases may be others now.
    fn see(&mut self, view: &View) {
        let leases = view.read(|objects| objects.leases.clone());
        self.owner.see(&leases, (self.tools.clock)());
    }

    fn answer(&mut self, id: u64, answer: Answer) {
        let asks = self.owner.answer(id, answer, (self.tools.clock)());
        self.carry(asks);
    }

    /// Does what is due; says how long until it must look again.
    fn turn(&mut self) -> Option<Duration> {
        let now = (self.tools.clock)();
        let turn = self.owner.turn(now);
        self.carry(turn.asks);
        self.publish(now);
        turn.wake.map(|wake| wake.saturating_sub(now))
    }

    fn carry(&mut self, asks: Vec<(u64, Key, Ask)>) {
        for (id, key, ask) in asks {
            let api = self.tools.api.clone();
            self.asking.push(Box::pin(async move { (id, api.ask(&key, ask).await) }));
        }
    }

    /// Lets the thread know what it may answer for.
    fn publish(&mut self, now: Duration) {
        let claims = self.owner.claims();
        if claims == self.published {
            return;
        }
        if claims.addresses.is_empty() && !self.published.addresses.is_empty() && now >= self.published.until {
            self.tools.figures.lapses.inc();
            tracing::warn!(
                "the Lease of this node could not be renewed in time; it answers for no address until it is"
            );
        }
        let news = claims.addresses != self.published.addresses;
        self.published = claims.clone();
        if claims.addresses.is_empty() {
            // What is left of it ends with it: the sockets, and the figure.
            self.voice = None;
            self.tools.figures.announced.set(0);
            return;
        }
        if self.voice.is_none() && now >= self.reopen {
            let opened = (self.tools.open)().map_err(|error| error.to_string());
            let figures = self.tools.figures.clone();
            let voice = opened.and_then(|packets| {
                Voice::start(packets, claims.clone(), self.told.0.clone(), figures).map_err(|error| error.to_string())
            });
            match voice {
                Ok(voice) => self.voice = Some(voice),
                Err(error) => {
                    self.reopen = now + REOPEN;
                    tracing::warn!(error, "addresses cannot be announced on this machine; that takes CAP_NET_RAW");
                }
            }
        }
        if let Some(voice) = &self.voice {
            voice.claim(claims, news);
        }
    }

    /// Tells people, on the Services whose address it is.
    fn tell(&self, told: Told) {
        let node = &self.tools.node;
        let (ip, normal, reason, message) = match told {
            Told::Announced(ip) => {
                self.tools.figures.taken.inc();
                let how = if ip.is_ipv4() { "ARP" } else { "neighbour discovery" };
                (ip, true, "Announcing", format!("node {node} answers for {ip} by {how}"))
            }
            Told::InUse(ip, mac) => {
                self.tools.figures.conflicts.inc();
                let what = format!(
                    "{ip} is not announced: another machine ({mac}) has this address already; take the address from it, or \
                     give the Service another one (`kubectl get ippools` shows where addresses come from)"
                );
                (ip, false, "AddressInUse", what)
            }
            Told::Contested(ip, mac) => {
                self.tools.figures.conflicts.inc();
                let what = format!(
                    "another machine ({mac}) claims {ip}, for which node {node} answers; clients reach one or the other: \
                     take the address from that machine"
                );
                (ip, false, "AddressInUse", what)
            }
        };
        tracing::info!(%ip, reason, message);
        for service in self.wanted.get(&ip).map_or(&[][..], |wanted| &wanted.services) {
            let (namespace, name) = service.split_once('/').unwrap_or_default();
            self.tools.api.record(ObjectEvent {
                kind: &api::kinds::service::KIND,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: self.uids.get(service).map(ToString::to_string).unwrap_or_default(),
                normal,
                reason,
                message: message.clone(),
            });
        }
    }
}
