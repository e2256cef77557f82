//! Layer 2 announcement: one elected node per address replies to ARP and NDP requests for it.
//!
//! In: addresses to announce, Leases, frames. Out: Leases, frames, Events. [`owner`] (election) and [`responder`] (frames)
//! are pure; a task runs the first, a thread the second:
//!
//! ```text
//! View ─▶ task: owner ──Leases─▶ API          neighbours ◀──frames──▶ thread: responder
//!                  └── claims and their expiry (shared without a lock) ─▶┘
//! ```
//! Sockets are open only while there are claims. With nothing to announce, no thread runs and no Lease is written.

pub mod frame;
pub mod owner;
pub mod responder;
mod thread;

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
use self::responder::Notice;
use self::thread::ResponderThread;
use super::inputs::View;
use super::lease::Key;
use super::leases::{Api, LeaseResult, Operation};
use super::metrics::Metrics;
use super::wanted::{Wanted, wanted};

/// Time limit of the release at shutdown.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(1500);
/// Retry interval for sockets that cannot be opened.
const SOCKET_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Opens packet sockets on this machine.
pub type OpenPackets = Box<dyn Fn() -> Result<Box<dyn Packets>, PacketsError> + Send>;

/// Dependencies of an announcer.
pub struct Dependencies {
    /// The name of this node.
    pub node: String,
    /// Name of this process, unique for all time.
    pub process: String,
    /// Opens packet sockets.
    pub open: OpenPackets,
    /// Clock that includes suspend (`CLOCK_BOOTTIME`).
    pub clock: fn() -> Duration,
    /// API access.
    pub api: Arc<dyn Api>,
    /// Metrics.
    pub metrics: Metrics,
}

/// A request in flight.
type Request = Pin<Box<dyn Future<Output = (u64, LeaseResult)> + Send>>;

/// Announcer of a node.
struct Announcer {
    deps: Dependencies,
    owner: Owner,
    wanted: BTreeMap<IpAddr, Wanted>,
    uids: BTreeMap<Box<str>, Box<str>>,
    requests: FuturesUnordered<Request>,
    thread: Option<ResponderThread>,
    /// Earliest time at which sockets are opened again.
    next_open: Duration,
    published: Claims,
    notices: (mpsc::UnboundedSender<Notice>, mpsc::UnboundedReceiver<Notice>),
}

/// Announces until `stop` is sent or dropped; then releases everything.
pub async fn run(mut view: View, deps: Dependencies, mut stop: oneshot::Receiver<()>) {
    view.ready().await;
    let mut lease_changes = view.clone();
    let mut announcer = Announcer {
        owner: Owner::new(&deps.node, &deps.process),
        deps,
        wanted: BTreeMap::new(),
        uids: BTreeMap::new(),
        requests: FuturesUnordered::new(),
        thread: None,
        next_open: Duration::ZERO,
        published: Claims::default(),
        notices: mpsc::unbounded_channel(),
    };
    announcer.update_wanted(&view);
    announcer.update_leases(&view);
    let mut stopping = false;
    loop {
        let wake = announcer.poll();
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
            more = view.changed() => if more { announcer.update_wanted(&view) } else { return },
            more = lease_changes.lease_changed() => if more { announcer.update_leases(&view) } else { return },
            Some((id, response)) = announcer.requests.next() => announcer.on_response(id, response),
            Some(notice) = announcer.notices.1.recv() => announcer.record(notice),
            _ = &mut stop, if !stopping => {
                stopping = true;
                announcer.owner.stop();
            }
            () = wake => {}
        }
    }
}

/// Stops an announcer and waits for it, up to `RELEASE_TIMEOUT`.
pub async fn stop(stop: oneshot::Sender<()>, task: tokio::task::JoinHandle<()>) {
    // It may have ended already.
    let _ = stop.send(());
    let _ = tokio::time::timeout(RELEASE_TIMEOUT, task).await;
}

