//! Firewall rules of other programs on the path of a Service's packets.
//!
//! The first packet of a connection, from this node and from a Pod, is evaluated against every chain on its path. A rule that certainly
//! drops it is a failure; one that may drop it is named, and measured by the TCP connections of other checks.

use std::net::{IpAddr, SocketAddr};

use api::value::ValueExt as _;
use kernel::nft::Hook;
use kernel::nft::foreign::{Packet, Ruleset, Stop, TableName, is_legacy, judge, words};
use plan::Protocol;

use super::super::evidence::{Endpoint, Evidence, is_over};
use super::super::verdict::CheckResult;
use super::super::words::listed;

/// The priority of DNAT: chains before it match the Service address, chains after it the endpoint.
const TRANSLATION: i32 = -100;
/// How many endpoints of each port are evaluated.
const SAMPLE: usize = 8;

/// A point of the path: the hook, the destination there, the priorities.
type Point = (Hook, SocketAddr, std::ops::Range<i32>);

/// The source of the evaluated packet: this node, or a Pod of it.
fn sender(evidence: &Evidence<'_>, hook: Hook, to: IpAddr) -> Option<IpAddr> {
    let fits = |ip: &IpAddr| ip.is_ipv4() == to.is_ipv4();
    if hook == Hook::Output {
        return evidence.node_ips().into_iter().find(fits);
    }
    let node = evidence.here.node.as_ref().ok()?;
    let pods = evidence.cluster.pods.iter().filter(|pod| pod.text("spec.nodeName") == node && !is_over(pod));
    let ips = pods.flat_map(|pod| pod.items("status.podIPs")).filter_map(|one| one.text("ip").parse().ok());
    let ips: Vec<IpAddr> = ips.filter(fits).collect();
    // Another one than the endpoint, if there is one.
    ips.iter().find(|ip| **ip != to).or_else(|| ips.first()).copied()
}

