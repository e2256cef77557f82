//! Whatever the plan: what the rules do to a packet is what the oracle says must happen, and rules that were followed are those
//! that are computed anew.

use std::collections::BTreeSet;
use std::net::IpAddr;

use api::ip::Family;
use kernel::nft::Nft as _;
use kernel::nft::fake::{End, Fake, Packet as KernelPacket};
use plan::oracle::{Outcome, Packet, judge};
use plan::{LocalDetector, Options, Plan, Planner, Protocol, Update};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::TABLE;
use super::shapes::Shape;
use super::{FAMILIES, Program, kernel_family};
use crate::nftables::Nftables;
use crate::{Backend as _, Since};

const NODE: &str = "n1";
const NODE_IPS: [&str; 2] = ["192.0.2.1", "2001:db8::1"];

/// A Service of a test.
#[derive(Clone, Debug)]
struct Wish {
    number: u8,
    kind: usize,
    dual: bool,
    protocol: usize,
    internal_local: bool,
    external_local: bool,
    affinity: bool,
    external_ip: bool,
    lb_ip: bool,
    ranges: usize,
    endpoints: Vec<(u8, u8)>,
}

fn wish() -> impl Strategy<Value = Wish> {
    let shape = (0..4u8, 0..3usize, any::<bool>(), 0..3usize, any::<bool>(), any::<bool>());
    let more = (prop::bool::weighted(0.25), any::<bool>(), any::<bool>(), 0..4usize);
    // Where an endpoint is (its last byte; below 8 on this node) and in which state.
    let endpoints = prop::collection::vec((1..16u8, 0..5u8), 0..6);
    (shape, more, endpoints).prop_map(|(shape, more, endpoints)| Wish {
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
        endpoints,
    })
}

fn service(wish: &Wish) -> Value {
    let number = wish.number;
    let kind = ["ClusterIP", "NodePort", "LoadBalancer"][wish.kind];
    let mut ips = vec![format!("10.96.0.{}", number + 1)];
    let mut families = vec!["IPv4"];
    if wish.dual {
        ips.push(format!("fd00:10:96::{}", number + 1));
        families.push("IPv6");
    }
    let policy = |local: bool| if local { "Local" } else { "Cluster" };
    let protocol = ["TCP", "UDP", "SCTP"][wish.protocol];
    let mut spec = json!({
        "type": kind, "clusterIP": ips[0], "clusterIPs": ips, "ipFamilies": families,
        "internalTrafficPolicy": policy(wish.internal_local), "externalTrafficPolicy": policy(wish.external_local),
        "sessionAffinity": if wish.affinity { "ClientIP" } else { "None" },
        "ports": [{"name": "p", "port": 80, "protocol": protocol,
                   "nodePort": if wish.kind > 0 { 30000 + i64::from(number) } else { 0 }}],
    });
    if wish.external_ip {
        // Shared by two Services: only one of them can have it.
        spec["externalIPs"] = json!([format!("198.51.100.{}", number / 2 + 1), "2001:db8:1::9"]);
    }
    let ranges =
        [json!([]), json!(["203.0.113.0/24"]), json!(["192.0.2.0/24", "203.0.113.7/32"]), json!(["2001:db8::/32"])];
    spec["loadBalancerSourceRanges"] = ranges[wish.ranges].clone();
    let ingress = if wish.lb_ip { json!([{"ip": format!("198.51.100.{}", 100 + number)}]) } else { json!([]) };
    json!({
        "metadata": {"namespace": "default", "name": format!("s{number}"), "uid": "u"},
        "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
    })
}

fn slice(wish: &Wish, family: Family) -> Value {
    let endpoints: Vec<Value> = wish
        .endpoints
        .iter()
        .map(|(place, state)| {
            let ip = if family == Family::V4 { format!("10.244.0.{place}") } else { format!("fd00:10:244::{place}") };
            json!({
                "addresses": [ip], "nodeName": if *place < 8 { NODE } else { "other" },
                "conditions": {"ready": *state < 3, "serving": *state < 4, "terminating": *state == 3},
            })
        })
        .collect();
    let name = format!("s{}-{}", wish.number, family.as_str().to_lowercase());
    let protocol = ["TCP", "UDP", "SCTP"][wish.protocol];
    json!({
        "metadata": {"namespace": "default", "name": name,
                     "labels": {"kubernetes.io/service-name": format!("s{}", wish.number)}},
        "addressType": family.as_str(), "endpoints": endpoints,
        "ports": [{"name": "p", "port": 8080, "protocol": protocol}],
    })
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of ours")
}

fn updates(wish: &Wish) -> Vec<Update> {
    let mut all = vec![Update::Service(Box::new(read(service(wish))))];
    all.extend(FAMILIES.map(|family| Update::Slice(read(slice(wish, family)))));
    all
}

fn options(local: usize, masquerade_all: bool) -> Options {
    let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a range")).collect();
    let local = match local {
        0 => LocalDetector::None,
        1 => LocalDetector::Ranges(ranges(&["10.244.0.0/16", "fd00:10:244::/48"])),
        2 => LocalDetector::Ranges(ranges(&["10.244.0.0/16"])),
        _ => LocalDetector::InterfacePrefix("veth".to_owned()),
    };
    Options { node_name: NODE.to_owned(), masquerade_all, local, ..Options::default() }
}

