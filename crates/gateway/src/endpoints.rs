//! Endpoint selection of a port. Pure.
//!
//! In: EndpointSlices, a port name, and which endpoints this node may use. Out: addresses of ready endpoints; if
//! there are none, of terminating endpoints that still serve, as in the proxy.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use api::ip::{Family, parse_lenient};
use api::view::Protocol;
use api::view::endpoint_slice::{Endpoint, EndpointPort, EndpointSlice, Named};
use plan::{Location, NodeLocation};

/// Endpoints of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndpointSet {
    /// Usable addresses.
    pub usable: BTreeSet<SocketAddr>,
    /// Number of endpoints on other nodes that the traffic policy `Local` excludes.
    pub elsewhere: usize,
}

/// Which endpoints may be used.
#[derive(Clone, Copy, Debug)]
pub enum Locality<'a> {
    /// All.
    Anywhere,
    /// Those of this node: the traffic policy is `Local`.
    Node(&'a str),
    /// Those that topology hints select for a node.
    Hinted(NodeLocation<'a>),
}

/// Selects endpoints. For dual-stack Pods the first family with endpoints is used.
#[must_use]
pub fn select<'a>(
    slices: &(impl Iterator<Item = &'a EndpointSlice> + Clone),
    port: (&str, Protocol),
    families: &[Box<str>],
    locality: Locality<'_>,
) -> EndpointSet {
    let first = families.first().and_then(|name| Family::named(name)).unwrap_or(Family::V4);
    let mut elsewhere = 0;
    for family in [first, first.other()] {
        let of_family = slices.clone().filter(|slice| &*slice.address_type == family.as_str());
        let all: Vec<(&Endpoint, SocketAddr)> = of_family.flat_map(|slice| addresses(slice, port)).collect();
        let here = match locality {
            Locality::Anywhere => all.clone(),
            Locality::Node(node) => all.iter().copied().filter(|(endpoint, _)| is_at(endpoint, node)).collect(),
            Locality::Hinted(node) => hinted(&all, node),
        };
        let usable = choose(&here);
        let others = match locality {
            Locality::Node(_) => choose(&all).len().saturating_sub(usable.len()),
            Locality::Anywhere | Locality::Hinted(_) => 0,
        };
        if !usable.is_empty() {
            return EndpointSet { usable, elsewhere: others };
        }
        elsewhere = elsewhere.max(others);
    }
    EndpointSet { usable: BTreeSet::new(), elsewhere }
}

fn is_at(endpoint: &Endpoint, node: &str) -> bool {
    endpoint.node_name.as_deref() == Some(node)
}

/// Endpoints without the ready ones that are hinted for others, by the rules of the proxy.
fn hinted<'a>(all: &[(&'a Endpoint, SocketAddr)], node: NodeLocation<'_>) -> Vec<(&'a Endpoint, SocketAddr)> {
    let locations: Vec<Option<Location>> =
        all.iter().map(|(endpoint, _)| endpoint.conditions.is_ready().then(|| location(endpoint))).collect();
    let scope = node.hint_scope(&locations.iter().flatten().collect::<Vec<_>>());
    let is_ours = |location: &Option<Location>| location.as_ref().is_none_or(|one| node.matches_hints(one, scope));
    all.iter().zip(&locations).filter(|(_, location)| is_ours(location)).map(|(one, _)| *one).collect()
}

fn location(endpoint: &Endpoint) -> Location {
    let names = |list: &[Named]| list.iter().map(|one| one.name.clone()).collect();
    let hints = endpoint.hints.as_ref();
    Location {
        node: endpoint.node_name.clone(),
        zones: hints.map(|hints| names(&hints.for_zones)).unwrap_or_default(),
        nodes: hints.map(|hints| names(&hints.for_nodes)).unwrap_or_default(),
    }
}

/// Endpoints of a slice for a port name and protocol.
fn addresses<'a>(
    slice: &'a EndpointSlice,
    (name, protocol): (&str, Protocol),
) -> impl Iterator<Item = (&'a Endpoint, SocketAddr)> {
    let is_it =
        |known: &&EndpointPort| known.name.as_deref().unwrap_or_default() == name && known.protocol == Some(protocol);
    let number = slice.ports.iter().filter(is_it).find_map(EndpointPort::number);
    slice.endpoints.iter().filter_map(move |endpoint| {
        let ip = parse_lenient(endpoint.addresses.first()?)?;
        Some((endpoint, SocketAddr::new(ip, number?)))
    })
}

