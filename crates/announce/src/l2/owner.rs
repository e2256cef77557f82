//! Leader election for announced addresses: at most one node answers for an address, also while leadership changes, while
//! machines are paused, and while the network is partitioned.
//!
//! In: the addresses to announce, Leases as the watch shows them, responses of the API, the time. Out: requests, and
//! [`Claims`]: the addresses that this node answers for, and until when. Pure: no I/O, no clock. For each address:
//!
//! 1. A node renews a Lease of its own every [`RENEW_INTERVAL`]. Its claims expire [`LEASE_VALIDITY`] after it *sent* the
//!    last successful renewal, by its own clock: a node that is partitioned or paused stops answering by itself.
//! 2. It answers only while it holds the Lease of the address, acquired by replacing the version that it had read, within
//!    the current *session*: the uninterrupted period in which it renewed its own Lease. When a session ends, all claims
//!    are dropped.
//! 3. Another node may take over an address when the session in which it was acquired has ended. A node that sees another
//!    node's Lease unchanged for [`EXPIRY_TIMEOUT`] clears its holder by replacing exactly that version. Success proves
//!    that there was no renewal since: that node's claims have expired, and it can no longer renew.
//! 4. Of the candidates, the one with the highest [`weight`] is preferred. A holder hands an address over when the
//!    preferred node has been alive for [`HANDOVER_DELAY`]: it first stops answering, then clears the Lease.
//!
//! A session that expired leaves Leases that still name this node. A node that sees such Leases and has nothing to
//! announce starts one more session, just to release them.
//!
//! Session names are never reused, so "this session has ended" stays true once proved (`ended`). The proof is the cleared
//! Lease of that session, or a read of the node's Lease, started after the address was seen as acquired in that session,
//! that shows another session. The watch proves nothing, since it may lag; it only triggers reads.

mod address;
mod node;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use api::hash::fnv1a64;

use self::address::Held;
use self::node::Own;
use crate::lease::{Key, Lease};
use crate::leases::{LeaseResult, Operation, Versioned};

/// Interval between renewals of the Lease of a node.
pub const RENEW_INTERVAL: Duration = Duration::from_millis(250);
/// Validity of claims after a renewal was sent.
pub const LEASE_VALIDITY: Duration = Duration::from_millis(900);
/// Time for which a Lease must be seen unchanged before it is expired. Longer than [`LEASE_VALIDITY`], so that clock rates
/// may differ by a tenth.
pub const EXPIRY_TIMEOUT: Duration = Duration::from_millis(1000);
/// Time for which the preferred node must be alive before an address is handed over to it.
pub const HANDOVER_DELAY: Duration = Duration::from_secs(5);
/// Timeout of an API request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);
/// Extra delay per rank before a candidate that is not preferred takes a free address.
const TAKEOVER_STAGGER: Duration = Duration::from_millis(300);
/// Maximum time between two calls of [`Owner::poll`] while there is work.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Delay before a failed request is retried.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// What this node answers for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// When they expire.
    pub until: Duration,
    /// The addresses; each with a generation that changes when it is acquired again.
    pub addresses: BTreeMap<IpAddr, u64>,
}

/// Work that is due.
#[derive(Debug, Default)]
pub struct Due {
    /// API requests: the id for [`Owner::on_response`], the Lease, the operation.
    pub requests: Vec<(u64, Key, Operation)>,
    /// Latest time of the next poll.
    pub wake: Option<Duration>,
}

/// Purpose of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Purpose {
    /// Read our own Lease before a session is started.
    ReadOwn,
    /// Start a session.
    StartSession { session: Box<str> },
    /// Renew our own Lease.
    Renew { renewal: u64 },
    /// Read our own Lease after a renewal without a response.
    CheckRenewal,
    /// End the session.
    EndSession,
    /// Read the Lease of an address before it is acquired.
    ReadAddress,
    /// Acquire the Lease of an address.
    Acquire { session: Box<str> },
    /// Read the Lease of an address before it is released.
    ReadReleased,
    /// Release the Lease of an address.
    Release,
    /// Read the Lease of a node that seems to have expired.
    ConfirmExpiry { seen: Option<Lease> },
    /// Expire the Lease of a node.
    Expire { session: Box<str> },
    /// Read the Lease of a node: has the session ended in which this version of an address's Lease was acquired?
    ConfirmEnded { ip: IpAddr, session: Box<str>, version: Box<str> },
}

/// A request without a response yet.
#[derive(Debug)]
struct Pending {
    id: u64,
    sent: Duration,
    purpose: Purpose,
}

