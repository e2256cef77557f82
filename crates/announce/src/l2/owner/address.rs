//! The Leases of addresses: taken when they are free and it is our turn, given back when they are not ours to have.

use std::net::IpAddr;
use std::time::Duration;

use super::{AGAIN, Owner, Purpose, SETTLED, TURN, weight};
use crate::lease::{Key, Lease};
use crate::leases::{Answer, Ask, Refusal, Versioned};

/// An address that is ours.
#[derive(Debug)]
pub(super) struct Held {
    /// Another number each time it is got.
    pub(super) grip: u64,
    version: Box<str>,
    /// Whether the watch has shown it as ours: what it shows after that is news, and not history.
    shown: bool,
    since: Duration,
}

impl Owner {
    /// Lets go of what the watch shows as somebody else's, after it was shown as ours.
    pub(super) fn doubt(&mut self) {
        let Some(life) = self.own.life.as_ref().map(|life| life.name.clone()) else { return };
        let (me, addresses) = (&self.me, &self.addresses);
        self.held.retain(|ip, held| {
            let ours = addresses.get(ip).is_some_and(|lease| lease.holder == *me && lease.life == life);
            held.shown |= ours;
            ours || !held.shown
        });
    }

    /// Lets go of what is not ours to have any more. From here on nobody is answered for it; its Lease is emptied next.
    pub(super) fn give_back(&mut self) {
        let unwanted: Vec<IpAddr> = self.held.keys().copied().filter(|ip| !self.may(*ip)).collect();
        for ip in unwanted {
            if let Some(held) = self.held.remove(&ip) {
                self.loose.insert(ip, Some(held.version));
            }
        }
        // What a late answer, or an earlier life, may have left behind.
        let left: Vec<IpAddr> = self
            .addresses
            .iter()
            .filter(|(ip, lease)| self.is_ours(**ip, lease))
            .map(|(ip, _)| *ip)
            .filter(|ip| !self.may(*ip) && !self.held.contains_key(ip) && !self.loose.contains_key(ip))
            .filter(|ip| !self.rests.contains_key(&Key::Address(*ip)) && !self.asking.contains_key(&Key::Address(*ip)))
            .collect();
        for ip in left {
            self.loose.insert(ip, None);
        }
    }

    /// Whether the Lease of an address is ours to give back: we got it in this life, or in an earlier one and nobody wants it any more.
    fn is_ours(&self, ip: IpAddr, lease: &Lease) -> bool {
        let unwanted = !self.wanted.contains_key(&ip);
        let life = self.own.life.as_ref();
        lease.holder == self.me && life.is_some_and(|life| life.name == lease.life || unwanted)
    }

    /// Empties the Leases of addresses that were let go.
    pub(super) fn release(&mut self, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        self.hand_over(now);
        let loose: Vec<(IpAddr, Option<Box<str>>)> =
            self.loose.iter().map(|(ip, version)| (*ip, version.clone())).collect();
        for (ip, version) in loose {
            let key = Key::Address(ip);
            if !self.is_quiet(&key, now) {
                continue;
            }
            match version {
                None => self.ask(key, Ask::Get, Purpose::Look, now, out),
                // Nobody wants it any more: nobody needs its Lease.
                Some(version) if !self.wanted.contains_key(&ip) => {
                    self.ask(key, Ask::Delete(version), Purpose::Release, now, out);
                }
                Some(version) => self.ask(key, Ask::Replace(Lease::default(), version), Purpose::Release, now, out),
            }
        }
    }

    /// Lets go of addresses for which another is preferred, once it has lived for a while.
    fn hand_over(&mut self, now: Duration) {
        let over: Vec<IpAddr> = self
            .held
            .iter()
            .filter(|(_, held)| held.since + SETTLED <= now)
            .map(|(ip, _)| *ip)
            .filter(|ip| {
                let preferred = self.ranking(*ip, now).into_iter().next();
                preferred.is_some_and(|node| {
                    node != self.me && self.nodes.get(&node).is_some_and(|seen| seen.living + SETTLED <= now)
                })
            })
            .collect();
        for ip in over {
            if let Some(held) = self.held.remove(&ip) {
                self.loose.insert(ip, Some(held.version));
                self.free.insert(ip, now);
            }
        }
    }

    /// Who lives and may answer for an address, the preferred first.
    fn ranking(&self, ip: IpAddr, now: Duration) -> Vec<Box<str>> {
        let nodes = self.wanted.get(&ip).into_iter().flatten();
        let mut living: Vec<Box<str>> = nodes.filter(|node| self.lives(node, now)).cloned().collect();
        living.sort_by_key(|node| std::cmp::Reverse((weight(node, ip), node.clone())));
        living
    }