fn planner(options: Options) -> Planner {
    let mut planner = Planner::new(options);
    let addresses: Vec<Value> = NODE_IPS.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    let node = json!({
        "metadata": {"name": NODE}, "spec": {"podCIDRs": ["10.244.0.0/29"]}, "status": {"addresses": addresses},
    });
    planner.update(Update::Node(Some(Box::new(read(node)))));
    planner.update(Update::Machine(NODE_IPS.iter().map(|ip| ip.parse().expect("an address")).collect()));
    let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}});
    planner.update(Update::Cidr(read(range)));
    planner
}

/// Every packet that could tell something: from everywhere to everywhere.
fn packets(plan: &Plan) -> Vec<Packet> {
    let parse = |text: &str| -> IpAddr { text.parse().expect("an address") };
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
    .map(|(ip, node, interface)| (parse(ip), node, interface))
    .into();
    let mut targets: BTreeSet<(IpAddr, u16)> = BTreeSet::new();
    for port in plan.ports.values() {
        let ips = [port.cluster_ip].into_iter().chain(port.lb_ips.clone()).chain(port.external_ips.clone());
        targets.extend(ips.flat_map(|ip| [(ip, 80), (ip, 81)]));
        targets.extend(port.node_port.into_iter().flat_map(|number| NODE_IPS.map(|ip| (parse(ip), number))));
    }
    targets.extend([(parse("10.96.77.7"), 80), (parse("fd00:10:96::77"), 80), (parse("198.51.100.9"), 80)]);
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

/// Holds what the kernel would do against what must happen.
fn check(kernel: &Fake, plan: &Plan) {
    for packet in packets(plan) {
        let sent = KernelPacket::first(
            packet.source,
            packet.destination,
            packet.protocol.number(),
            packet.port,
            packet.interface.as_deref(),
        );
        let verdict = judge(plan, &packet);
        let ways = match &verdict {
            Outcome::Forward(forward) => u32::try_from(forward.backends.len()).expect("few"),
            _ => 1,
        };
        let mut reached = BTreeSet::new();
        for way in 0..ways {
            // Clients of earlier packets are forgotten, so that affinity does not choose for us.
            kernel.advance(100_000);
            let fate = kernel.evaluate(&sent, &mut |below| way % below);
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
            assert_eq!(reached, forward.backends.iter().copied().collect(), "{packet:?}");
        }
    }
}

fn kernel() -> Fake {
    let kernel = Fake::default();
    kernel.set_local(NODE_IPS.iter().map(|ip| ip.parse().expect("an address")));
    kernel
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s20_rules_do_what_the_oracle_says(
        wishes in prop::collection::vec(wish(), 1..4),
        local in 0..4usize,
        masquerade_all in prop::bool::weighted(0.2),
    ) {
        let mut planner = planner(options(local, masquerade_all));
        for update in wishes.iter().flat_map(updates) {
            planner.update(update);
        }
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        check(&kernel, planner.plan());
    }

    #[test]
    fn rules_that_were_followed_are_those_computed_anew(
        wishes in prop::collection::vec((wish(), prop::bool::weighted(0.2)), 1..12),
    ) {
        let mut planner = planner(options(1, false));
        let kernel = kernel();
        let mut backend = Nftables::new(kernel.clone());
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        for (wish, gone) in &wishes {
            let all = if *gone {
                vec![Update::ServiceGone(format!("default/s{}", wish.number))]
            } else {
                updates(wish)
            };
            for update in all {
                let touched = planner.update(update);
                backend.bring(planner.plan(), &Since::Last(touched)).expect("accepted");
            }
        }
        for (family, wanted) in Program::start(planner.plan()).1 {
            let have = kernel.table(kernel_family(family), TABLE).expect("a table");
            let (left, mut used) = (have.chains.clone(), have.chains);
            used.retain(|name, _| wanted.chains.contains_key(name));
            prop_assert_eq!(&used, &wanted.chains);
            prop_assert!(left.keys().all(|name| used.contains_key(name) || Shape::staying(name).is_some()));
            let mut sets = wanted.sets;
            for (name, elements) in wanted.elements {
                sets.get_mut(name).expect("a set that is always there").elements.extend(elements);
            }
            prop_assert_eq!(&have.sets, &sets);
        }
        let written = kernel.changes();
        backend.bring(planner.plan(), &Since::Ever).expect("accepted");
        prop_assert_eq!(kernel.changes(), written, "what is right is not written again");
    }
}

#[test]
fn a_refused_change_leaves_everything_and_is_made_up_for() {
    let mut planner = planner(options(1, false));
    let mut kernel = kernel();
    let mut backend = Nftables::new(kernel.clone());
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    let wish = Wish {
        number: 0,
        kind: 1,
        dual: true,
        protocol: 0,
        internal_local: false,
        external_local: false,
        affinity: false,
        external_ip: false,
        lb_ip: false,
        ranges: 0,
        endpoints: vec![(2, 0), (9, 0)],
    };
    let mut touched = plan::Touched::default();
    for update in updates(&wish) {
        touched.absorb(planner.update(update));
    }
    let before = kernel.table(kernel::nft::Family::Ip, TABLE);
    kernel.fail_next(kernel::Errno::NOMEM);
    let error = backend.bring(planner.plan(), &Since::Last(touched)).expect_err("refused");
    assert!(error.what.contains("applying"), "{error}");
    assert_eq!(kernel.table(kernel::nft::Family::Ip, TABLE), before);
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    check(&kernel, planner.plan());
    kernel.flush_ruleset();
    assert!(kernel.dump(kernel::nft::Family::Ip, TABLE).expect("readable").is_none());
    backend.bring(planner.plan(), &Since::Ever).expect("accepted");
    check(&kernel, planner.plan());
}
