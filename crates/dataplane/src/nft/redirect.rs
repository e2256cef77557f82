//! Tables that redirect traffic to the relay, which chooses the endpoint.
//!
//! ```text
//! packet ─▶ services: (address, protocol, port) ─▶ frontends ─▶ source? ─▶ redirect to a relay port
//! ```
//! A Service port has a relay port for traffic that may use any endpoint and one for traffic that stays on this node,
//! as needed. Chains are static; a change of a Service is a change of elements. Rejects and source restrictions are as
//! in the nftables mode.

use std::collections::BTreeMap;

use api::hash::fnv1a64;
use api::ip::Family;
use kernel::nft::{Chain, Field, Key, Name, Part, Set, SetValue, Statement, Type, Value, Verdict};
use plan::{Frontend, Options, Plan, Protocol, Role, ServicePort};

use super::elements::{address_key, node_port_key};
use super::fragment::{Fragment, IntoValue as _, Routing, map_key};
use super::ruleset::{
    self, CLUSTER_IPS, FRONTENDS, HAIRPINS, MARK, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS, NODE_IPS, NODE_PORTS, NOTHING,
    OWN_POD_IPS, REFUSE, SERVICES, destination, detector, dispatch, inside, jump,
};
use super::shapes::{ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, from_pod, go};

/// Table name.
pub const TABLE: &str = "waypost-userspace";
/// Mark of packets sent by the relay, which must not be redirected again.
pub(crate) const RELAY_MARK: u32 = MARK;

/// Increment when chains or sets change their meaning.
const VERSION: u32 = 1;
/// Relay ports.
const RELAY_PORTS: &str = "doors";
/// Maps from address and node port to the relay port, by scope.
const CLUSTER: [&str; 2] = ["doors-anywhere", "node-port-doors-anywhere"];
const LOCAL: [&str; 2] = ["doors-here", "node-port-doors-here"];
/// Maps without which nothing is redirected.
pub(crate) const REDIRECTING: [&str; 6] = [FRONTENDS, NODE_PORTS, CLUSTER[0], CLUSTER[1], LOCAL[0], LOCAL[1]];
/// The chains of these maps.
const TO_CLUSTER: [&str; 2] = ["to-anywhere", "node-port-to-anywhere"];
const TO_LOCAL: [&str; 2] = ["to-here", "node-port-to-here"];
const TO_OUTSIDE_LOCAL: [&str; 2] = ["to-here-from-outside", "node-port-to-here-from-outside"];

/// Relay ports of a Service port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RelayPorts {
    /// Port for the scope `Cluster`.
    pub(crate) cluster: Option<u16>,
    /// Port for the scope `Local`.
    pub(crate) local: Option<u16>,
}

/// Relay ports that a Service port needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    /// Whether it needs one for the scope `Cluster`.
    pub(crate) cluster: bool,
    /// Whether it needs one for the scope `Local`.
    pub(crate) local: bool,
}

