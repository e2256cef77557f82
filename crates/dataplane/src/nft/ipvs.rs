//! Tables of the IPVS mode: everything but load balancing.
//!
//! ```text
//! prerouting  source restrictions of load balancers; masquerade marks; traffic that need not stay on this node is
//!             translated here, bypassing IPVS
//! input       rejects or drops what is not served, before IPVS
//! output      the same, between DNAT and IPVS
//! postrouting masquerades marked and hairpin traffic
//! ```
//! Service addresses are on a device of this machine, so programs that listen on all addresses would be reachable
//! there: everything that is not a frontend is rejected. A virtual server has one destination list for all clients.
//! With `externalTrafficPolicy: Local` that list is for external traffic; traffic of Pods and of the node itself, which
//! may use any endpoint, is translated by the chains of the nftables mode.
//!
//! Virtual servers have no owner field, so two sets record which servers and which device addresses are ours.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::ip::Family;
use kernel::ipvs::Server;
use kernel::nft::{
    Base, BaseKind, Chain, Field, Hook, Key, Name, Part, Rule, Set, SetValue, Statement, Type, Value, Verdict,
};
use plan::{Frontend, Options, Role, ServicePort};

pub(crate) use super::elements::address_key;
use super::elements::frontend_key;
use super::fragment::{Fragment, IntoValue as _, Routing, map_key};
use super::ruleset::{
    self, CLUSTER_IPS, FRONTENDS, HAIRPINS, MARK, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS, NODE_IPS, NODE_PORTS, NOTHING,
    REFUSE, SERVICE_RANGES, UNKNOWN, destination, dispatch, inside, jump,
};
use super::shapes::{LOCAL_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS};

/// Record of the addresses on our device.
pub(crate) const ADDRESSES: &str = "addresses";
/// Record of our virtual servers.
pub(crate) const SERVERS: &str = "servers";
/// Frontends with endpoints.
const KNOWN: &str = "known";
/// ICMP protocols.
const PINGS: &str = "pings";
/// The chain that marks for masquerading.
const OUTSIDE: &str = "outside";

/// Protocol numbers of ICMP and ICMPv6.
const ICMP: [u8; 2] = [1, 58];

/// Record of a virtual server.
pub(crate) fn server_key(server: &Server) -> Key {
    Key::new(&[Part::Address(server.ip), Part::Protocol(server.protocol), Part::Port(server.port)])
}

/// The virtual server of a record.
pub(crate) fn server_from(family: Family, key: &Key) -> Option<Server> {
    let (ip, rest) = match family {
        Family::V4 => key.start.split_first_chunk::<4>().map(|(bytes, rest)| (IpAddr::from(*bytes), rest)),
        Family::V6 => key.start.split_first_chunk::<16>().map(|(bytes, rest)| (IpAddr::from(*bytes), rest)),
    }?;
    let [protocol, _, _, _, high, low, ..] = *rest.first_chunk::<8>()?;
    Some(Server { ip, protocol, port: u16::from_be_bytes([high, low]) })
}

/// Sets and maps.
pub(super) fn sets() -> BTreeMap<Name, Set> {
    let mut sets = ruleset::sets();
    sets.remove(LOCAL_ENDPOINTS);
    sets.remove(NODE_PORT_LOCAL_ENDPOINTS);
    let plain = |key: &[Type], elements: BTreeMap<Key, Value>| Set {
        key: key.to_vec(),
        value: SetValue::Nothing,
        interval: false,
        timeout: None,
        counters: false,
        elements,
    };
    let pings = ICMP.map(|number| (Key::new(&[Part::Protocol(number)]), NOTHING)).into();
    let at: &[Type] = &[Type::Address, Type::Protocol, Type::Port];
    let more = [
        (ADDRESSES, plain(&[Type::Address], BTreeMap::new())),
        (SERVERS, plain(at, BTreeMap::new())),
        (KNOWN, plain(at, BTreeMap::new())),
        (PINGS, plain(&[Type::Protocol], pings)),
    ];
    sets.extend(more.into_iter().map(|(name, set)| (name.into(), set)));
    sets
}

