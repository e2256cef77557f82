//! Clients reach what is announced, in every way; and what is no longer wanted falls silent.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use testbed::net::{Family, Protocol, eventually};

use super::stage::{PORT, Stage, TARGET, vip};
use super::wire::{Wire, mac_of};

#[test]
fn s43_an_outside_client_reaches_pods_by_an_announced_address_in_every_way() {
    let stage = Stage::new(&["n1", "n2", "n3"]);
    assert_eq!(stage.leases(), [], "nothing is written where nothing is wanted");
    let pods = stage.web(1);
    for family in Family::BOTH {
        let ip = vip(1, family);
        stage.reached(ip);
        for protocol in stage.protocols() {
            let answer = stage
                .outside
                .ask(*protocol, ip, PORT)
                .unwrap_or_else(|failure| panic!("{protocol:?} {ip}: {failure:?}"));
            assert!(pods.iter().any(|pod| pod.name() == answer.name), "{answer:?}");
        }
        let owner = stage.owner(ip).name().to_owned();
        assert!(stage.leases().iter().any(|(name, holder)| name.starts_with("waypost-address-") && *holder == owner));
        eventually("people are told", || {
            let told = stage.events("web", "Announcing");
            told.iter().any(|event| event.contains(&ip.to_string()) && event.contains(&owner))
        });
    }
    let addresses = stage.nodes.iter().map(|node| node.run("ip -o address").out).collect::<String>();
    assert!(!addresses.contains(&vip(1, Family::V4).to_string()), "no interface has it");
}

#[test]
fn a_node_that_takes_an_address_tells_everybody() {
    let stage = Stage::new(&["n1"]);
    let mac = mac_of(&stage.nodes[0]);
    for family in Family::BOTH {
        let mut wire = Wire::of(&stage.outside);
        let number = if family == Family::V4 { 2 } else { 3 };
        stage.served.put(&stage.service(&format!("told-{number}"), number).json());
        let told = wire.told_to_all(vip(number, family), Duration::from_secs(6));
        assert!(told.len() >= 2 && told.iter().all(|who| *who == mac), "{told:?}");
    }
}

#[test]
fn s43_policy_local_is_announced_where_endpoints_are_and_keeps_the_client() {
    let stage = Stage::new(&["n1", "n2"]);
    for node in &stage.nodes {
        // Packets that come in where answers would not go out are dropped: these must not be such.
        node.sysctl("net/ipv4/conf/all/rp_filter", "1");
        node.sysctl("net/ipv4/conf/eth0/rp_filter", "1");
    }
    let pods = [stage.nodes[0].pod("first"), stage.nodes[1].pod("second")];
    pods.iter().for_each(|pod| pod.echo(TARGET));
    stage.served.put(&stage.service("web", 4).policy_local().json());
    for round in [0, 1, 0] {
        stage.endpoints("web", &[&pods[round]]);
        for family in Family::BOTH {
            let ip = vip(4, family);
            eventually("the address is where the endpoint is", || {
                Wire::of(&stage.outside).who_has(ip) == [mac_of(&stage.nodes[round])]
            });
            eventually("the client reaches it", || {
                let answer = stage.outside.ask(Protocol::Tcp, ip, PORT);
                answer.is_ok_and(|answer| answer.name == pods[round].name())
            });
            let answer = stage.outside.ask(Protocol::Udp, ip, PORT).expect("an answer");
            let sees_client = answer.client.ip() == stage.outside.address(family);
            assert_eq!(sees_client, stage.served.mode().keeps_source, "the pod sees {}", answer.client);
        }
    }
    stage.endpoints("web", &[]);
    eventually("nobody answers without endpoints", || Wire::of(&stage.outside).who_has(vip(4, Family::V4)).is_empty());
}

#[test]
fn a_service_that_goes_takes_its_address_and_its_lease_with_it() {
    let stage = Stage::new(&["n1", "n2"]);
    stage.web(5);
    stage.reached(vip(5, Family::V4));
    stage.served.remove(&stage.service("web", 5).json());
    eventually("nobody answers", || Wire::of(&stage.outside).who_has(vip(5, Family::V4)).is_empty());
    eventually("no Lease of an address is left, and nodes rest", || {
        let leases = stage.leases();
        leases.iter().all(|(name, holder)| name.starts_with("waypost-announcer-") && holder.is_empty())
    });
}

#[test]
fn addresses_spread_over_nodes() {
    let stage = Stage::new(&["n1", "n2"]);
    for number in 10..18 {
        stage.served.put(&stage.service(&format!("web-{number}"), number).json());
    }
    eventually("each node has some of them", || {
        let owners = (10..18).map(|number| stage.owner(vip(number, Family::V4)).name().to_owned());
        owners.collect::<BTreeSet<_>>().len() == 2
    });
}

#[test]
fn s46_without_a_class_a_pool_makes_an_address_ours() {
    let stage = Stage::new(&["n1"]);
    let mut plain = stage.service("plain", 20).json();
    plain["spec"].as_object_mut().expect("a spec").remove("loadBalancerClass");
    stage.served.put(&plain);
    // One that is ours comes later and is announced: so the other would have been by now.
    stage.served.put(&stage.service("ours", 21).json());
    stage.owner(vip(21, Family::V4));
    let mut wire = Wire::of(&stage.outside);
    assert_eq!(wire.who_has(vip(20, Family::V4)), [], "it may be a cloud's");
    let pool = json!({
        "apiVersion": "waypost.dev/v1", "kind": "IPPool", "metadata": {"name": "office"},
        "spec": {"addresses": [format!("{0}-{0}", vip(20, Family::V4))], "announce": ["l2"]},
    });
    let _ = stage.served.session(|session| session.post("/apis/waypost.dev/v1/ippools", &pool)).success();
    assert_eq!(stage.owner(vip(20, Family::V4)).name(), "n1");
}
