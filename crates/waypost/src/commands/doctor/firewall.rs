//! Firewall rules of other programs in nftables and iptables, for the doctor.
//!
//! In: the rules as the kernel has them. Out: those that drop a packet, as text, with the command that deletes them.

use std::net::SocketAddr;
use std::ops::Range;

use cli::doctor::{DropRule, Firewall, Hook, Packet};
use kernel::nft;
use kernel::nft::foreign::{self, Ruleset, Stop, TableName, is_legacy, judge, words};
use plan::Protocol;

/// The rules.
#[derive(Debug)]
pub(super) struct NetfilterRules(pub(super) Ruleset);

/// Whether a table is one of Waypost.
pub(super) fn is_ours(table: &TableName) -> bool {
    table.1.starts_with(dataplane::nft::TABLE)
}

impl Firewall for NetfilterRules {
    fn drops(&self, packet: &Packet, hook: Hook, priorities: Range<i32>) -> Vec<DropRule> {
        let Packet { source, destination, protocol } = *packet;
        let at = match hook {
            Hook::Prerouting => nft::Hook::Prerouting,
            Hook::Input => nft::Hook::Input,
            Hook::Forward => nft::Hook::Forward,
            Hook::Output => nft::Hook::Output,
            Hook::Postrouting => nft::Hook::Postrouting,
        };
        let evaluated = foreign::Packet {
            source,
            destination: destination.ip(),
            protocol: protocol.number(),
            port: destination.port(),
        };
        let stops = judge(&self.0, &evaluated, at, priorities, is_ours);
        let rule = |stop: Stop| DropRule {
            description: description(&self.0, &stop),
            certain: stop.certain,
            fix: fix(&stop, destination, protocol),
        };
        stops.into_iter().map(rule).collect()
    }

    fn tables(&self) -> Vec<String> {
        let others = self.0.tables.iter().filter(|table| !is_ours(table));
        others.map(|(family, name)| format!("{family} {name}")).collect()
    }
}

/// A rule or a policy as text.
fn description(rules: &Ruleset, stop: &Stop) -> String {
    let (family, table) = &stop.table;
    let chain = &stop.chain;
    let Some(handle) = stop.rule else { return format!("the policy drop of chain {chain} in table {family} {table}") };
    let number = if is_legacy(&stop.table).is_some() { "number" } else { "handle" };
    let found = rules.chains.get(&(stop.table.clone(), chain.clone()));
    let rule = found.and_then(|chain| chain.rules.iter().find(|rule| rule.handle == handle));
    let text = rule.map(|rule| words(rule, *family)).unwrap_or_default();
    format!("rule `{text}` ({number} {handle}) of chain {chain} in table {family} {table}")
}

