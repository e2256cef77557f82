//! Properties for all inputs: incremental planning equals planning from scratch, an update names what it touched,
//! packets go only where they may, and no input panics the planner.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use api::view::annotations::{BACKEND_PROTOCOL, GATEWAY, LEADER_LEASE, TRAFFIC_POLICY, ZONE_WEIGHTS};
use api::view::{EndpointSlice, Node, Service, ServiceCidr};
use plan::oracle::{Outcome, Packet, judge};
use plan::{
    Backend, LocalDetector, NodePortAddresses, Options, Plan, Planner, PortKey, Problem, Protocol, Redirect,
    RedirectedFrontends, Role, ServicePort, ServicePortName, Touched, Update,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::world::{endpoint, ip, options};

const SERVICES: [&str; 4] = ["a", "b", "c", "d"];
const CLUSTER_IPS: [&str; 5] = ["10.96.0.1", "10.96.0.2", "172.20.0.1", "fd00:10:96::1", "fd00:10:96::2"];
const OUTER_IPS: [&str; 5] = ["198.51.100.1", "198.51.100.2", "2001:db8:1::1", "10.96.0.2", "bogus"];
const ENDPOINTS: [&str; 9] = [
    "10.244.0.1",
    "10.244.0.2",
    "10.244.0.3",
    "10.96.0.1",
    "172.20.0.1",
    "169.254.1.1",
    "fd00:10:244::1",
    "fd00:10:96::1",
    "fd00:10:244::2",
];
const SOURCES: [&str; 6] =
    ["10.244.0.1", "192.0.2.1", "203.0.113.9", "198.51.100.1", "fd00:10:244::1", "2001:db8:f::9"];
const NODES: [&str; 3] = ["192.0.2.1", "192.0.2.2", "2001:db8::1"];

/// State of one object: its content, or deleted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Thing {
    Service(&'static str),
    Slice(u8),
    Cidr(u8),
    Node,
    Machine,
    Redirects,
}

pub(crate) type Said = (Thing, Option<Value>);

pub(crate) fn say((thing, object): &Said) -> Update {
    fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
        serde_json::from_value(object.clone()).expect("an object")
    }
    match (thing, object) {
        (Thing::Service(_), Some(object)) => Update::Service(Box::new(read::<Service>(object))),
        (Thing::Service(name), None) => Update::ServiceGone(format!("ns/{name}")),
        (Thing::Slice(_), Some(object)) => Update::Slice(read::<EndpointSlice>(object)),
        (Thing::Slice(name), None) => Update::SliceGone(format!("ns/{name}")),
        (Thing::Cidr(_), Some(object)) => Update::Cidr(read::<ServiceCidr>(object)),
        (Thing::Cidr(name), None) => Update::CidrGone(name.to_string()),
        (Thing::Node, object) => Update::Node(object.as_ref().map(|object| Box::new(read::<Node>(object)))),
        (Thing::Machine, object) => Update::Machine(object.as_ref().map(read).unwrap_or_default()),
        (Thing::Redirects, object) => {
            let all: Vec<GivenRedirect> = object.as_ref().map(read).unwrap_or_default();
            Update::Redirects(Arc::new(all.into_iter().map(redirect).collect()))
        }
    }
}

/// Service, port, whether by UDP, listener, the Services that are served (the first one directly, if it says so), and
/// whether it is the cluster IP.
type GivenRedirect = (String, String, bool, SocketAddr, Vec<String>, (bool, bool));

fn redirect((name, port, is_udp, listener, served, (is_direct, is_cluster_ip)): GivenRedirect) -> Redirect {
    let port: Arc<str> = port.into();
    let name_of = |name: &String| ServicePortName { service: format!("ns/{name}").into(), port: Arc::clone(&port) };
    Redirect {
        service: format!("ns/{name}").into(),
        protocol: if is_udp { Protocol::Udp } else { Protocol::Tcp },
        frontends: if is_cluster_ip { RedirectedFrontends::ClusterIp } else { RedirectedFrontends::LoadBalancer },
        listener,
        direct: served.first().filter(|_| is_direct).map(name_of),
        backends: served.iter().map(name_of).collect(),
        port,
    }
}

