//! The Lease of this node, and what is seen of others: who lives.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AGAIN, Asking, BEAT, FENCE, Owner, Purpose, SILENCE, Seen, found};
use crate::lease::{Key, Lease};
use crate::leases::{Answer, Ask, Refusal};

/// The Lease of this node.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// The present life.
    pub(super) life: Option<Life>,
    /// Another process has, or had, this Lease: how it was, and since when it has been just so.
    stranger: Option<(Lease, Duration)>,
}

/// A life: the uninterrupted time in which this node keeps its Lease.
#[derive(Debug)]
pub(super) struct Life {
    /// Its name.
    pub(super) name: Box<str>,
    /// When the last renewal that went through was sent.
    pub(super) good_since: Duration,
    /// The version of the Lease.
    version: Box<str>,
    /// The last renewal that was sent.
    beat: u64,
    /// When it was sent.
    sent: Duration,
    /// When renewals were sent of which nothing is known.
    open: BTreeMap<u64, Duration>,
    /// Nobody knows what became of a renewal.
    in_doubt: bool,
}

impl Own {
    /// When the Lease is to be renewed.
    pub(super) fn next_beat(&self, now: Duration) -> Option<Duration> {
        self.life.as_ref().map(|life| (life.sent + BEAT).max(now))
    }

    /// An answer did not come.
    pub(super) fn lost_sight(&mut self) {
        if let Some(life) = &mut self.life {
            life.in_doubt = true;
        }
    }
}

impl Owner {
    /// Ends the life that has run out.
    pub(super) fn lapse(&mut self, now: Duration) {
        if self.own.life.as_ref().is_some_and(|life| now >= life.good_since + FENCE) {
            self.end_life();
        }
    }

    /// The life is over, and with it all that was got in it.
    pub(super) fn end_life(&mut self) {
        self.own.life = None;
        self.held.clear();
        // Their Leases name a life that is over: nobody waits for us to give them back.
        self.loose.clear();
    }

    fn own_key(&self) -> Key {
        Key::Node(self.me.clone())
    }

    /// Begins a life, goes on with it, or ends it.
    pub(super) fn keep_alive(&mut self, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        let key = self.own_key();
        if !self.is_quiet(&key, now) {
            return;
        }
        let nothing_left = self.held.is_empty() && self.loose.is_empty() && self.asking.is_empty();
        let needs_life = self.needs_life();
        let begins = needs_life || self.left_a_life();
        let goes_on = needs_life || !nothing_left;
        match &mut self.own.life {
            None if begins => self.ask(key, Ask::Get, Purpose::Begin, now, out),
            None => {}
            Some(life) if life.in_doubt => {
                life.in_doubt = false;
                self.ask(key, Ask::Get, Purpose::Check, now, out);
            }
            Some(life) if goes_on && now < life.sent + BEAT => {}
            Some(life) if goes_on => {
                life.beat += 1;
                life.sent = now;
                life.open.insert(life.beat, now);
                let (beat, version) = (life.beat, life.version.clone());
                let lease = Lease { holder: self.me.clone(), life: life.name.clone(), beat };
                self.ask(key, Ask::Replace(lease, version), Purpose::Renew { beat }, now, out);
            }
            Some(life) => {
                let lease = Lease { holder: "".into(), life: life.name.clone(), beat: life.beat };
                let version = life.version.clone();
                self.end_life();
                self.ask(key, Ask::Replace(lease, version), Purpose::End, now, out);
            }
        }
    }

    /// An answer about our own Lease.
    pub(super) fn hear_own(&mut self, asking: &Asking, answer: Answer, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        let key = self.own_key();
        match (&asking.purpose, answer) {
            (Purpose::Begin, Ok(versioned)) => {
                let (lease, version) = found(versioned);
                self.see_node(&self.me.clone(), lease.as_ref(), now);
                if !self.needs_life() && !self.left_a_life() {
                    // The watch showed how it was before: there is nothing to give back.
                    self.rest(key, now + AGAIN);
                } else if self.is_to_be_had(lease.as_ref(), now) {
                    self.lives += 1;
                    let life: Box<str> = format!("{}-{}", self.process, self.lives).into();
                    let lease = Lease { holder: self.me.clone(), life: life.clone(), beat: 1 };
                    let ask = match version {
                        Some(version) => Ask::Replace(lease, version),
                        None => Ask::Create(lease),
                    };
                    self.ask(key, ask, Purpose::Start { life }, now, out);
                } else {
                    self.rest(key, now + AGAIN);
                }
            }
            (Purpose::Start { life }, Ok(Some(now_is))) if now < asking.sent + FENCE => {
                self.own.stranger = None;
                self.own.life = Some(Life {
                    name: life.clone(),
                    good_since: asking.sent,
                    version: now_is.version,
                    beat: 1,
                    sent: asking.sent,
                    open: BTreeMap::new(),
                    in_doubt: false,
                });
            }
            (Purpose::Renew { beat }, Ok(Some(now_is))) => {
                if let Some(life) = &mut self.own.life {
                    life.version = now_is.version;
                    life.good_since = life.good_since.max(asking.sent);
                    life.open.retain(|open, _| open > beat);
                }
            }
            // A renewal of ours that was given up may have gone through meanwhile: that is looked up before the life is given up.
            (Purpose::Renew { .. }, Err(_)) => {
                if let Some(life) = &mut self.own.life {
                    life.in_doubt = true;
                }
            }
            (Purpose::Check, Ok(Some(now_is))) => self.recover(&now_is.lease, now_is.version),
            (Purpose::Check | Purpose::Renew { .. }, Ok(None)) => self.end_life(),
            (Purpose::Check, Err(_)) => {
                if let Some(life) = &mut self.own.life {
                    life.in_doubt = true;
                }
                self.rest(key, now + AGAIN);
            }
            (Purpose::End, _) | (_, Err(Refusal::TooLate)) => {}
            (_, Ok(_) | Err(Refusal::Unknown)) => self.rest(key, now + AGAIN),
        }
    }