/// The command that deletes the rule, or accepts the packet before a policy drops it.
fn fix(stop: &Stop, to: SocketAddr, protocol: Protocol) -> String {
    let (family, table) = &stop.table;
    let chain = &stop.chain;
    let protocol = protocol.as_str().to_lowercase();
    if let Some(table) = is_legacy(&stop.table) {
        let program = if to.is_ipv4() { "iptables-legacy" } else { "ip6tables-legacy" };
        return match stop.rule {
            Some(number) => format!("{program} -t {table} -D {chain} {number}"),
            None => {
                format!("{program} -t {table} -I {chain} -d {} -p {protocol} --dport {} -j ACCEPT", to.ip(), to.port())
            }
        };
    }
    match stop.rule {
        Some(handle) => format!("nft delete rule {family} {table} {chain} handle {handle}"),
        None => {
            let header = if to.is_ipv4() { "ip" } else { "ip6" };
            format!(
                "nft insert rule {family} {table} {chain} {header} daddr {} {protocol} dport {} accept",
                to.ip(),
                to.port()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel::nft::Verdict;
    use kernel::nft::foreign::{Comparison, Entry, ForeignChain, ForeignRule, Header, Step, TableFamily};

    use super::*;

    const FORWARD: Entry = Entry { hook: nft::Hook::Forward, priority: 0, translates: false, drops: false };

    fn rules(entry: Entry, steps: Vec<Step>) -> NetfilterRules {
        let table = (TableFamily::Inet, "guard".into());
        let chain = ForeignChain { entry: Some(entry), rules: vec![ForeignRule { handle: 7, steps }] };
        let mut rules = Ruleset { tables: vec![table.clone()], ..Ruleset::default() };
        rules.chains.insert((table, "forward".into()), chain);
        NetfilterRules(rules)
    }

    fn dport(port: u16) -> Vec<Step> {
        vec![
            Step::Load(0, Header::Transport, 2, 2),
            Step::Compare(0, Comparison::Equal, port.to_be_bytes().to_vec()),
            Step::Go(Verdict::Drop),
        ]
    }

    /// The rules that drop what a Pod sends to an endpoint.
    fn drops(rules: &NetfilterRules) -> Vec<DropRule> {
        let destination = "10.244.0.1:8080".parse().expect("an address");
        let packet = Packet { source: Some([10, 244, 0, 9].into()), destination, protocol: Protocol::Tcp };
        rules.drops(&packet, Hook::Forward, i32::MIN..i32::MAX)
    }

    #[test]
    fn a_rule_is_named_and_can_be_deleted() {
        let rules = rules(FORWARD, dport(8080));
        let [rule] = &drops(&rules)[..] else { panic!("not one rule") };
        assert_eq!(rule.description, "rule `dport 8080 drop` (handle 7) of chain forward in table inet guard");
        assert_eq!(rule.fix, "nft delete rule inet guard forward handle 7");
        assert!(rule.certain);
        assert_eq!(rules.tables(), ["inet guard"]);
    }

    #[test]
    fn other_ports_hooks_and_priorities_are_not_matched() {
        assert_eq!(drops(&rules(FORWARD, dport(80))), []);
        let early = Entry { hook: nft::Hook::Prerouting, priority: -300, ..FORWARD };
        assert_eq!(drops(&rules(early, dport(8080))), []);
        let destination = "10.244.0.1:8080".parse().expect("an address");
        let packet = Packet { source: None, destination, protocol: Protocol::Tcp };
        assert_eq!(rules(early, dport(8080)).drops(&packet, Hook::Prerouting, -100..i32::MAX), []);
        assert_eq!(rules(early, dport(8080)).drops(&packet, Hook::Prerouting, i32::MIN..-100).len(), 1);
    }

    #[test]
    fn a_rule_before_it_may_accept_the_source() {
        let accept = |ip: [u8; 4]| {
            let compare = Step::Compare(0, Comparison::Equal, ip.to_vec());
            let steps = vec![Step::Load(0, Header::Network, 12, 4), compare, Step::Go(Verdict::Accept)];
            ForeignRule { handle: 6, steps }
        };
        for (source, count) in [([203, 0, 113, 1], 1), ([10, 244, 0, 9], 0)] {
            let mut rules = rules(FORWARD, dport(8080));
            rules.0.chains.values_mut().next().expect("a chain").rules.insert(0, accept(source));
            assert_eq!(drops(&rules).len(), count, "{source:?}");
        }
    }

    #[test]
    fn a_policy_is_fixed_by_a_rule_that_accepts() {
        let dropping = Entry { drops: true, ..FORWARD };
        let [rule] = &drops(&rules(dropping, vec![]))[..] else { panic!("not one rule") };
        assert!(rule.description.contains("the policy drop of chain forward"), "{rule:?}");
        assert_eq!(rule.fix, "nft insert rule inet guard forward ip daddr 10.244.0.1 tcp dport 8080 accept");
    }

    #[test]
    fn a_rule_of_iptables_legacy_is_deleted_by_its_own_tool() {
        let mut rules = rules(FORWARD, dport(80));
        let text =
            "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p udp -j DROP\n-A FORWARD -d 10.244.0.0/16 -j DROP\nCOMMIT\n";
        let saved = kernel::iptables::Saved::parse(text.to_owned());
        rules.0.add_legacy(kernel::Family::Ip, &saved);
        let [rule] = &drops(&rules)[..] else { panic!("not one rule") };
        let text = "`ip daddr 10.244.0.0/16 drop` (number 2) of chain FORWARD in table ip filter of iptables-legacy";
        assert!(rule.description.contains(text), "{rule:?}");
        assert_eq!(rule.fix, "iptables-legacy -t filter -D FORWARD 2");
    }

    #[test]
    fn a_rule_with_an_unknown_match_is_not_certain() {
        let unclear = vec![Step::Unclear("limit".to_owned()), Step::Go(Verdict::Drop)];
        let [rule] = &drops(&rules(FORWARD, unclear))[..] else { panic!("not one rule") };
        assert!(!rule.certain);
    }
}
