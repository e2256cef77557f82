//! The path of a packet through the chains: the same hooks as in nftables, with the tables of iptables at their
//! priorities. The nat table sees only the first packet of a connection.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::Inner;
use crate::Family;
use crate::iptables::{Match, Name, Rule, State, Table, Target};
use crate::nft::Hook;
use crate::nft::fake::{End, Fate, Packet};

/// Evaluates a packet.
pub(super) fn evaluate(inner: &mut Inner, packet: &Packet, chance: &mut dyn FnMut(f64) -> bool) -> Fate {
    let mut walk = Walk {
        inner,
        chance,
        family: Family::of(packet.destination),
        packet: packet.clone(),
        interface: String::new(),
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
    inner: &'a mut Inner,
    chance: &'a mut dyn FnMut(f64) -> bool,
    family: Family,
    packet: Packet,
    /// Interface that rules see at the current hook; empty if none.
    interface: String,
    /// Whether the NAT decision for the destination, and for the source, has been made.
    destination_done: bool,
    source_done: bool,
    translated: Option<(IpAddr, u16)>,
    masqueraded: bool,
    remembered: BTreeSet<Name>,
}

/// Result of a rule or chain.
enum Step {
    /// Continue with the next rule.
    Next,
    /// Return to the calling chain.
    Return,
    /// Continue with the next table.
    Accept,
    /// Final verdict.
    Stop(End),
}

impl Walk<'_> {
    /// Passes the hooks. The error is the hook and verdict, if it was not delivered.
    fn travel(&mut self) -> Result<(), (Hook, End)> {
        if let Some(interface) = self.packet.interface.clone() {
            self.interface = interface;
            self.pass(Hook::Prerouting)?;
            if self.inner.local.contains(&self.packet.destination) {
                return self.pass(Hook::Input);
            }
            self.pass(Hook::Forward)?;
            self.interface.clear();
            return self.pass(Hook::Postrouting);
        }
        self.pass(Hook::Output)?;
        self.pass(Hook::Postrouting)?;
        if self.inner.local.contains(&self.packet.destination) {
            "lo".clone_into(&mut self.interface);
            self.pass(Hook::Prerouting)?;
            self.pass(Hook::Input)?;
        }
        Ok(())
    }

    /// Runs the tables of a hook.
    fn pass(&mut self, hook: Hook) -> Result<(), (Hook, End)> {
        let destination = matches!(hook, Hook::Prerouting | Hook::Output);
        let (tables, chain): (&[Table], &str) = match hook {
            Hook::Prerouting => (&[Table::Mangle, Table::Nat], "PREROUTING"),
            Hook::Input => (&[Table::Mangle, Table::Filter, Table::Nat], "INPUT"),
            Hook::Forward => (&[Table::Mangle, Table::Filter], "FORWARD"),
            Hook::Output => (&[Table::Mangle, Table::Nat, Table::Filter], "OUTPUT"),
            Hook::Postrouting => (&[Table::Mangle, Table::Nat], "POSTROUTING"),
        };
        for table in tables {
            let settled = if destination { self.destination_done } else { self.source_done };
            if *table == Table::Nat && settled {
                continue;
            }
            if let Step::Stop(end) = self.chain(*table, chain) {
                return Err((hook, end));
            }
        }
        self.destination_done |= destination;
        self.source_done |= !destination && hook != Hook::Forward;
        Ok(())
    }

    /// Runs a chain and those it refers to. Loops were excluded when they were created.
    fn chain(&mut self, table: Table, name: &str) -> Step {
        let rules = self.inner.tables.get(&self.family).and_then(|tables| tables.chain(table, name));
        let Some(rules) = rules.map(Arc::clone) else { return Step::Next };
        for rule in rules.iter() {
            match self.rule((table, name), rule) {
                Step::Next => {}
                Step::Return => return Step::Next,
                end => return end,
            }
        }
        Step::Next
    }

    fn rule(&mut self, (table, chain): (Table, &str), rule: &Rule) -> Step {
        if !rule.matches().iter().all(|one| self.matches(one, (chain, rule))) {
            return Step::Next;
        }
        match rule.target() {
            Target::Nothing => Step::Next,
            Target::Chain(name) => self.chain(table, name),
            Target::Accept => Step::Accept,
            Target::Drop => Step::Stop(End::Dropped),
            Target::Return => Step::Return,
            Target::Reject | Target::Reset => Step::Stop(End::Rejected),
            Target::Mark(bits) => {
                self.packet.mark |= bits;
                Step::Next
            }
            Target::XorMark(bits) => {
                self.packet.mark ^= bits;
                Step::Next
            }
            Target::Translate(to) => {
                (self.packet.destination, self.packet.port) = (to.ip(), to.port());
                self.translated = Some((to.ip(), to.port()));
                self.destination_done = true;
                Step::Accept
            }
            Target::Masquerade => {
                self.masqueraded = true;
                self.source_done = true;
                Step::Accept
            }
        }
    }

    fn matches(&mut self, one: &Match, (chain, rule): (&str, &Rule)) -> bool {
        let packet = &self.packet;
        match one {
            Match::Source { range, not } => range.contains(&packet.source) != *not,
            Match::Destination { range, not } => range.contains(&packet.destination) != *not,
            Match::Interface { name, not } => {
                let same = match name.strip_suffix('+') {
                    Some(beginning) => self.interface.starts_with(beginning),
                    None => self.interface == *name,
                };
                same != *not
            }
            Match::Protocol { transport, not } => (packet.protocol == transport.number()) != *not,
            Match::Port(transport, port) => packet.protocol == transport.number() && packet.port == *port,
            Match::State(state) => match state {
                State::New => packet.first,
                State::Known => !packet.first,
                State::Invalid => false,
            },
            Match::LocalSource => self.inner.local.contains(&packet.source),
            Match::LocalDestination => self.inner.local.contains(&packet.destination),
            Match::Marked { bits, not } => (packet.mark & bits == *bits) != *not,
            Match::RecentCheck { list, seconds } => {
                let seen = self.inner.lists.get(list).and_then(|list| list.get(&packet.source));
                seen.is_some_and(|seen| self.inner.clock <= seen + u64::from(*seconds))
            }
            Match::RecentSet { list } => {
                self.inner.lists.entry(list.clone()).or_default().insert(packet.source, self.inner.clock);
                self.remembered.insert(list.clone());
                true
            }
            Match::OneIn(_) | Match::Chance(_) => one.probability().is_some_and(|chance| (self.chance)(chance)),
            Match::EveryNth(count) => {
                let counted = self.inner.counted.entry(format!("{chain} {rule}")).or_default();
                let is_turn = *counted == 0;
                *counted = (*counted + 1) % count.max(&1);
                is_turn
            }
        }
    }
}
