//! Common test input of all backends: generated plans and packets, and the comparison with the oracle.
//!
//! In: what a fake kernel does to a packet. Out: a failed assertion unless [`plan::oracle`] agrees.

pub(crate) mod namespace;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use api::ip::Family;
use api::view::annotations::{BACKEND_PROTOCOL, GATEWAY, LEADER_LEASE, TRAFFIC_POLICY, ZONE_WEIGHTS};
use kernel::nft::fake::{End, Fate, Packet as KernelPacket};
use plan::oracle::{Outcome, Packet, judge};
use plan::{Balancing, LocalDetector, Options, Plan, Planner, Policy, Protocol, Redirect, RedirectedFrontends, ServicePortName, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Backend, SyncScope};

pub(crate) const NODE: &str = "n1";
pub(crate) const NODE_IPS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
/// Number of the Service that is redirected to the endpoints of another.
const DIRECT: u8 = 3;
/// Numbers of the Services whose TCP ports are served at layer 7.
const LAYER7: [u8; 2] = [2, 1];
/// Where they are served.
const LAYER7_LISTENERS: [&str; 2] = ["10.244.0.6:42000", "[fd00:10:244::6]:42000"];

/// A generated Service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceSpec {
    pub(crate) number: u8,
    pub(crate) kind: usize,
    pub(crate) dual: bool,
    pub(crate) protocol: usize,
    pub(crate) internal_local: bool,
    pub(crate) external_local: bool,
    pub(crate) affinity: bool,
    pub(crate) external_ip: bool,
    pub(crate) lb_ip: bool,
    pub(crate) ranges: usize,
    /// Whether the gateway serves its load balancer; it listens for Services with odd numbers.
    pub(crate) gateway: bool,
    pub(crate) policy: Policy,
    pub(crate) endpoints: Vec<(u8, u8)>,
}

pub(crate) fn service_spec() -> impl Strategy<Value = ServiceSpec> {
    let shape = (0..4u8, 0..3usize, any::<bool>(), 0..3usize, any::<bool>(), any::<bool>());
    let more = (prop::bool::weighted(0.25), any::<bool>(), any::<bool>(), 0..4usize, prop::bool::weighted(0.25));
    let policy = prop::sample::select(Policy::ALL.to_vec());
    // Last byte of the endpoint's address (below 8: on this node) and its state.
    let endpoints = prop::collection::vec((1..16u8, 0..5u8), 0..6);
    (shape, more, policy, endpoints).prop_map(|(shape, more, policy, endpoints)| ServiceSpec {
        number: shape.0,
        kind: shape.1,
        dual: shape.2,
        protocol: shape.3,
        internal_local: shape.4,
        external_local: shape.5,
        affinity: more.0,
        external_ip: more.1,
        lb_ip: more.2,
        ranges: more.3,
        gateway: more.4,
        policy,
        endpoints,
    })
}

fn service(spec: &ServiceSpec) -> Value {
    let number = spec.number;
    let kind = ["ClusterIP", "NodePort", "LoadBalancer"][spec.kind];
    let mut ips = vec![format!("10.96.0.{}", number + 1)];
    let mut families = vec!["IPv4"];
    if spec.dual {
        ips.push(format!("fd00:10:96::{}", number + 1));
        families.push("IPv6");
    }
    let policy = |local: bool| if local { "Local" } else { "Cluster" };
    let protocol = ["TCP", "UDP", "SCTP"][spec.protocol];
    let mut object = json!({
        "type": kind, "clusterIP": ips[0], "clusterIPs": ips, "ipFamilies": families,
        "internalTrafficPolicy": policy(spec.internal_local), "externalTrafficPolicy": policy(spec.external_local),
        "sessionAffinity": if spec.affinity { "ClientIP" } else { "None" },
        "ports": [{"name": "p", "port": 80, "protocol": protocol,
                   "nodePort": if spec.kind > 0 { 30000 + i64::from(number) } else { 0 }}],
    });
    if spec.external_ip {
        // Shared by two Services; only one of them owns it.
        object["externalIPs"] = json!([format!("198.51.100.{}", number / 2 + 1), "2001:db8:1::9"]);
    }
    let ranges =
        [json!([]), json!(["203.0.113.0/24"]), json!(["192.0.2.0/24", "203.0.113.7/32"]), json!(["2001:db8::/32"])];
    object["loadBalancerSourceRanges"] = ranges[spec.ranges].clone();
    let ingress = if spec.lb_ip { json!([{"ip": format!("198.51.100.{}", 100 + number)}]) } else { json!([]) };
    let mut annotations = match (spec.gateway, number) {
        (false, _) => json!({}),
        (true, DIRECT) => json!({GATEWAY: "public"}),
        (true, _) => json!({BACKEND_PROTOCOL: "http"}),
    };
    annotations[TRAFFIC_POLICY] = spec.policy.name().into();
    annotations[LEADER_LEASE] = format!("l{number}").into();
    annotations[ZONE_WEIGHTS] = "a=3,b=2".into();
    json!({
        "metadata": {"namespace": "default", "name": format!("s{number}"), "uid": "u", "annotations": annotations},
        "spec": object, "status": {"loadBalancer": {"ingress": ingress}},
    })
}

