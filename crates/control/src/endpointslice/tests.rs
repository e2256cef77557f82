use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::CONTROLLER;
use crate::testing::{Cluster, node, pod, service};

/// A Service with this number of ready Pods, reconciled.
fn cluster(pods: usize) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.put("minions", node("node"));
    for number in 0..pods {
        cluster.put("pods", pod(&format!("p{number:04}"), "web", number, true));
    }
    cluster.put("services/specs", service("web", "web"));
    cluster.converge();
    cluster.written.clear();
    cluster
}

/// The sizes of the slices, largest first.
fn sizes(cluster: &Cluster) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        cluster.all("endpointslices").iter().map(|slice| slice.items("endpoints").len()).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes
}

#[test]
fn s16_a_slice_is_added_only_when_needed() {
    let mut cluster = cluster(100);
    assert_eq!(sizes(&cluster), [100]);
    cluster.put("pods", pod("extra", "web", 100, true));
    cluster.converge();
    assert_eq!(sizes(&cluster), [100, 1]);
    assert_eq!(cluster.writes_to("endpointslices"), 1, "the full slice is not touched");
}

#[test]
fn s16_remaining_endpoints_fill_the_best_fitting_slice() {
    let mut cluster = cluster(250);
    assert_eq!(sizes(&cluster), [100, 100, 50]);
    for number in 0..5 {
        cluster.remove("pods", &format!("default/p{number:04}"));
    }
    cluster.converge();
    assert_eq!((sizes(&cluster), cluster.writes_to("endpointslices")), (vec![100, 95, 50], 1));
    for number in 0..3 {
        cluster.put("pods", pod(&format!("new{number}"), "web", 500 + number, true));
    }
    cluster.deliver_all();
    cluster.converge();
    assert_eq!((sizes(&cluster), cluster.writes_to("endpointslices")), (vec![100, 98, 50], 1));
}

#[test]
fn s16_one_change_writes_one_slice() {
    let mut cluster = cluster(1000);
    cluster.put("pods", pod("p0500", "web", 500, false));
    cluster.converge();
    assert_eq!(cluster.writes_to("endpointslices"), 1);
    assert_eq!(sizes(&cluster), [100; 10]);
}

#[test]
fn s02_without_endpoints_a_placeholder_slice_is_kept_and_reused() {
    let mut cluster = cluster(1);
    let name = cluster.all("endpointslices")[0].text("metadata.name").to_owned();
    cluster.remove("pods", "default/p0000");
    cluster.converge();
    assert_eq!(sizes(&cluster), [0]);
    cluster.put("pods", pod("again", "web", 1, true));
    cluster.converge();
    assert_eq!(sizes(&cluster), [1]);
    assert_eq!(cluster.all("endpointslices")[0].text("metadata.name"), name, "the same slice all the time");
    assert_eq!(cluster.writes_to("endpointslices"), 2);
}

#[test]
fn irrelevant_changes_write_nothing() {
    let mut cluster = cluster(10);
    let mut annotated = pod("p0003", "web", 3, true);
    annotated.put("metadata.annotations", json!({"a": "b"}));
    cluster.put("pods", annotated);
    cluster.put("pods", pod("other", "db", 77, true));
    cluster.converge();
    assert_eq!(cluster.writes_to("endpointslices"), 0);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to("endpointslices"), 0, "nor does a restart");
}

