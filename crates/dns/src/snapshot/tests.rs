//! Updates: detection of changes, moves of slices, no leftovers.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::answer::tests::{service, slice};

fn snapshot() -> Arc<ZoneSnapshot> {
    ZoneSnapshot::new(Config::default()).expect("zones")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn updates_without_effect_are_not_changes() {
    let snapshot = snapshot();
    let spec = json!({"clusterIPs": ["10.96.0.1"], "ports": [{"name": "http", "port": 80}]});
    assert!(snapshot.apply(service("a", &spec), 1));
    assert!(!snapshot.apply(service("a", &spec), 2));
    let one = json!([{"addresses": ["10.0.0.1"], "targetRef": {"name": "p"}}]);
    assert!(snapshot.apply(slice("a-1", "a", &one), 3));
    assert!(
        !snapshot.apply(slice("a-1", "a", &json!([{"addresses": ["10.0.0.1"], "zone": "z"}])), 4),
        "no record depends on it"
    );
    assert!(!snapshot.apply(slice("x-1", "nobody", &one), 5), "no Service has it");
    assert_eq!(snapshot.serial(), 3);
    assert!(
        !snapshot.apply(Update::ServiceDeleted("ns/nope".into()), 6)
            && !snapshot.apply(Update::SliceDeleted("ns/nope".into()), 6)
    );
}

#[test]
fn slices_may_precede_the_service_move_and_be_deleted() {
    let snapshot = snapshot();
    let none = json!({"clusterIPs": ["None"]});
    let endpoints = json!([{"addresses": ["10.0.0.1"]}]);
    assert!(!snapshot.apply(slice("s", "a", &endpoints), 1) && snapshot.is_empty());
    assert!(snapshot.apply(service("a", &none), 1));
    assert_eq!(snapshot.service(b"\x01a\x02ns").map(|service| service.v4.len()), Some(1));
    snapshot.apply(service("b", &none), 2);
    assert!(snapshot.apply(slice("s", "b", &endpoints), 2));
    let count = |key: &[u8]| snapshot.service(key).map(|service| service.v4.len());
    assert_eq!((count(b"\x01a\x02ns"), count(b"\x01b\x02ns")), (Some(0), Some(1)));
    assert_eq!(snapshot.owners(address("10.0.0.1")).len(), 1);
    assert!(snapshot.apply(Update::SliceDeleted("ns/s".into()), 3));
    assert!(snapshot.owners(address("10.0.0.1")).is_empty());
}

#[test]
fn pods_share_addresses() {
    let snapshot = snapshot();
    let pod = |name: &str, phase: &str| {
        let object = json!({"metadata": {"namespace": "ns", "name": name}, "status": {"phase": phase, "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}});
        Update::Pod(Box::new(serde_json::from_value(object).expect("a Pod")))
    };
    let has = |ip: &str| snapshot.has_pod(b"\x02ns", address(ip));
    assert!(
        snapshot.apply(pod("a", "Running"), 1)
            && snapshot.apply(pod("b", "Running"), 1)
            && !snapshot.apply(pod("b", "Running"), 1)
    );
    assert!(has("10.0.0.1") && has("fd00::1") && !has("10.0.0.2") && !snapshot.has_pod(b"\x02no", address("10.0.0.1")));
    assert_eq!(snapshot.namespace_of(address("fd00::1")).as_deref(), Some("ns"));
    let other = json!({"metadata": {"namespace": "other", "name": "c"}, "status": {"podIP": "10.0.0.1"}});
    snapshot.apply(Update::Pod(Box::new(serde_json::from_value(other).expect("a Pod"))), 1);
    assert_eq!(snapshot.namespace_of(address("10.0.0.1")), None, "it may be either");
    assert_eq!(snapshot.pods_with(b"\x02ns", address("fd00::1")), ["ns/a", "ns/b"]);
    assert!(snapshot.apply(pod("a", "Succeeded"), 2));
    assert!(has("10.0.0.1"), "the other has it still");
    assert!(snapshot.apply(Update::PodDeleted("ns/b".into()), 3));
    assert!(!has("10.0.0.1") && !has("fd00::1"));
}

/// Random event.
#[derive(Clone, Debug)]
enum Change {
    Service(u8, u8),
    ServiceDeleted(u8),
    Slice(u8, u8, Vec<u8>),
    SliceDeleted(u8),
    Namespace(bool),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0u8..3, 0u8..4).prop_map(|(name, form)| Change::Service(name, form)),
        (0u8..3).prop_map(Change::ServiceDeleted),
        (0u8..4, 0u8..3, prop::collection::vec(0u8..6, 0..4)).prop_map(|(name, of, all)| Change::Slice(name, of, all)),
        (0u8..4).prop_map(Change::SliceDeleted),
        any::<bool>().prop_map(Change::Namespace),
    ]
}

fn update(event: &Change) -> Update {
    match event {
        Change::Service(name, form) => {
            let spec = match form {
                0 => json!({"clusterIPs": ["None"]}),
                1 => json!({"type": "ExternalName", "externalName": "example.net"}),
                other => json!({"clusterIPs": [format!("10.96.0.{other}")], "ports": [{"port": 80}]}),
            };
            service(&format!("s{name}"), &spec)
        }
        Change::ServiceDeleted(name) => Update::ServiceDeleted(format!("ns/s{name}").into()),
        Change::Slice(name, of, all) => {
            let all: Vec<_> = all.iter().map(|last| json!({"addresses": [format!("10.0.0.{last}")]})).collect();
            slice(&format!("e{name}"), &format!("s{of}"), &json!(all))
        }
        Change::SliceDeleted(name) => Update::SliceDeleted(format!("ns/e{name}").into()),
        Change::Namespace(true) => Update::Namespace("ns".into()),
        Change::Namespace(false) => Update::NamespaceDeleted("ns".into()),
    }
}

/// Everything that can be looked up, as text.
fn visible(snapshot: &ZoneSnapshot) -> String {
    let mut lines = Vec::new();
    snapshot.services.each(|service| {
        lines.push(format!(
            "{} {:?} {:?} {:?} {:?}",
            key_text(&service.key.wire),
            service.kind,
            service.v4,
            service.endpoints,
            service.namespace.is_visible()
        ));
    });
    let mut owners = Vec::new();
    snapshot.addresses.each(|owner| owners.push(*owner));
    for owner in owners {
        let service = snapshot.service_by_id(owner.service_id()).expect("an address leads to a Service");
        lines.push(format!("{} {}", owner.is_cluster_ip(), key_text(&service.key.wire)));
    }
    for last in 0..6 {
        let owners = |start| snapshot.owners(address(&format!("{start}.{last}"))).into_iter();
        let named = |(own, service): (bool, Arc<Service>)| format!("{last} {own} {}", key_text(&service.key.wire));
        lines.extend(owners("10.0.0").chain(owners("10.96.0")).map(named));
    }
    snapshot.namespaces.each(|namespace| lines.extend(namespace.is_visible().then(|| format!("{:?}", namespace.wire))));
    lines.sort();
    lines.join("\n")
}

proptest! {
    // Each case builds two snapshots.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The state depends only on the current objects; a relist changes nothing; after all objects are deleted nothing
    /// is left.
    #[test]
    fn the_state_depends_only_on_the_current_objects(events in prop::collection::vec(change(), 0..40)) {
        let snapshot = snapshot();
        let mut last = std::collections::BTreeMap::new();
        for event in &events {
            snapshot.apply(update(event), 1);
            match event {
                Change::Service(name, _) | Change::ServiceDeleted(name) => last.insert((0, *name), event.clone()),
                Change::Slice(name, ..) | Change::SliceDeleted(name) => last.insert((1, *name), event.clone()),
                Change::Namespace(_) => last.insert((2, 0), event.clone()),
            };
        }
        let fresh = self::snapshot();
        last.values().for_each(|event| {
            fresh.apply(update(event), 1);
        });
        prop_assert_eq!(visible(&snapshot), visible(&fresh));
        let before = snapshot.serial();
        for event in last.values() {
            prop_assert!(!snapshot.apply(update(event), before + 1), "{:?} again", event);
        }
        for number in 0..4 {
            snapshot.apply(Update::ServiceDeleted(format!("ns/s{number}").into()), 2);
            snapshot.apply(Update::SliceDeleted(format!("ns/e{number}").into()), 2);
        }
        snapshot.apply(Update::NamespaceDeleted("ns".into()), 2);
        prop_assert_eq!(visible(&snapshot), "");
        prop_assert!(snapshot.state.lock().is_empty(), "the writer keeps nothing");
    }
}