fn choose(all: &[(&Endpoint, SocketAddr)]) -> BTreeSet<SocketAddr> {
    let of = |fits: fn(&Endpoint) -> bool| -> BTreeSet<SocketAddr> {
        all.iter().filter(|(endpoint, _)| fits(endpoint)).map(|(_, address)| *address).collect()
    };
    let ready = of(|endpoint| endpoint.conditions.is_ready());
    if !ready.is_empty() {
        return ready;
    }
    of(|endpoint| endpoint.conditions.serving.unwrap_or(false) && endpoint.conditions.is_terminating())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(kind: &str, endpoints: &serde_json::Value) -> EndpointSlice {
        let ports = json!([{"name": "https", "port": 8443}, {"name": "http", "port": 8080, "protocol": "TCP"}]);
        serde_json::from_value(json!({"addressType": kind, "endpoints": endpoints, "ports": ports})).expect("a slice")
    }

    fn found(slices: &[EndpointSlice], port: &str, families: &[&str], node: Option<&str>) -> (Vec<String>, usize) {
        let node = node.map_or(Locality::Anywhere, Locality::Node);
        let families: Vec<Box<str>> = families.iter().map(|family| (*family).into()).collect();
        let found = select(&slices.iter(), (port, Protocol::Tcp), &families, node);
        (found.usable.iter().map(ToString::to_string).collect(), found.elsewhere)
    }

    #[test]
    fn ready_pods_of_the_port_are_used_and_the_first_family_decides() {
        let four = slice(
            "IPv4",
            &json!([{"addresses": ["10.0.0.2"]}, {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.3"], "conditions": {"ready": false}}, {"addresses": ["x"]}]),
        );
        let six = slice("IPv6", &json!([{"addresses": ["fd00::1"]}]));
        let both = [four, six];
        assert_eq!(found(&both, "http", &[], None).0, ["10.0.0.1:8080", "10.0.0.2:8080"]);
        assert_eq!(found(&both, "https", &["IPv6", "IPv4"], None).0, ["[fd00::1]:8443"]);
        assert_eq!(found(&both[1..], "http", &["IPv4"], None).0, ["[fd00::1]:8080"], "better than nobody");
        assert_eq!(found(&both, "other", &[], None), (vec![], 0));
    }

    #[test]
    fn terminating_endpoints_are_used_if_none_is_ready() {
        let leaving = json!({"ready": false, "serving": true, "terminating": true});
        let gone = json!({"ready": false, "serving": false, "terminating": true});
        let slices = [slice(
            "IPv4",
            &json!([{"addresses": ["10.0.0.1"], "conditions": leaving}, {"addresses": ["10.0.0.2"], "conditions": gone}]),
        )];
        assert_eq!(found(&slices, "http", &[], None).0, ["10.0.0.1:8080"]);
    }

    #[test]
    fn local_traffic_policy_uses_pods_of_this_node() {
        let slices = [slice(
            "IPv4",
            &json!([{"addresses": ["10.0.0.1"], "nodeName": "n1"}, {"addresses": ["10.0.0.2"], "nodeName": "n2"}]),
        )];
        assert_eq!(found(&slices, "http", &[], Some("n2")), (vec!["10.0.0.2:8080".to_owned()], 1));
        assert_eq!(found(&slices, "http", &[], Some("n3")), (vec![], 2));
    }

    #[test]
    fn s54_hints_select_as_in_the_proxy() {
        let endpoint = |ip: &str, zone: &str, ready: bool| {
            let hints = if zone.is_empty() { json!(null) } else { json!({"forZones": [{"name": zone}]}) };
            let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
            json!({"addresses": [ip], "hints": hints, "conditions": conditions})
        };
        let of_zone = |endpoints: serde_json::Value, zone| {
            let slices = [slice("IPv4", &endpoints)];
            let near = Locality::Hinted(NodeLocation { node: "n1", zone });
            let found = select(&slices.iter(), ("http", Protocol::Tcp), &[], near);
            assert_eq!(found.elsewhere, 0);
            found.usable.iter().map(|at| at.ip().to_string()).collect::<Vec<_>>().join(" ")
        };
        let both = json!([endpoint("10.0.0.1", "a", true), endpoint("10.0.0.2", "b", true)]);
        assert_eq!(of_zone(both.clone(), Some("b")), "10.0.0.2");
        assert_eq!(of_zone(both.clone(), Some("c")), "10.0.0.1 10.0.0.2", "none is for this zone");
        assert_eq!(of_zone(both, None), "10.0.0.1 10.0.0.2", "the zone is unknown");
        let mixed = json!([endpoint("10.0.0.1", "a", true), endpoint("10.0.0.2", "", true)]);
        assert_eq!(of_zone(mixed, Some("a")), "10.0.0.1 10.0.0.2", "one has no hints");
        let leaving = json!([endpoint("10.0.0.1", "a", false), endpoint("10.0.0.2", "b", false)]);
        assert_eq!(of_zone(leaving, Some("a")), "10.0.0.1 10.0.0.2", "hints are for ready ones");
    }
}