    /// Our Lease is this: either a renewal of ours went through, and then it counts from when it was sent, or the life is over.
    fn recover(&mut self, lease: &Lease, version: Box<str>) {
        let me = self.me.clone();
        match &mut self.own.life {
            Some(life) if lease.holder == me && lease.life == life.name => {
                life.version = version;
                if let Some(sent) = life.open.get(&lease.beat) {
                    life.good_since = life.good_since.max(*sent);
                }
                life.open.retain(|open, _| *open > lease.beat);
            }
            _ => self.end_life(),
        }
    }

    /// Whether a life can begin with our Lease as it is. Another process of this node may have it, and live: then as with any other node.
    fn is_to_be_had(&mut self, lease: Option<&Lease>, now: Duration) -> bool {
        let Some(lease) = lease else { return true };
        let ours = lease.life.strip_prefix(&*self.process).is_some_and(|rest| rest.starts_with('-'));
        if lease.holder.is_empty() || ours {
            return true;
        }
        match &self.own.stranger {
            Some((known, since)) if known == lease => now >= *since + SILENCE,
            _ => {
                self.own.stranger = Some((lease.clone(), now));
                false
            }
        }
    }

    // === other nodes ===

    /// The Lease of a node is this now.
    pub(super) fn see_node(&mut self, node: &str, lease: Option<&Lease>, now: Duration) {
        match self.nodes.get_mut(node) {
            Some(seen) if seen.lease.as_ref() == lease => {}
            Some(seen) => {
                let same = seen.lease.as_ref().map(|lease| &lease.life) == lease.map(|lease| &lease.life);
                let living = if same && seen.is_alive(node, now) { seen.living } else { now };
                *seen = Seen { lease: lease.cloned(), since: now, living };
            }
            None => {
                self.nodes.insert(node.into(), Seen { lease: lease.cloned(), since: now, living: now });
            }
        }
    }

    /// Whether a life of a node is proved to be over.
    pub(super) fn is_over(&self, node: &str, life: &str) -> bool {
        if *node == *self.me {
            // Asked only while we live, and then our Lease says so.
            return self.own.life.as_ref().is_some_and(|own| *own.name != *life);
        }
        self.ended.contains(&(node.into(), life.into()))
    }

    /// Whether it looks as if a life of a node were over.
    pub(super) fn seems_over(&self, node: &str, life: &str) -> bool {
        let lease = self.nodes.get(node).and_then(|seen| seen.lease.as_ref());
        self.is_over(node, life) || lease.is_some_and(|lease| *lease.holder != *node || *lease.life != *life)
    }

    /// Looks after a node that holds an address and is silent.
    pub(super) fn listen(&mut self, node: &str, now: Duration, out: &mut Vec<(u64, Key, Ask)>) {
        if !self.nodes.contains_key(node) {
            self.see_node(node, None, now);
        }
        let key = Key::Node(node.into());
        let Some(seen) = self.nodes.get(node).filter(|seen| seen.since + SILENCE <= now) else { return };
        if self.is_quiet(&key, now) {
            let purpose = Purpose::Listen { seen: seen.lease.clone() };
            self.ask(key, Ask::Get, purpose, now, out);
        }
    }

    /// An answer about the Lease of another node.
    pub(super) fn hear_node(
        &mut self,
        node: &str,
        purpose: Purpose,
        answer: Answer,
        now: Duration,
        out: &mut Vec<(u64, Key, Ask)>,
    ) {
        let key = Key::Node(node.into());
        match (purpose, answer) {
            (Purpose::Listen { seen }, Ok(versioned)) => {
                let (lease, version) = found(versioned);
                if lease != seen || self.nodes.get(node).is_none_or(|known| known.lease != seen) {
                    // It was renewed after all; it is watched anew.
                    self.see_node(node, lease.as_ref(), now);
                    return;
                }
                let over = Lease { holder: "".into(), ..lease.unwrap_or_default() };
                let life = over.life.clone();
                let ask = match version {
                    Some(version) => Ask::Replace(over, version),
                    None => Ask::Create(over),
                };
                self.ask(key, ask, Purpose::Depose { life }, now, out);
            }
            (Purpose::Depose { life }, Ok(Some(now_is))) => {
                self.ended.insert((node.into(), life));
                self.see_node(node, Some(&now_is.lease), now);
            }
            (Purpose::Witness { ip, life, version }, Ok(Some(now_is))) => {
                self.see_node(node, Some(&now_is.lease), now);
                if *now_is.lease.holder != *node || now_is.lease.life != life {
                    self.ended.insert((node.into(), life));
                    self.grasp(ip, Some(version), now, out);
                }
            }
            _ => self.rest(key, now + AGAIN),
        }
    }
}
