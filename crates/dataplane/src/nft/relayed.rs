//! Tables that bring traffic to the relay of this node, which then chooses the endpoint.
//!
//! ```text
//! packet ─▶ services: (address, protocol, port) ─▶ frontends ─▶ who sends it? ─▶ redirected to a door of the relay
//! ```
//! A door is a port at which the relay listens. A Service port has one for traffic that may go anywhere and one for traffic that
//! stays on this node, as far as it needs them. All chains are always the same; a change of a Service is a change of elements.
//! Refusals, and who may use a load balancer, are as in the tables that do everything.

use std::collections::BTreeMap;

use api::ip::Family;
use kernel::nft::{Chain, Field, Key, Name, Part, Set, SetValue, Statement, Type, Value, Verdict};
use plan::{Frontend, Options, Plan, Protocol, Role, ServicePort};

use super::elements::{address_key, node_port_key};
use super::fragment::{Fragment, IntoValue as _, Way, place};
use super::ruleset::{
    self, CLUSTER_IPS, FRONTENDS, HAIRPINS, MARK, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS, NODE_IPS, NODE_PORTS, NOTHING,
    OWN_POD_IPS, REFUSE, SERVICES, destination, detector, dispatch, inside, jump,
};
use super::shapes::{ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, from_pod, go};

/// The name of these tables.
pub const TABLE: &str = "waypost-userspace";
/// The mark of what the relay itself sends: it is on its way to an endpoint and not redirected again.
pub(crate) const OWN: u32 = MARK;

/// Raised whenever chains or sets change their meaning.
const VERSION: u32 = 1;
/// The relay's ports.
const DOORS: &str = "doors";
/// Which door is for an address, and for a node port, by where traffic may go.
const ANYWHERE: [&str; 2] = ["doors-anywhere", "node-port-doors-anywhere"];
const HERE: [&str; 2] = ["doors-here", "node-port-doors-here"];
/// The maps without which nothing is redirected.
pub(crate) const REDIRECTING: [&str; 6] = [FRONTENDS, NODE_PORTS, ANYWHERE[0], ANYWHERE[1], HERE[0], HERE[1]];
/// Chains of the same.
const TO_ANYWHERE: [&str; 2] = ["to-anywhere", "node-port-to-anywhere"];
const TO_HERE: [&str; 2] = ["to-here", "node-port-to-here"];
const TO_OUTSIDE_LOCAL: [&str; 2] = ["to-here-from-outside", "node-port-to-here-from-outside"];

/// The doors of a Service port, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Doors {
    /// For traffic that may go anywhere.
    pub(crate) anywhere: Option<u16>,
    /// For traffic that stays on this node.
    pub(crate) here: Option<u16>,
}

/// Which doors a Service port needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Needs {
    /// One for traffic that may go anywhere.
    pub(crate) anywhere: bool,
    /// One for traffic that stays on this node.
    pub(crate) here: bool,
}