/// Chains that do not depend on Services: those of the nftables mode, except around IPVS.
pub(super) fn chains(options: &Options, family: Family) -> BTreeMap<Name, Chain> {
    use Hook::{Input, Output, Postrouting};
    let base = |kind, hook, priority, rules| Chain { base: Some(Base { kind, hook, priority }), rules };
    let plain = |rules| Chain { base: None, rules };
    let mut chains = ruleset::chains(options, family);
    let mut services = vec![vec![
        // The node uses the Service address as its source unless it is masqueraded.
        inside(vec![Field::Source], ADDRESSES),
        inside(destination(), KNOWN),
        Statement::Mark(MARK),
    ]];
    services.extend(ruleset::services(options, family));
    let ours = [
        ("filter-input", base(BaseKind::Filter, Input, 0, unserved())),
        // After DNAT, before IPVS.
        ("filter-output", base(BaseKind::Filter, Output, -99, unserved())),
        ("nat-postrouting", base(BaseKind::Nat, Postrouting, 100, masquerading())),
        (ruleset::SERVICES, plain(services)),
        (UNKNOWN, plain(unknown())),
        (OUTSIDE, plain(vec![vec![Statement::Mark(MARK)]])),
    ];
    chains.extend(ours.into_iter().map(|(name, chain)| (name.into(), chain)));
    chains
}

/// Rejects or drops before IPVS.
fn unserved() -> Vec<Rule> {
    let new = || Statement::NewConnection;
    let node_port = vec![Field::Protocol, Field::DestinationPort];
    vec![
        vec![new(), inside(vec![Field::Destination], NODE_IPS), dispatch(node_port, NO_ENDPOINTS_NODE_PORTS)],
        vec![new(), dispatch(destination(), NO_ENDPOINTS)],
        vec![new(), jump(UNKNOWN)],
    ]
}

fn unknown() -> Vec<Rule> {
    let to = |set: &str| inside(vec![Field::Destination], set);
    let refuse = || Statement::Go(Verdict::Goto(REFUSE.into()));
    let leave = || Statement::Go(Verdict::Return);
    vec![
        vec![inside(destination(), KNOWN), leave()],
        vec![to(ADDRESSES), inside(vec![Field::Protocol], PINGS), leave()],
        vec![to(ADDRESSES), refuse()],
        vec![to(CLUSTER_IPS), refuse()],
        vec![to(SERVICE_RANGES), refuse()],
    ]
}

/// IPVS does not set the DNAT status in conntrack, so only hairpin traffic is matched.
fn masquerading() -> Vec<Rule> {
    let itself = vec![Field::Source, Field::Destination, Field::Protocol, Field::DestinationPort];
    vec![
        vec![Statement::Marked(MARK), Statement::Unmark(MARK), Statement::Masquerade],
        vec![inside(itself, HAIRPINS), Statement::Masquerade],
    ]
}

/// The fragment of a Service port that owns these frontends.
pub(super) fn fragment(options: &Options, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
    let mut fragment = Fragment::with_hairpins(port);
    for (frontend, role) in owned {
        let routing = fragment.routing(port, *frontend, *role);
        if let (Some(_), Frontend::Address(ip, protocol, number)) = (routing.ipvs_destinations(), *frontend) {
            fragment.put(KNOWN, frontend_key(ip, protocol, number), NOTHING);
        }
        let chain = match routing {
            Routing::Outside(_) => OUTSIDE.into(),
            // Traffic that need not stay on this node is translated here.
            Routing::OutsideLocal(anywhere, _) if !anywhere.is_empty() => {
                fragment.entry_chain(options, port, *frontend, Routing::OutsideLocal(anywhere, &[]))
            }
            _ => continue,
        };
        let (map, key) = map_key(*frontend, FRONTENDS, NODE_PORTS);
        fragment.put(map, key, Verdict::Goto(chain).into_value());
    }
    fragment
}