fn slice(spec: &ServiceSpec, family: Family) -> Value {
    let endpoints: Vec<Value> = spec
        .endpoints
        .iter()
        .map(|(place, state)| {
            let ip = if family == Family::V4 { format!("10.244.0.{place}") } else { format!("fd00:10:244::{place}") };
            json!({
                "addresses": [ip], "zone": if *place % 2 == 0 { "a" } else { "b" },
                "targetRef": {"kind": "Pod", "name": format!("p{place}")}, "nodeName": if *place < 8 { NODE } else { "other" },
                "conditions": {"ready": *state < 3, "serving": *state < 4, "terminating": *state == 3},
            })
        })
        .collect();
    let name = format!("s{}-{}", spec.number, family.as_str().to_lowercase());
    let protocol = ["TCP", "UDP", "SCTP"][spec.protocol];
    json!({
        "metadata": {"namespace": "default", "name": name,
                     "labels": {"kubernetes.io/service-name": format!("s{}", spec.number)}},
        "addressType": family.as_str(), "endpoints": endpoints,
        "ports": [{"name": "p", "port": 8080, "protocol": protocol}],
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of ours")
}

pub(crate) fn updates(spec: &ServiceSpec) -> Vec<Update> {
    let mut all = vec![Update::Service(Box::new(read(service(spec))))];
    all.extend([Family::V4, Family::V6].map(|family| Update::Slice(read(slice(spec, family)))));
    let holder = spec.endpoints.last().map(|(place, _)| format!("p{place}_1234").into());
    all.push(Update::Leader(format!("default/l{}", spec.number).into(), holder));
    all
}

/// Steps in which Services are added, changed or deleted.
pub(crate) fn history(most: usize) -> impl Strategy<Value = Vec<Vec<Update>>> {
    let of_service = (service_spec(), prop::bool::weighted(0.2)).prop_map(|(spec, gone)| match gone {
        true => vec![Update::ServiceGone(format!("default/s{}", spec.number))],
        false => updates(&spec),
    });
    let of_redirect = any::<(bool, bool)>().prop_map(|(direct, layer7)| vec![redirects(direct, layer7)]);
    prop::collection::vec(prop_oneof![6 => of_service, 1 => of_redirect], 1..most)
}

/// A listener for each Service with an odd number. With `direct`, the endpoints of another Service serve [`DIRECT`] as long
/// as there are any. With `layer7`, the cluster IPs of two Services lead to listeners.
pub(crate) fn redirects(direct: bool, layer7: bool) -> Update {
    let redirect = |(number, protocol): (u8, Protocol)| {
        let target = ServicePortName { service: "default/s2".into(), port: "p".into() };
        let backends = (number == DIRECT).then_some(target);
        Redirect {
            service: format!("default/s{number}").into(),
            port: "p".into(),
            protocol,
            frontends: RedirectedFrontends::LoadBalancer,
            // Not at a node address: what is delivered locally is not masqueraded.
            listener: (Ipv4Addr::new(10, 244, 0, 6), 41_000 + u16::from(number)).into(),
            direct: backends.clone().filter(|_| direct),
            backends: backends.into_iter().collect(),
        }
    };
    let all = [(1, Protocol::Tcp), (DIRECT, Protocol::Tcp), (DIRECT, Protocol::Udp)].map(redirect);
    let at_layer7 =
        LAYER7.iter().flat_map(|number| LAYER7_LISTENERS.map(|listener| redirect_layer7(*number, listener)));
    Update::Redirects(Arc::new(all.into_iter().chain(at_layer7.filter(|_| layer7)).collect()))
}

fn redirect_layer7(number: u8, listener: &str) -> Redirect {
    Redirect {
        service: format!("default/s{number}").into(),
        port: "p".into(),
        protocol: Protocol::Tcp,
        frontends: RedirectedFrontends::ClusterIp,
        listener: listener.parse().expect("an address"),
        direct: None,
        backends: BTreeSet::new(),
    }
}

/// A Service with a node port and a local endpoint, whose cluster IP may be redirected.
pub(crate) fn layer7_service() -> ServiceSpec {
    ServiceSpec {
        number: LAYER7[0],
        kind: 1,
        dual: true,
        protocol: 0,
        internal_local: true,
        external_local: false,
        affinity: true,
        external_ip: false,
        lb_ip: false,
        ranges: 0,
        gateway: false,
        endpoints: vec![(3, 0)],
    }
}

/// The cluster IP of a Service becomes redirected, and is whole again: what a kernel does to packets in between and after.
/// Its node port leads to its endpoint all the time.
pub(crate) fn check_layer7(backend: &mut dyn Backend, mut kernel: impl FnMut(&KernelPacket) -> Fate) {
    let mut planner = planner(options(1, false));
    let spec = layer7_service();
    planner.update(redirects(true, false));
    updates(&spec).into_iter().for_each(|update| drop(planner.update(update)));
    backend.sync(planner.plan(), &SyncScope::FullResync).expect("accepted");
    let mut sent = |[source, to]: [&str; 2], port, interface| {
        let fate = kernel(&KernelPacket::first(address(source), address(to), 6, port, interface));
        (fate.end, fate.translated.map(|(ip, port)| std::net::SocketAddr::new(ip, port).to_string()), fate.masqueraded)
    };
    let to = |target: &str, masqueraded| (End::Accepted, Some(target.to_owned()), masqueraded);
    let number = 30000 + u16::from(spec.number);
    for [v4, v6] in
        [["10.244.0.3:8080", "[fd00:10:244::3]:8080"], LAYER7_LISTENERS, ["10.244.0.3:8080", "[fd00:10:244::3]:8080"]]
    {
        follow(backend, &mut planner, [redirects(true, v4 == LAYER7_LISTENERS[0])]);
        assert_eq!(sent(["10.244.0.2", "10.96.0.3"], 80, Some("veth2")), to(v4, false));
        assert_eq!(sent(["fd00:10:244::2", "fd00:10:96::3"], 80, Some("veth2")), to(v6, false));
        assert_eq!(sent(["203.0.113.7", NODE_IPS[0]], number, Some("eth0")), to("10.244.0.3:8080", true));
        assert_eq!(sent(["10.244.0.2", "10.96.0.3"], 81, Some("veth2")).0, End::Rejected, "no such port");
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Applies updates one by one and syncs after each.
pub(crate) fn follow(backend: &mut dyn Backend, planner: &mut Planner, all: impl IntoIterator<Item = Update>) {
    for update in all {
        let touched = planner.update(update);
        backend.sync(planner.plan(), &SyncScope::Changed(touched)).expect("accepted");
    }
}

/// Node addresses.
pub(crate) fn node_ips() -> impl Iterator<Item = IpAddr> {
    NODE_IPS.iter().map(|ip| ip.parse().expect("an address"))
}

pub(crate) fn options(local: usize, masquerade_all: bool) -> Options {
    let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a range")).collect();
    let local = match local {
        0 => LocalDetector::None,
        1 => LocalDetector::Ranges(ranges(&["10.244.0.0/16", "fd00:10:244::/48"])),
        2 => LocalDetector::Ranges(ranges(&["10.244.0.0/16"])),
        3 => LocalDetector::InterfacePrefix("veth".to_owned()),
        _ => LocalDetector::Ranges(ranges(&["10.244.0.0/29", "10.244.0.12/32", "fd00:10:244::/48"])),
    };
    Options { node_name: NODE.to_owned(), masquerade_all, local, ..Options::default() }
}

pub(crate) fn planner(options: Options) -> Planner {
    let mut planner = Planner::new(options);
    let addresses: Vec<Value> = NODE_IPS.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    let node = json!({
        "metadata": {"name": NODE}, "spec": {"podCIDRs": ["10.244.0.0/29"]}, "status": {"addresses": addresses},
    });
    planner.update(Update::Node(Some(Box::new(read(node)))));
    planner.update(Update::Machine(node_ips().collect()));
    let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}});
    planner.update(Update::Cidr(read(range)));
    planner.update(redirects(true, true));
    planner
}

/// Packets from every kind of source to every kind of destination.
pub(crate) fn packets(plan: &Plan) -> Vec<Packet> {
    let sources: Vec<(IpAddr, bool, Option<&str>)> = [
        ("10.244.0.2", false, Some("veth2")),
        ("10.244.0.12", false, Some("eth0")),
        ("192.0.2.1", true, None),
        ("203.0.113.7", false, Some("eth0")),
        ("198.51.100.200", false, Some("eth0")),
        ("198.51.100.100", false, Some("eth0")),
        ("fd00:10:244::2", false, Some("veth2")),
        ("2001:db8::1", true, None),
        ("2001:db8:ffff::7", false, Some("eth0")),
        ("3fff::7", false, Some("eth0")),
    ]
    .map(|(ip, node, interface)| (address(ip), node, interface))
    .into();
    let mut targets: BTreeSet<(IpAddr, u16)> = BTreeSet::new();
    for port in plan.ports.values() {
        let ips = port.cluster_ip.into_iter().chain(port.lb_ips.clone()).chain(port.external_ips.clone());
        targets.extend(ips.flat_map(|ip| [(ip, 80), (ip, 81)]));
        targets.extend(port.node_port.into_iter().flat_map(|number| NODE_IPS.map(|ip| (address(ip), number))));
    }
    targets.extend([(address("10.96.77.7"), 80), (address("fd00:10:96::77"), 80), (address("198.51.100.9"), 80)]);
    let mut all = Vec::new();
    for (source, from_node, interface) in sources {
        for (destination, port) in targets.iter().filter(|(ip, _)| ip.is_ipv4() == source.is_ipv4()) {
            for protocol in Protocol::ALL {
                let (destination, port, interface) = (*destination, *port, interface.map(str::to_owned));
                all.push(Packet { source, from_node, interface, destination, protocol, port });
            }
        }
    }
    all
}

/// Compares a kernel with the oracle. The kernel gets a packet and which of n equal slots to take; it must not keep
/// affinity between packets.
pub(crate) fn check(plan: &Plan, kernel: impl FnMut(&KernelPacket, u32, u32) -> Fate) {
    check_possible(plan, |_| true, kernel);
}

/// The same, limited to possible packets.
pub(crate) fn check_possible(
    plan: &Plan,
    is_possible: impl Fn(&Packet) -> bool,
    mut kernel: impl FnMut(&KernelPacket, u32, u32) -> Fate,
) {
    for packet in packets(plan).into_iter().filter(is_possible) {
        let sent = KernelPacket::first(
            packet.source,
            packet.destination,
            packet.protocol.number(),
            packet.port,
            packet.interface.as_deref(),
        );
        let verdict = judge(plan, &packet);
        let ways = match &verdict {
            Outcome::Forward(forward) => {
                let count = forward.backends.first().map_or(0, |first| forward.share(first).1);
                u32::try_from(count).expect("few")
            }
            _ => 1,
        };
        let mut reached = BTreeSet::new();
        for way in 0..ways {
            let fate = kernel(&sent, way, ways);
            match &verdict {
                Outcome::Pass => assert_eq!((fate.end, fate.translated), (End::Accepted, None), "{packet:?}"),
                Outcome::Refuse(why) => assert_eq!(fate.end, End::Rejected, "{packet:?} {why:?}"),
                Outcome::Drop(why) => assert_eq!(fate.end, End::Dropped, "{packet:?} {why:?}"),
                Outcome::Forward(forward) => {
                    let (ip, port) = fate.translated.unwrap_or_else(|| panic!("{packet:?} {forward:?} {fate:?}"));
                    let backend = plan::Backend { ip, port };
                    let hidden = forward.masquerade || forward.hairpin.contains(&backend);
                    assert_eq!(fate.masqueraded, hidden, "{packet:?} {forward:?}");
                    assert_eq!(fate.end, End::Accepted, "{packet:?}");
                    assert_eq!(fate.remembered.is_empty(), forward.affinity.is_none(), "{packet:?}");
                    reached.insert(backend);
                }
            }
        }
        if let Outcome::Forward(forward) = verdict {
            let possible: BTreeSet<_> = forward.possible().iter().copied().collect();
            // Which one a hash of the kernel selects is not known.
            let all = if matches!(forward.balancing, Balancing::Maglev(_)) { &reached } else { &possible };
            assert!(&reached == all && reached.is_subset(&possible), "{packet:?} {reached:?} {possible:?}");
        }
    }
}
