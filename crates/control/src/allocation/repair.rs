//! The repair controller (S32): allocations must match Services.
//!
//! In: Services, `IPAddress` objects and node ports of one revision. Out: writes that create missing allocations, correct wrong ones, release unused ones,
//! and Events for conflicts. The server allocates in the transaction of the object, so this is for manual changes. Addresses are compared by value, not
//! by notation.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use api::view::labels::IP_ADDRESS_MANAGED_BY;
use ipnet::IpNet;
use serde_json::{Value, json};
use store::allocation::{address_key, address_object, port_key, port_map_key, port_owner_value};

use super::snapshot::{ServiceAllocations, Setting, Snapshot};
use crate::event::{self, EventDetails, Reference};
use crate::write::Write;

/// The source of Events about addresses.
const ADDRESSES: &str = "ipallocator-repair-controller";
/// The source of Events about ports.
const PORTS: &str = "portallocator-repair-controller";

/// The writes that make allocations match Services, one transaction per group.
#[must_use]
pub fn reconcile(snapshot: &Snapshot, setting: &Setting<'_>) -> Vec<Vec<Write>> {
    let mut out = Vec::new();
    if !snapshot.port_map {
        let value = json!({"range": setting.ranges.ports_text()}).to_string();
        out.push(vec![Write::Raw { key: port_map_key(), value: value.into(), modified: 0 }]);
    }
    addresses(snapshot, setting, &mut out);
    ports(snapshot, setting, &mut out);
    out
}

/// Checks the addresses of all Services.
fn addresses(snapshot: &Snapshot, setting: &Setting<'_>, out: &mut Vec<Vec<Write>>) {
    let ranges = all_ranges(snapshot);
    let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
    for (key, service_allocations) in by_age(snapshot) {
        for text in &service_allocations.addresses {
            let say = |reason: &str, message: &str| {
                new_events(&service_allocations.service, ADDRESSES, reason, message, setting)
            };
            let Some(address) = parse_lenient(text) else {
                let message = format!("Cluster IP {text} is not a valid IP; please recreate Service");
                out.push(say("ClusterIPNotValid", &message));
                continue;
            };
            if let Some(owner) = owners.get(&address) {
                let message =
                    format!("Cluster IP {address} is already used by Service {owner}; please recreate Service");
                out.push(say("ClusterIPAlreadyAllocated", &message));
                continue;
            }
            owners.insert(address, key);
            if !ranges.iter().any(|range| range.contains(&address)) {
                let message =
                    format!("Cluster IP {address} is not within any configured Service range; please recreate Service");
                out.push(say("ClusterIPOutOfRange", &message));
            }
            allocate_address(snapshot, setting, address, &service_allocations.service, out);
        }
    }
    for (name, seen) in &snapshot.addresses {
        let ours = seen.object.at("metadata.labels").get(IP_ADDRESS_MANAGED_BY).and_then(Value::as_str)
            == Some("ipallocator.k8s.io");
        let used = parse_lenient(name).is_some_and(|address| owners.contains_key(&address));
        if let (true, false, Some(address)) = (ours, used, parse_lenient(name)) {
            out.push(vec![Write::Delete { key: address_key(address), modified: seen.modified, propagation: None }]);
        }
    }
}

/// Ensures that the `IPAddress` object of an address exists and refers to the Service.
fn allocate_address(
    snapshot: &Snapshot,
    setting: &Setting<'_>,
    address: IpAddr,
    service: &Reference,
    out: &mut Vec<Vec<Write>>,
) {
    let uid = uuid::Uuid::new_v4().to_string();
    let wanted = address_object(address, &service.namespace, &service.name, &uid, setting.now);
    let (modified, reason) = match snapshot.addresses.get(&address.to_string()) {
        None => (0, "ClusterIPNotAllocated"),
        Some(seen) if !agrees(&seen.object, &wanted) => (seen.modified, "IPAddressWrongReference"),
        Some(_) => return,
    };
    let family = api::ip::Family::of(address).as_str();
    let message = format!("Cluster IP [{family}]: {address} is not allocated; repairing");
    // `spec.parentRef` is immutable, so the object is replaced as raw bytes.
    out.push(vec![Write::Raw { key: address_key(address), value: api::object::encode(&wanted), modified }]);
    out.push(new_events(service, ADDRESSES, reason, &message, setting));
}

/// An Event about a Service.
fn new_events(service: &Reference, controller: &str, reason: &str, message: &str, setting: &Setting<'_>) -> Vec<Write> {
    vec![event::new_event(
        "Service",
        "v1",
        service,
        &EventDetails { controller, normal: false, reason, message, now: setting.now },
    )]
}

fn agrees(have: &Value, wanted: &Value) -> bool {
    let labels = wanted.map("metadata.labels").into_iter().flatten();
    have.at("spec.parentRef") == wanted.at("spec.parentRef")
        && labels.into_iter().all(|(key, value)| have.at("metadata.labels").get(key) == Some(value))
}

/// Checks the node ports of all Services.
fn ports(snapshot: &Snapshot, setting: &Setting<'_>, out: &mut Vec<Vec<Write>>) {
    let mut owners: BTreeMap<u16, &str> = BTreeMap::new();
    for (key, service_allocations) in by_age(snapshot) {
        for port in service_allocations.ports.iter().copied() {
            let say =
                |reason: &str, message: &str| new_events(&service_allocations.service, PORTS, reason, message, setting);
            if let Some(owner) = owners.get(&port) {
                if *owner != key {
                    let message = format!("Port {port} is already used by Service {owner}; please recreate Service");
                    out.push(say("PortAlreadyAllocated", &message));
                }
                continue;
            }
            owners.insert(port, key);
            if !setting.ranges.ports.contains(&port) {
                let message = format!(
                    "Port {port} is not within the port range {}; please recreate Service",
                    setting.ranges.ports_text()
                );
                out.push(say("PortOutOfRange", &message));
            }
            let modified = match snapshot.ports.get(&port) {
                Some((owner, _)) if owner == key => continue,
                Some((_, modified)) => *modified,
                None => 0,
            };
            let value = port_owner_value(&service_allocations.service.namespace, &service_allocations.service.name);
            let message = format!("Port {port} is not allocated; repairing");
            out.push(vec![Write::Raw { key: port_key(port), value, modified }]);
            out.push(say("PortNotAllocated", &message));
        }
    }
    for (port, (_, modified)) in &snapshot.ports {
        if !owners.contains_key(port) {
            out.push(vec![Write::Delete { key: port_key(*port), modified: *modified, propagation: None }]);
        }
    }
}

/// Services, the oldest first: it keeps a duplicate allocation.
fn by_age(snapshot: &Snapshot) -> Vec<(&str, &ServiceAllocations)> {
    let mut holders: Vec<(&str, &ServiceAllocations)> =
        snapshot.services.iter().map(|(key, service_allocations)| (key.as_str(), service_allocations)).collect();
    holders.sort_by(|a, b| a.1.created.cmp(&b.1.created));
    holders
}

fn all_ranges(snapshot: &Snapshot) -> Vec<IpNet> {
    let texts = snapshot.cidrs.values().flat_map(|seen| seen.object.texts("spec.cidrs"));
    texts.filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests;