/// Elements by set.
pub(crate) type Elements = BTreeMap<(&'static str, Key), Value>;

/// Relay ports that a Service port needs, given the frontends it owns.
pub(crate) fn needs(port: &ServicePort, owned: &[(Frontend, Role)]) -> Needs {
    let mut needs = Needs::default();
    if port.key.protocol == Protocol::Sctp {
        return needs;
    }
    for (_, role) in owned {
        match Routing::of(port, *role) {
            Routing::NoEndpoints | Routing::NoLocalEndpoints => {}
            Routing::Cluster(_) | Routing::Outside(_) => needs.cluster = true,
            Routing::Local(_) => needs.local = true,
            Routing::OutsideLocal(_, local) => {
                needs.cluster = true;
                needs.local |= !local.is_empty();
            }
        }
    }
    needs
}

/// Elements of a Service port, given the frontends it owns and its relay ports.
pub(crate) fn elements(port: &ServicePort, owned: &[(Frontend, Role)], ports: RelayPorts) -> Elements {
    let mut fragment = Fragment::default();
    for (frontend, role) in owned {
        let routing = fragment.routing(port, *frontend, *role);
        if port.key.protocol == Protocol::Sctp {
            refuse(&mut fragment, *frontend);
            continue;
        }
        let chains = match routing {
            Routing::NoEndpoints | Routing::NoLocalEndpoints => continue,
            Routing::Cluster(_) | Routing::Outside(_) => TO_CLUSTER,
            Routing::Local(_) => TO_LOCAL,
            Routing::OutsideLocal(..) => TO_OUTSIDE_LOCAL,
        };
        let at = usize::from(matches!(frontend, Frontend::NodePort(..)));
        let (map, key) = map_key(*frontend, FRONTENDS, NODE_PORTS);
        fragment.put(map, key.clone(), Verdict::Goto(chains[at].into()).into_value());
        let leads = [(CLUSTER[at], ports.cluster, chains != TO_LOCAL), (LOCAL[at], ports.local, chains != TO_CLUSTER)];
        for (map, number, wanted) in leads {
            if let Some(number) = number.filter(|_| wanted) {
                fragment.put(map, key.clone(), Value::data(&[Part::Port(number)]));
            }
        }
    }
    for number in [ports.cluster, ports.local].into_iter().flatten() {
        fragment.put(RELAY_PORTS, node_port_key(port.key.protocol, number), NOTHING);
    }
    fragment.elements
}

/// Rejects protocols that the relay does not support.
fn refuse(fragment: &mut Fragment, frontend: Frontend) {
    let (map, key) = map_key(frontend, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS);
    fragment.put(map, key, Verdict::Goto(REFUSE.into()).into_value());
}

/// Elements that follow from the node and from ranges, not from Service ports.
pub(crate) fn node_elements(plan: &Plan, family: Family) -> Elements {
    let all = ruleset::node_elements(plan, family).into_iter();
    all.filter(|(set, _)| *set != OWN_POD_IPS).map(|place| (place, NOTHING)).collect()
}

/// Element of a cluster IP in use.
pub(crate) fn cluster_ip(ip: std::net::IpAddr) -> (&'static str, Key) {
    (CLUSTER_IPS, address_key(ip))
}

/// Empty sets and maps.
pub(crate) fn sets() -> BTreeMap<Name, Set> {
    use Type::{Address, Port};
    let mut sets = ruleset::sets();
    // The relay chooses endpoints.
    let unused = [ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, HAIRPINS, OWN_POD_IPS];
    sets.retain(|name, _| !unused.contains(&&**name));
    let set = |key: &[Type], value| Set { key: key.to_vec(), value, ..Set::default() };
    let port_value = || SetValue::Data(vec![Port]);
    for [by_address, by_node_port] in [CLUSTER, LOCAL] {
        sets.insert(by_address.into(), set(&[Address, Type::Protocol, Port], port_value()));
        sets.insert(by_node_port.into(), set(&[Type::Protocol, Port], port_value()));
    }
    sets.insert(RELAY_PORTS.into(), set(&[Type::Protocol, Port], SetValue::Nothing));
    sets
}

/// Chains of the tables.
pub(crate) fn chains(options: &Options, family: Family) -> BTreeMap<Name, Chain> {
    let mut chains = ruleset::chains(options, family);
    // The relay uses its own address: nothing to masquerade.
    chains.remove("nat-postrouting");
    let plain = |rules| Chain { base: None, rules };
    let node_port = || vec![Field::Protocol, Field::DestinationPort];
    let services = vec![
        vec![dispatch(destination(), FRONTENDS)],
        vec![inside(vec![Field::Destination], NODE_IPS), dispatch(node_port(), NODE_PORTS)],
    ];
    chains.insert(SERVICES.into(), plain(services));
    if let Some(output) = chains.get_mut("nat-output") {
        output.rules = vec![vec![Statement::Marked(RELAY_MARK), Statement::Go(Verdict::Return)], vec![jump(SERVICES)]];
    }
    if let Some(input) = chains.get_mut("filter-input") {
        // Direct connections to a relay port would bypass the source restrictions of the frontend.
        let direct = vec![Statement::NewConnection, inside(node_port(), RELAY_PORTS), go(REFUSE.into())];
        input.rules.splice(0..0, [vec![Statement::Translated, Statement::Go(Verdict::Accept)], direct]);
    }
    for (at, key) in [destination(), node_port()].iter().enumerate() {
        let redirect = |map: &str| {
            let to = |protocol: Protocol| {
                vec![Statement::Redirect { protocol: protocol.number(), key: key.clone(), map: map.into() }]
            };
            plain(vec![to(Protocol::Tcp), to(Protocol::Udp)])
        };
        chains.insert(TO_CLUSTER[at].into(), redirect(CLUSTER[at]));
        chains.insert(TO_LOCAL[at].into(), redirect(LOCAL[at]));
        // Traffic of Pods and of the node itself is treated as if it had left the cluster and re-entered it.
        let mut rules = Vec::new();
        rules.extend(from_pod(detector(options, family), false).map(|pod| vec![pod, go(TO_CLUSTER[at].into())]));
        rules.push(vec![Statement::LocalSource, go(TO_CLUSTER[at].into())]);
        rules.push(vec![go(TO_LOCAL[at].into())]);
        chains.insert(TO_OUTSIDE_LOCAL[at].into(), plain(rules));
    }
    chains
}

/// Identifies the version and the chains.
pub(crate) fn tag(chains: &BTreeMap<Name, Chain>) -> String {
    let sum = fnv1a64(format!("{chains:?}").as_bytes());
    format!("waypost userspace {VERSION} {sum:016x}")
}
