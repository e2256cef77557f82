//! Rules of the old iptables beside those of nftables: the kernel heeds both.
//!
//! In: what `iptables-legacy-save` prints. Out: chains that [`super::judge`] walks like all others. What a rule asks for in words that we
//! do not know is unclear; where it leads then is known all the same. Tables that translate stop nothing and are left out.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Comparison, Entry, ForeignChain, ForeignRule, Header, Ruleset, Sort, Step, TableName};
use crate::iptables::{Match, Rule, Saved, State, Table, Target};
use crate::nft::{Hook, Verdict};
use crate::{Family, address_bytes};

/// What stands behind the names of its tables, which nftables can have, too.
const MARK: &str = " of iptables-legacy";
/// The kernel's number of the protocol of a packet.
const TRANSPORT: u32 = 16;
/// The kernel's number of the name of the interface that it came in by.
const INTERFACE: u32 = 6;

/// The name of a table of the old iptables, if that is what it is.
#[must_use]
pub fn is_legacy(table: &TableName) -> Option<&str> {
    table.1.strip_suffix(MARK)
}

impl Ruleset {
    /// Adds what the old iptables has for a family. The handles of its rules are their numbers in their chains, from one.
    pub fn add_legacy(&mut self, family: Family, saved: &Saved) {
        let sort = match family {
            Family::Ip => Sort::Ip,
            Family::Ip6 => Sort::Ip6,
        };
        for (table, priority) in [(Table::Mangle, -150), (Table::Filter, 0)] {
            if saved.is_bare(table) || saved.chains(table).next().is_none() {
                continue;
            }
            let name: TableName = (sort, format!("{table}{MARK}").into());
            self.tables.push(name.clone());
            for chain in saved.chains(table) {
                let entry = hook(chain).map(|hook| {
                    let drops = saved.drops(table, chain);
                    Entry { hook, priority, translates: false, drops }
                });
                let rules = (1..).zip(saved.lines(table, chain));
                let rules = rules.map(|(handle, line)| ForeignRule { handle, steps: steps(line) }).collect();
                self.chains.insert((name.clone(), chain.clone()), ForeignChain { entry, rules });
            }
        }
    }
}

/// Where packets enter a chain of this name by themselves.
fn hook(chain: &str) -> Option<Hook> {
    Some(match chain {
        "PREROUTING" => Hook::Prerouting,
        "INPUT" => Hook::Input,
        "FORWARD" => Hook::Forward,
        "OUTPUT" => Hook::Output,
        "POSTROUTING" => Hook::Postrouting,
        _ => return None,
    })
}

fn steps(line: &str) -> Vec<Step> {
    let Some(rule) = Rule::parse(line) else {
        let goes = Saved::leads_to(line).map(|name| goes(&name));
        return [Step::Unclear(line.to_owned())].into_iter().chain(goes).collect();
    };
    let mut steps: Vec<Step> = rule.matches().iter().flat_map(asked).collect();
    steps.push(match rule.target() {
        Target::Chain(name) => Step::Go(Verdict::Jump(name.clone())),
        Target::Accept => Step::Go(Verdict::Accept),
        Target::Drop => Step::Go(Verdict::Drop),
        Target::Return => Step::Go(Verdict::Return),
        Target::Reject | Target::Reset => Step::Reject,
        Target::Nothing | Target::Mark(_) | Target::Turn(_) | Target::Translate(_) | Target::Masquerade => {
            Step::Nothing
        }
    });
    steps
}

/// Where a word behind `-j` leads. One that is no chain, such as LOG, leads to none, and the next rule is next.
fn goes(word: &str) -> Step {
    match word {
        "ACCEPT" => Step::Go(Verdict::Accept),
        // A program may let it pass, or not.
        "DROP" | "QUEUE" | "NFQUEUE" => Step::Go(Verdict::Drop),
        "RETURN" => Step::Go(Verdict::Return),
        "REJECT" => Step::Reject,
        chain => Step::Go(Verdict::Jump(chain.into())),
    }
}

