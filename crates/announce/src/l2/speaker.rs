//! What is said on the wires of this machine for the addresses that it has claimed.
//!
//! In: claims and until when they hold, frames, the time. Out: frames, and what people should know. Pure. For each address:
//!
//! ```text
//! claimed ─▶ probing: does anybody else have it? ──nobody─▶ announced: answers, and tells everybody for some seconds
//!               └── somebody ─▶ in use: silent, tried again later          └─ another claims it ─▶ told to people, defended once
//! ```
//! Whether claims still hold is looked at for every frame: who must fall silent is silent at once, whoever else is busy.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kernel::packets::{Interface, Mac};

use super::frame::{self, Said};
use super::owner::Claims;

/// How often it is asked whether anybody has an address, and how long an answer may take.
const PROBES: u8 = 3;
const PROBE_EVERY: Duration = Duration::from_millis(70);
/// How often an address is announced after it was taken, and how long between.
const ROUNDS: u8 = 5;
const ROUND_EVERY: Duration = Duration::from_millis(1100);
/// How long until an address is tried again that somebody else has, and until it is defended again.
const AGAIN: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Send a frame on this wire.
    Send(u32, Vec<u8>),
    /// People should know this.
    Tell(Told),
}

/// What people should know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// From now on we answer for an address.
    Announced(IpAddr),
    /// Somebody else has it: we do not answer.
    InUse(IpAddr, Mac),
    /// Somebody else claims it while we answer for it.
    Contested(IpAddr, Mac),
}

/// How far an address is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Probing { sent: u8, next: Duration },
    InUse { until: Duration },
    Announced { left: u8, next: Duration, defended: Option<Duration> },
}

/// See the module.
#[derive(Debug, Default)]
pub struct Speaker {
    interfaces: Vec<Interface>,
    /// How far each address is, and the number of the claim that it is about.
    stages: BTreeMap<IpAddr, (u64, Stage)>,
}

impl Speaker {
    /// These are the wires now. On one that is new, everything is announced.
    pub fn connect(&mut self, interfaces: Vec<Interface>, acts: &mut Vec<Act>) {
        let known = |interface: &Interface| {
            self.interfaces.iter().any(|old| old.index == interface.index && old.mac == interface.mac)
        };
        let new: Vec<Interface> = interfaces.iter().filter(|interface| !known(interface)).cloned().collect();
        self.interfaces = interfaces;
        for (ip, (_, stage)) in &self.stages {
            if matches!(stage, Stage::Announced { .. }) {
                new.iter().for_each(|interface| announce(interface, *ip, acts));
            }
        }
    }

    /// The wires.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// How many addresses are answered for.
    #[must_use]
    pub fn announced(&self) -> usize {
        self.stages.values().filter(|(_, stage)| matches!(stage, Stage::Announced { .. })).count()
    }

    /// Follows the claims and does what is due; says when to look again.
    pub fn turn(&mut self, claims: &Claims, now: Duration, acts: &mut Vec<Act>) -> Option<Duration> {
        if now >= claims.until {
            self.stages.clear();
            return None;
        }
        self.stages.retain(|ip, (grip, _)| claims.addresses.get(ip) == Some(grip));
        for (ip, grip) in &claims.addresses {
            let begin = (*grip, Stage::Probing { sent: 0, next: now });
            let (_, stage) = self.stages.entry(*ip).or_insert(begin);
            *stage = advance(*stage, *ip, &self.interfaces, now, acts);
        }
        self.stages.values().filter_map(|(_, stage)| stage.next()).min()
    }

    /// Hears a frame.
    pub fn hear(&mut self, claims: &Claims, interface: u32, bytes: &[u8], now: Duration, acts: &mut Vec<Act>) {
        let Some(interface) = self.interfaces.iter().find(|known| known.index == interface) else { return };
        for said in frame::read(bytes).into_iter().flatten() {
            let (address, mac) = match said {
                Said::Who { address, mac, .. } | Said::Has { address, mac } => (address, mac),
            };
            let own = self.interfaces.iter().any(|own| own.mac == mac);
            let Some((grip, stage)) = self.stages.get_mut(&address) else { continue };
            // Claims may have ended, or changed, since the last turn.
            if own || now >= claims.until || claims.addresses.get(&address) != Some(grip) {
                continue;
            }
            match (said, &mut *stage) {
                (Said::Who { asker, to, .. }, Stage::Announced { .. }) if to == interface.mac || to.is_group() => {
                    let answer = frame::answer(interface.mac, address, asker, mac);
                    acts.extend(answer.map(|frame| Act::Send(interface.index, frame)));
                }
                // Somebody has it; or wants it as we do, and then it is safer that neither gets it.
                (Said::Has { .. }, Stage::Probing { .. }) => {
                    *stage = Stage::InUse { until: now + AGAIN };
                    acts.push(Act::Tell(Told::InUse(address, mac)));
                }
                (Said::Who { asker, .. }, Stage::Probing { .. }) if asker.is_unspecified() => {
                    *stage = Stage::InUse { until: now + AGAIN };
                    acts.push(Act::Tell(Told::InUse(address, mac)));
                }
                (Said::Has { .. }, Stage::Announced { defended, .. })
                    if defended.is_none_or(|last| last + AGAIN <= now) =>
                {
                    *defended = Some(now);
                    self.interfaces.iter().for_each(|interface| announce(interface, address, acts));
                    acts.push(Act::Tell(Told::Contested(address, mac)));
                }
                _ => {}
            }
        }
    }
}

impl Stage {
    fn next(self) -> Option<Duration> {
        match self {
            Self::Announced { left: 0, .. } => None,
            Self::Probing { next, .. } | Self::Announced { next, .. } | Self::InUse { until: next } => Some(next),
        }
    }
}

/// What follows when its time has come.
fn advance(stage: Stage, ip: IpAddr, interfaces: &[Interface], now: Duration, acts: &mut Vec<Act>) -> Stage {
    match stage {
        Stage::Probing { sent: PROBES, next } if next <= now => {
            acts.push(Act::Tell(Told::Announced(ip)));
            let begin = Stage::Announced { left: ROUNDS, next: now, defended: None };
            advance(begin, ip, interfaces, now, acts)
        }
        Stage::Probing { sent, next } if next <= now => {
            for interface in interfaces.iter().filter(|interface| has_family(interface, ip)) {
                acts.push(Act::Send(interface.index, frame::probe(interface.mac, ip)));
            }
            Stage::Probing { sent: sent + 1, next: now + PROBE_EVERY }
        }
        Stage::Announced { left, next, defended } if left > 0 && next <= now => {
            interfaces.iter().for_each(|interface| announce(interface, ip, acts));
            Stage::Announced { left: left - 1, next: now + ROUND_EVERY, defended }
        }
        Stage::InUse { until } if until <= now => {
            advance(Stage::Probing { sent: 0, next: now }, ip, interfaces, now, acts)
        }
        waiting => waiting,
    }
}

fn announce(interface: &Interface, ip: IpAddr, acts: &mut Vec<Act>) {
    if has_family(interface, ip) {
        acts.extend(frame::announce(interface.mac, ip).into_iter().map(|frame| Act::Send(interface.index, frame)));
    }
}

const fn has_family(interface: &Interface, ip: IpAddr) -> bool {
    if ip.is_ipv4() { interface.v4 } else { interface.v6 }
}

#[cfg(test)]
mod tests;