/// Elements, by their sets.
pub(crate) type Elements = BTreeMap<(&'static str, Key), Value>;

/// Which doors a Service port needs, given the frontends that are its own.
pub(crate) fn needs(port: &ServicePort, owned: &[(Frontend, Role)]) -> Needs {
    let mut needs = Needs::default();
    if port.key.protocol == Protocol::Sctp {
        return needs;
    }
    for (_, role) in owned {
        match Way::of(port, *role) {
            Way::Nobody | Way::NobodyHere => {}
            Way::To(_) | Way::Outside(_) => needs.anywhere = true,
            Way::Here(_) => needs.here = true,
            Way::OutsideLocal(_, here) => {
                needs.anywhere = true;
                needs.here |= !here.is_empty();
            }
        }
    }
    needs
}

/// What a Service port adds, given the frontends that are its own and its doors.
pub(crate) fn elements(port: &ServicePort, owned: &[(Frontend, Role)], doors: Doors) -> Elements {
    let mut fragment = Fragment::default();
    for (frontend, role) in owned {
        let way = fragment.way(port, *frontend, *role);
        if port.key.protocol == Protocol::Sctp {
            refuse(&mut fragment, *frontend);
            continue;
        }
        let chains = match way {
            Way::Nobody | Way::NobodyHere => continue,
            Way::To(_) | Way::Outside(_) => TO_ANYWHERE,
            Way::Here(_) => TO_HERE,
            Way::OutsideLocal(..) => TO_OUTSIDE_LOCAL,
        };
        let at = usize::from(matches!(frontend, Frontend::NodePort(..)));
        let (map, key) = place(*frontend, FRONTENDS, NODE_PORTS);
        fragment.put(map, key.clone(), Verdict::Goto(chains[at].into()).into_value());
        let leads = [(ANYWHERE[at], doors.anywhere, chains != TO_HERE), (HERE[at], doors.here, chains != TO_ANYWHERE)];
        for (map, door, wanted) in leads {
            if let Some(door) = door.filter(|_| wanted) {
                fragment.put(map, key.clone(), Value::data(&[Part::Port(door)]));
            }
        }
    }
    for door in [doors.anywhere, doors.here].into_iter().flatten() {
        fragment.put(DOORS, node_port_key(port.key.protocol, door), NOTHING);
    }
    fragment.elements
}

/// Refuses what the relay cannot carry.
fn refuse(fragment: &mut Fragment, frontend: Frontend) {
    let (map, key) = place(frontend, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS);
    fragment.put(map, key, Verdict::Goto(REFUSE.into()).into_value());
}

/// The elements that follow from the node and the ranges, and not from any Service port.
pub(crate) fn surroundings(plan: &Plan, family: Family) -> Elements {
    let all = ruleset::surroundings(plan, family).into_iter();
    all.filter(|(set, _)| *set != OWN_POD_IPS).map(|place| (place, NOTHING)).collect()
}

/// The element of a cluster IP that is in use.
pub(crate) fn cluster_ip(ip: std::net::IpAddr) -> (&'static str, Key) {
    (CLUSTER_IPS, address_key(ip))
}

/// The sets and maps, empty.
pub(crate) fn sets() -> BTreeMap<Name, Set> {
    use Type::{Address, Port};
    let mut sets = ruleset::sets();
    // Endpoints are the relay's business.
    let unused = [ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, HAIRPINS, OWN_POD_IPS];
    sets.retain(|name, _| !unused.contains(&&**name));
    let set = |key: &[Type], value| Set { key: key.to_vec(), value, ..Set::default() };
    let door = || SetValue::Data(vec![Port]);
    for [by_address, by_node_port] in [ANYWHERE, HERE] {
        sets.insert(by_address.into(), set(&[Address, Type::Protocol, Port], door()));
        sets.insert(by_node_port.into(), set(&[Type::Protocol, Port], door()));
    }
    sets.insert(DOORS.into(), set(&[Type::Protocol, Port], SetValue::Nothing));
    sets
}

/// The chains.
pub(crate) fn chains(options: &Options, family: Family) -> BTreeMap<Name, Chain> {
    let mut chains = ruleset::chains(options, family);
    // The relay speaks for itself: there is no source to hide.
    chains.remove("nat-postrouting");
    let plain = |rules| Chain { base: None, rules };
    let node_port = || vec![Field::Protocol, Field::DestinationPort];
    let services = vec![
        vec![dispatch(destination(), FRONTENDS)],
        vec![inside(vec![Field::Destination], NODE_IPS), dispatch(node_port(), NODE_PORTS)],
    ];
    chains.insert(SERVICES.into(), plain(services));
    if let Some(output) = chains.get_mut("nat-output") {
        output.rules = vec![vec![Statement::Marked(OWN), Statement::Go(Verdict::Return)], vec![jump(SERVICES)]];
    }
    if let Some(input) = chains.get_mut("filter-input") {
        // A door is for those who came by the address of a Service; whoever knocks directly would get past what is asked there.
        let knock = vec![Statement::NewConnection, inside(node_port(), DOORS), go(REFUSE.into())];
        input.rules.splice(0..0, [vec![Statement::Translated, Statement::Go(Verdict::Accept)], knock]);
    }
    for (at, key) in [destination(), node_port()].iter().enumerate() {
        let redirect = |map: &str| {
            let to = |protocol: Protocol| {
                vec![Statement::Redirect { protocol: protocol.number(), key: key.clone(), map: map.into() }]
            };
            plain(vec![to(Protocol::Tcp), to(Protocol::Udp)])
        };
        chains.insert(TO_ANYWHERE[at].into(), redirect(ANYWHERE[at]));
        chains.insert(TO_HERE[at].into(), redirect(HERE[at]));
        // What comes from a Pod or from the node itself is treated as if it had left the cluster and come back.
        let mut rules = Vec::new();
        rules.extend(from_pod(detector(options, family), false).map(|pod| vec![pod, go(TO_ANYWHERE[at].into())]));
        rules.push(vec![Statement::LocalSource, go(TO_ANYWHERE[at].into())]);
        rules.push(vec![go(TO_HERE[at].into())]);
        chains.insert(TO_OUTSIDE_LOCAL[at].into(), plain(rules));
    }
    chains
}

/// Tells tables apart whose chains differ.
pub(crate) fn tag(chains: &BTreeMap<Name, Chain>) -> String {
    let sum = format!("{chains:?}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("waypost userspace {VERSION} {sum:016x}")
}
