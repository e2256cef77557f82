//! Endpoints and masquerading for every source, frontend, policy, Pod detection and family.

use plan::{LocalDetector, Options, Role};
use serde_json::{Value, json};

use crate::world::{World, node, options, read_service, slice_of};

/// Expected results for four pairs of policies: both Cluster, external Local, internal Local, both Local. `A` is all
/// endpoints, `L` those of this node; `m` means masqueraded.
type Row = [&'static str; 4];

const POD_TO_CLUSTER: Row = ["A", "A", "L", "L"];
const POD_TO_OUTER: Row = ["A m", "A", "A m", "A"];
const NODE_TO_CLUSTER: Row = ["A m", "A m", "L m", "L m"];
const NODE_TO_OUTER: Row = ["A m", "A m", "A m", "A m"];
const STRANGER_TO_CLUSTER: Row = ["A m", "A m", "L m", "L m"];
const STRANGER_TO_OUTER: Row = ["A m", "L", "A m", "L"];

struct Location {
    family: &'static str,
    node: &'static str,
    pod: &'static str,
    stranger: &'static str,
    cluster_ip: &'static str,
    lb_ip: &'static str,
    external_ip: &'static str,
    endpoints: &'static str,
    pods: &'static str,
}

const V4: Location = Location {
    family: "IPv4",
    node: "192.0.2.1",
    pod: "10.244.1.9",
    stranger: "203.0.113.9",
    cluster_ip: "10.96.0.1",
    lb_ip: "198.51.100.1",
    external_ip: "198.51.100.2",
    endpoints: "10.244.1.1=rsl 10.244.2.1=rs",
    pods: "10.244.0.0/16",
};

const V6: Location = Location {
    family: "IPv6",
    node: "2001:db8::1",
    pod: "fd00:10:244:1::9",
    stranger: "2001:db8:f::9",
    cluster_ip: "fd00:10:96::1",
    lb_ip: "2001:db8:1::1",
    external_ip: "2001:db8:1::2",
    endpoints: "fd00:10:244:1::1=rsl fd00:10:244:2::1=rs",
    pods: "fd00:10:244::/48",
};

/// One Service with every kind of frontend per pair of policies; returns what happens from a source to a frontend.
fn row(place: &Location, options: &Options, source: &str, role: Role) -> Vec<String> {
    let policies = [("Cluster", "Cluster"), ("Local", "Cluster"), ("Cluster", "Local"), ("Local", "Local")];
    let answer = |(external, internal): &(&str, &str)| {
        let mut world = World::with(options.clone());
        world.say(node(place.node, None));
        world.say(read_service(everything(place, external, internal)));
        let ports = json!([{"name": "", "port": 8080}]);
        world.say(slice_of("s", "s", place.family, &ports, place.endpoints));
        let (to, port) = match role {
            Role::Cluster => (place.cluster_ip, 80),
            Role::LoadBalancer => (place.lb_ip, 80),
            Role::External => (place.external_ip, 80),
            Role::NodePort => (place.node, 30080),
        };
        let forward = world.forward(source, to, port);
        assert_eq!(forward.role, role);
        assert!(forward.backends.iter().all(|backend| backend.port == 8080));
        let backends = if forward.backends.len() == 2 { "A" } else { "L" };
        format!("{backends}{}", if forward.masquerade { " m" } else { "" })
    };
    policies.iter().map(answer).collect()
}

fn everything(place: &Location, external: &str, internal: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "s"},
        "spec": {
            "type": "LoadBalancer", "clusterIP": place.cluster_ip, "clusterIPs": [place.cluster_ip],
            "ipFamilies": [place.family], "externalIPs": [place.external_ip],
            "externalTrafficPolicy": external, "internalTrafficPolicy": internal,
            "ports": [{"port": 80, "nodePort": 30080}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": place.lb_ip}]}},
    })
}

const OUTER: [Role; 3] = [Role::LoadBalancer, Role::External, Role::NodePort];

fn detectors(place: &Location) -> [LocalDetector; 3] {
    [
        LocalDetector::Ranges(vec![place.pods.parse().expect("a range")]),
        LocalDetector::Interface("veth7".to_owned()),
        LocalDetector::InterfacePrefix("veth".to_owned()),
    ]
}

fn check(place: &Location, options: &Options, source: &str, roles: &[Role], want: Row) {
    for role in roles {
        assert_eq!(row(place, options, source, *role), want, "{source} by {role:?} with {options:?}");
    }
}

#[test]
fn with_pods_recognised() {
    for place in [V4, V6] {
        for local in detectors(&place) {
            let options = Options { local, ..options() };
            check(&place, &options, place.pod, &[Role::Cluster], POD_TO_CLUSTER);
            check(&place, &options, place.pod, &OUTER, POD_TO_OUTER);
            check(&place, &options, place.node, &[Role::Cluster], NODE_TO_CLUSTER);
            check(&place, &options, place.node, &OUTER, NODE_TO_OUTER);
            check(&place, &options, place.stranger, &[Role::Cluster], STRANGER_TO_CLUSTER);
            check(&place, &options, place.stranger, &OUTER, STRANGER_TO_OUTER);
        }
    }
}

/// Cluster IP traffic is not masqueraded, and Pods are treated as external.
#[test]
fn with_pods_not_recognised() {
    for (place, other) in [(V4, V6), (V6, V4)] {
        let of_the_other_family = LocalDetector::Ranges(vec![other.pods.parse().expect("a range")]);
        for local in [LocalDetector::None, of_the_other_family] {
            let options = Options { local, ..options() };
            for source in [place.pod, place.node, place.stranger] {
                check(&place, &options, source, &[Role::Cluster], POD_TO_CLUSTER);
            }
            for source in [place.pod, place.stranger] {
                check(&place, &options, source, &OUTER, STRANGER_TO_OUTER);
            }
            check(&place, &options, place.node, &OUTER, NODE_TO_OUTER);
        }
    }
}

#[test]
fn with_everything_masqueraded() {
    for place in [V4, V6] {
        let [ranges, ..] = detectors(&place);
        for local in [ranges, LocalDetector::None] {
            let pod_to_outer = if local == LocalDetector::None { STRANGER_TO_OUTER } else { POD_TO_OUTER };
            let options = Options { local, masquerade_all: true, ..options() };
            for source in [place.pod, place.node, place.stranger] {
                check(&place, &options, source, &[Role::Cluster], STRANGER_TO_CLUSTER);
            }
            check(&place, &options, place.pod, &OUTER, pod_to_outer);
            check(&place, &options, place.node, &OUTER, NODE_TO_OUTER);
            check(&place, &options, place.stranger, &OUTER, STRANGER_TO_OUTER);
        }
    }
}

/// An endpoint that connects to itself must be masqueraded, or its reply would never leave it.
#[test]
fn hairpin_traffic_is_masqueraded() {
    let mut world = World::with(Options { local: detectors(&V4)[0].clone(), ..options() });
    world.say(read_service(everything(&V4, "Cluster", "Cluster")));
    world.say(slice_of("s", "s", "IPv4", &json!([{"name": "", "port": 8080}]), V4.endpoints));
    let meets = |source: &str| world.forward(source, V4.cluster_ip, 80).hairpin.len();
    assert_eq!(meets("10.244.1.1"), 1, "on this node");
    assert_eq!(meets("10.244.2.1"), 0, "elsewhere it never comes by here");
    assert_eq!(meets(V4.pod), 0);
    assert!(!world.forward("10.244.1.1", V4.cluster_ip, 80).masquerade);
}
