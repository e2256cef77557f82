//! Leases of addresses: acquired when free and by rank, released when this node is no longer a candidate.

use std::net::IpAddr;
use std::time::Duration;

use super::{HANDOVER_DELAY, Owner, Purpose, RETRY_INTERVAL, TAKEOVER_STAGGER, weight};
use crate::lease::{Key, Lease};
use crate::leases::{LeaseError, LeaseResult, Operation, Versioned};

/// An address whose Lease this node holds.
#[derive(Debug)]
pub(super) struct Held {
    /// Changes each time it is acquired.
    pub(super) generation: u64,
    version: Box<str>,
    /// Whether the watch has caught up with the acquisition: what it shows afterwards is newer.
    shown: bool,
    since: Duration,
}

impl Owner {
    /// Drops addresses that the watch shows as held by another node, after it has shown them as ours.
    pub(super) fn drop_lost(&mut self) {
        let Some(session) = self.own.session.as_ref().map(|session| session.name.clone()) else { return };
        let (me, addresses) = (&self.node, &self.addresses);
        self.held.retain(|ip, held| {
            let ours = addresses.get(ip).is_some_and(|lease| lease.holder == *me && lease.session == session);
            held.shown |= ours;
            ours || !held.shown
        });
    }

    /// Drops addresses for which this node is no longer a candidate: it stops answering, and releases the Lease next.
    pub(super) fn drop_unwanted(&mut self) {
        let unwanted: Vec<IpAddr> = self.held.keys().copied().filter(|ip| !self.is_candidate(*ip)).collect();
        for ip in unwanted {
            if let Some(held) = self.held.remove(&ip) {
                self.releasing.insert(ip, Some(held.version));
            }
        }
        // Leases that a late response or an earlier session has left.
        let left: Vec<IpAddr> = self
            .addresses
            .iter()
            .filter(|(ip, lease)| self.is_ours(**ip, lease))
            .map(|(ip, _)| *ip)
            .filter(|ip| !self.is_candidate(*ip) && !self.held.contains_key(ip) && !self.releasing.contains_key(ip))
            .filter(|ip| {
                !self.backoff.contains_key(&Key::Address(*ip)) && !self.pending.contains_key(&Key::Address(*ip))
            })
            .collect();
        for ip in left {
            self.releasing.insert(ip, None);
        }
    }

    /// Whether we must release the Lease of an address: acquired in this session, or in an earlier one and the address is
    /// no longer announced.
    fn is_ours(&self, ip: IpAddr, lease: &Lease) -> bool {
        let unwanted = !self.wanted.contains_key(&ip);
        let session = self.own.session.as_ref();
        lease.holder == self.node && session.is_some_and(|session| session.name == lease.session || unwanted)
    }

    /// Releases the Leases of dropped addresses.
    pub(super) fn release(&mut self, now: Duration, out: &mut Vec<(u64, Key, Operation)>) {
        self.hand_over(now);
        let releasing: Vec<(IpAddr, Option<Box<str>>)> =
            self.releasing.iter().map(|(ip, version)| (*ip, version.clone())).collect();
        for (ip, version) in releasing {
            let key = Key::Address(ip);
            if !self.may_request(&key, now) {
                continue;
            }
            match version {
                None => self.request(key, Operation::Get, Purpose::ReadReleased, now, out),
                // The address is no longer announced by any node.
                Some(version) if !self.wanted.contains_key(&ip) => {
                    self.request(key, Operation::Delete(version), Purpose::Release, now, out);
                }
                Some(version) => {
                    self.request(key, Operation::Replace(Lease::default(), version), Purpose::Release, now, out);
                }
            }
        }
    }

    /// Drops addresses for which another node is preferred and has been alive for [`HANDOVER_DELAY`].
    fn hand_over(&mut self, now: Duration) {
        let handed_over: Vec<IpAddr> = self
            .held
            .iter()
            .filter(|(_, held)| held.since + HANDOVER_DELAY <= now)
            .map(|(ip, _)| *ip)
            .filter(|ip| {
                let preferred = self.ranking(*ip, now).into_iter().next();
                preferred.is_some_and(|node| {
                    node != self.node
                        && self.nodes.get(&node).is_some_and(|seen| seen.alive_since + HANDOVER_DELAY <= now)
                })
            })
            .collect();
        for ip in handed_over {
            if let Some(held) = self.held.remove(&ip) {
                self.releasing.insert(ip, Some(held.version));
                self.free.insert(ip, now);
            }
        }
    }

    /// The candidates that are alive, the preferred one first.
    fn ranking(&self, ip: IpAddr, now: Duration) -> Vec<Box<str>> {
        let nodes = self.wanted.get(&ip).into_iter().flatten();
        let mut alive: Vec<Box<str>> = nodes.filter(|node| self.is_alive(node, now)).cloned().collect();
        alive.sort_by_key(|node| std::cmp::Reverse((weight(node, ip), node.clone())));
        alive
    }