/// Whether rules of other programs accept the packets.
pub(super) fn foreign(evidence: &Evidence<'_>) -> CheckResult {
    let rules = match &evidence.here.firewall {
        Ok(rules) => rules,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let ways = ways(evidence);
    if ways.is_empty() {
        return CheckResult::not_applicable("there is no ready endpoint");
    }
    let mut perhaps: Option<(String, SocketAddr)> = None;
    for (protocol, point) in ways {
        let (hook, to, priorities) = point;
        let source = sender(evidence, hook, to.ip());
        let packet = Packet { source, destination: to.ip(), protocol: protocol.number(), port: to.port() };
        for stop in judge(rules, &packet, hook, priorities, is_ours) {
            let said = said(rules, &stop);
            if stop.certain {
                return CheckResult::failed(
                    format!("{said} drops packets to {to} over {protocol}"),
                    fix(&stop, to, protocol),
                );
            }
            perhaps.get_or_insert((said, to));
        }
    }
    let others: Vec<String> =
        rules.tables.iter().filter(|table| !is_ours(table)).map(|(sort, name)| format!("{sort} {name}")).collect();
    if let Some((said, to)) = perhaps {
        return CheckResult::not_measured(
            format!("{said} may drop packets to {to}: it matches on what is not known here"),
            "connect from the client itself; `nft monitor trace` shows the path of its packets",
        );
    }
    if let Some(why) = &evidence.here.legacy {
        return CheckResult::not_measured(
            format!("no nftables rule drops packets, but iptables-legacy has tables, too: {why}"),
            "iptables-legacy-save",
        );
    }
    match others.is_empty() {
        true => CheckResult::passed("there are no tables of other programs"),
        false => CheckResult::passed(format!("no rule drops packets in {}", listed(&others))),
    }
}

fn is_ours(table: &TableName) -> bool {
    table.1.starts_with("waypost")
}

/// The points on the path of packets to a Service.
fn ways(evidence: &Evidence<'_>) -> Vec<(Protocol, Point)> {
    let own = evidence.node_ips();
    let ready = evidence.ready();
    let mut found = Vec::new();
    for port in evidence.ports() {
        let behind = |ip: &IpAddr| -> Vec<&Endpoint> {
            let fits = |one: &&Endpoint| {
                one.port == port.name && one.protocol == port.protocol && one.address.is_ipv4() == ip.is_ipv4()
            };
            ready.iter().filter(fits).take(SAMPLE).collect()
        };
        let mut add = |hook, to, priorities| found.push((port.protocol, (hook, to, priorities)));
        // Without an address of its own, its endpoints are asked straight.
        let ips = evidence.cluster_ips();
        let families = if ips.is_empty() { ready.iter().map(|one| one.address.ip()).collect() } else { ips.clone() };
        for ip in &families {
            let endpoints = behind(ip);
            if endpoints.is_empty() {
                continue;
            }
            if ips.contains(ip) {
                let vip = SocketAddr::new(*ip, port.number);
                add(Hook::Output, vip, i32::MIN..TRANSLATION);
                add(Hook::Prerouting, vip, i32::MIN..TRANSLATION);
            }
            for endpoint in endpoints {
                let to = endpoint.address;
                let last = if own.contains(&to.ip()) { Hook::Input } else { Hook::Forward };
                add(Hook::Output, to, TRANSLATION..i32::MAX);
                add(Hook::Prerouting, to, TRANSLATION..i32::MAX);
                add(last, to, i32::MIN..i32::MAX);
                add(Hook::Postrouting, to, i32::MIN..i32::MAX);
            }
        }
    }
    found
}

/// A rule or a policy as text.
fn said(rules: &Ruleset, stop: &Stop) -> String {
    let (sort, table) = &stop.table;
    let chain = &stop.chain;
    let Some(handle) = stop.rule else { return format!("the policy drop of chain {chain} in table {sort} {table}") };
    let number = if is_legacy(&stop.table).is_some() { "number" } else { "handle" };
    let found = rules.chains.get(&(stop.table.clone(), chain.clone()));
    let rule = found.and_then(|chain| chain.rules.iter().find(|rule| rule.handle == handle));
    let text = rule.map(|rule| words(rule, *sort)).unwrap_or_default();
    format!("rule `{text}` ({number} {handle}) of chain {chain} in table {sort} {table}")
}

fn fix(stop: &Stop, to: SocketAddr, protocol: Protocol) -> String {
    let (sort, table) = &stop.table;
    let chain = &stop.chain;
    if let Some(table) = is_legacy(&stop.table) {
        let program = if to.is_ipv4() { "iptables-legacy" } else { "ip6tables-legacy" };
        let protocol = protocol.as_str().to_lowercase();
        return match stop.rule {
            Some(number) => format!("{program} -t {table} -D {chain} {number}"),
            None => {
                format!("{program} -t {table} -I {chain} -d {} -p {protocol} --dport {} -j ACCEPT", to.ip(), to.port())
            }
        };
    }
    match stop.rule {
        Some(handle) => format!("nft delete rule {sort} {table} {chain} handle {handle}"),
        None => {
            let family = if to.is_ipv4() { "ip" } else { "ip6" };
            let protocol = protocol.as_str().to_lowercase();
            format!(
                "nft insert rule {sort} {table} {chain} {family} daddr {} {protocol} dport {} accept",
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
    use serde_json::json;

    use super::super::super::testing::{World, failed, not_applicable, not_measured, passed};
    use super::*;

    fn world(entry: Entry, steps: Vec<Step>) -> World {
        let mut world = World::new();
        world.service("default", "web", json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "protocol": "TCP"}]}));
        world.slice("default", "web", 8080, &[("10.244.0.1", true, "n1")]);
        let table = (TableFamily::Inet, "guard".into());
        let chain = ForeignChain { entry: Some(entry), rules: vec![ForeignRule { handle: 7, steps }] };
        let mut rules = Ruleset { tables: vec![table.clone()], ..Ruleset::default() };
        rules.chains.insert((table, "forward".into()), chain);
        world.here.firewall = Ok(rules);
        world
    }

    fn dport(port: u16) -> Vec<Step> {
        vec![
            Step::Load(0, Header::Transport, 2, 2),
            Step::Compare(0, Comparison::Equal, port.to_be_bytes().to_vec()),
            Step::Go(Verdict::Drop),
        ]
    }

    const FORWARD: Entry = Entry { hook: Hook::Forward, priority: 0, translates: false, drops: false };

    #[test]
    fn a_rule_that_drops_what_goes_to_the_endpoint_is_named_and_can_be_deleted() {
        let (saw, fix) = failed(world(FORWARD, dport(8080)).check("default", "web", foreign));
        assert!(saw.contains("`dport 8080 drop` (handle 7) of chain forward in table inet guard"), "{saw}");
        assert_eq!(fix, "nft delete rule inet guard forward handle 7");
        passed(world(FORWARD, dport(80)).check("default", "web", foreign));
    }

    #[test]
    fn what_is_accepted_from_others_is_not_accepted_from_the_pods_of_this_node() {
        let mut world = world(FORWARD, dport(8080));
        world.pod("default", "client", json!({}));
        world.cluster.pods[0].put("status.podIPs", json!([{"ip": "10.244.0.9"}]));
        let rules = world.here.firewall.as_mut().expect("rules");
        let chain = rules.chains.values_mut().next().expect("a chain");
        let from = |ip: [u8; 4]| {
            let compare = Step::Compare(0, Comparison::Equal, ip.to_vec());
            ForeignRule {
                handle: 6,
                steps: vec![Step::Load(0, Header::Network, 12, 4), compare, Step::Go(Verdict::Accept)],
            }
        };
        chain.rules.insert(0, from([203, 0, 113, 1]));
        failed(world.check("default", "web", foreign));
        let rules = world.here.firewall.as_mut().expect("rules");
        rules.chains.values_mut().next().expect("a chain").rules[0] = from([10, 244, 0, 9]);
        passed(world.check("default", "web", foreign));
    }

    #[test]
    fn before_the_translation_the_service_is_seen() {
        let early = Entry { hook: Hook::Prerouting, priority: -300, ..FORWARD };
        failed(world(early, dport(80)).check("default", "web", foreign));
        passed(world(early, dport(8080)).check("default", "web", foreign));
    }

    #[test]
    fn a_policy_that_drops_is_named_with_the_rule_that_opens_it() {
        let shut = Entry { drops: true, ..FORWARD };
        let (saw, fix) = failed(world(shut, vec![]).check("default", "web", foreign));
        assert!(saw.contains("the policy drop of chain forward"), "{saw}");
        assert_eq!(fix, "nft insert rule inet guard forward ip daddr 10.244.0.1 tcp dport 8080 accept");
    }

    #[test]
    fn a_rule_of_the_old_iptables_is_deleted_by_its_own_tool() {
        let mut world = world(FORWARD, dport(80));
        let text =
            "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -p udp -j DROP\n-A FORWARD -d 10.244.0.0/16 -j DROP\nCOMMIT\n";
        let saved = kernel::iptables::Saved::parse(text.to_owned());
        world.here.firewall.as_mut().expect("rules").add_legacy(kernel::Family::Ip, &saved);
        let (saw, fix) = failed(world.check("default", "web", foreign));
        let rule = "`ip daddr 10.244.0.0/16 drop` (number 2) of chain FORWARD in table ip filter of iptables-legacy";
        assert!(saw.contains(rule), "{saw}");
        assert_eq!(fix, "iptables-legacy -t filter -D FORWARD 2");
    }

    #[test]
    fn what_may_stop_it_is_named_and_not_called_the_cause() {
        let unclear = vec![Step::Unclear("limit".to_owned()), Step::Go(Verdict::Drop)];
        assert!(not_measured(world(FORWARD, unclear).check("default", "web", foreign)).contains("may drop"));
        let mut old = world(FORWARD, dport(80));
        old.here.legacy = Some("it cannot be read".to_owned());
        not_measured(old.check("default", "web", foreign));
        let mut empty = world(FORWARD, dport(8080));
        empty.cluster.slices.clear();
        not_applicable(empty.check("default", "web", foreign));
    }
}