impl Announcer {
    /// Updates the addresses to announce.
    fn update_wanted(&mut self, view: &View) {
        let node = &self.deps.node;
        (self.wanted, self.uids) = view.read(|objects| {
            let wanted = wanted(objects, node);
            let uids = objects.services.iter().map(|(key, service)| (key.clone(), service.uid.clone())).collect();
            (wanted, uids)
        });
        self.wanted.retain(|_, wanted| wanted.l2);
        self.owner.set_wanted(self.wanted.iter().map(|(ip, wanted)| (*ip, wanted.nodes.clone())).collect());
    }

    /// Updates the Leases.
    fn update_leases(&mut self, view: &View) {
        let leases = view.read(|objects| objects.leases.clone());
        self.owner.update_leases(&leases, (self.deps.clock)());
    }

    fn on_response(&mut self, id: u64, response: LeaseResult) {
        let requests = self.owner.on_response(id, response, (self.deps.clock)());
        self.send(requests);
    }

    /// Does what is due; returns the time until the next poll.
    fn poll(&mut self) -> Option<Duration> {
        let now = (self.deps.clock)();
        let due = self.owner.poll(now);
        self.send(due.requests);
        self.publish(now);
        due.wake.map(|wake| wake.saturating_sub(now))
    }

    fn send(&mut self, requests: Vec<(u64, Key, Operation)>) {
        for (id, key, operation) in requests {
            let api = self.deps.api.clone();
            self.requests.push(Box::pin(async move { (id, api.execute(&key, operation).await) }));
        }
    }

    /// Passes changed claims to the thread.
    fn publish(&mut self, now: Duration) {
        let claims = self.owner.claims();
        if claims == self.published {
            return;
        }
        if claims.addresses.is_empty() && !self.published.addresses.is_empty() && now >= self.published.until {
            self.deps.metrics.lapses.inc();
            tracing::warn!("cannot renew the Lease of this node; announcing stops until it is renewed");
        }
        let wake = claims.addresses != self.published.addresses;
        self.published = claims.clone();
        if claims.addresses.is_empty() {
            // Closes the sockets.
            self.thread = None;
            self.deps.metrics.announced.set(0);
            return;
        }
        if self.thread.is_none() && now >= self.next_open {
            let opened = (self.deps.open)().map_err(|error| error.to_string());
            let metrics = self.deps.metrics.clone();
            let thread = opened.and_then(|packets| {
                ResponderThread::start(packets, claims.clone(), self.notices.0.clone(), metrics)
                    .map_err(|error| error.to_string())
            });
            match thread {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    self.next_open = now + SOCKET_RETRY_INTERVAL;
                    tracing::warn!(error, "cannot open packet sockets; announcing requires CAP_NET_RAW");
                }
            }
        }
        if let Some(thread) = &self.thread {
            thread.set_claims(claims, wake);
        }
    }

    /// Records a notice as an Event of the Services with this address.
    fn record(&self, notice: Notice) {
        let node = &self.deps.node;
        let (ip, normal, reason, message) = match notice {
            Notice::Announced(ip) => {
                self.deps.metrics.taken.inc();
                let how = if ip.is_ipv4() { "ARP" } else { "neighbour discovery" };
                (ip, true, "Announcing", format!("node {node} announces {ip} by {how}"))
            }
            Notice::InUse(ip, mac) => {
                self.deps.metrics.conflicts.inc();
                let what = format!(
                    "{ip} is not announced: another machine ({mac}) has this address already; take the address from it, or \
                     give the Service another one (`kubectl get ippools` shows where addresses come from)"
                );
                (ip, false, "AddressInUse", what)
            }
            Notice::Contested(ip, mac) => {
                self.deps.metrics.conflicts.inc();
                let what = format!(
                    "another machine ({mac}) uses {ip}, which node {node} announces; clients reach one or the other: \
                     take the address from that machine"
                );
                (ip, false, "AddressInUse", what)
            }
        };
        tracing::info!(%ip, reason, message);
        for service in self.wanted.get(&ip).map_or(&[][..], |wanted| &wanted.services) {
            let (namespace, name) = service.split_once('/').unwrap_or_default();
            self.deps.api.record(ObjectEvent {
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
