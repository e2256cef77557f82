//! Leftovers of dead announcers are removed, and meanwhile one node at most responds.

use testbed::net::{Family, eventually};

use super::stage::{Stage, vip};
use super::wire::Wire;

#[test]
fn leases_of_nodes_and_addresses_that_are_gone_go_too() {
    let stage = Stage::new(&["n1", "n2"]);
    stage.web(22);
    let ip = vip(22, Family::V4);
    stage.reached(ip);
    let owner = stage.owner(ip).name().to_owned();
    let dead = stage.nodes.iter().find(|node| *node.name() == *owner).expect("one of them");
    stage.served.kill_proxy(dead);
    let _ = stage.served.session(|session| session.delete(&format!("/api/v1/nodes/{owner}"))).success();
    let of_node = format!("waypost-announcer-{owner}");
    let mut wire = Wire::of(&stage.outside);
    eventually("its Lease is gone", || {
        let found = wire.who_has(ip);
        assert!(found.len() <= 1, "{found:?} answer for {ip}");
        stage.leases().iter().all(|(name, _)| *name != of_node)
    });
    assert_ne!(*stage.owner(ip).name(), *owner, "the other answers");
    // The last node dies while it responds, and then no node has the addresses any more.
    let last = stage.nodes.iter().find(|node| *node.name() != *owner).expect("the other");
    stage.served.kill_proxy(last);
    stage.served.remove(&stage.service("web", 22).json());
    let _ = stage.served.session(|session| session.delete(&format!("/api/v1/nodes/{}", last.name()))).success();
    eventually("nothing is left", || stage.leases().is_empty());
}

#[test]
fn a_service_that_goes_while_its_node_is_cut_off_leaves_no_lease() {
    let stage = Stage::new(&["n1"]);
    stage.web(23);
    let ip = vip(23, Family::V4);
    stage.reached(ip);
    let (node, api) = (&stage.nodes[0], stage.served.api().v4());
    node.ip(&format!("route add blackhole {api}/32\n"));
    let mut wire = Wire::of(&stage.outside);
    eventually("it falls silent by itself", || wire.who_has(ip).is_empty());
    stage.served.remove(&stage.service("web", 23).json());
    assert!(stage.leases().iter().any(|(_, holder)| holder == "n1"), "nobody else gives back what it has");
    node.ip(&format!("route del blackhole {api}/32\n"));
    eventually("no Lease of an address is left, and the node rests", || {
        stage.leases().iter().all(|(name, holder)| *name == "waypost-announcer-n1" && holder.is_empty())
    });
}
