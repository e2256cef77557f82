//! ARP and NDP responder for the claimed addresses.
//!
//! In: claims and when they expire, frames, the time. Out: frames and notices. Pure. States of an address:
//!
//! ```text
//! claimed ─▶ Probing for duplicates ──none─▶ Announced: replies to requests, gratuitous announcements at first
//!               └── duplicate ─▶ InUse: no replies, probed again later    └─ conflict ─▶ notice, one defence
//! ```
//! The expiry of claims is checked for every frame, so that replies stop in time whatever the rest of the process does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kernel::packets::{Interface, Mac};

use super::frame::{self, Message};
use super::owner::Claims;

/// Number of probes for duplicates, and the time to wait for a reply to each.
const PROBES: u8 = 3;
const PROBE_INTERVAL: Duration = Duration::from_millis(70);
/// Number of gratuitous announcements of a new address, and the interval between them.
const ANNOUNCEMENTS: u8 = 5;
const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(1100);
/// Time before an address in use is probed again, and between two defences (RFC 5227, DEFEND_INTERVAL).
const CONFLICT_INTERVAL: Duration = Duration::from_secs(10);

/// An action of the responder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send a frame on this interface.
    Send(u32, Vec<u8>),
    /// Report a notice.
    Notify(Notice),
}

/// Notice for the owner of a Service, reported as an Event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// This node announces the address from now on.
    Announced(IpAddr),
    /// Another machine has the address: it is not announced.
    InUse(IpAddr, Mac),
    /// Another machine announces the address, too.
    Contested(IpAddr, Mac),
}

/// State of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AddressState {
    Probing { sent: u8, next: Duration },
    InUse { until: Duration },
    Announced { left: u8, next: Duration, defended: Option<Duration> },
}

/// The responder.
#[derive(Debug, Default)]
pub struct Responder {
    interfaces: Vec<Interface>,
    /// State of each address, and the generation of its claim.
    states: BTreeMap<IpAddr, (u64, AddressState)>,
}

impl Responder {
    /// Sets the interfaces. On a new one, everything is announced.
    pub fn set_interfaces(&mut self, interfaces: Vec<Interface>, actions: &mut Vec<Action>) {
        let known = |interface: &Interface| {
            self.interfaces.iter().any(|old| old.index == interface.index && old.mac == interface.mac)
        };
        let new: Vec<Interface> = interfaces.iter().filter(|interface| !known(interface)).cloned().collect();
        self.interfaces = interfaces;
        for (ip, (_, state)) in &self.states {
            if matches!(state, AddressState::Announced { .. }) {
                new.iter().for_each(|interface| announce(interface, *ip, actions));
            }
        }
    }

    /// The interfaces.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Number of announced addresses.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.states.values().filter(|(_, state)| matches!(state, AddressState::Announced { .. })).count()
    }

    /// Applies the claims and does what is due; returns when to poll again.
    pub fn poll(&mut self, claims: &Claims, now: Duration, actions: &mut Vec<Action>) -> Option<Duration> {
        if now >= claims.until {
            self.states.clear();
            return None;
        }
        self.states.retain(|ip, (generation, _)| claims.addresses.get(ip) == Some(generation));
        for (ip, generation) in &claims.addresses {
            let begin = (*generation, AddressState::Probing { sent: 0, next: now });
            let (_, state) = self.states.entry(*ip).or_insert(begin);
            *state = advance(*state, *ip, &self.interfaces, now, actions);
        }
        self.states.values().filter_map(|(_, state)| state.next()).min()
    }

    /// Handles a received frame.
    pub fn on_frame(
        &mut self,
        claims: &Claims,
        interface: u32,
        bytes: &[u8],
        now: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(interface) = self.interfaces.iter().find(|known| known.index == interface) else { return };
        for message in frame::read(bytes).into_iter().flatten() {
            let (address, mac) = match message {
                Message::Request { address, mac, .. } | Message::Announcement { address, mac } => (address, mac),
            };
            let own = self.interfaces.iter().any(|own| own.mac == mac);
            let Some((generation, state)) = self.states.get_mut(&address) else { continue };
            // Claims may have expired or changed since the last poll.
            if own || now >= claims.until || claims.addresses.get(&address) != Some(generation) {
                continue;
            }
            match (message, &mut *state) {
                (Message::Request { sender, to, .. }, AddressState::Announced { .. })
                    if to == interface.mac || to.is_group() =>
                {
                    let reply = frame::reply(interface.mac, address, sender, mac);
                    actions.extend(reply.map(|frame| Action::Send(interface.index, frame)));
                }
                // It is in use; or probed at the same time, and then neither may announce it.
                (Message::Announcement { .. }, AddressState::Probing { .. }) => {
                    *state = AddressState::InUse { until: now + CONFLICT_INTERVAL };
                    actions.push(Action::Notify(Notice::InUse(address, mac)));
                }
                (Message::Request { sender, .. }, AddressState::Probing { .. }) if sender.is_unspecified() => {
                    *state = AddressState::InUse { until: now + CONFLICT_INTERVAL };
                    actions.push(Action::Notify(Notice::InUse(address, mac)));
                }
                (Message::Announcement { .. }, AddressState::Announced { defended, .. })
                    if defended.is_none_or(|last| last + CONFLICT_INTERVAL <= now) =>
                {
                    *defended = Some(now);
                    self.interfaces.iter().for_each(|interface| announce(interface, address, actions));
                    actions.push(Action::Notify(Notice::Contested(address, mac)));
                }
                _ => {}
            }
        }
    }
}

impl AddressState {
    fn next(self) -> Option<Duration> {
        match self {
            Self::Announced { left: 0, .. } => None,
            Self::Probing { next, .. } | Self::Announced { next, .. } | Self::InUse { until: next } => Some(next),
        }
    }
}

/// The next state, if it is due.
fn advance(
    state: AddressState,
    ip: IpAddr,
    interfaces: &[Interface],
    now: Duration,
    actions: &mut Vec<Action>,
) -> AddressState {
    match state {
        AddressState::Probing { sent: PROBES, next } if next <= now => {
            actions.push(Action::Notify(Notice::Announced(ip)));
            let begin = AddressState::Announced { left: ANNOUNCEMENTS, next: now, defended: None };
            advance(begin, ip, interfaces, now, actions)
        }
        AddressState::Probing { sent, next } if next <= now => {
            for interface in interfaces.iter().filter(|interface| has_family(interface, ip)) {
                actions.push(Action::Send(interface.index, frame::probe(interface.mac, ip)));
            }
            AddressState::Probing { sent: sent + 1, next: now + PROBE_INTERVAL }
        }
        AddressState::Announced { left, next, defended } if left > 0 && next <= now => {
            interfaces.iter().for_each(|interface| announce(interface, ip, actions));
            AddressState::Announced { left: left - 1, next: now + ANNOUNCE_INTERVAL, defended }
        }
        AddressState::InUse { until } if until <= now => {
            advance(AddressState::Probing { sent: 0, next: now }, ip, interfaces, now, actions)
        }
        waiting => waiting,
    }
}

fn announce(interface: &Interface, ip: IpAddr, actions: &mut Vec<Action>) {
    if has_family(interface, ip) {
        actions
            .extend(frame::announce(interface.mac, ip).into_iter().map(|frame| Action::Send(interface.index, frame)));
    }
}

const fn has_family(interface: &Interface, ip: IpAddr) -> bool {
    if ip.is_ipv4() { interface.v4 } else { interface.v6 }
}

#[cfg(test)]
mod tests;
