//! On which addresses of a node its node ports are served, also when addresses come and go.

use std::net::IpAddr;

use serde_json::json;
use testbed::net::{Family, Kind, Protocol, eventually, objects};

use super::stage::{Stage, node_port};

/// Addresses that the first node gets besides its own.
const MORE: [&str; 2] = ["192.0.2.200", "2001:db8::200"];

/// A Service with a node port, and proxies with these arguments.
fn scene(arguments: &[&str]) -> Stage {
    let stage = Stage::with(arguments);
    let web = stage.near.pod("web");
    stage.web(&[&web]);
    stage
}

/// Gives the first node its further addresses.
fn add_addresses(stage: &Stage) {
    stage.near.ip(&format!("addr add {}/24 dev eth0\naddr add {}/64 dev eth0 nodad\n", MORE[0], MORE[1]));
}

/// Whether the node port is served at an address, by every protocol.
fn serves(stage: &Stage, address: &str) -> bool {
    stage.served.mode().protocols.iter().all(|protocol| {
        let caller = stage.outside.caller().timeout(std::time::Duration::from_millis(300));
        caller.ask(*protocol, address, node_port(1)).is_ok()
    })
}

fn own(stage: &Stage) -> [String; 2] {
    Family::BOTH.map(|family| stage.near.address(family).to_string())
}

#[test]
fn s41_primary_is_what_the_node_object_says_and_follows_it() {
    let stage = scene(&["--nodeport-addresses", "primary"]);
    add_addresses(&stage);
    for (own, more) in own(&stage).iter().zip(MORE) {
        assert!(serves(&stage, own) && !serves(&stage, more), "{own} and not {more}");
    }
    let mut node = objects::node(&stage.near).json();
    let addresses = MORE.map(|address| json!({ "type": "InternalIP", "address": address }));
    node["status"]["addresses"] = json!(addresses);
    stage.served.put(&node);
    for (own, more) in own(&stage).iter().zip(MORE) {
        eventually(more, || serves(&stage, more));
        assert!(!serves(&stage, own), "{own} is no longer an address of the Node object");
    }
}

#[test]
fn s41_all_is_every_address_also_one_that_comes_later() {
    let stage = scene(&["--nodeport-addresses", "all"]);
    for (own, more) in own(&stage).iter().zip(MORE) {
        assert!(serves(&stage, own), "{own}");
        assert!(!serves(&stage, more), "{more} is nobody's yet");
    }
    add_addresses(&stage);
    for more in MORE {
        eventually(more, || serves(&stage, more));
    }
    stage.near.ip(&format!("addr del {}/24 dev eth0\naddr add {}/24 dev pods\n", MORE[0], MORE[0]));
    eventually("an address that moved", || serves(&stage, MORE[0]));
    let pod = stage.near.pod("pod");
    for family in Family::BOTH {
        let answer = pod.ask(Protocol::Tcp, stage.near.gateway(family), node_port(1));
        assert!(answer.is_ok(), "the node's address towards its pods: {answer:?}");
    }
}

#[test]
fn s41_a_range_is_the_addresses_within_also_one_that_comes_later() {
    let stage = scene(&["--nodeport-addresses", "192.0.2.192/26,2001:db8::200/120"]);
    for own in own(&stage) {
        assert!(!serves(&stage, &own), "{own} is not within");
    }
    add_addresses(&stage);
    for more in MORE {
        eventually(more, || serves(&stage, more));
    }
    stage.near.ip(&format!("addr del {}/24 dev eth0\naddr add {}/24 dev eth0\n", MORE[0], "192.0.2.201"));
    eventually("another address", || serves(&stage, "192.0.2.201"));
}

#[test]
fn s41_a_port_that_no_service_has_is_the_nodes_own() {
    let stage = scene(&["--nodeport-addresses", "all"]);
    stage.near.echo_on(&[Protocol::Tcp], 30_999);
    let answer = stage.outside.ask(Protocol::Tcp, stage.near.v4(), 30_999).expect("an answer of the node");
    assert_eq!((answer.name.as_str(), answer.client.ip()), ("n1", IpAddr::from(stage.outside.v4())));
    let failure = stage.outside.ask(Protocol::Tcp, stage.near.v4(), 30_998).expect_err("nobody is there");
    assert_eq!(failure.kind, Kind::Refused, "{failure}");
}

#[test]
fn s40_every_node_serves_a_node_port_and_it_can_be_changed() {
    let stage = scene(&[]);
    for node in [&stage.near, &stage.far] {
        for (protocol, family) in stage.ways() {
            let answer = stage.outside.ask(protocol, node.address(family), node_port(1));
            assert!(answer.is_ok(), "{} {protocol:?} {family:?}: {answer:?}", node.name());
        }
    }
    let mut service = stage.published("web", 1).json();
    for port in service["spec"]["ports"].as_array_mut().expect("ports") {
        port["nodePort"] = json!(30_077);
    }
    stage.served.put(&service);
    stage.served.settle();
    for (protocol, family) in stage.ways() {
        let node = stage.far.address(family);
        assert!(stage.outside.ask(protocol, node, 30_077).is_ok(), "{protocol:?} {family:?}");
        assert!(stage.outside.ask(protocol, node, node_port(1)).is_err(), "{protocol:?} {family:?}");
    }
}

#[test]
fn s41_loopback_is_served_by_the_program_and_neighbours_do_not_get_there() {
    let stage = scene(&["--nodeport-addresses", "127.0.0.0/8,::1/128"]);
    for (protocol, address) in
        [(Protocol::Tcp, "127.0.0.1"), (Protocol::Udp, "127.0.0.1"), (Protocol::Tcp, "::1"), (Protocol::Udp, "::1")]
    {
        let answer = stage.near.ask(protocol, address, node_port(1));
        assert!(answer.is_ok(), "{protocol:?} {address}: {answer:?}");
    }
    for own in own(&stage) {
        assert!(!serves(&stage, &own), "{own} is not among them");
    }
    let local = stage.near.run("cat /proc/sys/net/ipv4/conf/all/route_localnet").success();
    assert_eq!(local.trim(), "0");
}
