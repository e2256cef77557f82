//! Evaluates a packet against the chains of all programs at one hook.
//!
//! In: the rules, the packet, the hook, a range of priorities. Out: what stops it, and whether that is certain. A rule
//! that cannot be evaluated stops nothing by itself, but makes the following ones uncertain.

use std::net::IpAddr;

use super::bits::{self, Bits, Truth};
use super::{Comparison, ForeignChain, ForeignRule, ForeignSet, Header, Ruleset, Step, TableName};
use crate::nft::{Hook, Name, Verdict};
use crate::{Family, address_bytes};

/// Maximum jump depth, as in the kernel.
const DEPTH: usize = 16;
/// State bit of new connections.
const NEW: u16 = 8;

/// The first packet of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Source; none if irrelevant.
    pub source: Option<IpAddr>,
    /// Destination.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: u8,
    /// Its destination port.
    pub port: u16,
}

/// What stops a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stop {
    /// The table.
    pub table: TableName,
    /// The chain.
    pub chain: Name,
    /// Handle of the rule; none for the chain policy.
    pub rule: Option<u64>,
    /// Whether it is rejected, not dropped.
    pub rejects: bool,
    /// Whether it is certain; otherwise it depends on unknown properties.
    pub certain: bool,
}

/// What stops a packet at a hook, in chains of these priorities, except skipped tables; in order, up to the first
/// certain one.
#[must_use]
pub fn judge(
    rules: &Ruleset,
    packet: &Packet,
    hook: Hook,
    priorities: std::ops::Range<i32>,
    pass_over: impl Fn(&TableName) -> bool,
) -> Vec<Stop> {
    let family = Family::of(packet.destination);
    let mut entries: Vec<(i32, &(TableName, Name), &ForeignChain, bool)> = rules
        .chains
        .iter()
        .filter(|((table, _), _)| table.0.meets(family) && !pass_over(table))
        .filter_map(|(name, chain)| {
            let entry = chain.entry.filter(|entry| entry.hook == hook && !entry.translates)?;
            priorities.contains(&entry.priority).then_some((entry.priority, name, chain, entry.drops))
        })
        .collect();
    entries.sort_by_key(|(priority, ..)| *priority);
    let mut stops = Vec::new();
    for (_, (table, name), chain, drops) in entries {
        let mut walk = Walk { rules, packet, family, hook, table, certain: true, stops: &mut stops };
        if walk.chain(name, chain, true, DEPTH) == Way::On && drops {
            walk.stop(name, None, false, true);
        }
        if stops.last().is_some_and(|stop| stop.certain) {
            break;
        }
    }
    stops
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    On,
    Accepted,
    Stopped,
}

struct Walk<'a> {
    rules: &'a Ruleset,
    packet: &'a Packet,
    family: Family,
    hook: Hook,
    table: &'a TableName,
    /// Whether no earlier rule may have accepted it.
    certain: bool,
    stops: &'a mut Vec<Stop>,
}

