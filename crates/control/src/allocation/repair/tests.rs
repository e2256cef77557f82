use store::allocation::Ranges;

use super::*;
use crate::allocation::snapshot::{StoredAddress, StoredCidr, essence, service_allocations};

fn ranges() -> Ranges {
    let parse = |text: &str| text.parse().expect("a range");
    Ranges { addresses: vec![parse("10.96.0.0/16"), parse("fd00:10:96::/112")], ports: 30000..=32767 }
}

fn seen(object: Value) -> StoredCidr {
    StoredCidr { object, modified: 7 }
}

fn service(name: &str, created: &str, ips: &[&str], node_port: u16) -> (String, ServiceAllocations) {
    typed_service("NodePort", name, created, ips, node_port)
}

fn typed_service(kind: &str, name: &str, created: &str, ips: &[&str], node_port: u16) -> (String, ServiceAllocations) {
    let object = json!({
        "metadata": {"name": name, "namespace": "default", "uid": "1111-2222", "creationTimestamp": created},
        "spec": {"type": kind, "clusterIPs": ips, "ports": [{"port": 80, "nodePort": node_port}]},
    });
    (format!("default/{name}"), service_allocations(&object))
}

fn address(text: &str, name: &str) -> (String, StoredAddress) {
    let address: IpAddr = text.parse().expect("an address");
    let object = essence(&address_object(address, "default", name, "u", "t"));
    (address.to_string(), StoredAddress { object, modified: 7 })
}

/// One Service without inconsistencies.
fn done() -> Snapshot {
    let cidr =
        seen(json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}}));
    Snapshot {
        services: [service("web", "2026-01-01T00:00:00Z", &["10.96.1.1"], 30001)].into(),
        addresses: [address("10.96.1.1", "web")].into(),
        cidrs: [("kubernetes".to_owned(), cidr)].into(),
        ports: [(30001, ("default/web".to_owned(), 7))].into(),
        port_map: true,
    }
}

fn run(snapshot: &Snapshot) -> Vec<Write> {
    reconcile(snapshot, &Setting { ranges: &ranges(), now: "2026-01-01T00:00:00Z" }).concat()
}

fn reasons(writes: &[Write]) -> Vec<String> {
    let reason = |write: &Write| match write {
        Write::Object { table: "events", object, .. } => Some(object.text("reason").to_owned()),
        _ => None,
    };
    writes.iter().filter_map(reason).collect()
}

#[test]
fn s32_consistent_allocations_are_unchanged() {
    assert_eq!(run(&done()), vec![]);
}

#[test]
fn s32_a_missing_port_map_is_created() {
    let snapshot = Snapshot { port_map: false, ..done() };
    assert!(matches!(&run(&snapshot)[..], [Write::Raw { key, modified: 0, .. }] if *key == port_map_key()));
}

#[test]
fn s32_a_missing_address_is_allocated_again() {
    let snapshot = Snapshot { addresses: BTreeMap::new(), ..done() };
    let writes = run(&snapshot);
    let Write::Raw { key, value, modified: 0 } = &writes[0] else { panic!("{writes:?}") };
    assert_eq!(*key, address_key("10.96.1.1".parse().expect("an address")));
    assert_eq!(api::object::decode_bare(value).text("spec.parentRef.name"), "web");
    assert_eq!(reasons(&writes), ["ClusterIPNotAllocated"]);
}

#[test]
fn s32_an_address_of_the_wrong_service_is_corrected() {
    let snapshot = Snapshot { addresses: [address("10.96.1.1", "other")].into(), ..done() };
    assert!(matches!(&run(&snapshot)[0], Write::Raw { modified: 7, .. }));
}

#[test]
fn s32_leaked_addresses_and_ports_are_freed() {
    let mut snapshot = done();
    snapshot.addresses.extend([address("10.96.9.9", "gone")]);
    snapshot.ports.insert(30002, ("default/gone".to_owned(), 9));
    let deleted: Vec<String> = run(&snapshot)
        .iter()
        .filter_map(|write| match write {
            Write::Delete { key, .. } => Some(key.name.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(deleted, ["10.96.9.9", "30002"]);
}

#[test]
fn s32_addresses_of_users_are_not_released() {
    let mut snapshot = done();
    let (name, mut by_hand) = address("10.96.9.9", "gone");
    by_hand.object.drop_path("metadata.labels");
    snapshot.addresses.insert(name, by_hand);
    assert_eq!(run(&snapshot), vec![]);
}

#[test]
fn s32_two_services_with_one_address_are_reported_and_the_older_keeps_it() {
    let mut snapshot = done();
    snapshot.services.extend([service("late", "2026-02-01T00:00:00Z", &["10.96.1.1"], 30001)]);
    let writes = run(&snapshot);
    assert_eq!(reasons(&writes), ["ClusterIPAlreadyAllocated", "PortAlreadyAllocated"]);
    assert!(matches!(&writes[0], Write::Object { object, .. } if object.text("involvedObject.name") == "late"));
}

#[test]
fn s32_spellings_of_one_ipv6_address_are_one_address() {
    let mut snapshot = done();
    snapshot.services.extend([service("six", "2026-01-02T00:00:00Z", &["fd00:10:96:0::00ab"], 30003)]);
    snapshot.addresses.extend([address("fd00:10:96::ab", "six")]);
    snapshot.ports.insert(30003, ("default/six".to_owned(), 7));
    assert_eq!(run(&snapshot), vec![]);
}

#[test]
fn s32_allocations_outside_the_ranges_are_reported() {
    let mut snapshot = done();
    snapshot.services.extend([service("far", "2026-01-02T00:00:00Z", &["192.0.2.1"], 99)]);
    snapshot.addresses.extend([address("192.0.2.1", "far")]);
    snapshot.ports.insert(99, ("default/far".to_owned(), 7));
    assert_eq!(reasons(&run(&snapshot)), ["ClusterIPOutOfRange", "PortOutOfRange"]);
}

#[test]
fn s32_an_external_name_has_no_allocations() {
    let mut snapshot = done();
    snapshot.services.extend([typed_service("ExternalName", "ext", "2026-01-02T00:00:00Z", &["10.96.5.5"], 30005)]);
    assert_eq!(run(&snapshot), vec![]);
}