fn some_of(all: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(all, 0..=all.len().min(3))
}

fn service() -> impl Strategy<Value = Said> {
    let ports = subsequence(
        vec![
            json!({"name": "a", "port": 80, "nodePort": 30080}),
            json!({"name": "a", "port": 80, "protocol": "UDP", "nodePort": 30080}),
            json!({"name": "b", "port": 81, "nodePort": 30081}),
            json!({"name": "c", "port": 0}),
        ],
        0..=3,
    );
    let policy = || select(vec!["Local", "Cluster"]);
    (
        select(&SERVICES[..]),
        select(vec!["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
        some_of(&CLUSTER_IPS),
        (some_of(&OUTER_IPS), some_of(&OUTER_IPS)),
        (policy(), policy(), select(vec!["ClientIP", "None"])),
        some_of(&["203.0.113.0/24", "192.0.2.0/24", "2001:db8::/32", "0.0.0.0/0"]),
        ports,
        (
            any::<bool>(),
            select(vec![
                json!({}),
                json!({BACKEND_PROTOCOL: "http"}),
                json!({GATEWAY: "public"}),
                json!({TRAFFIC_POLICY: "round-robin"}),
                json!({TRAFFIC_POLICY: "least-connections"}),
                json!({TRAFFIC_POLICY: "maglev"}),
                json!({TRAFFIC_POLICY: "weighted", ZONE_WEIGHTS: "x=3"}),
                json!({TRAFFIC_POLICY: "leader", LEADER_LEASE: "l"}),
            ]),
        ),
    )
        .prop_map(
            |(name, kind, cluster, (external, lb), (etp, itp, affinity), ranges, ports, (gone, annotations))| {
                let ingress: Vec<Value> = lb.iter().map(|ip| json!({"ip": ip})).collect();
                let object = json!({
                    "metadata": {"namespace": "ns", "name": name, "annotations": annotations},
                    "spec": {"type": kind, "clusterIPs": cluster, "externalIPs": external, "externalTrafficPolicy": etp,
                        "internalTrafficPolicy": itp, "sessionAffinity": affinity, "loadBalancerSourceRanges": ranges,
                        "healthCheckNodePort": 31000, "ports": ports},
                    "status": {"loadBalancer": {"ingress": ingress}},
                });
                (Thing::Service(name), (!gone || cluster.len() > 1).then_some(object))
            },
        )
}

fn slice() -> impl Strategy<Value = Said> {
    let state =
        select(vec!["rs", "rsl", "st", "stl", "s", "rst", "", "rs/a", "rsl/b", "rs/a@here", "rsl/b@there", "l"]);
    let endpoints = vec((select(&ENDPOINTS[..]), state), 0..6);
    let ports = subsequence(
        vec![
            json!({"name": "a", "port": 8080}),
            json!({"name": "a", "port": 8080, "protocol": "UDP"}),
            json!({"name": "b", "port": 8081}),
            json!({"name": "b", "port": 0}),
        ],
        0..=4,
    );
    let family = select(vec!["IPv4", "IPv4", "IPv6", "FQDN"]);
    (0..5u8, select(&SERVICES[..]), family, endpoints, ports, 0..6u8).prop_map(
        |(name, owner, family, endpoints, ports, gone)| {
            let endpoints: Vec<Value> =
                endpoints.iter().map(|(address, state)| endpoint(&format!("{address}={state}"))).collect();
            let labels = json!({"kubernetes.io/service-name": owner});
            let object = json!({
                "metadata": {"namespace": "ns", "name": name.to_string(), "labels": labels},
                "addressType": family, "endpoints": endpoints, "ports": ports,
            });
            (Thing::Slice(name), (gone > 0).then_some(object))
        },
    )
}

fn node() -> impl Strategy<Value = Said> {
    (some_of(&NODES), select(vec!["a", "b", ""]), any::<bool>(), 0..6u8).prop_map(|(addresses, zone, tainted, gone)| {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let taints = if tainted { json!([{"key": "ToBeDeletedByClusterAutoscaler"}]) } else { json!(null) };
        let labels = json!({"topology.kubernetes.io/zone": zone});
        let object =
            json!({"metadata": {"labels": labels}, "spec": {"taints": taints}, "status": {"addresses": addresses}});
        (Thing::Node, (gone > 0).then_some(object))
    })
}

pub(crate) fn anything() -> impl Strategy<Value = Said> {
    let ranges = some_of(&["10.96.0.0/16", "10.96.0.0/24", "172.20.0.0/16", "fd00:10:96::/112"]);
    let cidr = (0..3u8, ranges, any::<bool>()).prop_map(|(name, ranges, gone)| {
        let object = json!({"metadata": {"name": name.to_string()}, "spec": {"cidrs": ranges}});
        (Thing::Cidr(name), (!gone).then_some(object))
    });
    let machine = some_of(&NODES).prop_map(|addresses| (Thing::Machine, Some(json!(addresses))));
    let listener = select(vec!["192.0.2.1:41000", "192.0.2.1:41001", "[2001:db8::1]:41000", "169.254.1.1:41000"]);
    let served = subsequence(&SERVICES[..], 0..=2).prop_shuffle();
    let port = select(vec!["a", "a", "b"]);
    let kind = (prop::bool::weighted(0.7), any::<bool>());
    let one = (select(&SERVICES[..]), port, any::<bool>(), listener, served, kind);
    let redirects = vec(one, 0..5).prop_map(|redirects| (Thing::Redirects, Some(json!(redirects))));
    prop_oneof![5 => service(), 6 => slice(), 1 => node(), 1 => cidr, 1 => machine, 3 => redirects]
}

pub(crate) fn any_options() -> impl Strategy<Value = Options> {
    let ranges = || LocalDetector::Ranges(vec!["10.244.0.0/16".parse().expect("a range")]);
    let local = select(vec![LocalDetector::None, ranges(), LocalDetector::InterfacePrefix("veth".to_owned())]);
    let addresses = select(vec![NodePortAddresses::Primary, NodePortAddresses::All]);
    (local, addresses, any::<bool>()).prop_map(|(local, node_port_addresses, masquerade_all)| Options {
        local,
        node_port_addresses,
        masquerade_all,
        ..options()
    })
}

pub(crate) fn any_packet() -> impl Strategy<Value = Packet> {
    let to: Vec<&str> = [&CLUSTER_IPS[..], &OUTER_IPS[..4], &NODES[..]].concat();
    let protocol = select(&Protocol::ALL[..]);
    let interface = select(vec![None, Some("veth7"), Some("eth0")]);
    (select(&SOURCES[..]), select(to), protocol, select(vec![80, 81, 30080, 30081, 9]), interface).prop_map(
        |(source, to, protocol, port, interface)| Packet {
            source: ip(source),
            from_node: interface.is_none(),
            interface: interface.map(str::to_owned),
            destination: ip(to),
            protocol,
            port,
        },
    )
}

fn problems(planner: &Planner) -> Vec<Problem> {
    let mut all: Vec<Problem> = planner.problems().collect();
    all.sort();
    all
}

/// Every difference must be named.
fn check_touched(before: &Plan, after: &Plan, touched: &Touched) {
    let named = |key: &PortKey| touched.ports.contains(key);
    for key in before.ports.keys().chain(after.ports.keys()) {
        assert!(before.ports.get(key) == after.ports.get(key) || named(key), "{key} is not named");
    }
    for frontend in before.frontends.keys().chain(after.frontends.keys()) {
        let first = |plan: &Plan| plan.frontends.get(frontend).map(|claims| claims[0].clone());
        if first(before) != first(after) {
            assert!(
                [first(before), first(after)].iter().flatten().all(|(_, key)| named(key)),
                "{frontend} is not named"
            );
        }
    }
    for ip in before.cluster_ips.keys().chain(after.cluster_ips.keys()) {
        let changed = before.cluster_ips.contains_key(ip) != after.cluster_ips.contains_key(ip);
        assert_eq!(changed, touched.cluster_ips.contains(ip), "{ip}");
    }
    for (key @ (service, family), health) in before.health.iter().chain(&after.health) {
        let changed = before.health.get(key) != after.health.get(key);
        let named = touched.ports.iter().any(|port| port.service == *service && port.family == *family);
        assert!(!changed || named, "the health of {service} is not named: {health:?}");
    }
    let node = |plan: &Plan| (plan.node_port_ips.clone(), plan.node_ips.clone(), plan.zone.clone(), plan.node_eligible);
    assert!(node(before) == node(after) || touched.node);
    assert!(before.ranges == after.ranges || touched.ranges);
}

/// A redirected port has the endpoints of the Service port that serves it, or its listener alone.
fn check_redirect(plan: &Plan, port: &ServicePort) {
    let Some(redirect) = &port.redirect else {
        assert!(port.key.redirected.is_none() || !port.has_any, "nothing serves {}", port.key);
        assert_ne!(port.key.redirected, Some(RedirectedFrontends::ClusterIp), "{} is whole again", port.key);
        return;
    };
    if redirect.frontends == RedirectedFrontends::ClusterIp {
        check_split(plan, port);
    }
    let listener = Backend { ip: redirect.listener.ip(), port: redirect.listener.port() };
    let Some(target) = port.served_by() else {
        assert_eq!((&port.local[..], port.uses_local()), (&[listener][..], true), "{}", port.key);
        return;
    };
    assert!(port.has_any && !port.uses_local() && !port.cluster.contains(&listener), "{}", port.key);
    let (service, name) = (Arc::clone(&target.service), Arc::clone(&target.port));
    let key = PortKey { service, port: name, redirected: None, ..port.key.clone() };
    if let Some(known) = plan.ports.get(&key).filter(|known| known.uses_cluster()) {
        assert_eq!(port.cluster, known.cluster, "{} and {key}", port.key);
    }
    assert!(port.key.protocol != Protocol::Udp || port.serving.contains(&listener), "{}: its flows stay", port.key);
}

/// A redirected cluster IP is in one of the two parts of its port, and everything else in the other.
fn check_split(plan: &Plan, port: &ServicePort) {
    let rest = &plan.ports[&PortKey { redirected: None, ..port.key.clone() }];
    assert!(port.cluster_ip.is_some() && rest.cluster_ip.is_none(), "{}", port.key);
    assert!(!port.is_external() && port.affinity.is_none() && port.health_port.is_none(), "{}", port.key);
}

/// An object with one random member replaced.
fn bent(object: Value) -> impl Strategy<Value = Value> {
    (any::<prop::sample::Index>(), json_value()).prop_map(move |(place, replacement)| {
        let mut object = object.clone();
        let mut places = 0;
        visit(&mut object, &mut |_| places += 1);
        let (mut at, wanted) = (0, place.index(places));
        visit(&mut object, &mut |value| {
            if at == wanted {
                *value = replacement.clone();
            }
            at += 1;
        });
        object
    })
}

fn visit(value: &mut Value, see: &mut dyn FnMut(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, see)),
        Value::Object(members) => members.values_mut().for_each(|member| visit(member, see)),
        _ => {}
    }
    see(value);
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1..70_000i64).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        select(vec!["10.0.0.1", "::", "255.255.255.255", "1.2.3.4/0", "::ffff:1.2.3.4/3", "None"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let member =
            select(vec!["metadata", "spec", "name", "ports", "port", "endpoints", "addresses", "ip", "labels"]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((member, inner), 0..4)
                .prop_map(|all| all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

/// Applies a value as whatever it can be parsed as.
fn feed(planner: &mut Planner, value: &Value) {
    let read = [
        serde_json::from_value(value.clone()).map(|object| Update::Service(Box::new(object))),
        serde_json::from_value(value.clone()).map(Update::Slice),
        serde_json::from_value(value.clone()).map(|object| Update::Node(Some(Box::new(object)))),
        serde_json::from_value(value.clone()).map(Update::Cidr),
    ];
    planner.update_all(read.into_iter().flatten());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_planning_equals_planning_from_scratch(
        said in vec(anything(), 1..40), options in any_options(), seed in any::<u64>(), at_once in 1..5usize
    ) {
        let mut followed = Planner::new(options.clone());
        let mut known = problems(&followed);
        for some in said.chunks(at_once) {
            let before = followed.plan().clone();
            let touched = followed.update_all(some.iter().map(say));
            check_touched(&before, followed.plan(), &touched);
            let now = problems(&followed);
            prop_assert!(known == now || touched.problems, "{known:?} became {now:?}");
            known = now;
        }
        // The last state of each object counts, in any order.
        let last: BTreeMap<Thing, Option<Value>> = said.into_iter().collect();
        let mut last: Vec<Said> = last.into_iter().collect();
        last.sort_by_key(|(thing, _)| {
            use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
            BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, format!("{thing:?}")))
        });
        let mut scratch = Planner::new(options);
        for one in &last {
            scratch.update(say(one));
        }
        prop_assert_eq!(followed.plan(), scratch.plan());
        prop_assert_eq!(problems(&followed), problems(&scratch));
    }

    #[test]
    fn everything_may_go_again(said in vec(anything(), 1..30)) {
        let mut planner = Planner::new(options());
        planner.update_all(said.iter().map(say));
        for (thing, _) in said {
            planner.update(say(&(thing, None)));
        }
        prop_assert_eq!(planner.plan(), &Plan { options: options(), ..Plan::default() });
        prop_assert_eq!(planner.problems().count(), 0);
    }

    #[test]
    fn packets_go_only_where_they_may(
        said in vec(anything(), 10..40), options in any_options(), packets in vec(any_packet(), 40)
    ) {
        let mut planner = Planner::new(options);
        planner.update_all(said.iter().map(say));
        let plan = planner.plan();
        for packet in packets {
            match judge(plan, &packet) {
                Outcome::Forward(forward) => {
                    let port = &plan.ports[&forward.port];
                    prop_assert!(!forward.backends.is_empty());
                    let is_outer = forward.role != Role::Cluster;
                    prop_assert!(
                        port.served_by().is_none() || !is_outer || forward.masquerade, "replies would not return here"
                    );
                    for backend in &forward.backends {
                        prop_assert!(port.cluster.contains(backend) || port.local.contains(backend));
                        prop_assert!(!plan.cluster_ips.contains_key(&backend.ip), "{} leads in circles", backend.ip);
                        prop_assert_eq!(backend.ip.is_ipv4(), packet.destination.is_ipv4());
                    }
                    prop_assert!(forward.hairpin.iter().all(|one| one.ip == packet.source));
                }
                Outcome::Pass => prop_assert!(!plan.cluster_ips.contains_key(&packet.destination)),
                Outcome::Refuse(_) | Outcome::Drop(_) => {}
            }
        }
        for port in plan.ports.values() {
            check_redirect(plan, port);
            let lists = [&port.cluster, &port.local, &port.hairpin, &port.serving];
            prop_assert!(lists.iter().all(|list| list.is_sorted_by(|one, next| one < next)), "in order, each once");
            prop_assert!(!port.has_any || !port.uses_cluster() || !port.cluster.is_empty());
            prop_assert!(port.has_any || (port.cluster.is_empty() && port.local.is_empty()));
            let reasons = planner.reasons(&port.key);
            let chosen = |stands: Option<plan::EndpointStatus>| {
                matches!(stands, Some(plan::EndpointStatus::Chosen | plan::EndpointStatus::LastResort))
            };
            let cluster: Vec<_> = reasons.iter().filter(|one| chosen(one.cluster)).map(|one| one.backend).collect();
            prop_assert_eq!(&cluster, &port.cluster);
        }
    }

    #[test]
    fn nothing_that_can_be_read_ends_the_planner(values in vec(json_value(), 1..6)) {
        let mut planner = Planner::new(options());
        for value in &values {
            feed(&mut planner, value);
        }
        prop_assert!(planner.problems().count() < 100);
    }

    #[test]
    fn malformed_objects_do_not_panic(
        said in vec(anything().prop_filter_map("an object", |(_, object)| object).prop_flat_map(bent), 1..12)
    ) {
        let mut planner = Planner::new(options());
        for value in &said {
            feed(&mut planner, value);
        }
        let plan = planner.plan();
        let mut backends = plan.ports.values().flat_map(|port| &port.cluster);
        prop_assert!(backends.all(|one| !plan.cluster_ips.contains_key(&one.ip)));
    }
}
