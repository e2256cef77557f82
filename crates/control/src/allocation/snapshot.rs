//! A snapshot of allocations at one revision, with reduced objects.
//!
//! Complete objects of ten thousand Services would need hundreds of megabytes at each resync.

use std::collections::BTreeMap;

use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::allocation::{self, Ranges};
use store::{Compacted, Entry, Store, Table};

use crate::event::Reference;

/// The allocations of a Service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServiceAllocations {
    /// The Service.
    pub service: Reference,
    /// When it was created.
    pub created: String,
    /// Its cluster IPs, as written.
    pub addresses: Vec<String>,
    /// Its node ports and its health-check port.
    pub ports: Vec<u16>,
}

/// An `IPAddress` object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StoredAddress {
    /// Labels and owner.
    pub object: Value,
    /// Its revision.
    pub modified: u64,
}

/// A `ServiceCIDR` object, whole.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredCidr {
    /// The object, as stored.
    pub object: Value,
    /// Its revision.
    pub modified: u64,
}

/// All allocations at one revision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Snapshot {
    /// Services by `namespace/name`.
    pub services: BTreeMap<String, ServiceAllocations>,
    /// `IPAddress` objects by name.
    pub addresses: BTreeMap<String, StoredAddress>,
    /// `ServiceCIDR` objects by name.
    pub cidrs: BTreeMap<String, StoredCidr>,
    /// Node ports: `namespace/name` of the owner, and the revision.
    pub ports: BTreeMap<u16, (String, u64)>,
    /// Whether the node port range is stored.
    pub port_map: bool,
}

impl Snapshot {
    /// Reads a snapshot.
    ///
    /// # Errors
    /// When the revision is compacted while it is read.
    pub fn take(store: &dyn Store) -> Result<Self, Compacted> {
        let at = store.revision();
        let entries = |table: &str| store.range(Table::named(table), "", Some(at)).map(|range| range.entries);
        let map_key = allocation::port_map_key();
        Ok(Self {
            services: by_name(&entries("services/specs")?, |entry| {
                service_allocations(&object::decode_light(&entry.value))
            }),
            addresses: by_name(&entries("ipaddresses")?, |entry| StoredAddress {
                object: essence(&object::decode_light(&entry.value)),
                modified: entry.modified,
            }),
            cidrs: by_name(&entries("servicecidrs")?, |entry| StoredCidr {
                object: object::decode_bare(&entry.value),
                modified: entry.modified,
            }),
            ports: entries("nodeports")?
                .iter()
                .filter_map(|entry| {
                    let owner = allocation::port_owner(&entry.value).unwrap_or_default();
                    Some((entry.key.name.parse().ok()?, (owner, entry.modified)))
                })
                .collect(),
            port_map: entries(map_key.table.as_str())?.iter().any(|entry| entry.key == map_key),
        })
    }
}

fn by_name<T>(entries: &[std::sync::Arc<Entry>], take: impl Fn(&Entry) -> T) -> BTreeMap<String, T> {
    entries.iter().map(|entry| (entry.key.name.to_string(), take(entry))).collect()
}

/// The allocations of a Service; an ExternalName has none.
pub(crate) fn service_allocations(service: &Value) -> ServiceAllocations {
    let kind = service.text("spec.type");
    let addresses = if kind == "ExternalName" { Vec::new() } else { service.texts("spec.clusterIPs") };
    let mut ports = Vec::new();
    if matches!(kind, "NodePort" | "LoadBalancer") {
        let numbers = service.items("spec.ports").iter().map(|port| port.int("nodePort"));
        let health = std::iter::once(service.int("spec.healthCheckNodePort"));
        ports.extend(numbers.chain(health).filter_map(|number| u16::try_from(number).ok()).filter(|port| *port > 0));
    }
    ServiceAllocations {
        service: Reference::to(service),
        created: service.text("metadata.creationTimestamp").to_owned(),
        addresses: addresses.into_iter().filter(|text| *text != "None").map(str::to_owned).collect(),
        ports,
    }
}

/// Labels and owner of an `IPAddress` object.
pub(crate) fn essence(address: &Value) -> Value {
    let mut out = Value::Null;
    for path in ["metadata.labels", "spec.parentRef"] {
        out.put(path, address.at(path).clone());
    }
    out
}

/// Other inputs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting<'a> {
    /// Address and port ranges of the flags.
    pub ranges: &'a Ranges,
    /// The timestamp.
    pub now: &'a str,
}