#[test]
fn s11_slices_of_other_managers_are_unchanged() {
    let mut cluster = cluster(1);
    let by_hand = json!({
        "metadata": {"name": "mine", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.2.3"]}], "ports": [],
    });
    cluster.put("endpointslices", by_hand);
    cluster.converge();
    assert_eq!(cluster.writes_to("endpointslices"), 0);
    assert_eq!(sizes(&cluster), [1, 1]);
}

#[test]
fn slices_of_an_earlier_service_of_the_same_name_are_deleted() {
    let mut cluster = cluster(3);
    let mut again = service("web", "web");
    again.put("metadata.uid", "another");
    cluster.put("services/specs", again);
    cluster.converge();
    let slices = cluster.all("endpointslices");
    assert_eq!(slices.len(), 1);
    assert_eq!(slices[0].items("metadata.ownerReferences")[0].text("uid"), "another");
}

#[test]
fn s14_a_pod_with_the_address_of_a_service_is_omitted_and_reported() {
    let mut cluster = cluster(2);
    let mut looping = pod("loop", "web", 7, true);
    looping.put("status.podIPs", json!([{"ip": "10.96.0.9"}]));
    cluster.put("pods", looping);
    cluster.converge();
    assert_eq!(sizes(&cluster), [2]);
    let [(reason, message)] = &cluster.events[..] else { panic!("one event: {:?}", cluster.events) };
    assert_eq!(reason, "EndpointIsClusterIP");
    assert!(message.contains("Pod loop") && message.contains("default/web"), "{message}");
}

#[test]
fn endpoints_have_the_zones_of_their_nodes() {
    let mut cluster = cluster(2);
    let mut zoned = node("node");
    zoned.put("metadata.labels", json!({"topology.kubernetes.io/zone": "z1"}));
    cluster.put("minions", zoned);
    cluster.converge();
    let slice = cluster.all("endpointslices").remove(0);
    assert!(slice.items("endpoints").iter().all(|endpoint| endpoint.text("zone") == "z1"));
    assert_eq!(cluster.writes_to("endpointslices"), 1);
}

/// Hints by zone, of all slices.
fn hints(cluster: &Cluster) -> Vec<(String, usize)> {
    let mut counts = std::collections::BTreeMap::new();
    for slice in cluster.all("endpointslices") {
        for zone in slice.items("endpoints").iter().flat_map(|endpoint| endpoint.items("hints.forZones")) {
            *counts.entry(zone.text("name").to_owned()).or_insert(0) += 1;
        }
    }
    counts.into_iter().collect()
}

/// Nodes of two zones, and Pods on them.
fn zoned(per_zone: [usize; 2], cores: [&str; 2]) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    let mut number = 0;
    for (zone, (pods, cores)) in per_zone.into_iter().zip(cores).enumerate() {
        let name = format!("node{zone}");
        cluster.put(
            "minions",
            json!({
                "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": format!("z{zone}")}},
                "status": {"allocatable": {"cpu": cores}, "conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
        for _ in 0..pods {
            let mut pod = pod(&format!("p{number}"), "web", number, true);
            pod.put("spec.nodeName", name.as_str());
            cluster.put("pods", pod);
            number += 1;
        }
    }
    let mut service = service("web", "web");
    service.put("metadata.annotations", json!({"service.kubernetes.io/topology-mode": "Auto"}));
    cluster.put("services/specs", service);
    cluster.converge();
    cluster
}

fn expect(pairs: &[(&str, usize)]) -> Vec<(String, usize)> {
    pairs.iter().map(|(zone, count)| ((*zone).to_owned(), *count)).collect()
}

#[test]
fn zones_get_endpoints_in_proportion_to_their_processors() {
    assert_eq!(hints(&zoned([4, 4], ["4", "4"])), expect(&[("z0", 4), ("z1", 4)]));
    assert_eq!(hints(&zoned([6, 2], ["4", "4"])), expect(&[("z0", 4), ("z1", 4)]), "two of z0 serve z1");
    assert_eq!(hints(&zoned([4, 4], ["6", "2"])), expect(&[("z0", 6), ("z1", 2)]));
}

#[test]
fn hints_that_cannot_be_assigned_are_explained() {
    let cluster = zoned([1, 0], ["4", "4"]);
    assert_eq!(hints(&cluster), []);
    assert_eq!(cluster.events[0].0, "TopologyAwareHintsDisabled");
    assert_eq!(cluster.events[0].1, "Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4");
    let cluster = zoned([4, 4], ["4", "0"]);
    assert!(cluster.events[0].1.starts_with("Insufficient Node information"), "{:?}", cluster.events);
}

#[test]
fn hints_follow_the_weight_of_the_zones_and_then_stay() {
    let mut cluster = zoned([4, 4], ["4", "4"]);
    assert_eq!(cluster.events[0].0, "TopologyAwareHintsEnabled");
    cluster.written.clear();
    let mut heavier: Value = cluster.get("minions", "node0").expect("a node");
    heavier.put("status.allocatable.cpu", "12");
    cluster.put("minions", heavier);
    cluster.converge();
    assert_eq!(hints(&cluster), expect(&[("z0", 6), ("z1", 2)]));
    cluster.written.clear();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to("endpointslices"), 0);
}
