//! What follows from the node: addresses, zone, eligibility, and Service CIDRs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use plan::oracle::Outcome;
use plan::{Loopback, NodePortAddresses, Options, Update};
use serde_json::json;

use crate::world::{NODE, STRANGER, World, cidr, ip, node, options, read_node, service, slice};

fn machine(addresses: &[&str]) -> Update {
    Update::Machine(addresses.iter().map(|text| ip(text)).collect())
}

fn parse(words: &[&str]) -> NodePortAddresses {
    NodePortAddresses::parse(words).expect("words that can be read")
}

#[test]
fn where_node_ports_are_served() {
    let all = ["127.0.0.1", "::1", NODE, "192.0.2.77", "10.0.0.5", "2001:db8::1", "fd00::5"];
    for (words, want) in [
        (&[][..], vec![NODE, "2001:db8::1"]),
        (&["primary"], vec![NODE, "2001:db8::1"]),
        (&["all"], vec![NODE, "192.0.2.77", "10.0.0.5", "2001:db8::1", "fd00::5"]),
        (&["0.0.0.0/0"], vec![NODE, "192.0.2.77", "10.0.0.5", "2001:db8::1", "fd00::5"]),
        (&["192.0.2.0/24"], vec![NODE, "192.0.2.77"]),
        (&["0.0.0.0/0", "fd00::/8"], vec![NODE, "192.0.2.77", "10.0.0.5", "fd00::5"]),
        (&["10.0.0.0/8", "127.0.0.0/8"], vec!["10.0.0.5"]),
        (&["localhost"], vec![]),
        (&["primary", "localhost"], vec![NODE, "2001:db8::1"]),
        (&["127.0.0.0/8", "::1/128"], vec![]),
    ] {
        let mut world = World::with(Options { node_port_addresses: parse(words), ..options() });
        world.say(read_node(json!({"status": {"addresses": [
            {"type": "InternalIP", "address": NODE}, {"type": "ExternalIP", "address": "2001:db8::1"},
            {"type": "InternalIP", "address": NODE}, {"type": "InternalIP", "address": "127.0.0.1"}]}})));
        world.say(machine(&all));
        let want: BTreeSet<IpAddr> = want.into_iter().map(ip).collect();
        assert_eq!(world.0.plan().node_port_ips, want, "{words:?}");
    }
}

#[test]
fn which_loopback_addresses_are_named() {
    for (words, want) in [
        (&[][..], [false, false]),
        (&["all"], [false, false]),
        (&["0.0.0.0/0", "::/0"], [false, false]),
        (&["localhost"], [true, true]),
        (&["primary", "localhost"], [true, true]),
        (&["127.0.0.0/8"], [true, false]),
        (&["10.0.0.0/8", "::1/128"], [false, true]),
    ] {
        let Loopback { v4, v6 } = Loopback::named(words);
        assert_eq!([v4, v6], want, "{words:?}");
    }
}

#[test]
fn invalid_node_port_addresses_are_refused() {
    for words in [&["primary", "10.0.0.0/8"][..], &["all", "all"], &["10.0.0.1"], &["eth0"], &[""], &["127.0.0.5/32"]] {
        assert!(NodePortAddresses::parse(words).is_err(), "{words:?}");
    }
}

#[test]
fn node_ports_follow_the_node() {
    let mut world = World::new();
    world.say(service(
        "s",
        json!({"type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{"port": 80, "nodePort": 30080}]}),
    ));
    world.say(slice("s", "s", "1"));
    assert!(matches!(world.judge(STRANGER, NODE, 30080), Outcome::Forward(_)));
    let touched = world.say(node("192.0.2.2", Some("a")));
    assert!(touched.node && touched.ports.is_empty());
    assert_eq!(world.judge(STRANGER, NODE, 30080), Outcome::Pass);
    assert!(matches!(world.judge(STRANGER, "192.0.2.2", 30080), Outcome::Forward(_)));
    assert!(world.say(node("192.0.2.2", Some("a"))).is_empty(), "a heartbeat");
    assert!(world.say(machine(&["192.0.2.2", "10.0.0.5"])).is_empty(), "its other addresses do not matter");
    assert!(world.say(Update::Node(None)).node);
    assert_eq!(world.judge(STRANGER, "192.0.2.2", 30080), Outcome::Pass);
}

#[test]
fn deleted_and_excluded_nodes_are_not_eligible() {
    let mut world = World::new();
    assert!(world.0.plan().node_eligible);
    let taint = json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}, {"key": null}]}});
    assert!(world.say(read_node(taint)).node);
    assert!(!world.0.plan().node_eligible);
    world.say(read_node(json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}})));
    assert!(!world.0.plan().node_eligible);
    world.say(read_node(json!({"spec": {"taints": [{"key": "other"}]}})));
    assert!(world.0.plan().node_eligible);
    world.say(Update::Node(None));
    assert!(!world.0.plan().node_eligible, "nothing is known of it");
}

#[test]
fn a_zone_change_touches_services_with_hints() {
    let mut world = World::new();
    for (name, address, endpoints) in [("near", "10.96.0.1", "1=rs/a 2=rs/b"), ("any", "10.96.0.2", "1 2")] {
        world.say(crate::world::simple(name, address));
        world.say(slice(name, name, endpoints));
    }
    let touched = world.say(node(NODE, Some("b")));
    assert!(touched.node);
    assert_eq!(crate::world::names(&touched), ["default/near/TCP"]);
}

#[test]
fn ranges_are_aggregated() {
    let mut world = World::new();
    assert!(world.say(cidr("a", &["10.96.0.0/17", "fd00:10:96::/112"])).ranges);
    assert!(world.say(cidr("b", &["10.96.128.0/17", "x"])).ranges);
    assert!(!world.say(cidr("c", &["10.96.3.0/24"])).ranges, "it is in there already");
    let ranges = |world: &World| world.0.plan().ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(ranges(&world), ["10.96.0.0/16", "fd00:10:96::/112"]);
    assert!(world.say(Update::CidrGone("b".to_owned())).ranges);
    assert_eq!(ranges(&world), ["10.96.0.0/17", "fd00:10:96::/112"]);
    assert!(world.say(Update::CidrGone("never".to_owned())).is_empty());
}
