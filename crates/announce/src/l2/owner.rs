//! Who answers for an address: at most one node, also while it is being decided, while machines stand still, and while the network is
//! in pieces.
//!
//! In: the addresses that are wanted, Leases as they are seen, answers of the API, the time. Out: requests, and [`Claims`]: the addresses
//! that this node answers for, and until when. Pure: nothing here waits or reads a clock. The rules, for one address:
//!
//! 1. A node keeps a Lease of its own, renewed every [`BEAT`]. What it claims ends [`FENCE`] after it *sent* the last renewal that went
//!    through, by its own clock, whatever happens: a node that is cut off, or stands still, falls silent by itself.
//! 2. It answers only with the Lease of the address, which it got by replacing the version that it knew, within this very *life*: the
//!    uninterrupted time in which it kept its own Lease. When a life ends all claims are forgotten.
//! 3. Another may take an address over when the life in which it was got is over. Who sees the Lease of a node unchanged for [`SILENCE`]
//!    empties it, by replacing just that version: that this went through proves that nothing was renewed since, so the node has fallen
//!    silent; and it can renew no more.
//! 4. Of those who may announce, the one with the highest number ([`weight`]) is preferred. Who holds an address hands it over when the
//!    preferred one has lived for [`SETTLED`]: it first falls silent, then empties the Lease.
//!
//! A life that ended by itself left Leases behind that say otherwise. Who sees that of itself, and has nothing to live for, lives once more:
//! just long enough to give them back.
//!
//! Lives have names that never come back, so "this life is over" stays true once it is proved (`ended`). A proof is an emptied
//! Lease that was of this life, or a look at the Lease of the node that was begun after the address was seen to be got in that life, and
//! shows another. What a watch shows proves nothing: it may be the time before that life. It only says where to look.

mod address;
mod node;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use self::address::Held;
use self::node::Own;
use crate::lease::{Key, Lease};
use crate::leases::{Answer, Ask, Versioned};

/// How often the Lease of a node is renewed.
pub const BEAT: Duration = Duration::from_millis(250);
/// How long claims are good after a renewal was sent.
pub const FENCE: Duration = Duration::from_millis(900);
/// How long a Lease must be seen unchanged until its node counts as silent. Longer than [`FENCE`], so that clocks may differ by a tenth.
pub const SILENCE: Duration = Duration::from_millis(1000);
/// How long the preferred node must live until an address is handed over to it.
pub const SETTLED: Duration = Duration::from_secs(5);
/// How long an answer of the API may take before it is asked again.
const PATIENCE: Duration = Duration::from_millis(500);
/// How much longer those wait who are not preferred, each after the one before, until they take an address that is free.
const TURN: Duration = Duration::from_millis(300);
/// How often it is looked whether something is due, where there is anything to do at all.
const LOOK: Duration = Duration::from_millis(50);
/// How long until something that failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// What this node answers for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// Until when, and not a moment longer.
    pub until: Duration,
    /// The addresses; each with a number that is another when it was got anew.
    pub addresses: BTreeMap<IpAddr, u64>,
}

/// What is to be done now.
#[derive(Debug, Default)]
pub struct Turn {
    /// Requests to the API: a number for the answer, the Lease, what is asked.
    pub asks: Vec<(u64, Key, Ask)>,
    /// When to look again at the latest.
    pub wake: Option<Duration>,
}

/// Why something was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Purpose {
    /// To begin a life: how is our Lease?
    Begin,
    /// It begins with this.
    Start { life: Box<str> },
    /// To go on living.
    Renew { beat: u64 },
    /// What became of a renewal?
    Check,
    /// To end a life.
    End,
    /// To take an address: how is its Lease?
    Take,
    /// It is taken with this.
    Taken { life: Box<str> },
    /// To give an address back: how is its Lease?
    Look,
    /// It is given back with this.
    Release,
    /// Is a node as silent as it seems?
    Listen { seen: Option<Lease> },
    /// It is told to be over with this.
    Depose { life: Box<str> },
    /// Is the life over in which this version of an address's Lease was got?
    Witness { ip: IpAddr, life: Box<str>, version: Box<str> },
}

/// A request under way.
#[derive(Debug)]
struct Asking {
    id: u64,
    sent: Duration,
    purpose: Purpose,
}

