//! Packets that are not delivered: rejected without endpoints, dropped by a Local policy, and passed on otherwise.

use plan::Protocol;
use plan::oracle::{Outcome, RejectReason};
use serde_json::{Value, json};

use crate::world::{NODE, POD, STRANGER, World, cidr, packet, service, service_with, simple, slice};

const VIP: &str = "198.51.100.1";
const FRONTENDS: [(&str, u16); 4] = [("10.96.0.1", 80), (VIP, 80), ("198.51.100.2", 80), (NODE, 30080)];

/// A Service with every kind of frontend.
fn balanced(more: &Value) -> plan::Update {
    let mut spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["198.51.100.2"],
        "ports": [{"port": 80, "nodePort": 30080}],
    });
    let fields = more.as_object().into_iter().flatten();
    fields.for_each(|(name, value)| spec[name] = value.clone());
    service_with("s", spec, json!({"loadBalancer": {"ingress": [{"ip": VIP}]}}))
}

fn why(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Pass => "pass",
        Outcome::Forward(_) => "forward",
        Outcome::Refuse(RejectReason::NoEndpoints(_)) => "refuse: no endpoints",
        Outcome::Refuse(RejectReason::NoSuchPort) => "refuse: no such port",
        Outcome::Refuse(RejectReason::NoSuchService) => "refuse: no such service",
        Outcome::Drop(RejectReason::NoLocalEndpoints(_)) => "drop: none here",
        Outcome::Drop(RejectReason::SourceRange(_)) => "drop: source",
        Outcome::Refuse(_) | Outcome::Drop(_) => "the wrong way to say no",
    }
}

fn all(world: &World, source: &str) -> [&'static str; 4] {
    FRONTENDS.map(|(to, port)| why(&world.judge(source, to, port)))
}

#[test]
fn every_frontend_rejects_without_endpoints() {
    for policy in ["Cluster", "Local"] {
        let mut world = World::new();
        world.say(balanced(&json!({"externalTrafficPolicy": policy, "internalTrafficPolicy": policy})));
        for endpoints in ["", "1=l 2=", "1=tl 2=sl 3=t"] {
            world.say(slice("s", "s", endpoints));
            for source in [STRANGER, NODE, POD] {
                assert_eq!(all(&world, source), ["refuse: no endpoints"; 4], "{policy}, {endpoints}, {source}");
            }
        }
    }
}

#[test]
fn local_traffic_is_dropped_without_local_endpoints() {
    let mut world = World::new();
    world.say(balanced(&json!({"externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local"})));
    for endpoints in ["1=rs 2=rs", "1=rs 2=l", "1=st"] {
        world.say(slice("s", "s", endpoints));
        assert_eq!(all(&world, STRANGER), ["drop: none here"; 4], "{endpoints}");
        assert_eq!(all(&world, NODE), ["drop: none here", "forward", "forward", "forward"], "{endpoints}");
    }
}

#[test]
fn each_policy_drops_its_own_traffic() {
    let mut world = World::new();
    world.say(slice("s", "s", "1=rs"));
    world.say(balanced(&json!({"internalTrafficPolicy": "Local"})));
    assert_eq!(all(&world, STRANGER), ["drop: none here", "forward", "forward", "forward"]);
    world.say(balanced(&json!({"externalTrafficPolicy": "Local"})));
    assert_eq!(all(&world, STRANGER), ["forward", "drop: none here", "drop: none here", "drop: none here"]);
}

#[test]
fn cluster_ips_reject_unknown_ports() {
    let mut world = World::new();
    world.say(cidr("kubernetes", &["10.96.0.0/16", "fd00:10:96::/112"]));
    world.say(simple("s", "10.96.0.1"));
    world.say(slice("s", "s", "1"));
    let say = |to: &str, port| why(&world.judge(STRANGER, to, port));
    assert_eq!(say("10.96.0.1", 80), "forward");
    assert_eq!(say("10.96.0.1", 81), "refuse: no such port");
    assert_eq!(say("10.96.0.2", 80), "refuse: no such service");
    assert_eq!(say("10.97.0.2", 80), "pass");
    assert_eq!(why(&world.judge("2001:db8:f::9", "fd00:10:96::7", 80)), "refuse: no such service");
    let udp = plan::oracle::Packet { protocol: Protocol::Udp, ..packet(STRANGER, "10.96.0.1", 80) };
    assert_eq!(why(&world.judge_packet(&udp)), "refuse: no such port");
}

#[test]
fn other_addresses_keep_their_other_ports() {
    let mut world = World::new();
    world.say(balanced(&json!({})));
    world.say(slice("s", "s", "1"));
    for (to, _) in &FRONTENDS[1..] {
        assert_eq!(why(&world.judge(STRANGER, to, 443)), "pass", "{to}");
    }
    assert_eq!(why(&world.judge(STRANGER, VIP, 30080)), "pass", "no node port on load-balancer addresses");
}

#[test]
fn source_ranges_apply_to_the_load_balancer_only() {
    let mut world = World::new();
    world.say(balanced(&json!({"loadBalancerSourceRanges": [" 203.0.113.0/28 ", "x"]})));
    world.say(slice("s", "s", "1"));
    assert_eq!(all(&world, STRANGER), ["forward"; 4]);
    for source in ["203.0.113.99", POD, NODE, VIP] {
        assert_eq!(all(&world, source), ["forward", "drop: source", "forward", "forward"], "{source}");
    }
    world.say(slice("s", "s", ""));
    assert_eq!(why(&world.judge("203.0.113.99", VIP, 80)), "drop: source", "the guard comes first");
    assert_eq!(why(&world.judge(STRANGER, VIP, 80)), "refuse: no endpoints");
}

/// A node that has the address uses it as its source.
#[test]
fn own_addresses_are_allowed_where_the_node_is() {
    let mut world = World::new();
    world.say(balanced(&json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]})));
    world.say(slice("s", "s", "1"));
    assert!(world.port("default/s/TCP").own_vips_allowed);
    assert_eq!(why(&world.judge(VIP, VIP, 80)), "forward");
    assert_eq!(why(&world.judge("198.51.100.2", VIP, 80)), "drop: source", "an external IP is not one of them");
    let touched = world.say(crate::world::node("198.18.0.1", Some("a")));
    assert!(touched.node && !touched.ports.is_empty());
    assert!(!world.port("default/s/TCP").own_vips_allowed);
    assert_eq!(why(&world.judge(VIP, VIP, 80)), "drop: source");
}

#[test]
fn tcp_and_udp_may_share_a_node_port_number() {
    let mut world = World::new();
    let spec = |protocol, ip| {
        let port = json!({"port": 80, "nodePort": 30080, "protocol": protocol});
        json!({"type": "NodePort", "clusterIP": ip, "ports": [port]})
    };
    world.say(service("tcp", spec("TCP", "10.96.0.1")));
    world.say(service("udp", spec("UDP", "10.96.0.2")));
    world.say(slice("s", "tcp", "1"));
    assert_eq!(why(&world.judge(STRANGER, NODE, 30080)), "forward");
    let udp = plan::oracle::Packet { protocol: Protocol::Udp, ..packet(STRANGER, NODE, 30080) };
    assert_eq!(why(&world.judge_packet(&udp)), "refuse: no endpoints");
    assert_eq!(world.problems(), Vec::<String>::new());
}
