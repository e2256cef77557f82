//! Static part of the tables: sets, maps, base chains and their priorities.

use std::collections::BTreeMap;

use api::ip::Family;
use ipnet::IpNet;
use kernel::nft::{
    Base, BaseKind, Chain, Field, Hook, Key, Name, Rule, Set, SetValue, Statement, Type, Value, Verdict,
};
use plan::{LocalDetector, Options, Plan};

use super::elements::{address_key, range_key};
use super::shapes::{ENDPOINTS, LOCAL_ENDPOINTS, NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS, from_pod};

/// Mark bit of connections to masquerade.
pub(super) const MARK: u32 = 0x4000;

/// Cluster IPs in use.
pub(super) const CLUSTER_IPS: &str = "cluster-ips";
/// Service CIDRs.
pub(super) const SERVICE_RANGES: &str = "service-ranges";
/// Pod addresses.
pub(super) const POD_IPS: &str = "pod-ips";
/// Pod addresses of this node, where they are known.
pub(super) const OWN_POD_IPS: &str = "own-pod-ips";
/// Node addresses that serve node ports.
pub(super) const NODE_IPS: &str = "node-ips";
/// Chains by address frontend.
pub(super) const FRONTENDS: &str = "frontends";
/// Chains by node port.
pub(super) const NODE_PORTS: &str = "node-ports";
/// Verdicts of addresses without (local) endpoints.
pub(super) const NO_ENDPOINTS: &str = "no-endpoints";
/// Verdicts of node ports without (local) endpoints.
pub(super) const NO_ENDPOINTS_NODE_PORTS: &str = "no-endpoints-node-ports";
/// Addresses with source restrictions.
pub(super) const GUARDED: &str = "guarded";
/// Allowed sources of those addresses.
pub(super) const ALLOWED: &str = "allowed";
/// Endpoints that may connect to themselves.
pub(super) const HAIRPINS: &str = "hairpins";
/// The chain that rejects.
pub(super) const REFUSE: &str = "refuse";

pub(super) const SERVICES: &str = "services";
const GUARD: &str = "guard";
pub(super) const UNKNOWN: &str = "unknown-services";

/// Empty sets and maps.
pub(super) fn sets() -> BTreeMap<Name, Set> {
    use Type::{Address, Port, Protocol, Random};
    let plain = |key: &[Type], value: SetValue| Set {
        key: key.to_vec(),
        value,
        interval: false,
        timeout: None,
        counters: false,
        elements: BTreeMap::new(),
    };
    let interval = |key: &[Type]| Set { interval: true, ..plain(key, SetValue::Nothing) };
    let counted = |key: &[Type]| Set { counters: true, ..plain(key, SetValue::Verdict) };
    let data = |key: &[Type]| plain(key, SetValue::Data(vec![Address, Port]));
    let at: &[Type] = &[Address, Protocol, Port];
    let sets = [
        (CLUSTER_IPS, plain(&[Address], SetValue::Nothing)),
        (SERVICE_RANGES, interval(&[Address])),
        (POD_IPS, interval(&[Address])),
        (OWN_POD_IPS, interval(&[Address])),
        (NODE_IPS, plain(&[Address], SetValue::Nothing)),
        (FRONTENDS, counted(at)),
        (NODE_PORTS, counted(&[Protocol, Port])),
        (ENDPOINTS, data(&[Address, Protocol, Port, Random])),
        (LOCAL_ENDPOINTS, data(&[Address, Protocol, Port, Random])),
        (NODE_PORT_ENDPOINTS, data(&[Protocol, Port, Random])),
        (NODE_PORT_LOCAL_ENDPOINTS, data(&[Protocol, Port, Random])),
        (NO_ENDPOINTS, plain(at, SetValue::Verdict)),
        (NO_ENDPOINTS_NODE_PORTS, plain(&[Protocol, Port], SetValue::Verdict)),
        (GUARDED, plain(at, SetValue::Nothing)),
        (ALLOWED, interval(&[Address, Protocol, Port, Address])),
        (HAIRPINS, plain(&[Address, Address, Protocol, Port], SetValue::Nothing)),
    ];
    sets.into_iter().map(|(name, set)| (name.into(), set)).collect()
}

pub(super) fn destination() -> Vec<Field> {
    vec![Field::Destination, Field::Protocol, Field::DestinationPort]
}

pub(super) fn inside(key: Vec<Field>, set: &str) -> Statement {
    Statement::In { key, set: set.into(), negate: false }
}

pub(super) fn dispatch(key: Vec<Field>, map: &str) -> Statement {
    Statement::Dispatch { key, map: map.into() }
}

pub(super) fn jump(chain: &str) -> Statement {
    Statement::Go(Verdict::Jump(chain.into()))
}