/// The Lease of a node, as it was last seen.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    lease: Option<Lease>,
    /// Since when it has been just so.
    since: Duration,
    /// Since when it has been alive without a break.
    living: Duration,
}

/// See the module.
#[derive(Debug)]
pub struct Owner {
    me: Box<str>,
    /// The name of this process: lives are called after it.
    process: Box<str>,
    lives: u64,
    /// Addresses, and who may answer for them.
    wanted: BTreeMap<IpAddr, BTreeSet<Box<str>>>,
    stopping: bool,
    own: Own,
    nodes: BTreeMap<Box<str>, Seen>,
    addresses: BTreeMap<IpAddr, Lease>,
    /// Lives of nodes that are over, for ever.
    ended: BTreeSet<(Box<str>, Box<str>)>,
    /// Since when each address could be taken.
    free: BTreeMap<IpAddr, Duration>,
    held: BTreeMap<IpAddr, Held>,
    /// Addresses that are ours by their Leases, perhaps, and are to be given back; with the version if it is known.
    loose: BTreeMap<IpAddr, Option<Box<str>>>,
    asking: BTreeMap<Key, Asking>,
    /// When a Lease may be asked about again.
    rests: BTreeMap<Key, Duration>,
    asked: u64,
    grips: u64,
}

impl Owner {
    /// A node of this name, in a process of that name, which no other ever had.
    #[must_use]
    pub fn new(me: &str, process: &str) -> Self {
        Self {
            me: me.into(),
            process: process.into(),
            lives: 0,
            wanted: BTreeMap::new(),
            stopping: false,
            own: Own::default(),
            nodes: BTreeMap::new(),
            addresses: BTreeMap::new(),
            ended: BTreeSet::new(),
            free: BTreeMap::new(),
            held: BTreeMap::new(),
            loose: BTreeMap::new(),
            asking: BTreeMap::new(),
            rests: BTreeMap::new(),
            asked: 0,
            grips: 0,
        }
    }

    /// These addresses are to be answered for, each by one of these nodes.
    pub fn want(&mut self, wanted: BTreeMap<IpAddr, BTreeSet<Box<str>>>) {
        self.wanted = wanted;
    }

