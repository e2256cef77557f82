//! Which listeners of a Gateway and of its ListenerSets can live together.
//!
//! HTTP, HTTPS and TLS listeners are distinct by port and hostname, TCP and UDP listeners by port. Between objects the
//! earlier one wins: the Gateway, then its ListenerSets in their order. Inside one object nobody wins.
//!
//! In: what the listeners of each object need ([`Ports::replace`]). Out: the conflict of a listener, and what a change
//! decided otherwise. A Gateway may have thousands of sets, so a change costs what it needs, not what all of them need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::{ListenerProtocol, Transport};

/// The place of an object in the order of precedence.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Precedence {
    /// The Gateway.
    Gateway,
    /// A ListenerSet: the older one first, then by key.
    Set {
        /// Its creation timestamp.
        created: Arc<str>,
        /// `namespace/name`.
        key: Arc<str>,
    },
}

/// A listener, as far as conflicts depend on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    pub(crate) protocol: ListenerProtocol,
    pub(crate) port: u16,
    pub(crate) hostname: Option<Arc<str>>,
}

/// What decides conflicts on a port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Decision {
    /// The classes of the first object of the port.
    Classes(Transport, u16),
    /// The object that has a need of a port.
    Holder(Transport, u16, Need),
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
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
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

/// What one listener of a port can have alone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Need {
    class: Class,
    /// None where the class is not divided by hostname, too.
    hostname: Option<Arc<str>>,
}

impl Slot {
    const fn port(&self) -> (Transport, u16) {
        (self.protocol.transport(), self.port)
    }

    fn need(&self) -> Need {
        let class = Class::of(self.protocol);
        Need { class, hostname: self.hostname.clone().filter(|_| class != Class::Whole) }
    }
}

/// What the objects of a group need of one port.
#[derive(Clone, Debug, Default)]
struct Port {
    classes: BTreeMap<Precedence, BTreeSet<Class>>,
    /// The objects with each need, and how many of their listeners have it.
    needs: BTreeMap<Need, BTreeMap<Precedence, usize>>,
}

impl Port {
    /// All others must be of these.
    fn first_classes(&self) -> Option<&BTreeSet<Class>> {
        self.classes.first_key_value().map(|(_, classes)| classes)
    }

    fn holder(&self, need: &Need) -> Option<(&Precedence, usize)> {
        self.needs.get(need)?.first_key_value().map(|(holder, count)| (holder, *count))
    }
}

/// What the objects of a group need of their ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(BTreeMap<(Transport, u16), Port>);

/// The listeners of an object, in any order.
pub(crate) type Needs<'a> = (&'a Precedence, &'a [Slot]);

impl Ports {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces what an object needs. Listeners whose conflicts depend on what is returned may be in conflict now, or no
    /// longer; so may those of the object itself.
    pub(crate) fn replace(&mut self, old: Option<Needs<'_>>, new: Option<Needs<'_>>) -> Vec<Decision> {
        let slots = old.into_iter().chain(new).flat_map(|(_, slots)| slots);
        let needs: BTreeSet<_> = slots.map(|slot| (slot.port(), slot.need())).collect();
        let before = self.decided(&needs);
        if let Some((owner, slots)) = old {
            slots.iter().for_each(|slot| self.remove(owner, slot.port(), &slot.need()));
        }
        for (owner, slot) in new.into_iter().flat_map(|(owner, slots)| slots.iter().map(move |slot| (owner, slot))) {
            let (port, need) = (self.0.entry(slot.port()).or_default(), slot.need());
            port.classes.entry(owner.clone()).or_default().insert(need.class);
            *port.needs.entry(need).or_default().entry(owner.clone()).or_default() += 1;
        }
        let after = self.decided(&needs);
        let decisions = before.into_iter().zip(after).filter(|(before, after)| before != after);
        decisions.map(|(before, _)| before.0).collect()
    }

    fn remove(&mut self, owner: &Precedence, place: (Transport, u16), need: &Need) {
        let Some(port) = self.0.get_mut(&place) else { return };
        // Those of a class go together: all listeners of the object are removed.
        if let Some(classes) = port.classes.get_mut(owner) {
            classes.remove(&need.class);
            if classes.is_empty() {
                port.classes.remove(owner);
            }
        }
        if let Some(owners) = port.needs.get_mut(need) {
            owners.remove(owner);
            if owners.is_empty() {
                port.needs.remove(need);
            }
        }
        if port.needs.is_empty() {
            self.0.remove(&place);
        }
    }

    /// What is decided about needs, in an order that depends on them only.
    fn decided(&self, needs: &BTreeSet<((Transport, u16), Need)>) -> Vec<(Decision, Decided)> {
        let mut all = Vec::new();
        for ((transport, number), need) in needs {
            let port = self.0.get(&(*transport, *number));
            let classes = port.and_then(Port::first_classes).cloned();
            all.push((Decision::Classes(*transport, *number), Decided::Classes(classes)));
            let holder = port.and_then(|port| port.holder(need)).map(|(holder, _)| holder.clone());
            all.push((Decision::Holder(*transport, *number, need.clone()), Decided::Holder(holder)));
        }
        all
    }

    /// The conflict of a listener of an object. What it depends on is noted.
    pub(crate) fn conflict(&self, owner: &Precedence, slot: &Slot, note: impl Fn(Decision)) -> Option<Conflict> {
        let (transport, number) = slot.port();
        let need = slot.need();
        note(Decision::Classes(transport, number));
        note(Decision::Holder(transport, number, need.clone()));
        let port = self.0.get(&(transport, number))?;
        if port.first_classes()?.iter().any(|class| *class != need.class) {
            return Some(Conflict::Protocol);
        }
        let (holder, count) = port.holder(&need)?;
        let conflict = if need.class == Class::Whole { Conflict::Protocol } else { Conflict::Hostname };
        (holder != owner || count > 1).then_some(conflict)
    }
}

/// A result, to see whether it differs.
#[derive(PartialEq)]
enum Decided {
    Classes(Option<BTreeSet<Class>>),
    Holder(Option<Precedence>),
}

#[cfg(test)]
mod tests;