/// The Lease of a node, as it was last seen.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    lease: Option<Lease>,
    /// When it last changed.
    since: Duration,
    /// Start of the uninterrupted period in which it was renewed.
    alive_since: Duration,
}

/// Leader election of one node.
#[derive(Debug)]
pub struct Owner {
    node: Box<str>,
    /// Unique name of this process, the prefix of its session names.
    process: Box<str>,
    sessions: u64,
    /// Addresses to announce, and the candidates of each.
    wanted: BTreeMap<IpAddr, BTreeSet<Box<str>>>,
    stopping: bool,
    own: Own,
    nodes: BTreeMap<Box<str>, Seen>,
    addresses: BTreeMap<IpAddr, Lease>,
    /// Sessions (node, session) that are proved to have ended.
    ended: BTreeSet<(Box<str>, Box<str>)>,
    /// Since when each address is free.
    free: BTreeMap<IpAddr, Duration>,
    held: BTreeMap<IpAddr, Held>,
    /// Addresses whose Leases may name us and must be released; with the version if known.
    releasing: BTreeMap<IpAddr, Option<Box<str>>>,
    pending: BTreeMap<Key, Pending>,
    /// Earliest time of the next request for a Lease.
    backoff: BTreeMap<Key, Duration>,
    requests: u64,
    generations: u64,
}

impl Owner {
    /// The election of a node. The process name must be unique for all time.
    #[must_use]
    pub fn new(node: &str, process: &str) -> Self {
        Self {
            node: node.into(),
            process: process.into(),
            sessions: 0,
            wanted: BTreeMap::new(),
            stopping: false,
            own: Own::default(),
            nodes: BTreeMap::new(),
            addresses: BTreeMap::new(),
            ended: BTreeSet::new(),
            free: BTreeMap::new(),
            held: BTreeMap::new(),
            releasing: BTreeMap::new(),
            pending: BTreeMap::new(),
            backoff: BTreeMap::new(),
            requests: 0,
            generations: 0,
        }
    }

    /// Sets the addresses to announce, and the candidates of each.
    pub fn set_wanted(&mut self, wanted: BTreeMap<IpAddr, BTreeSet<Box<str>>>) {
        self.wanted = wanted;
    }

