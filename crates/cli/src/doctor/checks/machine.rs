//! IP forwarding and routes of the node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::evidence::{Evidence, family};
use super::super::format::listed;
use super::super::verdict::CheckResult;

/// The sysctls of IP forwarding.
const FORWARD_V4: &str = "net/ipv4/ip_forward";
const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";
/// The sysctl of reverse path filtering.
const SOURCES: &str = "net/ipv4/conf/all/rp_filter";

/// The sysctls that are read.
pub const SETTINGS: [&str; 3] = [FORWARD_V4, FORWARD_V6, SOURCES];

/// The addresses of ready endpoints that are not this machine's own.
fn beyond(evidence: &Evidence<'_>) -> BTreeSet<IpAddr> {
    let own = evidence.node_ips();
    evidence.ready().iter().map(|endpoint| endpoint.address.ip()).filter(|ip| !own.contains(ip)).collect()
}

/// Whether the node forwards packets.
pub(super) fn forwarding(evidence: &Evidence<'_>) -> CheckResult {
    if let Err(unmeasured) = &evidence.machine.node {
        return unmeasured.clone().into();
    }
    let beyond = beyond(evidence);
    if beyond.is_empty() {
        return CheckResult::not_applicable("every endpoint is on this machine");
    }
    for ip in &beyond {
        let name = if ip.is_ipv4() { FORWARD_V4 } else { FORWARD_V6 };
        if evidence.machine.settings.get(name).is_some_and(|value| value == "0") {
            let setting = name.replace('/', ".");
            return CheckResult::failed(
                format!("{setting} is 0: {} is not forwarded, so Pods cannot use {ip}", family(*ip)),
                format!("sysctl -w {setting}=1"),
            );
        }
    }
    let strict = evidence.machine.settings.get(SOURCES).is_some_and(|value| value == "1");
    let but = if strict {
        "; rp_filter is strict: replies must arrive on the interface of the route to their source"
    } else {
        ""
    };
    CheckResult::passed(format!("it does{but}"))
}

/// Whether there are routes to the endpoints and to the Service.
pub(super) fn routes(evidence: &Evidence<'_>) -> CheckResult {
    if let Err(unmeasured) = &evidence.machine.node {
        return unmeasured.clone().into();
    }
    let missing = &evidence.probes.no_route;
    if let Some((ip, why)) = missing.first_key_value() {
        let all: Vec<String> = missing.keys().map(ToString::to_string).collect();
        let bits = if ip.is_ipv4() { 32 } else { 128 };
        if evidence.cluster_ips().contains(ip) {
            return CheckResult::failed(
                format!("no route to {} ({why}); the kernel needs one before it translates the address", listed(&all)),
                format!("ip {} route add default via GATEWAY", if ip.is_ipv4() { "-4" } else { "-6" }),
            );
        }
        let via = next_hop(evidence, *ip);
        return CheckResult::failed(
            format!("no route to {} ({why})", listed(&all)),
            format!("ip route add {ip}/{bits} via {via}"),
        );
    }
    match evidence.ready().is_empty() {
        true => CheckResult::not_applicable("there is no ready endpoint"),
        false => CheckResult::passed("a route to each"),
    }
}

/// The address of the Node that an endpoint is on.
fn next_hop(evidence: &Evidence<'_>, ip: IpAddr) -> String {
    use api::value::ValueExt as _;
    let endpoint = evidence.ready().into_iter().find(|endpoint| endpoint.address.ip() == ip);
    let node = endpoint
        .and_then(|endpoint| evidence.cluster.nodes.iter().find(|node| node.text("metadata.name") == endpoint.node));
    let addresses = node.map_or(&[][..], |node| node.items("status.addresses"));
    let of_family = addresses.iter().filter_map(|one| one.text("address").parse::<IpAddr>().ok());
    of_family
        .filter(|one| one.is_ipv4() == ip.is_ipv4())
        .map(|one| one.to_string())
        .next()
        .unwrap_or_else(|| "NODE".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, not_applicable, not_measured, passed};
    use super::*;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}));
        fixture.slice("default", "web", 8080, &[("10.244.1.1", true, "n2")]);
        fixture.machine.settings.insert(FORWARD_V4, "1".to_owned());
        fixture
    }

    #[test]
    fn a_node_that_does_not_forward_is_reported() {
        let mut fixture = fixture();
        passed(fixture.check("default", "web", forwarding));
        fixture.machine.settings.insert(SOURCES, "1".to_owned());
        assert!(passed(fixture.check("default", "web", forwarding)).contains("strict"));
        fixture.machine.settings.insert(FORWARD_V4, "0".to_owned());
        assert_eq!(failed(fixture.check("default", "web", forwarding)).1, "sysctl -w net.ipv4.ip_forward=1");
        fixture.not_a_node();
        not_measured(fixture.check("default", "web", forwarding));
    }

    #[test]
    fn endpoints_on_the_node_itself_need_no_forwarding() {
        let mut fixture = fixture();
        fixture.machine.settings.insert(FORWARD_V4, "0".to_owned());
        fixture.cluster.slices.clear();
        fixture.slice("default", "web", 8080, &[("192.0.2.11", true, "n1")]);
        not_applicable(fixture.check("default", "web", forwarding));
    }

    #[test]
    fn a_missing_route_is_told_with_the_node_to_go_by() {
        let mut fixture = fixture();
        passed(fixture.check("default", "web", routes));
        fixture.probes.no_route.insert([10, 244, 1, 1].into(), "Network is unreachable".to_owned());
        assert_eq!(failed(fixture.check("default", "web", routes)).1, "ip route add 10.244.1.1/32 via 192.0.2.12");
        fixture.probes.no_route = [([10, 96, 0, 5].into(), "Network is unreachable".to_owned())].into();
        assert_eq!(failed(fixture.check("default", "web", routes)).1, "ip -4 route add default via GATEWAY");
    }
}