    /// Takes what is free, when it is our turn; and looks after those who hold what we may have, and are silent.
    pub(super) fn take(&mut self, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        let Some(life) = self.life(now) else { return };
        let may: Vec<IpAddr> = self.wanted.keys().copied().filter(|ip| self.may(*ip)).collect();
        self.free.retain(|ip, _| self.wanted.contains_key(ip));
        for ip in may {
            if self.held.contains_key(&ip) || self.loose.contains_key(&ip) {
                continue;
            }
            let holder = self.addresses.get(&ip).filter(|lease| !lease.holder.is_empty()).cloned();
            if let Some(holder) = holder.filter(|lease| !self.seems_takeable(lease, &life)) {
                self.free.remove(&ip);
                self.listen(&holder.holder, now, out);
                continue;
            }
            let since = *self.free.entry(ip).or_insert(now);
            let place = self.ranking(ip, now).iter().position(|node| *node == self.me).unwrap_or(0);
            let turns = u32::try_from(place).unwrap_or(u32::MAX);
            if now >= since + TURN.saturating_mul(turns) && self.is_quiet(&Key::Address(ip), now) {
                self.ask(Key::Address(ip), Ask::Get, Purpose::Take, now, out);
            }
        }
    }

    /// Whether it looks as if an address could be taken whose Lease says this: nobody has it, it is ours already, or the life seems to be
    /// over in which it was got.
    fn seems_takeable(&self, lease: &Lease, life: &str) -> bool {
        lease.holder.is_empty()
            || (lease.holder == self.me && *lease.life == *life)
            || self.seems_over(&lease.holder, &lease.life)
    }

    /// An answer about the Lease of an address.
    pub(super) fn hear_address(
        &mut self,
        ip: IpAddr,
        purpose: Purpose,
        answer: Answer,
        now: Duration,
        out: &mut Vec<(u64, Key, Ask)>,
    ) {
        let key = Key::Address(ip);
        match (purpose, answer) {
            (Purpose::Take, Ok(versioned)) => self.try_to_take(ip, versioned, now, out),
            (Purpose::Taken { life }, Ok(Some(now_is))) => {
                // Only in the life in which it was asked for.
                if self.life(now).as_ref() == Some(&life) {
                    self.hold(ip, now_is.version, now);
                }
            }
            (Purpose::Look, Ok(versioned)) => match versioned.filter(|found| self.is_ours(ip, &found.lease)) {
                Some(found) => {
                    self.loose.insert(ip, Some(found.version));
                }
                None => {
                    self.loose.remove(&ip);
                    self.rest(key, now + AGAIN);
                }
            },
            (Purpose::Release, Ok(_)) => {
                self.loose.remove(&ip);
                // The watch shows it as ours for a moment longer.
                self.addresses.remove(&ip);
            }
            // What became of it is looked up.
            (Purpose::Release | Purpose::Look, Err(_)) => {
                self.loose.insert(ip, None);
                self.rest(key, now + AGAIN);
            }
            (_, Err(Refusal::TooLate)) => {}
            _ => self.rest(key, now + AGAIN),
        }
    }

    /// The Lease is this: takes it if it is to be had, or asks for the proof that it is.
    fn try_to_take(&mut self, ip: IpAddr, now_is: Option<Versioned>, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        let Some(life) = self.life(now).filter(|_| self.may(ip)) else { return };
        let Some(Versioned { lease, version }) = now_is else { return self.grasp(ip, None, now, out) };
        self.addresses.insert(ip, lease.clone());
        if lease.holder == self.me && lease.life == life {
            return self.hold(ip, version, now);
        }
        if lease.holder.is_empty() || self.is_over(&lease.holder, &lease.life) {
            return self.grasp(ip, Some(version), now, out);
        }
        let key = Key::Node(lease.holder.clone());
        if self.seems_over(&lease.holder, &lease.life) && !self.asking.contains_key(&key) {
            self.ask(key, Ask::Get, Purpose::Witness { ip, life: lease.life, version }, now, out);
        }
    }

    /// Replaces this version of an address's Lease with ours, or makes it.
    pub(super) fn grasp(
        &mut self,
        ip: IpAddr,
        version: Option<Box<str>>,
        now: Duration,
        out: &mut Vec<(u64, Key, Ask)>,
    ) {
        let Some(life) = self.life(now).filter(|_| self.may(ip)) else { return };
        let key = Key::Address(ip);
        if self.held.contains_key(&ip) || self.asking.contains_key(&key) {
            return;
        }
        let ours = Lease { holder: self.me.clone(), life: life.clone(), beat: 0 };
        let ask = match version {
            Some(version) => Ask::Replace(ours, version),
            None => Ask::Create(ours),
        };
        self.ask(key, ask, Purpose::Taken { life }, now, out);
    }

    fn hold(&mut self, ip: IpAddr, version: Box<str>, now: Duration) {
        self.grips += 1;
        self.free.remove(&ip);
        self.held.insert(ip, Held { grip: self.grips, version, shown: false, since: now });
    }
}
