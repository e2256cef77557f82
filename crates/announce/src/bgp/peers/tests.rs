//! Which BGPPeers mean a node, what they become, and which addresses are announced.

use api::view::StringMap;
use serde_json::json;

use super::*;
use crate::objects::{Pool, Service, range};

fn objects() -> Objects {
    let labels: StringMap = [("rack", "a")].into_iter().collect();
    let node = |last: u8, labels: &StringMap| Node {
        ready: true,
        addresses: vec![[192, 0, 2, last].into()],
        labels: labels.clone(),
        ..Node::default()
    };
    let pool = Pool { ranges: vec![range("203.0.113.0/28").expect("a range")], l2: true, bgp: true };
    let service =
        |address: &str| Service { addresses: vec![address.parse().expect("an address")], ..Service::default() };
    Objects {
        nodes: [("n1".into(), node(11, &labels)), ("n2".into(), node(12, &StringMap::default()))].into(),
        pools: [("office".into(), pool)].into(),
        services: [("shop/in".into(), service("203.0.113.7")), ("shop/out".into(), service("203.0.113.77"))].into(),
        ..Objects::default()
    }
}

fn spec() -> Value {
    json!({
        "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "peerPort": 179, "holdTimeSeconds": 90,
        "gracefulRestart": true, "restartTimeSeconds": 120, "maxPrefixes": 1000, "communities": ["64512:100", "no-export"],
    })
}

fn with(spec: &Value) -> Objects {
    let object = json!({"metadata": {"name": "rack", "uid": "u1"}, "spec": spec});
    Objects { peers: [("rack".into(), object)].into(), ..objects() }
}

fn only(objects: &Objects, node: &str) -> Option<Result<Peer, PeerError>> {
    peers(objects, node).remove("rack")
}

#[test]
fn a_peer_becomes_a_session() {
    let peer = only(&with(&spec()), "n1").expect("meant").expect("usable");
    assert_eq!((peer.address.to_string(), peer.ttl, peer.source), ("192.0.2.1:179".to_owned(), Some(1), None));
    let settings = peer.settings;
    assert_eq!(settings.id, Ipv4Addr::new(192, 0, 2, 11));
    assert_eq!((settings.restart, settings.communities), (Some(120), vec![0xfc00_0064, 0xffff_ff01]));

    let mut more = spec();
    more["ebgpMultiHop"] = true.into();
    more["gracefulRestart"] = false.into();
    more["routerID"] = "10.0.0.9".into();
    more["sourceAddress"] = "192.0.2.11".into();
    more["password"] = json!({"secretRef": {"namespace": "kube-system", "name": "bgp", "key": "password"}});
    let peer = only(&with(&more), "n1").expect("meant").expect("usable");
    assert_eq!((peer.ttl, peer.settings.restart, peer.settings.id), (None, None, Ipv4Addr::new(10, 0, 0, 9)));
    assert_eq!(peer.source, Some([192, 0, 2, 11].into()));
    assert_eq!(peer.password.map(|secret| secret.name), Some("bgp".into()));

    more["peerASN"] = 64512.into();
    more["ebgpMultiHop"] = false.into();
    let peer = only(&with(&more), "n1").expect("meant").expect("usable");
    assert_eq!((peer.ttl, peer.settings.local_pref), (None, 100), "inside of a system routers may be far");
}

#[test]
fn selectors_say_which_nodes_are_meant() {
    let mut selective = spec();
    selective["nodeSelector"] = json!({"matchLabels": {"rack": "a"}});
    let objects = with(&selective);
    assert!(only(&objects, "n1").is_some() && only(&objects, "n2").is_none());
    selective["nodeSelector"] = json!({});
    assert!(only(&with(&selective), "n2").is_some(), "an empty selector is every node");
}

#[test]
fn a_peer_that_cannot_be_used_says_why() {
    for (field, value, why) in [
        ("peerAddress", json!("router"), "spec.peerAddress \"router\" is not an IP address"),
        ("peerPort", json!(70_000), "spec.peerPort is out of range"),
        ("communities", json!(["x"]), "spec.communities contains an invalid community"),
        ("routerID", json!("x"), "spec.routerID \"x\" is not an IPv4 address"),
    ] {
        let mut wrong = spec();
        wrong[field] = value;
        let error = only(&with(&wrong), "n1").expect("meant").expect_err("invalid");
        assert_eq!(error.to_string(), why);
    }
}

#[test]
fn a_node_without_ipv4_has_a_router_id_all_the_same() {
    let mut objects = with(&spec());
    for (name, node) in &mut objects.nodes {
        node.addresses = vec![format!("2001:db8::{name}").replace('n', "1").parse().expect("an address")];
    }
    let id = |node: &str| only(&objects, node).expect("meant").expect("usable").settings.id;
    assert!(id("n1") != id("n2") && id("n1") == id("n1"));
}

#[test]
fn only_addresses_of_pools_are_announced() {
    let objects = objects();
    assert_eq!(offer(&objects, "n1"), BTreeSet::from(["203.0.113.7".parse().expect("an address")]));
    let mut none = objects.clone();
    none.pools.clear();
    assert_eq!(offer(&none, "n1"), BTreeSet::new());
    let mut away = objects;
    away.nodes.get_mut("n1").expect("a node").excluded = true;
    assert_eq!((offer(&away, "n1").len(), offer(&away, "n2").len()), (0, 1));
}
