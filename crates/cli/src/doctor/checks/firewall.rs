//! Firewall rules of other programs on the path of a Service's packets.
//!
//! The first packet of a connection, from this node and from a Pod, is evaluated against every chain on its path. A rule that certainly
//! drops it is a failure; one that may drop it is named, and measured by the TCP connections of other checks.

use std::net::{IpAddr, SocketAddr};

use api::value::ValueExt as _;
use plan::Protocol;

use super::super::evidence::{Endpoint, Evidence, is_over};
use super::super::format::listed;
use super::super::machine::{Hook, Packet};
use super::super::verdict::CheckResult;

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
    let node = evidence.machine.node.as_ref().ok()?;
    let pods = evidence.cluster.pods.iter().filter(|pod| pod.text("spec.nodeName") == node && !is_over(pod));
    let ips = pods.flat_map(|pod| pod.items("status.podIPs")).filter_map(|one| one.text("ip").parse().ok());
    let ips: Vec<IpAddr> = ips.filter(fits).collect();
    // Not the endpoint itself, if there is another Pod.
    ips.iter().find(|ip| **ip != to).or_else(|| ips.first()).copied()
}

/// Whether rules of other programs accept the packets.
pub(super) fn foreign(evidence: &Evidence<'_>) -> CheckResult {
    let firewall = match &evidence.machine.firewall {
        Ok(firewall) => firewall,
        Err(unmeasured) => return unmeasured.clone().into(),
    };
    let points = points(evidence);
    if points.is_empty() {
        return CheckResult::not_applicable("there is no ready endpoint");
    }
    let mut possible: Option<(String, SocketAddr)> = None;
    for (protocol, (hook, to, priorities)) in points {
        let packet = Packet { source: sender(evidence, hook, to.ip()), destination: to, protocol };
        for rule in firewall.drops(&packet, hook, priorities) {
            if rule.certain {
                return CheckResult::failed(
                    format!("{} drops packets to {to} over {protocol}", rule.description),
                    rule.fix,
                );
            }
            possible.get_or_insert((rule.description, to));
        }
    }
    let others = firewall.tables();
    if let Some((rule, to)) = possible {
        return CheckResult::not_measured(
            format!("{rule} may drop packets to {to}: it matches on what is not known here"),
            "connect from the client itself; `nft monitor trace` shows the path of its packets",
        );
    }
    if let Some(why) = &evidence.machine.legacy {
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

/// The points on the path of packets to a Service.
fn points(evidence: &Evidence<'_>) -> Vec<(Protocol, Point)> {
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
        // Clients of a headless Service connect to its endpoints.
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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use serde_json::json;

    use super::super::super::machine::{DropRule, Firewall};
    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;

    /// One rule, which drops packets to a port.
    #[derive(Clone, Copy, Debug)]
    struct Fake {
        hook: Hook,
        priority: i32,
        port: u16,
        certain: bool,
        /// Packets of this source are accepted.
        accepted: Option<IpAddr>,
    }

    impl Firewall for Fake {
        fn drops(&self, packet: &Packet, hook: Hook, priorities: Range<i32>) -> Vec<DropRule> {
            let is_on_path = self.hook == hook && priorities.contains(&self.priority);
            let is_accepted = self.accepted.is_some() && self.accepted == packet.source;
            let drops = is_on_path && packet.destination.port() == self.port && !is_accepted;
            let rule = DropRule { description: "rule 7".to_owned(), certain: self.certain, fix: "delete 7".to_owned() };
            drops.then_some(rule).into_iter().collect()
        }

        fn tables(&self) -> Vec<String> {
            vec!["inet guard".to_owned()]
        }
    }

    const FORWARD: Fake = Fake { hook: Hook::Forward, priority: 0, port: 8080, certain: true, accepted: None };

    fn fixture(firewall: Fake) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service(
            "default",
            "web",
            json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80, "protocol": "TCP"}]}),
        );
        fixture.slice("default", "web", 8080, &[("10.244.0.1", true, "n1")]);
        fixture.machine.firewall = Ok(Arc::new(firewall));
        fixture
    }

    #[test]
    fn a_rule_that_drops_packets_to_an_endpoint_fails() {
        let (saw, fix) = failed(fixture(FORWARD).check("default", "web", foreign));
        assert_eq!(saw, "rule 7 drops packets to 10.244.0.1:8080 over TCP");
        assert_eq!(fix, "delete 7");
        let saw = passed(fixture(Fake { port: 80, ..FORWARD }).check("default", "web", foreign));
        assert_eq!(saw, "no rule drops packets in inet guard");
    }

    #[test]
    fn forwarded_packets_are_evaluated_with_the_source_of_a_pod_of_this_node() {
        let with_client = |accepted: [u8; 4]| {
            let mut fixture = fixture(Fake { accepted: Some(accepted.into()), ..FORWARD });
            fixture.pod("default", "client", json!({}));
            fixture.cluster.pods[0].put("status.podIPs", json!([{"ip": "10.244.0.9"}]));
            fixture
        };
        failed(with_client([203, 0, 113, 1]).check("default", "web", foreign));
        passed(with_client([10, 244, 0, 9]).check("default", "web", foreign));
    }

    #[test]
    fn chains_before_dnat_match_the_address_of_the_service() {
        let early = Fake { hook: Hook::Prerouting, priority: -300, ..FORWARD };
        failed(fixture(Fake { port: 80, ..early }).check("default", "web", foreign));
        passed(fixture(early).check("default", "web", foreign));
    }

    #[test]
    fn a_rule_that_may_drop_packets_is_named_and_not_a_failure() {
        let unclear = fixture(Fake { certain: false, ..FORWARD });
        assert!(not_measured(unclear.check("default", "web", foreign)).contains("rule 7 may drop"));
        let mut old = fixture(Fake { port: 80, ..FORWARD });
        old.machine.legacy = Some("it cannot be read".to_owned());
        not_measured(old.check("default", "web", foreign));
        let mut empty = fixture(FORWARD);
        empty.cluster.slices.clear();
        not_applicable(empty.check("default", "web", foreign));
    }
}