impl Walk<'_> {
    fn stop(&mut self, chain: &Name, rule: Option<u64>, rejects: bool, sure: bool) {
        let certain = sure && self.certain;
        self.stops.push(Stop { table: self.table.clone(), chain: chain.clone(), rule, rejects, certain });
    }

    fn chain(&mut self, name: &Name, chain: &ForeignChain, mut sure: bool, depth: usize) -> Way {
        for rule in &chain.rules {
            let (truth, action) = self.rule(rule);
            let yes = truth == Truth::Yes;
            match action.filter(|_| truth != Truth::No) {
                None | Some(Action::Go(Verdict::Continue)) => {}
                Some(Action::Go(Verdict::Accept)) if yes => return Way::Accepted,
                Some(Action::Go(Verdict::Accept)) => self.certain = false,
                Some(Action::Go(Verdict::Return)) if yes => return Way::On,
                Some(Action::Go(Verdict::Return)) => sure = false,
                Some(stop @ (Action::Go(Verdict::Drop) | Action::Reject)) => {
                    self.stop(name, Some(rule.handle), stop == Action::Reject, sure && yes);
                    if yes {
                        return Way::Stopped;
                    }
                }
                Some(Action::Go(Verdict::Jump(to) | Verdict::Goto(to))) if depth > 0 => {
                    let rules = self.rules;
                    let Some(next) = rules.chains.get(&(self.table.clone(), to.clone())) else { continue };
                    let way = self.chain(&to, next, sure && yes, depth - 1);
                    if yes && way != Way::On {
                        return way;
                    }
                    self.certain &= way != Way::Accepted;
                }
                Some(Action::Go(_)) => sure = false,
            }
        }
        Way::On
    }

    /// Whether a rule matches, and its action.
    fn rule(&self, rule: &ForeignRule) -> (Truth, Option<Action>) {
        let (mut registers, mut all) = ([Bits::UNKNOWN; 64], Truth::Yes);
        for step in &rule.steps {
            let (truth, action) = self.step(step, &mut registers);
            match truth {
                Truth::No => return (Truth::No, None),
                Truth::Unclear => all = Truth::Unclear,
                Truth::Yes => {}
            }
            if action.is_some() {
                return (all, action);
            }
        }
        (all, None)
    }

    fn step(&self, step: &Step, registers: &mut [Bits; 64]) -> (Truth, Option<Action>) {
        let matched = |truth| (truth, None);
        let at =
            |registers: &[Bits; 64], from: usize, length: usize| registers.get(from..from + length).map(<[_]>::to_vec);
        match step {
            Step::Load(to, header, offset, length) => {
                let bytes: Vec<Bits> = (*offset..offset + length).map(|place| self.header(*header, place)).collect();
                put(registers, *to, &bytes);
            }
            Step::Meta(to, key) => return matched(self.meta(*to, *key, registers)),
            Step::Connection(to, key) => {
                let state = u32::from(NEW).to_ne_bytes().map(Bits::known);
                put(registers, *to, if *key == 0 { &state } else { &[Bits::UNKNOWN; 16] });
            }
            Step::Constant(to, value) => {
                put(registers, *to, &value.iter().copied().map(Bits::known).collect::<Vec<_>>());
            }
            Step::Mask(from, to, mask, xor) => {
                let Some(bytes) = at(registers, *from, mask.len()) else { return matched(Truth::Unclear) };
                let bytes = bytes.iter().zip(mask.iter().zip(xor));
                let bytes: Vec<Bits> = bytes.map(|(byte, (mask, xor))| byte.masked(*mask, *xor)).collect();
                put(registers, *to, &bytes);
            }
            Step::Compare(from, comparison, value) => {
                let bytes = at(registers, *from, value.len());
                return matched(bytes.map_or(Truth::Unclear, |bytes| bits::compare(&bytes, *comparison, value)));
            }
            Step::Between(from, negate, low, high) => {
                let Some(bytes) = at(registers, *from, low.len()) else { return matched(Truth::Unclear) };
                let ends = [(Comparison::AtLeast, low), (Comparison::AtMost, high)];
                let ends = ends.map(|(comparison, end)| bits::compare(&bytes, comparison, end));
                let within = if ends.contains(&Truth::No) {
                    Truth::No
                } else if ends.contains(&Truth::Unclear) {
                    Truth::Unclear
                } else {
                    Truth::Yes
                };
                return matched(within.negated(*negate));
            }
            Step::Lookup { from, set, negate, verdict } => {
                let Some(set) = self.rules.sets.get(&(self.table.clone(), set.clone())) else {
                    return matched(Truth::Unclear);
                };
                let key = at(registers, *from, set.length).and_then(|bytes| bits::all(&bytes));
                return look_up(set, key.as_deref(), *negate, *verdict);
            }
            Step::Ports { protocol, source, destination } => {
                return matched(self.ports(*protocol, *source, *destination));
            }
            Step::State(mask, negate) => return matched(Truth::of(mask & NEW != 0).negated(*negate)),
            Step::Go(verdict) => return (Truth::Yes, Some(Action::Go(verdict.clone()))),
            Step::Reject => return (Truth::Yes, Some(Action::Reject)),
            Step::Nothing => {}
            Step::Unclear(_) => {
                *registers = [Bits::UNKNOWN; 64];
                return matched(Truth::Unclear);
            }
        }
        (Truth::Yes, None)
    }

    /// A header byte.
    fn header(&self, header: Header, place: usize) -> Bits {
        let packet = self.packet;
        let among = |start: usize, address: Option<IpAddr>| {
            let bytes = address.map(address_bytes)?;
            place.checked_sub(start).and_then(|index| bytes.get(index).copied()).map(Bits::known)
        };
        let found = match (header, self.family) {
            (Header::Transport, _) => {
                let port = packet.port.to_be_bytes();
                match place {
                    2 | 3 => Some(Bits::known(port[place - 2])),
                    // TCP flags: SYN.
                    13 if packet.protocol == 6 => Some(Bits::partly(2, 0x3f)),
                    _ => None,
                }
            }
            (Header::Network, Family::Ip) => match place {
                0 => Some(Bits::known(0x45)),
                9 => Some(Bits::known(packet.protocol)),
                12..16 => among(12, packet.source),
                16..20 => among(16, Some(packet.destination)),
                _ => None,
            },
            (Header::Network, Family::Ip6) => match place {
                6 => Some(Bits::known(packet.protocol)),
                8..24 => among(8, packet.source),
                24..40 => among(24, Some(packet.destination)),
                _ => None,
            },
        };
        found.unwrap_or(Bits::UNKNOWN)
    }

    fn meta(&self, to: usize, key: u32, registers: &mut [Bits; 64]) -> Truth {
        // `meta` keys of known properties.
        const PROTOCOL: u32 = 1;
        const IN: [u32; 3] = [4, 6, 8];
        const FAMILY: u32 = 15;
        const TRANSPORT: u32 = 16;
        let v4 = self.family == Family::Ip;
        match key {
            PROTOCOL => put(registers, to, &(if v4 { [8, 0] } else { [0x86, 0xdd] }).map(Bits::known)),
            FAMILY => put(registers, to, &[Bits::known(if v4 { 2 } else { 10 })]),
            TRANSPORT => put(registers, to, &[Bits::known(self.packet.protocol)]),
            // Packets of this machine have no incoming interface: rules with one do not match.
            key if self.hook == Hook::Output && IN.contains(&key) => return Truth::No,
            _ => put(registers, to, &[Bits::UNKNOWN; 16]),
        }
        Truth::Yes
    }

    fn ports(&self, protocol: u8, source: (u16, u16, bool), destination: (u16, u16, bool)) -> Truth {
        if protocol != self.packet.protocol {
            return Truth::No;
        }
        let (first, last, negate) = destination;
        let fits = (first..=last).contains(&self.packet.port) != negate;
        match (fits, source) {
            (false, _) => Truth::No,
            (true, (0, u16::MAX, false)) => Truth::Yes,
            (true, _) => Truth::Unclear,
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
enum Action {
    Go(Verdict),
    Reject,
}

fn put(registers: &mut [Bits; 64], to: usize, bytes: &[Bits]) {
    for (place, byte) in bytes.iter().enumerate() {
        if let Some(register) = registers.get_mut(to + place) {
            *register = *byte;
        }
    }
}

fn look_up(set: &ForeignSet, key: Option<&[u8]>, negate: bool, verdict: bool) -> (Truth, Option<Action>) {
    let Some(key) = key.filter(|_| !set.opaque) else { return (Truth::Unclear, None) };
    let found = if set.interval {
        let before = set.elements.iter().filter(|(start, _)| **start <= *key);
        before
            .max_by(|(one, a), (other, b)| one.cmp(other).then(a.is_some().cmp(&b.is_some())))
            .and_then(|(_, to)| to.as_ref())
    } else {
        set.elements.iter().find(|(start, _)| **start == *key).and_then(|(_, to)| to.as_ref())
    };
    match (found, verdict) {
        (Some(Some(to)), true) => (Truth::Yes, Some(Action::Go(to.clone()))),
        (None, true) => (Truth::No, None),
        (found, _) => (Truth::of(found.is_some()).negated(negate), None),
    }
}

#[cfg(test)]
mod tests;
