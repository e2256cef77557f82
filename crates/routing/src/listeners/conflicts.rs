//! Which listeners of a Gateway and of its ListenerSets can live together.
//!
//! HTTP, HTTPS and TLS listeners are distinct by port and hostname, TCP and UDP listeners by port. Between objects the
//! earlier one wins: the Gateway, then its ListenerSets in their order. Inside one object nobody wins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{ListenerProtocol, Transport};

/// A listener, as far as conflicts depend on it.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) protocol: ListenerProtocol,
    pub(crate) port: u16,
    pub(crate) hostname: Option<Arc<str>>,
}

/// Why a listener is conflicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conflict {
    /// Its port has another protocol already.
    Protocol,
    /// Its port and hostname are taken.
    Hostname,
}

impl Conflict {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Protocol => "ProtocolConflict",
            Self::Hostname => "HostnameConflict",
        }
    }
}

/// Listeners on one port can live together when they are of one class, and the class is divided by hostname.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Plain,
    Tls,
    Whole,
}

impl Class {
    const fn of(protocol: ListenerProtocol) -> Self {
        match protocol {
            ListenerProtocol::Http => Self::Plain,
            ListenerProtocol::Https | ListenerProtocol::TlsTerminate | ListenerProtocol::TlsPassthrough => Self::Tls,
            ListenerProtocol::Tcp | ListenerProtocol::Udp => Self::Whole,
        }
    }
}

/// What is taken of a port.
#[derive(Default)]
struct Port {
    classes: BTreeSet<Class>,
    hostnames: BTreeMap<Option<Arc<str>>, usize>,
}

impl Port {
    fn take(&mut self, slot: &Slot) {
        self.classes.insert(Class::of(slot.protocol));
        *self.hostnames.entry(slot.hostname.clone()).or_default() += 1;
    }

    /// The conflict of a listener with those that have taken the port, itself not among them (`own` 0) or among them (1).
    fn conflict(&self, slot: &Slot, own: usize) -> Option<Conflict> {
        let class = Class::of(slot.protocol);
        let is_shared = self.hostnames.values().sum::<usize>() > own;
        if self.classes.iter().any(|taken| *taken != class) || (class == Class::Whole && is_shared) {
            return Some(Conflict::Protocol);
        }
        let same = self.hostnames.get(&slot.hostname).copied().unwrap_or_default();
        (same > own).then_some(Conflict::Hostname)
    }
}

#[derive(Default)]
struct Ports(BTreeMap<(Transport, u16), Port>);

impl Ports {
    fn take(&mut self, slot: &Slot) {
        self.0.entry((slot.protocol.transport(), slot.port)).or_default().take(slot);
    }

    fn conflict(&self, slot: &Slot, own: usize) -> Option<Conflict> {
        self.0.get(&(slot.protocol.transport(), slot.port))?.conflict(slot, own)
    }
}

/// The conflicts of the listeners of several objects, in the order of precedence. A listener without a supported protocol
/// (`None`) takes nothing.
pub(crate) fn judge(owners: &[Vec<Option<Slot>>]) -> Vec<Vec<Option<Conflict>>> {
    let mut taken = Ports::default();
    owners.iter().map(|slots| judge_owner(&mut taken, slots)).collect()
}

fn judge_owner(taken: &mut Ports, slots: &[Option<Slot>]) -> Vec<Option<Conflict>> {
    let lost = |slot: &Slot| taken.conflict(slot, 0);
    let mut own = Ports::default();
    for slot in slots.iter().flatten().filter(|slot| lost(slot).is_none()) {
        own.take(slot);
    }
    let conflict = |slot: &Option<Slot>| {
        let slot = slot.as_ref()?;
        lost(slot).or_else(|| own.conflict(slot, 1))
    };
    let conflicts = slots.iter().map(conflict).collect();
    let kept: Vec<_> = slots.iter().flatten().filter(|slot| lost(slot).is_none()).collect();
    for slot in kept {
        taken.take(slot);
    }
    conflicts
}
