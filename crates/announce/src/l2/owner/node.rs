//! The session of this node, and the liveness of others.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{EXPIRY_TIMEOUT, LEASE_VALIDITY, Owner, Pending, Purpose, RENEW_INTERVAL, RETRY_INTERVAL, Seen, found};
use crate::lease::{Key, Lease};
use crate::leases::{LeaseError, LeaseResult, Operation};

/// The Lease of this node.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The current session.
    pub(super) session: Option<OwnSession>,
    /// The Lease as another process of this node wrote it, and since when it is unchanged.
    other_process: Option<(Lease, Duration)>,
}

/// A session: the uninterrupted period in which this node renews its Lease.
#[derive(Debug)]
pub(super) struct OwnSession {
    /// Its name.
    pub(super) name: Box<str>,
    /// When the last successful renewal was sent.
    pub(super) renewed_at: Duration,
    /// The version of the Lease.
    version: Box<str>,
    /// Number of the last renewal that was sent.
    renewal: u64,
    /// When it was sent.
    sent: Duration,
    /// When renewals without a response were sent, by number.
    open: BTreeMap<u64, Duration>,
    /// Whether the outcome of a renewal is unknown.
    unverified: bool,
}

impl Own {
    /// When the next renewal is due.
    pub(super) fn next_renewal(&self, now: Duration) -> Option<Duration> {
        self.session.as_ref().map(|session| (session.sent + RENEW_INTERVAL).max(now))
    }

    /// Handles a request without a response.
    pub(super) fn request_timed_out(&mut self) {
        if let Some(session) = &mut self.session {
            session.unverified = true;
        }
    }
}

impl Owner {
    /// Ends an expired session.
    pub(super) fn expire_session(&mut self, now: Duration) {
        if self.own.session.as_ref().is_some_and(|session| now >= session.renewed_at + LEASE_VALIDITY) {
            self.end_session();
        }
    }

    /// Ends the session and drops everything acquired in it.
    pub(super) fn end_session(&mut self) {
        self.own.session = None;
        self.held.clear();
        // Their Leases name an ended session: others can take them over without a release.
        self.releasing.clear();
    }

    fn own_key(&self) -> Key {
        Key::Node(self.node.clone())
    }

    /// Starts, renews or ends the session.
    pub(super) fn maintain_session(&mut self, now: Duration, out: &mut Vec<(u64, Key, Operation)>) {
        let key = self.own_key();
        if !self.may_request(&key, now) {
            return;
        }
        let nothing_left = self.held.is_empty() && self.releasing.is_empty() && self.pending.is_empty();
        let needs_session = self.needs_session();
        let begins = needs_session || self.has_stale_leases();
        let goes_on = needs_session || !nothing_left;
        match &mut self.own.session {
            None if begins => self.request(key, Operation::Get, Purpose::ReadOwn, now, out),
            None => {}
            Some(session) if session.unverified => {
                session.unverified = false;
                self.request(key, Operation::Get, Purpose::CheckRenewal, now, out);
            }
            Some(session) if goes_on && now < session.sent + RENEW_INTERVAL => {}
            Some(session) if goes_on => {
                session.renewal += 1;
                session.sent = now;
                session.open.insert(session.renewal, now);
                let (renewal, version) = (session.renewal, session.version.clone());
                let lease = Lease { holder: self.node.clone(), session: session.name.clone(), renewal };
                self.request(key, Operation::Replace(lease, version), Purpose::Renew { renewal }, now, out);
            }
            Some(session) => {
                let lease = Lease { holder: "".into(), session: session.name.clone(), renewal: session.renewal };
                let version = session.version.clone();
                self.end_session();
                self.request(key, Operation::Replace(lease, version), Purpose::EndSession, now, out);
            }
        }
    }

    /// Handles a response about our own Lease.
    pub(super) fn on_own_response(
        &mut self,
        pending: &Pending,
        response: LeaseResult,
        now: Duration,
        out: &mut Vec<(u64, Key, Operation)>,
    ) {
        let key = self.own_key();
        match (&pending.purpose, response) {
            (Purpose::ReadOwn, Ok(versioned)) => {
                let (lease, version) = found(versioned);
                self.update_node(&self.node.clone(), lease.as_ref(), now);
                if !self.needs_session() && !self.has_stale_leases() {
                    // The watch lagged: there is nothing to release.
                    self.back_off(key, now + RETRY_INTERVAL);
                } else if self.can_start_session(lease.as_ref(), now) {
                    self.sessions += 1;
                    let session: Box<str> = format!("{}-{}", self.process, self.sessions).into();
                    let lease = Lease { holder: self.node.clone(), session: session.clone(), renewal: 1 };
                    let operation = match version {
                        Some(version) => Operation::Replace(lease, version),
                        None => Operation::Create(lease),
                    };
                    self.request(key, operation, Purpose::StartSession { session }, now, out);
                } else {
                    self.back_off(key, now + RETRY_INTERVAL);
                }
            }
            (Purpose::StartSession { session }, Ok(Some(current))) if now < pending.sent + LEASE_VALIDITY => {
                self.own.other_process = None;
                self.own.session = Some(OwnSession {
                    name: session.clone(),
                    renewed_at: pending.sent,
                    version: current.version,
                    renewal: 1,
                    sent: pending.sent,
                    open: BTreeMap::new(),
                    unverified: false,
                });
            }
            (Purpose::Renew { renewal }, Ok(Some(current))) => {
                if let Some(session) = &mut self.own.session {
                    session.version = current.version;
                    session.renewed_at = session.renewed_at.max(pending.sent);
                    session.open.retain(|open, _| open > renewal);
                }
            }
            // A renewal that timed out may have succeeded: read the Lease before the session is ended.
            (Purpose::Renew { .. }, Err(_)) => {
                if let Some(session) = &mut self.own.session {
                    session.unverified = true;
                }
            }
            (Purpose::CheckRenewal, Ok(Some(current))) => self.recover(&current.lease, current.version),
            (Purpose::CheckRenewal | Purpose::Renew { .. }, Ok(None)) => self.end_session(),
            (Purpose::CheckRenewal, Err(_)) => {
                if let Some(session) = &mut self.own.session {
                    session.unverified = true;
                }
                self.back_off(key, now + RETRY_INTERVAL);
            }
            (Purpose::EndSession, _) | (_, Err(LeaseError::Conflict)) => {}
            (_, Ok(_) | Err(LeaseError::Unknown)) => self.back_off(key, now + RETRY_INTERVAL),
        }
    }