    /// Acquires free addresses, in the order of candidates, and checks whether other holders have expired.
    pub(super) fn acquire(&mut self, now: Duration, out: &mut Vec<(u64, Key, Operation)>) {
        let Some(session) = self.session(now) else { return };
        let may: Vec<IpAddr> = self.wanted.keys().copied().filter(|ip| self.is_candidate(*ip)).collect();
        self.free.retain(|ip, _| self.wanted.contains_key(ip));
        for ip in may {
            if self.held.contains_key(&ip) || self.releasing.contains_key(&ip) {
                continue;
            }
            let holder = self.addresses.get(&ip).filter(|lease| !lease.holder.is_empty()).cloned();
            if let Some(holder) = holder.filter(|lease| !self.seems_free(lease, &session)) {
                self.free.remove(&ip);
                self.check_holder(&holder.holder, now, out);
                continue;
            }
            let since = *self.free.entry(ip).or_insert(now);
            let place = self.ranking(ip, now).iter().position(|node| *node == self.node).unwrap_or(0);
            let turns = u32::try_from(place).unwrap_or(u32::MAX);
            if now >= since + TAKEOVER_STAGGER.saturating_mul(turns) && self.may_request(&Key::Address(ip), now) {
                self.request(Key::Address(ip), Operation::Get, Purpose::ReadAddress, now, out);
            }
        }
    }

    /// Whether an address seems to be free: its Lease has no holder or names our session, or its session seems to have
    /// ended.
    fn seems_free(&self, lease: &Lease, session: &str) -> bool {
        lease.holder.is_empty()
            || (lease.holder == self.node && *lease.session == *session)
            || self.seems_ended(&lease.holder, &lease.session)
    }

    /// Handles a response about the Lease of an address.
    pub(super) fn on_address_response(
        &mut self,
        ip: IpAddr,
        purpose: Purpose,
        response: LeaseResult,
        now: Duration,
        out: &mut Vec<(u64, Key, Operation)>,
    ) {
        let key = Key::Address(ip);
        match (purpose, response) {
            (Purpose::ReadAddress, Ok(versioned)) => self.try_acquire(ip, versioned, now, out),
            (Purpose::Acquire { session }, Ok(Some(current))) => {
                // Valid only in the session of the request.
                if self.session(now).as_ref() == Some(&session) {
                    self.hold(ip, current.version, now);
                }
            }
            (Purpose::ReadReleased, Ok(versioned)) => match versioned.filter(|found| self.is_ours(ip, &found.lease)) {
                Some(found) => {
                    self.releasing.insert(ip, Some(found.version));
                }
                None => {
                    self.releasing.remove(&ip);
                    self.back_off(key, now + RETRY_INTERVAL);
                }
            },
            (Purpose::Release, Ok(_)) => {
                self.releasing.remove(&ip);
                // The watch lags and would show it as ours.
                self.addresses.remove(&ip);
            }
            // Unknown outcome: read it again.
            (Purpose::Release | Purpose::ReadReleased, Err(_)) => {
                self.releasing.insert(ip, None);
                self.back_off(key, now + RETRY_INTERVAL);
            }
            (_, Err(LeaseError::Conflict)) => {}
            _ => self.back_off(key, now + RETRY_INTERVAL),
        }
    }

    /// Acquires the Lease of an address if it is free; if it only seems so, requests the proof.
    fn try_acquire(
        &mut self,
        ip: IpAddr,
        current: Option<Versioned>,
        now: Duration,
        out: &mut Vec<(u64, Key, Operation)>,
    ) {
        let Some(session) = self.session(now).filter(|_| self.is_candidate(ip)) else { return };
        let Some(Versioned { lease, version }) = current else { return self.write_address_lease(ip, None, now, out) };
        self.addresses.insert(ip, lease.clone());
        if lease.holder == self.node && lease.session == session {
            return self.hold(ip, version, now);
        }
        if lease.holder.is_empty() || self.is_ended(&lease.holder, &lease.session) {
            return self.write_address_lease(ip, Some(version), now, out);
        }
        let key = Key::Node(lease.holder.clone());
        if self.seems_ended(&lease.holder, &lease.session) && !self.pending.contains_key(&key) {
            self.request(key, Operation::Get, Purpose::ConfirmEnded { ip, session: lease.session, version }, now, out);
        }
    }

    /// Replaces this version of an address's Lease with ours, or creates it.
    pub(super) fn write_address_lease(
        &mut self,
        ip: IpAddr,
        version: Option<Box<str>>,
        now: Duration,
        out: &mut Vec<(u64, Key, Operation)>,
    ) {
        let Some(session) = self.session(now).filter(|_| self.is_candidate(ip)) else { return };
        let key = Key::Address(ip);
        if self.held.contains_key(&ip) || self.pending.contains_key(&key) {
            return;
        }
        let ours = Lease { holder: self.node.clone(), session: session.clone(), renewal: 0 };
        let operation = match version {
            Some(version) => Operation::Replace(ours, version),
            None => Operation::Create(ours),
        };
        self.request(key, operation, Purpose::Acquire { session }, now, out);
    }

    fn hold(&mut self, ip: IpAddr, version: Box<str>, now: Duration) {
        self.generations += 1;
        self.free.remove(&ip);
        self.held.insert(ip, Held { generation: self.generations, version, shown: false, since: now });
    }
}
