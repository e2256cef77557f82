//! What is announced by whom, case by case.

use api::view;
use serde_json::{Value, from_value, json};

use super::*;
use crate::objects::Pool;

/// Three nodes, of which `n3` is not ready, a pool, and a Service `shop/web` with one address of it.
fn objects(spec: &Value, endpoints_on: &[(&str, bool)]) -> Objects {
    let mut all = Objects::default();
    for (name, ready) in [("n1", true), ("n2", true), ("n3", false)] {
        let address = format!("192.0.2.{}", &name[1..]);
        let status = if ready { "True" } else { "False" };
        let node = json!({
            "metadata": {"name": name},
            "status": {
                "conditions": [{"type": "Ready", "status": status}],
                "addresses": [{"type": "InternalIP", "address": address}],
            },
        });
        all.nodes.insert(name.into(), from_value::<view::Node>(node).expect("a Node").into());
    }
    let pool = json!({"spec": {"addresses": ["192.0.2.96/28"]}});
    all.pools.insert("office".into(), Pool::read(&pool));
    let mut spec = spec.clone();
    spec["type"] = "LoadBalancer".into();
    let service = json!({"spec": spec, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.100"}]}}});
    let service = Service::of(&from_value(service).expect("a Service"));
    all.services.insert("shop/web".into(), service.expect("it has an address"));
    let endpoints: Vec<Value> = endpoints_on
        .iter()
        .map(|(node, ready)| {
            let conditions = json!({"ready": ready, "serving": true, "terminating": !ready});
            json!({"addresses": ["10.244.0.2"], "nodeName": node, "conditions": conditions})
        })
        .collect();
    let slice = json!({
        "metadata": {"namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": endpoints,
    });
    let (service, slice) = Slice::of(&from_value(slice).expect("a slice")).expect("it has a Service");
    all.slices.entry(service).or_default().insert("shop/web-1".into(), slice);
    all
}

fn ip() -> IpAddr {
    "192.0.2.100".parse().expect("an address")
}

fn nodes(all: &Objects) -> Vec<String> {
    wanted(all, "n1").get(&ip()).map_or_else(Vec::new, |found| found.nodes.iter().map(ToString::to_string).collect())
}

#[test]
fn every_ready_node_may_announce_with_policy_cluster_even_without_endpoints() {
    let all = objects(&json!({}), &[]);
    assert_eq!(nodes(&all), ["n1", "n2"]);
    let found = &wanted(&all, "n1")[&ip()];
    assert!(found.l2 && found.bgp);
    assert_eq!(found.services, ["shop/web".into()]);
}

#[test]
fn policy_local_means_nodes_with_ready_endpoints() {
    let local = json!({"externalTrafficPolicy": "Local"});
    assert_eq!(nodes(&objects(&local, &[])), [""; 0]);
    assert_eq!(nodes(&objects(&local, &[("n2", true), ("n1", false)])), ["n2"]);
    assert_eq!(nodes(&objects(&local, &[("n1", false)])), ["n1"], "terminating endpoints are the last resort");
    assert_eq!(nodes(&objects(&local, &[("n3", true)])), [""; 0], "that node is not ready");
}

#[test]
fn endpoints_of_the_other_family_do_not_count() {
    let mut all = objects(&json!({"externalTrafficPolicy": "Local"}), &[("n1", true)]);
    for slice in all.slices.values_mut().flat_map(BTreeMap::values_mut) {
        slice.is_ipv6 = true;
    }
    assert_eq!(nodes(&all), [""; 0]);
}

#[test]
fn the_class_says_how() {
    let by = |class: &str| {
        let all = objects(&json!({"loadBalancerClass": class}), &[]);
        wanted(&all, "n1").get(&ip()).map(|found| (found.l2, found.bgp))
    };
    assert_eq!(by("waypost.dev/l2"), Some((true, false)));
    assert_eq!(by("waypost.dev/bgp"), Some((false, true)));
    assert_eq!(by("waypost.dev/proxy"), None);
    assert_eq!(by("example.com/other"), None);
}

#[test]
fn without_a_class_the_pool_says_how() {
    let mut all = objects(&json!({}), &[]);
    let pool = json!({"spec": {"addresses": ["192.0.2.96/28"], "announce": ["l2"]}});
    all.pools.insert("office".into(), Pool::read(&pool));
    let found = &wanted(&all, "n1")[&ip()];
    assert!(found.l2 && !found.bgp);
    let pool = json!({"spec": {"addresses": ["192.0.2.100-192.0.2.101"]}});
    all.pools.insert("office".into(), Pool::read(&pool));
    assert!(wanted(&all, "n1")[&ip()].bgp, "both is the default");
    all.pools.clear();
    assert!(wanted(&all, "n1").is_empty(), "it may be a cloud's");
    all.services.get_mut("shop/web").expect("there").class = Some("waypost.dev/l2".into());
    assert!(wanted(&all, "n1")[&ip()].l2, "it is asked for by name");
}

#[test]
fn some_are_never_announced() {
    let mut all = objects(&json!({}), &[]);
    all.services.get_mut("shop/web").expect("there").deleting = true;
    assert!(wanted(&all, "n1").is_empty(), "it is being deleted");
    let mut all = objects(&json!({}), &[]);
    all.nodes.get_mut("n3").expect("there").addresses.push(ip());
    assert!(wanted(&all, "n1").is_empty(), "a node has it as its own");
    let mut all = objects(&json!({}), &[]);
    all.nodes.get_mut("n1").expect("there").excluded = true;
    assert_eq!(nodes(&all), ["n2"]);
}

#[test]
fn a_machine_alone_needs_no_node_object() {
    let mut all = objects(&json!({}), &[]);
    all.nodes.clear();
    assert_eq!(nodes(&all), ["n1"]);
}

#[test]
fn services_that_share_an_address_share_its_candidates() {
    let mut all = objects(&json!({"externalTrafficPolicy": "Local"}), &[("n2", true)]);
    let other = Service { local: true, addresses: vec![ip()], ..Service::default() };
    all.services.insert("shop/other".into(), other);
    all.slices
        .entry("shop/other".into())
        .or_default()
        .insert("shop/other-1".into(), Slice { ready: BTreeSet::from(["n1".into()]), ..Slice::default() });
    assert_eq!(nodes(&all), ["n1", "n2"]);
    assert_eq!(wanted(&all, "n1")[&ip()].services, ["shop/other".into(), "shop/web".into()]);
}