/// Chains that do not depend on Services.
pub(super) fn chains(options: &Options, family: Family) -> BTreeMap<Name, Chain> {
    use BaseKind::{Filter, Nat};
    use Hook::{Forward, Input, Output, Postrouting, Prerouting};
    let new = || Statement::NewConnection;
    let node_port = || vec![Field::Protocol, Field::DestinationPort];
    let at_node = || inside(vec![Field::Destination], NODE_IPS);
    let nobody = || vec![new(), dispatch(destination(), NO_ENDPOINTS)];
    let refuse = || Statement::Go(Verdict::Goto(REFUSE.into()));
    let guard = || vec![vec![new(), jump(GUARD)]];
    let base = |kind, hook, priority, rules| Chain { base: Some(Base { kind, hook, priority }), rules };
    let plain = |rules| Chain { base: None, rules };
    let chains = [
        // Before DNAT: source restrictions of load balancers.
        ("filter-prerouting", base(Filter, Prerouting, -110, guard())),
        ("filter-output-first", base(Filter, Output, -110, guard())),
        ("nat-prerouting", base(Nat, Prerouting, -100, vec![vec![jump(SERVICES)]])),
        ("nat-output", base(Nat, Output, -100, vec![vec![jump(SERVICES)]])),
        // After DNAT: packets that were not translated but should have been.
        (
            "filter-input",
            base(
                Filter,
                Input,
                0,
                vec![vec![new(), at_node(), dispatch(node_port(), NO_ENDPOINTS_NODE_PORTS)], nobody()],
            ),
        ),
        ("filter-forward", base(Filter, Forward, 0, vec![nobody(), vec![new(), jump(UNKNOWN)]])),
        (
            "filter-output",
            base(
                Filter,
                Output,
                0,
                vec![
                    vec![new(), at_node(), dispatch(node_port(), NO_ENDPOINTS_NODE_PORTS)],
                    nobody(),
                    vec![new(), jump(UNKNOWN)],
                ],
            ),
        ),
        ("nat-postrouting", base(Nat, Postrouting, 100, masquerading())),
        (SERVICES, plain(services(options, family))),
        (
            GUARD,
            plain(vec![vec![
                inside(destination(), GUARDED),
                Statement::In {
                    key: vec![Field::Destination, Field::Protocol, Field::DestinationPort, Field::Source],
                    set: ALLOWED.into(),
                    negate: true,
                },
                Statement::Go(Verdict::Drop),
            ]]),
        ),
        (
            UNKNOWN,
            plain(vec![
                vec![inside(vec![Field::Destination], CLUSTER_IPS), refuse()],
                vec![inside(vec![Field::Destination], SERVICE_RANGES), refuse()],
            ]),
        ),
        // A client reacts to a reset at once, but to an ICMP error for its SYN only at the next retransmission.
        (REFUSE, plain(vec![vec![Statement::Reset], vec![Statement::Reject]])),
    ];
    chains.into_iter().map(|(name, chain)| (name.into(), chain)).collect()
}

pub(super) fn services(options: &Options, family: Family) -> Vec<Rule> {
    let mut rules = Vec::new();
    let to_cluster_ip = || inside(vec![Field::Destination], CLUSTER_IPS);
    if options.masquerade_all {
        rules.push(vec![to_cluster_ip(), Statement::Mark(MARK)]);
    } else if let Some(stranger) = from_pod(detector(options, family), true) {
        rules.push(vec![to_cluster_ip(), stranger, Statement::Mark(MARK)]);
    }
    rules.push(vec![dispatch(destination(), FRONTENDS)]);
    let node_port = vec![Field::Protocol, Field::DestinationPort];
    rules.push(vec![inside(vec![Field::Destination], NODE_IPS), dispatch(node_port, NODE_PORTS)]);
    rules
}

/// How Pods are detected in a family; not at all without ranges of that family.
pub(super) fn detector(options: &Options, family: Family) -> &LocalDetector {
    if options.local.knows(family == Family::V4) { &options.local } else { &LocalDetector::None }
}

fn masquerading() -> Vec<Rule> {
    let itself = vec![Field::Source, Field::Destination, Field::Protocol, Field::DestinationPort];
    vec![
        vec![Statement::Marked(MARK), Statement::Unmark(MARK), Statement::Masquerade],
        vec![Statement::Translated, inside(itself, HAIRPINS), Statement::Masquerade],
    ]
}

/// Elements that follow from the node and from ranges, not from Service ports.
pub(super) fn node_elements(plan: &Plan, family: Family) -> Vec<(&'static str, Key)> {
    let ours = |ip: &std::net::IpAddr| Family::of(*ip) == family;
    let range = |set: &'static str, ranges: &[IpNet]| -> Vec<(&'static str, Key)> {
        // The kernel refuses adjacent or overlapping ranges.
        let here: Vec<IpNet> = ranges.iter().filter(|range| Family::of(range.addr()) == family).copied().collect();
        IpNet::aggregate(&here).iter().map(|range| (set, range_key(range))).collect()
    };
    let mut out = range(SERVICE_RANGES, &plan.ranges);
    if let LocalDetector::Ranges(ranges) = &plan.options.local {
        out.extend(range(POD_IPS, ranges));
        out.extend(range(OWN_POD_IPS, plan.own_pods(family)));
    }
    out.extend(plan.node_port_ips.iter().filter(|ip| ours(ip)).map(|ip| (NODE_IPS, address_key(*ip))));
    out
}

/// Value of a plain set element.
pub(super) const NOTHING: Value = Value::Nothing;
