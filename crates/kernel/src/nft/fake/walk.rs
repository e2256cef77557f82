//! The path of a packet through the netfilter hooks.
//!
//! An incoming packet passes prerouting; its destination, which may have been translated there, decides: input for an
//! address of this machine, otherwise forward and postrouting. A packet of this machine passes output and postrouting;
//! one to itself then enters prerouting and input as the same connection. At each hook all base chains of the family
//! run, lowest priority first. NAT chains see only the first packet of a connection, and each direction is translated
//! once. At the priorities of IPVS, late at input and early at output, a balancer may take the packet, which then
//! passes output and postrouting.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::jhash;
use super::packet::{End, Fate, Packet};
use super::state::{Held, State};
use crate::nft::{Base, BaseKind, Chain, Field, Hook, Key, Name, Part, Set, Statement, Value, Verdict};
use crate::{Family, address_from};

/// IP protocol number of TCP.
const TCP: u8 = 6;

/// Maximum size of a dynamic set.
const FULL: usize = 65_535;

/// Priorities of IPVS at input and output.
const BALANCED_INPUT: i32 = 99;
const BALANCED_OUTPUT: i32 = -98;

/// Evaluates a packet.
pub(super) fn evaluate(
    state: &mut State,
    packet: &Packet,
    random: &mut dyn FnMut(u32) -> u32,
    balance: &mut dyn FnMut(&Packet) -> Option<(IpAddr, u16)>,
) -> Fate {
    let mut walk = Walk {
        state,
        random,
        balance,
        balanced: false,
        family: Family::of(packet.destination),
        packet: packet.clone(),
        interface: None,
        destination_done: !packet.first,
        source_done: !packet.first,
        translated: None,
        masqueraded: false,
        remembered: BTreeSet::new(),
    };
    let ended = walk.travel().err();
    Fate {
        end: ended.map_or(End::Accepted, |(_, end)| end),
        hook: ended.map(|(hook, _)| hook),
        translated: walk.translated,
        masqueraded: walk.masqueraded,
        mark: walk.packet.mark,
        remembered: walk.remembered,
    }
}

struct Walk<'a> {
    state: &'a mut State,
    random: &'a mut dyn FnMut(u32) -> u32,
    balance: &'a mut dyn FnMut(&Packet) -> Option<(IpAddr, u16)>,
    /// Whether a balancer took it.
    balanced: bool,
    family: Family,
    packet: Packet,
    /// Interface that rules see at the current hook.
    interface: Option<String>,
    /// Whether the NAT decision for the destination, and for the source, has been made.
    destination_done: bool,
    source_done: bool,
    translated: Option<(IpAddr, u16)>,
    masqueraded: bool,
    remembered: BTreeSet<Name>,
}

/// Result of a rule or chain.
enum Step {
    /// Continue with the next rule or the calling chain.
    Next,
    /// Continue with the next base chain.
    Accept,
    /// Final verdict.
    Stop(End),
    /// Jump to a chain.
    Jump(Name),
    /// Goto a chain.
    Goto(Name),
    /// Return to the calling chain.
    Return,
}

