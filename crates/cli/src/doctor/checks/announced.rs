//! The announcement of a load balancer's address: by which node, or why by none.

use std::net::IpAddr;

use super::super::evidence::Evidence;
use super::super::verdict::CheckResult;
use crate::host::Announcement;

/// Whether its addresses are announced.
pub(super) fn announced(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.kind() != "LoadBalancer" {
        return CheckResult::passed("its type is not LoadBalancer");
    }
    let ips = evidence.balancer_ips();
    if ips.is_empty() {
        return CheckResult::not_applicable("it has no load-balancer address");
    }
    let Some(announcements) = &evidence.cluster.announcements else {
        return CheckResult::not_measured(
            "Leases of kube-system, which name the announcing node, could not be read",
            "use the kubeconfig of a user who may read Leases",
        );
    };
    let key = format!("{}/{}", evidence.namespace, evidence.name);
    let all: Vec<(IpAddr, Announcement)> = ips.into_iter().map(|ip| (ip, announcements.of(&key, ip))).collect();
    let failed = all.iter().find_map(|(ip, announcement)| match announcement {
        Announcement::NotAnnounced { why, fix } => {
            let prefix = format!("{ip} is not announced: ");
            let why = why.strip_prefix(&prefix).unwrap_or(why);
            Some(CheckResult::failed(format!("{prefix}{why}"), fix))
        }
        _ => None,
    });
    let unknown = all.iter().find_map(|(ip, announcement)| match announcement {
        Announcement::Unknown { why, how } => Some(CheckResult::not_measured(format!("{ip}: {why}"), how)),
        _ => None,
    });
    let text = |(ip, announcement): &(IpAddr, Announcement)| match announcement {
        Announcement::Announced { how, node } => format!("{ip}: {how}{}", foreign(evidence, *ip, node.as_deref())),
        Announcement::NotOurs(why) | Announcement::NotAnnounced { why, .. } | Announcement::Unknown { why, .. } => {
            format!("{ip}: {why}")
        }
    };
    let passed = || CheckResult::passed(all.iter().map(text).collect::<Vec<_>>().join("; "));
    failed.or(unknown).unwrap_or_else(passed)
}

/// A remark when this node answers for an address that is in no network of its interfaces: only hosts with a route to it send ARP requests.
fn foreign(evidence: &Evidence<'_>, ip: IpAddr, node: Option<&str>) -> String {
    let (here, networks) = (evidence.machine.node.as_deref(), &evidence.machine.networks);
    if here.ok() != node || networks.is_empty() || networks.iter().any(|network| network.contains(&ip)) {
        return String::new();
    }
    ", which has no interface in its network: clients need a route to this link".to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::value::ValueExt as _;
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;
    use crate::host::Announcements;

    const IP: &str = "203.0.113.7";

    #[derive(Debug)]
    struct Fake(Announcement);

    impl Announcements for Fake {
        fn of(&self, service: &str, address: IpAddr) -> Announcement {
            assert_eq!((service, address.to_string().as_str()), ("default/web", IP));
            self.0.clone()
        }
    }

    fn fixture(announcement: Announcement) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"type": "LoadBalancer", "loadBalancerClass": "waypost.dev/l2"}));
        fixture.cluster.services[0].put("status", json!({"loadBalancer": {"ingress": [{"ip": IP}]}}));
        fixture.cluster.announcements = Some(Arc::new(Fake(announcement)));
        fixture
    }

    fn by_n1() -> Announcement {
        Announcement::Announced { how: "node n1 answers".to_owned(), node: Some("n1".into()) }
    }

    #[test]
    fn the_announcing_node_is_shown() {
        let mut fixture = fixture(by_n1());
        assert_eq!(passed(fixture.check("default", "web", announced)), format!("{IP}: node n1 answers"));
        fixture.machine.networks = vec!["192.0.2.0/24".parse().expect("a network")];
        assert!(passed(fixture.check("default", "web", announced)).contains("has no interface in its network"));
        fixture.machine.networks.push("203.0.113.0/24".parse().expect("a network"));
        assert!(!passed(fixture.check("default", "web", announced)).contains("no interface"));
    }

    #[test]
    fn an_address_that_is_not_announced_fails() {
        for why in ["node n1 has the Lease".to_owned(), format!("{IP} is not announced: node n1 has the Lease")] {
            let announcement = Announcement::NotAnnounced { why, fix: "kubectl describe node n1".to_owned() };
            let (saw, fix) = failed(fixture(announcement).check("default", "web", announced));
            assert_eq!(saw, format!("{IP} is not announced: node n1 has the Lease"));
            assert_eq!(fix, "kubectl describe node n1");
        }
        let unknown = Announcement::Unknown { why: "no Event".to_owned(), how: "kubectl get events".to_owned() };
        assert_eq!(not_measured(fixture(unknown).check("default", "web", announced)), format!("{IP}: no Event"));
    }

    #[test]
    fn without_leases_nothing_is_measured_and_without_an_address_the_check_does_not_apply() {
        let mut fixture = fixture(by_n1());
        fixture.cluster.announcements = None;
        not_measured(fixture.check("default", "web", announced));
        fixture.cluster.services[0].put("status", json!({}));
        not_applicable(fixture.check("default", "web", announced));
        fixture.cluster.services[0].put("spec.type", "ClusterIP");
        passed(fixture.check("default", "web", announced));
    }
}
