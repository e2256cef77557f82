//! Rules of legacy iptables, which the kernel evaluates in addition to nftables.
//!
//! In: the output of `iptables-legacy-save`. Out: chains for [`super::judge`]. Unknown matches make a rule uncertain;
//! its target is still known. NAT tables stop nothing and are skipped.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Comparison, Entry, ForeignChain, ForeignRule, Header, Ruleset, Step, TableFamily, TableName};
use crate::iptables::{Match, Rule, Saved, State, Table, Target};
use crate::nft::{Hook, Verdict};
use crate::{Family, address_bytes};

/// Suffix of its table names, to tell them from nftables.
const MARK: &str = " of iptables-legacy";
/// `meta l4proto`.
const TRANSPORT: u32 = 16;
/// `meta iifname`.
const INTERFACE: u32 = 6;

/// The name of a legacy iptables table, if it is one.
#[must_use]
pub fn is_legacy(table: &TableName) -> Option<&str> {
    table.1.strip_suffix(MARK)
}

impl Ruleset {
    /// Adds the legacy iptables rules of a family. Handles are rule numbers, from one.
    pub fn add_legacy(&mut self, family: Family, saved: &Saved) {
        let sort = match family {
            Family::Ip => TableFamily::Ip,
            Family::Ip6 => TableFamily::Ip6,
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

/// The hook of a built-in chain.
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
        Target::Nothing | Target::Mark(_) | Target::XorMark(_) | Target::Translate(_) | Target::Masquerade => {
            Step::Nothing
        }
    });
    steps
}

/// The step of a target. One that is no chain, such as LOG, continues with the next rule.
fn goes(word: &str) -> Step {
    match word {
        "ACCEPT" => Step::Go(Verdict::Accept),
        // A userspace program may accept it, or not.
        "DROP" | "QUEUE" | "NFQUEUE" => Step::Go(Verdict::Drop),
        "RETURN" => Step::Go(Verdict::Return),
        "REJECT" => Step::Reject,
        chain => Step::Go(Verdict::Jump(chain.into())),
    }
}

/// A match as steps.
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

    /// Rules that stop a forwarded packet to 10.244.0.1:8080, and whether that is certain.
    fn stops(filter: &str) -> Vec<(Option<u64>, bool)> {
        let ip = |text: &str| text.parse().expect("an address");
        let source = Some(ip("10.244.0.9"));
        let packet = Packet { source, destination: ip("10.244.0.1"), protocol: 6, port: 8080 };
        let found = judge(&ruleset(filter), &packet, Hook::Forward, i32::MIN..i32::MAX, |_| false);
        found.into_iter().map(|stop| (stop.rule, stop.certain)).collect()
    }

    #[test]
    fn known_rules_stop_or_accept() {
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
    fn jumps_are_followed_and_unknown_matches_are_uncertain() {
        assert_eq!(stops(":MINE - [0:0]\n-A FORWARD -j MINE\n-A MINE -p tcp -j RETURN\n-A MINE -j DROP\n"), []);
        assert_eq!(stops(":MINE - [0:0]\n-A FORWARD -j MINE\n-A MINE -j DROP\n"), [(Some(1), true)]);
        assert_eq!(stops("-A FORWARD -m limit --limit 3/min -j DROP\n"), [(Some(1), false)]);
        assert_eq!(stops("-A FORWARD -m recent --name x --rcheck -j ACCEPT\n-A FORWARD -j DROP\n"), [(Some(2), false)]);
        assert_eq!(stops("-A FORWARD -j LOG --log-prefix x\n"), []);
        assert_eq!(stops("-A FORWARD -i eth0 -j DROP\n"), [(Some(1), false)]);
    }

    #[test]
    fn policies_drop_and_empty_tables_are_skipped() {
        let mut rules = Ruleset::default();
        rules.add_legacy(Family::Ip, &Saved::parse("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n".to_owned()));
        let chain = rules.chains.values().next().expect("a chain");
        assert!(chain.entry.is_some_and(|entry| entry.drops));
        assert_eq!(is_legacy(&rules.tables[0]), Some("filter"));
        assert!(ruleset("").tables.is_empty());
    }
}