    /// Releases everything.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether everything is released after [`Self::stop`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.held.is_empty() && self.releasing.is_empty() && self.own.session.is_none() && self.pending.is_empty()
    }

    /// Sets all Leases, as the watch shows them.
    pub fn update_leases(&mut self, leases: &BTreeMap<Box<str>, Lease>, now: Duration) {
        let mut addresses = BTreeMap::new();
        let mut nodes = BTreeSet::new();
        for (name, lease) in leases {
            match Key::named(name) {
                Some(Key::Node(node)) => {
                    self.update_node(&node, Some(lease), now);
                    nodes.insert(node);
                }
                Some(Key::Address(ip)) => {
                    addresses.insert(ip, lease.clone());
                }
                None => {}
            }
        }
        let gone: Vec<_> = self.nodes.keys().filter(|node| !nodes.contains(*node)).cloned().collect();
        for node in gone {
            self.update_node(&node, None, now);
        }
        self.addresses = addresses;
        // Forget ended sessions in which no address was acquired.
        let known = self.addresses.values();
        let got: BTreeSet<_> = known.map(|lease| (lease.holder.clone(), lease.session.clone())).collect();
        self.ended.retain(|session| got.contains(session));
        self.drop_lost();
    }

    /// Handles a response of the API. A late one is ignored.
    pub fn on_response(&mut self, id: u64, response: LeaseResult, now: Duration) -> Vec<(u64, Key, Operation)> {
        let Some(key) = self.pending.iter().find(|(_, pending)| pending.id == id).map(|(key, _)| key.clone()) else {
            return Vec::new();
        };
        let Some(pending) = self.pending.remove(&key) else { return Vec::new() };
        let mut out = Vec::new();
        // Drop expired claims before any are added.
        self.expire_session(now);
        match &key {
            Key::Node(node) if *node == self.node => self.on_own_response(&pending, response, now, &mut out),
            Key::Node(node) => self.on_node_response(node, pending.purpose, response, now, &mut out),
            Key::Address(ip) => self.on_address_response(*ip, pending.purpose, response, now, &mut out),
        }
        out
    }

    /// Returns the work that is due.
    pub fn poll(&mut self, now: Duration) -> Due {
        let mut due = Due::default();
        self.expire_session(now);
        self.expire_requests(now);
        let alive = self.own.session.is_some();
        let busy = self.needs_session()
            || self.has_stale_leases()
            || alive
            || !self.pending.is_empty()
            || !self.releasing.is_empty();
        if !busy {
            return due;
        }
        self.drop_unwanted();
        self.maintain_session(now, &mut due.requests);
        self.release(now, &mut due.requests);
        self.acquire(now, &mut due.requests);
        due.wake =
            Some(self.own.next_renewal(now).map_or(now + POLL_INTERVAL, |next| next.clamp(now, now + POLL_INTERVAL)));
        due
    }

    /// What this node answers for.
    #[must_use]
    pub fn claims(&self) -> Claims {
        let Some(session) = &self.own.session else { return Claims::default() };
        let addresses = self.held.iter().map(|(ip, held)| (*ip, held.generation)).collect();
        Claims { until: session.renewed_at + LEASE_VALIDITY, addresses }
    }

    // === common helpers ===

    fn request(
        &mut self,
        key: Key,
        operation: Operation,
        purpose: Purpose,
        now: Duration,
        out: &mut Vec<(u64, Key, Operation)>,
    ) {
        self.requests += 1;
        self.pending.insert(key.clone(), Pending { id: self.requests, sent: now, purpose });
        out.push((self.requests, key, operation));
    }

    /// Whether a request for a Lease may be sent now.
    fn may_request(&self, key: &Key, now: Duration) -> bool {
        !self.pending.contains_key(key) && self.backoff.get(key).is_none_or(|until| *until <= now)
    }

    fn back_off(&mut self, key: Key, until: Duration) {
        self.backoff.insert(key, until);
    }

    /// Drops requests that timed out.
    fn expire_requests(&mut self, now: Duration) {
        self.backoff.retain(|_, until| *until > now);
        let expired: Vec<Key> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.sent + REQUEST_TIMEOUT <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in expired {
            let is_own = matches!(&key, Key::Node(node) if *node == self.node);
            self.pending.remove(&key);
            if is_own {
                self.own.request_timed_out();
            }
        }
    }

    /// Whether this node is a candidate for any address.
    fn needs_session(&self) -> bool {
        !self.stopping && self.wanted.values().any(|nodes| nodes.contains(&self.node))
    }

    /// Whether Leases of an expired session, or of an earlier process, still name this node.
    fn has_stale_leases(&self) -> bool {
        let ours = |lease: &Lease| lease.holder == self.node;
        let own = self.nodes.get(&self.node).and_then(|seen| seen.lease.as_ref());
        let left = || self.addresses.iter().any(|(ip, lease)| ours(lease) && !self.wanted.contains_key(ip));
        !self.stopping && self.own.session.is_none() && (own.is_some_and(ours) || left())
    }

    /// Whether this node is a candidate for an address.
    fn is_candidate(&self, ip: IpAddr) -> bool {
        !self.stopping && self.wanted.get(&ip).is_some_and(|nodes| nodes.contains(&self.node))
    }

    /// The current session of this node.
    fn session(&self, now: Duration) -> Option<Box<str>> {
        self.own
            .session
            .as_ref()
            .filter(|session| now < session.renewed_at + LEASE_VALIDITY)
            .map(|session| session.name.clone())
    }

    /// Whether a node is alive, as far as the watch shows.
    fn is_alive(&self, node: &str, now: Duration) -> bool {
        if *node == *self.node {
            return self.session(now).is_some();
        }
        self.nodes.get(node).is_some_and(|seen| seen.is_alive(node, now))
    }
}

impl Seen {
    fn is_alive(&self, node: &str, now: Duration) -> bool {
        self.lease.as_ref().is_some_and(|lease| *lease.holder == *node) && now < self.since + EXPIRY_TIMEOUT
    }
}

/// Weight of a node for an address (rendezvous hashing): the same on every node, so that addresses are spread evenly and
/// few move when a node is added or removed.
#[must_use]
pub fn weight(node: &str, address: IpAddr) -> u64 {
    let text = format!("{node}#{address}");
    let mut hash = fnv1a64(text.as_bytes());
    for shift in [33, 29] {
        hash = (hash ^ (hash >> shift)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    hash ^ (hash >> 32)
}

/// A Lease and its version, as a pair.
fn found(versioned: Option<Versioned>) -> (Option<Lease>, Option<Box<str>>) {
    versioned.map_or((None, None), |found| (Some(found.lease), Some(found.version)))
}