    /// Everything is to be given back.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Whether nothing is left to be done after [`Self::stop`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.held.is_empty() && self.loose.is_empty() && self.own.life.is_none() && self.asking.is_empty()
    }

    /// Leases, as the watch shows them now; all of them.
    pub fn see(&mut self, leases: &BTreeMap<Box<str>, Lease>, now: Duration) {
        let mut addresses = BTreeMap::new();
        let mut nodes = BTreeSet::new();
        for (name, lease) in leases {
            match Key::named(name) {
                Some(Key::Node(node)) => {
                    self.see_node(&node, Some(lease), now);
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
            self.see_node(&node, None, now);
        }
        self.addresses = addresses;
        // What no address was got in need not be remembered.
        let known = self.addresses.values();
        let got: BTreeSet<_> = known.map(|lease| (lease.holder.clone(), lease.life.clone())).collect();
        self.ended.retain(|life| got.contains(life));
        self.doubt();
    }

    /// An answer of the API. One that nobody waits for any more says nothing.
    pub fn answer(&mut self, id: u64, answer: Answer, now: Duration) -> Vec<(u64, Key, Ask)> {
        let Some(key) = self.asking.iter().find(|(_, asking)| asking.id == id).map(|(key, _)| key.clone()) else {
            return Vec::new();
        };
        let Some(asking) = self.asking.remove(&key) else { return Vec::new() };
        let mut out = Vec::new();
        // Claims that have run out are forgotten before anything is added to them.
        self.lapse(now);
        match &key {
            Key::Node(node) if *node == self.me => self.hear_own(&asking, answer, now, &mut out),
            Key::Node(node) => self.hear_node(node, asking.purpose, answer, now, &mut out),
            Key::Address(ip) => self.hear_address(*ip, asking.purpose, answer, now, &mut out),
        }
        out
    }

    /// What is due now.
    pub fn turn(&mut self, now: Duration) -> Turn {
        let mut turn = Turn::default();
        self.lapse(now);
        self.tire(now);
        let alive = self.own.life.is_some();
        let busy =
            self.needs_life() || self.left_a_life() || alive || !self.asking.is_empty() || !self.loose.is_empty();
        if !busy {
            return turn;
        }
        self.give_back();
        self.keep_alive(now, &mut turn.asks);
        self.release(now, &mut turn.asks);
        self.take(now, &mut turn.asks);
        turn.wake = Some(self.own.next_beat(now).map_or(now + LOOK, |next| next.clamp(now, now + LOOK)));
        turn
    }

    /// What this node answers for.
    #[must_use]
    pub fn claims(&self) -> Claims {
        let Some(life) = &self.own.life else { return Claims::default() };
        let addresses = self.held.iter().map(|(ip, held)| (*ip, held.grip)).collect();
        Claims { until: life.good_since + FENCE, addresses }
    }

    // === what all parts use ===

    fn ask(&mut self, key: Key, ask: Ask, purpose: Purpose, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        self.asked += 1;
        self.asking.insert(key.clone(), Asking { id: self.asked, sent: now, purpose });
        out.push((self.asked, key, ask));
    }

    /// Whether a Lease may be asked about now.
    fn is_quiet(&self, key: &Key, now: Duration) -> bool {
        !self.asking.contains_key(key) && self.rests.get(key).is_none_or(|until| *until <= now)
    }

    fn rest(&mut self, key: Key, until: Duration) {
        self.rests.insert(key, until);
    }

    /// Gives up waiting for answers that take too long.
    fn tire(&mut self, now: Duration) {
        self.rests.retain(|_, until| *until > now);
        let tired: Vec<Key> = self
            .asking
            .iter()
            .filter(|(_, asking)| asking.sent + PATIENCE <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in tired {
            let own = matches!(&key, Key::Node(node) if *node == self.me);
            self.asking.remove(&key);
            if own {
                self.own.lost_sight();
            }
        }
    }

    /// Whether there is anything to live for.
    fn needs_life(&self) -> bool {
        !self.stopping && self.wanted.values().any(|nodes| nodes.contains(&self.me))
    }

    /// Whether Leases are seen to say that we live, or have what nobody wants, though we do not live: a life ended by itself, or with its
    /// process.
    fn left_a_life(&self) -> bool {
        let ours = |lease: &Lease| lease.holder == self.me;
        let own = self.nodes.get(&self.me).and_then(|seen| seen.lease.as_ref());
        let left = || self.addresses.iter().any(|(ip, lease)| ours(lease) && !self.wanted.contains_key(ip));
        !self.stopping && self.own.life.is_none() && (own.is_some_and(ours) || left())
    }

    /// Whether this node may answer for an address.
    fn may(&self, ip: IpAddr) -> bool {
        !self.stopping && self.wanted.get(&ip).is_some_and(|nodes| nodes.contains(&self.me))
    }

    /// The life of this node, if it lives.
    fn life(&self, now: Duration) -> Option<Box<str>> {
        self.own.life.as_ref().filter(|life| now < life.good_since + FENCE).map(|life| life.name.clone())
    }

    /// Whether a node is seen to live.
    fn lives(&self, node: &str, now: Duration) -> bool {
        if *node == *self.me {
            return self.life(now).is_some();
        }
        self.nodes.get(node).is_some_and(|seen| seen.is_alive(node, now))
    }
}

impl Seen {
    fn is_alive(&self, node: &str, now: Duration) -> bool {
        self.lease.as_ref().is_some_and(|lease| *lease.holder == *node) && now < self.since + SILENCE
    }
}

/// How much a node is preferred for an address: the same number everywhere, and spread evenly, so that addresses spread over nodes and
/// few move when a node comes or goes.
#[must_use]
pub fn weight(node: &str, address: IpAddr) -> u64 {
    let text = format!("{node}#{address}");
    let mut hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    for shift in [33, 29] {
        hash = (hash ^ (hash >> shift)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }
    hash ^ (hash >> 32)
}

/// What was found, as a pair of what it says and its version.
fn found(versioned: Option<Versioned>) -> (Option<Lease>, Option<Box<str>>) {
    versioned.map_or((None, None), |found| (Some(found.lease), Some(found.version)))
}