    /// Continues the session if one of our renewals succeeded, counting from when it was sent; ends it otherwise.
    fn recover(&mut self, lease: &Lease, version: Box<str>) {
        let me = self.node.clone();
        match &mut self.own.session {
            Some(session) if lease.holder == me && lease.session == session.name => {
                session.version = version;
                if let Some(sent) = session.open.get(&lease.renewal) {
                    session.renewed_at = session.renewed_at.max(*sent);
                }
                session.open.retain(|open, _| *open > lease.renewal);
            }
            _ => self.end_session(),
        }
    }

    /// Whether a session can start. A Lease of another process of this node must have expired, as that of another node.
    fn can_start_session(&mut self, lease: Option<&Lease>, now: Duration) -> bool {
        let Some(lease) = lease else { return true };
        let ours = lease.session.strip_prefix(&*self.process).is_some_and(|rest| rest.starts_with('-'));
        if lease.holder.is_empty() || ours {
            return true;
        }
        match &self.own.other_process {
            Some((known, since)) if known == lease => now >= *since + EXPIRY_TIMEOUT,
            _ => {
                self.own.other_process = Some((lease.clone(), now));
                false
            }
        }
    }

    // === other nodes ===

    /// Records the Lease of a node.
    pub(super) fn update_node(&mut self, node: &str, lease: Option<&Lease>, now: Duration) {
        match self.nodes.get_mut(node) {
            Some(seen) if seen.lease.as_ref() == lease => {}
            Some(seen) => {
                let same = seen.lease.as_ref().map(|lease| &lease.session) == lease.map(|lease| &lease.session);
                let alive_since = if same && seen.is_alive(node, now) { seen.alive_since } else { now };
                *seen = Seen { lease: lease.cloned(), since: now, alive_since };
            }
            None => {
                self.nodes.insert(node.into(), Seen { lease: lease.cloned(), since: now, alive_since: now });
            }
        }
    }

    /// Whether a session of a node is proved to have ended.
    pub(super) fn is_ended(&self, node: &str, session: &str) -> bool {
        if *node == *self.node {
            // Called only during a session, which our Lease then names.
            return self.own.session.as_ref().is_some_and(|own| *own.name != *session);
        }
        self.ended.contains(&(node.into(), session.into()))
    }

    /// Whether a session of a node seems to have ended.
    pub(super) fn seems_ended(&self, node: &str, session: &str) -> bool {
        let lease = self.nodes.get(node).and_then(|seen| seen.lease.as_ref());
        self.is_ended(node, session) || lease.is_some_and(|lease| *lease.holder != *node || *lease.session != *session)
    }

    /// Checks whether the holder of an address has expired.
    pub(super) fn check_holder(&mut self, node: &str, now: Duration, out: &mut Vec<(u64, Key, Operation)>) {
        if !self.nodes.contains_key(node) {
            self.update_node(node, None, now);
        }
        let key = Key::Node(node.into());
        let Some(seen) = self.nodes.get(node).filter(|seen| seen.since + EXPIRY_TIMEOUT <= now) else { return };
        if self.may_request(&key, now) {
            let purpose = Purpose::ConfirmExpiry { seen: seen.lease.clone() };
            self.request(key, Operation::Get, purpose, now, out);
        }
    }

    /// Handles a response about the Lease of another node.
    pub(super) fn on_node_response(
        &mut self,
        node: &str,
        purpose: Purpose,
        response: LeaseResult,
        now: Duration,
        out: &mut Vec<(u64, Key, Operation)>,
    ) {
        let key = Key::Node(node.into());
        match (purpose, response) {
            (Purpose::ConfirmExpiry { seen }, Ok(versioned)) => {
                let (lease, version) = found(versioned);
                if lease != seen || self.nodes.get(node).is_none_or(|known| known.lease != seen) {
                    // It was renewed.
                    self.update_node(node, lease.as_ref(), now);
                    return;
                }
                let cleared = Lease { holder: "".into(), ..lease.unwrap_or_default() };
                let session = cleared.session.clone();
                let operation = match version {
                    Some(version) => Operation::Replace(cleared, version),
                    None => Operation::Create(cleared),
                };
                self.request(key, operation, Purpose::Expire { session }, now, out);
            }
            (Purpose::Expire { session }, Ok(Some(current))) => {
                self.ended.insert((node.into(), session));
                self.update_node(node, Some(&current.lease), now);
            }
            (Purpose::ConfirmEnded { ip, session, version }, Ok(Some(current))) => {
                self.update_node(node, Some(&current.lease), now);
                if *current.lease.holder != *node || current.lease.session != session {
                    self.ended.insert((node.into(), session));
                    self.write_address_lease(ip, Some(version), now, out);
                }
            }
            _ => self.back_off(key, now + RETRY_INTERVAL),
        }
    }
}