/// What must be true of a packet, as steps.
fn asked(what: &Match) -> Vec<Step> {
    match what {
        Match::Source { range, not } => address(if range.addr().is_ipv4() { 12 } else { 8 }, range, *not),
        Match::Destination { range, not } => address(if range.addr().is_ipv4() { 16 } else { 24 }, range, *not),
        Match::Protocol { transport, not } => {
            vec![Step::Meta(0, TRANSPORT), Step::Compare(0, equal(*not), vec![transport.number()])]
        }
        Match::Port(transport, port) => vec![Step::Ports {
            protocol: transport.number(),
            source: (0, u16::MAX, false),
            destination: (*port, *port, false),
        }],
        Match::State(state) => {
            let bits = match state {
                State::Invalid => 1,
                State::Known => 2 | 4,
                State::New => 8,
            };
            vec![Step::State(bits, false)]
        }
        Match::Interface { name, not: false } => {
            vec![Step::Meta(0, INTERFACE), Step::Compare(0, Comparison::Equal, name.as_bytes().to_vec())]
        }
        other => vec![Step::Unclear(other.to_string())],
    }
}

const fn equal(not: bool) -> Comparison {
    if not { Comparison::Unequal } else { Comparison::Equal }
}

fn address(offset: usize, range: &IpNet, not: bool) -> Vec<Step> {
    let (bytes, mask): (Vec<u8>, IpAddr) = (address_bytes(range.network()), range.netmask());
    let (mask, nothing) = (address_bytes(mask), vec![0; bytes.len()]);
    vec![
        Step::Load(0, Header::Network, offset, bytes.len()),
        Step::Mask(0, 0, mask, nothing),
        Step::Compare(0, equal(not), bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{Packet, judge};
    use super::*;

    fn ruleset(filter: &str) -> Ruleset {
        let text =
            format!("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{filter}COMMIT\n");
        let mut rules = Ruleset::default();
        rules.add_legacy(Family::Ip, &Saved::parse(text));
        rules
    }

    /// The rules that stop a packet to 10.244.0.1:8080 when it is forwarded, and whether they surely do.
    fn stops(filter: &str) -> Vec<(Option<u64>, bool)> {
        let ip = |text: &str| text.parse().expect("an address");
        let source = Some(ip("10.244.0.9"));
        let packet = Packet { source, destination: ip("10.244.0.1"), protocol: 6, port: 8080 };
        let found = judge(&ruleset(filter), &packet, Hook::Forward, i32::MIN..i32::MAX, |_| false);
        found.into_iter().map(|stop| (stop.rule, stop.certain)).collect()
    }

    #[test]
    fn rules_that_are_understood_stop_or_let_pass() {
        assert_eq!(stops("-A FORWARD -d 10.244.0.0/16 -j DROP\n"), [(Some(1), true)]);
        assert_eq!(stops("-A FORWARD -d 10.245.0.0/16 -j DROP\n"), []);
        assert_eq!(stops("-A FORWARD ! -s 10.244.0.0/16 -j DROP\n"), []);
        assert_eq!(
            stops("-A FORWARD -p tcp -m tcp --dport 8080 -j REJECT --reject-with icmp-port-unreachable\n"),
            [(Some(1), true)]
        );
        assert_eq!(stops("-A FORWARD -p udp -j DROP\n-A FORWARD -p tcp -m tcp --dport 81 -j DROP\n"), []);
        assert_eq!(stops("-A FORWARD -s 10.244.0.9/32 -j ACCEPT\n-A FORWARD -j DROP\n"), []);
        let ctstate = "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A FORWARD -j DROP\n";
        assert_eq!(stops(ctstate), [(Some(2), true)]);
    }

    #[test]
    fn chains_are_followed_and_what_is_not_understood_is_not_certain() {
        assert_eq!(stops(":MINE - [0:0]\n-A FORWARD -j MINE\n-A MINE -p tcp -j RETURN\n-A MINE -j DROP\n"), []);
        assert_eq!(stops(":MINE - [0:0]\n-A FORWARD -j MINE\n-A MINE -j DROP\n"), [(Some(1), true)]);
        assert_eq!(stops("-A FORWARD -m limit --limit 3/min -j DROP\n"), [(Some(1), false)]);
        assert_eq!(stops("-A FORWARD -m recent --name x --rcheck -j ACCEPT\n-A FORWARD -j DROP\n"), [(Some(2), false)]);
        assert_eq!(stops("-A FORWARD -j LOG --log-prefix x\n"), []);
        assert_eq!(stops("-A FORWARD -i eth0 -j DROP\n"), [(Some(1), false)]);
    }

    #[test]
    fn policies_drop_and_tables_that_hold_nothing_are_not_there() {
        let mut rules = Ruleset::default();
        rules.add_legacy(Family::Ip, &Saved::parse("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n".to_owned()));
        let chain = rules.chains.values().next().expect("a chain");
        assert!(chain.entry.is_some_and(|entry| entry.drops));
        assert_eq!(is_legacy(&rules.tables[0]), Some("filter"));
        assert!(ruleset("").tables.is_empty());
    }
}
