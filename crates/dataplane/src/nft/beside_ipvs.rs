//! The tables beside IPVS: everything but the balancing.
//!
//! ```text
//! prerouting  who may use a load balancer; marks what the endpoint is to see the node for; what need not stay on this node is
//!             translated here, past IPVS
//! input       what nobody serves is refused or dropped; IPVS takes the rest, after us
//! output      the same, between translation and IPVS
//! postrouting what is marked, and endpoints that meet themselves, see the node
//! ```
//! Service addresses are on a device of this machine, so whatever listens on all its addresses would answer there too: what is
//! no frontend is refused. One virtual server has one list of destinations for everybody. Where a Service wants outside traffic
//! to stay on this node, that list is the one for outside traffic; Pods and the node itself, which may go anywhere, are
//! translated by the chains that the nftables mode has for them.
//!
//! Two sets are notes to ourselves, because virtual servers have no owner: which are ours, and which addresses.

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
use super::fragment::{Fragment, IntoValue as _, Way, place};
use super::ruleset::{
    self, CLUSTER_IPS, FRONTENDS, HAIRPINS, MARK, NO_ENDPOINTS, NO_ENDPOINTS_NODE_PORTS, NODE_IPS, NODE_PORTS, NOTHING,
    REFUSE, SERVICE_RANGES, UNKNOWN, destination, dispatch, inside, jump,
};
use super::shapes::{LOCAL_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS};

/// Addresses on our device.
pub(crate) const ADDRESSES: &str = "addresses";
/// Virtual servers that are ours.
pub(crate) const SERVERS: &str = "servers";
/// Frontends behind which there is somebody.
const KNOWN: &str = "known";
/// Protocols of those who only ask whether an address is there.
const PINGS: &str = "pings";
/// The chain that has the endpoint see the node.
const OUTSIDE: &str = "outside";

/// The numbers of ICMP and of its namesake of IPv6.
const ICMP: [u8; 2] = [1, 58];

/// What a virtual server is noted by.
pub(crate) fn server_key(server: &Server) -> Key {
    Key::new(&[Part::Address(server.ip), Part::Protocol(server.protocol), Part::Port(server.port)])
}

/// The virtual server that was noted.
pub(crate) fn server_from(family: Family, key: &Key) -> Option<Server> {
    let (ip, rest) = match family {
        Family::V4 => key.start.split_first_chunk::<4>().map(|(bytes, rest)| (IpAddr::from(*bytes), rest)),
        Family::V6 => key.start.split_first_chunk::<16>().map(|(bytes, rest)| (IpAddr::from(*bytes), rest)),
    }?;
    let [protocol, _, _, _, high, low, ..] = *rest.first_chunk::<8>()?;
    Some(Server { ip, protocol, port: u16::from_be_bytes([high, low]) })
}

/// The sets and maps.
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

/// The chains that do not depend on Services: those of the nftables mode, but for what comes before and after IPVS.
pub(super) fn chains(options: &Options, family: Family) -> BTreeMap<Name, Chain> {
    use Hook::{Input, Output, Postrouting};
    let base = |kind, hook, priority, rules| Chain { base: Some(Base { kind, hook, priority }), rules };
    let plain = |rules| Chain { base: None, rules };
    let mut chains = ruleset::chains(options, family);
    let mut services = vec![vec![
        // The node itself sends with the address of the Service that it asks, as long as nobody tells it otherwise.
        inside(vec![Field::Source], ADDRESSES),
        inside(destination(), KNOWN),
        Statement::Mark(MARK),
    ]];
    services.extend(ruleset::services(options, family));
    let ours = [
        ("filter-input", base(BaseKind::Filter, Input, 0, unserved())),
        // After translation, before IPVS.
        ("filter-output", base(BaseKind::Filter, Output, -99, unserved())),
        ("nat-postrouting", base(BaseKind::Nat, Postrouting, 100, masquerading())),
        (ruleset::SERVICES, plain(services)),
        (UNKNOWN, plain(unknown())),
        (OUTSIDE, plain(vec![vec![Statement::Mark(MARK)]])),
    ];
    chains.extend(ours.into_iter().map(|(name, chain)| (name.into(), chain)));
    chains
}

/// What is refused or dropped where IPVS would look next.
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

/// IPVS does not tell connection tracking that it translated, so only who talks to itself is looked at.
fn masquerading() -> Vec<Rule> {
    let itself = vec![Field::Source, Field::Destination, Field::Protocol, Field::DestinationPort];
    vec![
        vec![Statement::Marked(MARK), Statement::Unmark(MARK), Statement::Masquerade],
        vec![inside(itself, HAIRPINS), Statement::Masquerade],
    ]
}

/// What a Service port adds, given the frontends that are its own.
pub(super) fn fragment(options: &Options, port: &ServicePort, owned: &[(Frontend, Role)]) -> Fragment {
    let mut fragment = Fragment::begin(port);
    for (frontend, role) in owned {
        let way = fragment.way(port, *frontend, *role);
        if let (Some(_), Frontend::Address(ip, protocol, number)) = (way.balanced(), *frontend) {
            fragment.put(KNOWN, frontend_key(ip, protocol, number), NOTHING);
        }
        let chain = match way {
            Way::Outside(_) => OUTSIDE.into(),
            // What need not stay on this node is translated.
            Way::OutsideLocal(anywhere, _) if !anywhere.is_empty() => {
                fragment.lead(options, port, *frontend, Way::OutsideLocal(anywhere, &[]))
            }
            _ => continue,
        };
        let (map, key) = place(*frontend, FRONTENDS, NODE_PORTS);
        fragment.put(map, key, Verdict::Goto(chain).into_value());
    }
    fragment
}
