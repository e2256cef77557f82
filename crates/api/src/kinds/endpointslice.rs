//! EndpointSlice: some of the endpoints behind a Service, of one address type.
//!
//! The order of errors is kube-apiserver's: hand-written rules first, then those it generates from the schema
//! (`addressType` and the number of addresses of an endpoint).

use serde_json::Value;

use super::common::{IMMUTABLE, PROTOCOLS, one_of, report, same};
use crate::field::{Errors, Path};
use crate::ip::{self, Family};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, SHOWN, Table, age, column, no_conditions, or, shortened};
use crate::value::ValueExt as _;
use crate::view::labels::{ENDPOINT_SLICE_MANAGED_BY, HOSTNAME};

const CONTROLLERS: &[&str] = &["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"];
const MAX_ENDPOINTS: usize = 1000;
const MAX_PORTS: usize = 20000;
const MAX_ADDRESSES: usize = 100;
const MAX_TOPOLOGY: usize = 16;
const MAX_HINTS: usize = 8;

/// The kind.
pub static KIND: Kind = Kind {
    group: "discovery.k8s.io",
    kind: "EndpointSlice",
    plural: "endpointslices",
    singular: "endpointslice",
    schema: "discovery.EndpointSlice",
    table: "endpointslices",
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&EndpointSliceRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("AddressType", "What the addresses of this slice are."),
        column("Ports", "The first ports."),
        column("Endpoints", "The first addresses, ready or not."),
        AGE,
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            object.text("addressType").into(),
            ports_cell(object.items("ports")).into(),
            endpoints_cell(object.items("endpoints")).into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

struct EndpointSliceRules;

impl Rules for EndpointSliceRules {
    fn default(&self, object: &mut Value) {
        for port in object.items_mut("ports") {
            for (field, default) in [("name", ""), ("protocol", "TCP")] {
                if !port.has(field) {
                    port.put(field, default);
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        drop_topology(object, &[]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let topology = |slice: &Value| slice.items("endpoints").iter().any(|one| one.has("deprecatedTopology"));
        // Unchanged endpoints keep what an old server stored; the comparison is worth it only when there is some.
        if topology(new) && !same(new.at("endpoints"), old.at("endpoints")) {
            let nodes: Vec<&str> = old.items("endpoints").iter().filter_map(topology_node).collect();
            drop_topology(new, &nodes);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate(object, errors);
        let kind = object.text("addressType");
        one_of(&Path::Root("addressType"), kind, &["FQDN", "IPv4", "IPv6"], errors);
        validate_address_counts(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let endpoints_unchanged = validate_changed(new, old, errors);
        let (kind, before) = (new.text("addressType"), old.text("addressType"));
        let path = Path::Root("addressType");
        if kind != before {
            if kind.is_empty() {
                errors.required(&path, "");
            }
            errors.invalid(&path, Value::Null, IMMUTABLE);
        }
        if !endpoints_unchanged {
            validate_address_counts(new, errors);
        }
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() && new.text("addressType") == "FQDN" {
            out.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        let manager = new.at("metadata.labels").get(ENDPOINT_SLICE_MANAGED_BY).and_then(Value::as_str);
        if manager.is_some_and(|manager| CONTROLLERS.contains(&manager)) {
            return;
        }
        let endpoints = Path::Root("endpoints");
        for (index, endpoint) in new.items("endpoints").iter().enumerate() {
            let endpoint_path = endpoints.index(index);
            let path = endpoint_path.child("addresses");
            for (index, address) in endpoint.items("addresses").iter().enumerate() {
                ip::warn_address(&path.index(index), address.as_str().unwrap_or_default(), out);
            }
        }
    }

    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        ["addressType", "endpoints", "ports", "metadata.labels"].iter().any(|part| !same(new.at(part), old.at(part)))
    }
}

fn topology_node(endpoint: &Value) -> Option<&str> {
    endpoint.at("deprecatedTopology").get(HOSTNAME)?.as_str().filter(|name| !name.is_empty())
}

/// Drops the old topology maps; a node that `known` has moves to `nodeName`.
fn drop_topology(object: &mut Value, known: &[&str]) {
    for endpoint in object.items_mut("endpoints") {
        if !endpoint.has("nodeName")
            && let Some(node) = topology_node(endpoint)
            && known.contains(&node)
            && names::name_is_subdomain(node, false).is_empty()
        {
            let node = node.to_owned();
            endpoint.put("nodeName", node);
        }
        endpoint.drop_path("deprecatedTopology");
    }
}

/// The hand-written rules.
fn validate(object: &Value, errors: &mut Errors) {
    meta::validate(object, true, names::name_is_subdomain, errors);
    validate_ports(object.items("ports"), errors);
    validate_endpoints(object, errors);
}

/// The hand-written rules for an update; returns whether the endpoints are known to be unchanged.
fn validate_changed(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    meta::validate(new, true, names::name_is_subdomain, errors);
    validate_ports(new.items("ports"), errors);
    let before = errors.0.len();
    validate_endpoints(new, errors);
    let unchanged = errors.0.len() > before && same(new.at("endpoints"), old.at("endpoints"));
    if unchanged {
        errors.0.truncate(before);
    }
    unchanged
}

fn validate_ports(ports: &[Value], errors: &mut Errors) {
    let list = Path::Root("ports");
    if ports.len() > MAX_PORTS {
        errors.too_many(&list, ports.len(), MAX_PORTS);
        return;
    }
    let mut seen = std::collections::HashSet::with_capacity(ports.len());
    for (index, port) in ports.iter().enumerate() {
        let path = list.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            report(&path.child("name"), name, names::dns_label(name), errors);
        }
        if !seen.insert(name) {
            errors.duplicate(&path.child("name"), name);
        }
        let protocol = port.text("protocol");
        if !PROTOCOLS.contains(&protocol) {
            errors.not_supported(&path.child("protocol"), protocol, PROTOCOLS);
        }
        if let Some(protocol) = port.at("appProtocol").as_str() {
            report(&path.child("appProtocol"), protocol, names::qualified_name(protocol), errors);
        }
    }
}

fn validate_endpoints(object: &Value, errors: &mut Errors) {
    let list = Path::Root("endpoints");
    let endpoints = object.items("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        errors.too_many(&list, endpoints.len(), MAX_ENDPOINTS);
        return;
    }
    let kind = object.text("addressType");
    for (index, endpoint) in endpoints.iter().enumerate() {
        validate_endpoint(&list.index(index), endpoint, kind, errors);
    }
}

fn validate_endpoint(path: &Path<'_>, endpoint: &Value, kind: &str, errors: &mut Errors) {
    let addresses = path.child("addresses");
    for (index, address) in endpoint.items("addresses").iter().enumerate() {
        validate_address(&addresses, index, address.as_str().unwrap_or_default(), kind, errors);
    }
    if let Some(node) = endpoint.at("nodeName").as_str() {
        report(&path.child("nodeName"), node, names::name_is_subdomain(node, false), errors);
    }
    if let Some(topology) = endpoint.map("deprecatedTopology") {
        let path = path.child("deprecatedTopology");
        if topology.len() > MAX_TOPOLOGY {
            errors.too_many(&path, topology.len(), MAX_TOPOLOGY);
        }
        meta::validate_labels(&path, endpoint.at("deprecatedTopology"), errors);
    }
    if let Some(host) = endpoint.at("hostname").as_str() {
        report(&path.child("hostname"), host, names::dns_label(host), errors);
    }
    let path = path.child("hints");
    if validate_hints(&path.child("forZones"), endpoint.items("hints.forZones"), names::label_value, errors) {
        let node = |name: &str| names::name_is_subdomain(name, false);
        validate_hints(&path.child("forNodes"), endpoint.items("hints.forNodes"), node, errors);
    }
}

fn validate_address(addresses: &Path<'_>, index: usize, address: &str, kind: &str, errors: &mut Errors) {
    let path = addresses.index(index);
    let before = errors.0.len();
    let wanted = match kind {
        "IPv4" => {
            ip::check_address(&path, address, &[], errors);
            Family::V4
        }
        "IPv6" => {
            ip::check_canonical_address(&path, address, errors);
            Family::V6
        }
        "FQDN" => return validate_fqdn(&path, address, errors),
        _ => return,
    };
    if errors.0.len() > before {
        return;
    }
    if ip::parse_lenient(address).map(Family::of) != Some(wanted) {
        errors.invalid(addresses, address, &format!("must be an {} address", wanted.as_str()));
    }
    ip::check_not_special(&path, address, errors);
}

fn validate_fqdn(path: &Path<'_>, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let wrong = names::dns_subdomain(name);
    if !wrong.is_empty() {
        errors.invalid(path, name, &wrong.join(","));
    } else if !name.contains('.') {
        errors.invalid(path, name, "should be a domain with at least two segments separated by dots");
    } else if let Some((label, wrong)) =
        name.split('.').map(|label| (label, names::dns_label(label))).find(|(_, wrong)| !wrong.is_empty())
    {
        errors.invalid(path, label, &wrong.join(","));
    }
}

/// Checks zones or nodes of hints; returns whether there were few enough.
fn validate_hints(path: &Path<'_>, hints: &[Value], rule: impl Fn(&str) -> Vec<String>, errors: &mut Errors) -> bool {
    if hints.len() > MAX_HINTS {
        errors.too_many(path, hints.len(), MAX_HINTS);
        return false;
    }
    for (index, hint) in hints.iter().enumerate() {
        let hint_path = path.index(index);
        let path = hint_path.child("name");
        let name = hint.text("name");
        if hints[..index].iter().any(|earlier| earlier.text("name") == name) {
            errors.duplicate(&path, name);
        }
        report(&path, name, rule(name), errors);
    }
    true
}

/// The generated rules for the addresses of each endpoint.
fn validate_address_counts(object: &Value, errors: &mut Errors) {
    let list = Path::Root("endpoints");
    for (index, endpoint) in object.items("endpoints").iter().enumerate() {
        let count = endpoint.items("addresses").len();
        if (1..=MAX_ADDRESSES).contains(&count) {
            continue;
        }
        let endpoint_path = list.index(index);
        let path = endpoint_path.child("addresses");
        if count == 0 {
            errors.required(&path, "");
        } else {
            errors.too_many(&path, count, MAX_ADDRESSES);
        }
    }
}

fn ports_cell(ports: &[Value]) -> String {
    let text = |port: &Value| match port.at("port").as_i64() {
        Some(number) => number.to_string(),
        None => port.at("name").as_str().unwrap_or("*").to_owned(),
    };
    let shown: Vec<String> = ports.iter().take(SHOWN).map(text).collect();
    or(&shortened(&shown, ports.len()), "<unset>").to_owned()
}

fn endpoints_cell(endpoints: &[Value]) -> String {
    let addresses = || endpoints.iter().flat_map(|endpoint| endpoint.items("addresses"));
    let shown: Vec<String> =
        addresses().take(SHOWN).map(|address| address.as_str().unwrap_or_default().to_owned()).collect();
    or(&shortened(&shown, addresses().count()), "<unset>").to_owned()
}

#[cfg(test)]
mod tests;