impl Walk<'_> {
    /// Passes the hooks. The error is the hook and verdict, if it was not delivered.
    fn travel(&mut self) -> Result<(), (Hook, End)> {
        if self.packet.interface.is_some() {
            self.interface.clone_from(&self.packet.interface);
            self.pass(Hook::Prerouting)?;
            if self.is_local(self.packet.destination) {
                self.pass(Hook::Input)?;
                return if self.balanced { self.leave() } else { Ok(()) };
            }
            self.pass(Hook::Forward)?;
            self.interface = None;
            return self.pass(Hook::Postrouting);
        }
        self.leave()?;
        if !self.balanced && self.is_local(self.packet.destination) {
            self.interface = Some("lo".to_owned());
            self.pass(Hook::Prerouting)?;
            self.pass(Hook::Input)?;
        }
        Ok(())
    }

    /// Leaves this machine, possibly through the balancer.
    fn leave(&mut self) -> Result<(), (Hook, End)> {
        self.interface = None;
        let before = self.balanced;
        self.pass(Hook::Output)?;
        if self.balanced != before {
            self.pass(Hook::Output)?;
        }
        self.pass(Hook::Postrouting)
    }

    /// Offers the packet to the balancer, once; returns whether it was taken.
    fn offer(&mut self) -> bool {
        let taken = if self.balanced { None } else { (self.balance)(&self.packet) };
        if let Some((address, port)) = taken {
            (self.packet.destination, self.packet.port) = (address, port);
            self.translated = taken;
            self.destination_done = true;
            self.balanced = true;
        }
        taken.is_some()
    }

    /// Runs the base chains of a hook.
    fn pass(&mut self, hook: Hook) -> Result<(), (Hook, End)> {
        let destination = matches!(hook, Hook::Prerouting | Hook::Output);
        let mut balancer = match hook {
            Hook::Input => Some(BALANCED_INPUT),
            Hook::Output => Some(BALANCED_OUTPUT),
            Hook::Prerouting | Hook::Forward | Hook::Postrouting => None,
        };
        for (base, table, chain) in self.base_chains(hook) {
            if balancer.take_if(|at| base.priority > *at).is_some() && self.offer() {
                return Ok(());
            }
            let settled = if destination { self.destination_done } else { self.source_done };
            if base.kind == BaseKind::Nat && settled {
                continue;
            }
            if let Step::Stop(end) = self.chain(&table, &chain) {
                return Err((hook, end));
            }
        }
        if balancer.is_some() && self.offer() {
            return Ok(());
        }
        // A connection that no chain has translated here stays untranslated.
        self.destination_done |= destination;
        self.source_done |= !destination && hook != Hook::Forward;
        Ok(())
    }

    fn base_chains(&self, hook: Hook) -> Vec<(Base, Name, Name)> {
        let tables = self.state.tables.iter().filter(|((family, _), _)| *family == self.family);
        let chains =
            tables.flat_map(|((_, table), held)| held.chains.iter().map(move |(name, chain)| (table, name, chain)));
        let bases = chains.filter_map(|(table, name, chain)| Some((chain.base?, table.clone(), name.clone())));
        let mut found: Vec<_> = bases.filter(|(base, _, _)| base.hook == hook).collect();
        found.sort_by(|(a, a_table, a_name), (b, b_table, b_name)| {
            (a.priority, a_table, a_name).cmp(&(b.priority, b_table, b_name))
        });
        found
    }

    fn held(&mut self, table: &Name) -> Option<&mut Held> {
        self.state.tables.get_mut(&(self.family, table.clone())).map(Arc::make_mut)
    }

    fn find_chain(&self, table: &Name, name: &Name) -> Option<Arc<Chain>> {
        self.state.tables.get(&(self.family, table.clone()))?.chains.get(name).cloned()
    }

    fn find_set(&self, table: &Name, name: &Name) -> Option<Arc<Set>> {
        self.state.tables.get(&(self.family, table.clone()))?.sets.get(name).cloned()
    }

    /// Runs a chain and those it refers to. The depth was checked when they were created.
    fn chain(&mut self, table: &Name, name: &Name) -> Step {
        let Some(chain) = self.find_chain(table, name) else { return Step::Next };
        for rule in &chain.rules {
            match self.rule(table, rule) {
                Step::Next => {}
                Step::Jump(target) => match self.chain(table, &target) {
                    Step::Next => {}
                    end => return end,
                },
                Step::Goto(target) => return self.chain(table, &target),
                Step::Return => return Step::Next,
                end @ (Step::Accept | Step::Stop(_)) => return end,
            }
        }
        Step::Next
    }

    /// Runs a rule up to the first statement that does not match or gives a verdict.
    fn rule(&mut self, table: &Name, rule: &[Statement]) -> Step {
        for statement in rule {
            match self.statement(table, statement) {
                None => return Step::Next,
                Some(Verdict::Continue) => {}
                Some(verdict) => return self.verdict(verdict, statement),
            }
        }
        Step::Next
    }

    fn verdict(&self, verdict: Verdict, by: &Statement) -> Step {
        match verdict {
            Verdict::Accept => Step::Accept,
            Verdict::Drop if matches!(by, Statement::Reject | Statement::Reset) => Step::Stop(End::Rejected),
            Verdict::Drop => Step::Stop(End::Dropped),
            Verdict::Continue => Step::Next,
            Verdict::Return => Step::Return,
            Verdict::Jump(target) => Step::Jump(target),
            Verdict::Goto(target) => Step::Goto(target),
        }
    }

    /// Runs a statement; none when it does not match.
    fn statement(&mut self, table: &Name, statement: &Statement) -> Option<Verdict> {
        let matched = |fine: bool| fine.then_some(Verdict::Continue);
        match statement {
            Statement::NewConnection => matched(self.packet.first),
            Statement::Translated => matched(self.translated.is_some() && !self.balanced),
            Statement::Marked(bits) => matched(self.packet.mark & bits != 0),
            Statement::In { key, set, negate } => matched(self.lookup(table, set, key).is_some() != *negate),
            Statement::LocalSource => matched(self.is_local(self.packet.source)),
            Statement::LocalDestination => matched(self.is_local(self.packet.destination)),
            Statement::Interface { name, prefix, negate } => {
                let came = self.interface.as_deref().unwrap_or_default();
                let same = if *prefix { came.starts_with(name.as_str()) } else { came == name };
                matched(same != *negate)
            }
            Statement::Mark(bits) => {
                self.packet.mark |= bits;
                Some(Verdict::Continue)
            }
            Statement::Unmark(bits) => {
                self.packet.mark &= !bits;
                Some(Verdict::Continue)
            }
            Statement::Dispatch { key, map } => match self.lookup(table, map, key)? {
                Value::Verdict(verdict) => Some(verdict),
                Value::Nothing | Value::Data(_) => None,
            },
            Statement::Translate { key, map } => self.translate(table, map, key),
            Statement::Redirect { protocol, key, map } if self.packet.protocol == *protocol => {
                self.redirect(table, map, key)
            }
            Statement::Redirect { .. } => None,
            Statement::Remember { set, key } => self.remember(table, set, key),
            Statement::Masquerade => {
                self.masqueraded = true;
                self.source_done = true;
                Some(Verdict::Accept)
            }
            Statement::Reject => Some(Verdict::Drop),
            Statement::Reset => (self.packet.protocol == TCP).then_some(Verdict::Drop),
            Statement::Go(verdict) => Some(verdict.clone()),
        }
    }

    /// The key of a lookup in a set of a table.
    fn key(&mut self, table: &Name, set: &Name, fields: &[Field]) -> Key {
        let parts: Vec<Part> = fields.iter().map(|field| self.part(table, set, *field)).collect();
        Key::new(&parts)
    }

    fn part(&mut self, table: &Name, set: &Name, field: Field) -> Part {
        match field {
            Field::Source => Part::Address(self.packet.source),
            Field::Destination => Part::Address(self.packet.destination),
            Field::Protocol => Part::Protocol(self.packet.protocol),
            Field::DestinationPort => Part::Port(self.packet.port),
            Field::Random(below) => Part::Random((self.random)(below)),
            Field::Incremental(below) => {
                let counted = self.held(table).map(|held| held.counted.entry(set.clone()).or_default());
                Part::Random(counted.map_or(0, |last| {
                    *last = (*last + 1) % below;
                    *last
                }))
            }
            Field::SourceHash { below, seed } => Part::Random(jhash::below(self.packet.source, seed, below)),
        }
    }

    /// Looks up the packet in a set.
    fn lookup(&mut self, table: &Name, name: &Name, fields: &[Field]) -> Option<Value> {
        let key = self.key(table, name, fields);
        let (set, clock) = (self.find_set(table, name)?, self.state.clock);
        let remembered = self.held(table)?.remembered.get(name).and_then(|keys| keys.get(&key));
        if remembered.is_some_and(|forgotten| *forgotten > clock) {
            return Some(Value::Nothing);
        }
        let (found, value) = if set.interval {
            set.elements.iter().find(|(range, _)| range.contains(&key.start, &set.key, self.family))?
        } else {
            set.elements.get_key_value(&key)?
        };
        if set.counters {
            *self.held(table)?.found.entry(name.clone()).or_default().entry(found.clone()).or_default() += 1;
        }
        Some(value.clone())
    }

    fn translate(&mut self, table: &Name, map: &Name, key: &[Field]) -> Option<Verdict> {
        let Value::Data(bytes) = self.lookup(table, map, key)? else { return None };
        let (address, rest) = bytes.split_at_checked(self.family.address_len())?;
        let (address, port) = (address_from(address)?, u16::from_be_bytes(*rest.first_chunk()?));
        self.arrive_at(address, port)
    }

    /// Incoming packets are redirected to an address of the interface (here any of the machine), local ones to
    /// loopback.
    fn redirect(&mut self, table: &Name, map: &Name, key: &[Field]) -> Option<Verdict> {
        let Value::Data(bytes) = self.lookup(table, map, key)? else { return None };
        let port = u16::from_be_bytes(*bytes.first_chunk()?);
        let loopback = if self.family == Family::Ip { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        let mut own = self.state.local.iter().copied().filter(|ip| Family::of(*ip) == self.family);
        let address = if self.interface.is_some() { own.next() } else { Some(loopback) };
        // There is no address to redirect to.
        let Some(address) = address else { return Some(Verdict::Drop) };
        self.arrive_at(address, port)
    }

    fn arrive_at(&mut self, address: IpAddr, port: u16) -> Option<Verdict> {
        (self.packet.destination, self.packet.port) = (address, port);
        self.translated = Some((address, port));
        self.destination_done = true;
        Some(Verdict::Accept)
    }

    fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || self.state.local.contains(&ip)
    }

    fn remember(&mut self, table: &Name, name: &Name, key: &[Field]) -> Option<Verdict> {
        let key = self.key(table, name, key);
        let seconds = self.find_set(table, name)?.timeout?;
        let clock = self.state.clock;
        let keys = self.held(table)?.remembered.entry(name.clone()).or_default();
        keys.retain(|_, forgotten| *forgotten > clock);
        if keys.len() >= FULL && !keys.contains_key(&key) {
            return None;
        }
        keys.insert(key, clock + u64::from(seconds));
        self.remembered.insert(name.clone());
        Some(Verdict::Continue)
    }
}
