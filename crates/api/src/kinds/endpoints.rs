//! Endpoints: the addresses and ports behind a Service, in one object.
//!
//! Only syntax is checked, and only what changed: objects written by older servers stay writable. One rule is our
//! own: an object that no controller manages may not have more than [`MAX_ADDRESSES`] addresses, because no
//! controller would truncate it and proxies would have to parse all of it on every change.

use serde_json::Value;

use super::common::{PROTOCOLS, one_of, report, same};
use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, SHOWN, Table, age, column, no_conditions, shortened};
use crate::value::ValueExt as _;
use crate::view::labels::ENDPOINTS_MANAGED_BY;

/// How many addresses an Endpoints object without a controller may have.
pub const MAX_ADDRESSES: usize = 1000;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Endpoints",
    plural: "endpoints",
    singular: "endpoints",
    short_names: &["ep"],
    schema: "core.Endpoints",
    table: "services/endpoints",
    create_on_update: true,
    table_view: &TABLE,
    ..Kind::common(&EndpointsRules)
};

static TABLE: Table = Table {
    columns: &[NAME, column("Endpoints", "The first ready addresses with their ports."), AGE],
    row: |object, now| {
        vec![object.text("metadata.name").into(), addresses_cell(object).into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

struct EndpointsRules;

impl Rules for EndpointsRules {
    fn default(&self, object: &mut Value) {
        for subset in object.items_mut("subsets") {
            for port in subset.items_mut("ports") {
                if port.text("protocol").is_empty() {
                    port.put("protocol", "TCP");
                }
            }
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate_subsets(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        meta::validate(new, true, names::name_is_subdomain, errors);
        let before = errors.0.len();
        validate_subsets(new, errors);
        // Compared only when something is wrong: the lists may be long.
        if errors.0.len() > before && same(new.at("subsets"), old.at("subsets")) {
            errors.0.truncate(before);
        }
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, out: &mut Vec<String>) {
        if managed_by(new) == Some("endpoint-controller") {
            return;
        }
        let subsets = Path::Root("subsets");
        for (index, subset) in new.items("subsets").iter().enumerate() {
            let subset_path = subsets.index(index);
            for list in ["addresses", "notReadyAddresses"] {
                let path = subset_path.child(list);
                for (index, address) in subset.items(list).iter().enumerate() {
                    ip::warn_address(&path.index(index).child("ip"), address.text("ip"), out);
                }
            }
        }
    }
}

fn managed_by(object: &Value) -> Option<&str> {
    object.at("metadata.labels").get(ENDPOINTS_MANAGED_BY).and_then(Value::as_str)
}

fn validate_subsets(object: &Value, errors: &mut Errors) {
    let subsets = object.items("subsets");
    let path = Path::Root("subsets");
    let total: usize =
        subsets.iter().map(|subset| subset.items("addresses").len() + subset.items("notReadyAddresses").len()).sum();
    if total > MAX_ADDRESSES && managed_by(object).is_none() {
        errors.too_many(&path, total, MAX_ADDRESSES);
        return;
    }
    for (index, subset) in subsets.iter().enumerate() {
        validate_subset(&path.index(index), subset, errors);
    }
}

fn validate_subset(path: &Path<'_>, subset: &Value, errors: &mut Errors) {
    let lists = ["addresses", "notReadyAddresses"];
    if lists.iter().all(|list| subset.items(list).is_empty()) {
        errors.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    for list in lists {
        let path = path.child(list);
        for (index, address) in subset.items(list).iter().enumerate() {
            validate_address(&path.index(index), address, errors);
        }
    }
    let (path, ports) = (path.child("ports"), subset.items("ports"));
    for (index, port) in ports.iter().enumerate() {
        validate_port(&path.index(index), port, ports.len() > 1, errors);
    }
}

fn validate_address(path: &Path<'_>, address: &Value, errors: &mut Errors) {
    let text = address.text("ip");
    ip::check_address(&path.child("ip"), text, &[], errors);
    let host = address.text("hostname");
    if !host.is_empty() {
        report(&path.child("hostname"), host, names::dns_label(host), errors);
    }
    if let Some(node) = address.at("nodeName").as_str() {
        report(&path.child("nodeName"), node, names::name_is_subdomain(node, false), errors);
    }
    ip::check_not_special(&path.child("ip"), text, errors);
}

fn validate_port(path: &Path<'_>, port: &Value, name_required: bool, errors: &mut Errors) {
    let name = port.text("name");
    if name_required && name.is_empty() {
        errors.required(&path.child("name"), "");
    } else if !name.is_empty() {
        report(&path.child("name"), name, names::dns_label(name), errors);
    }
    let number = port.int("port");
    for detail in names::port_number(number) {
        errors.invalid(&path.child("port"), number, &detail);
    }
    one_of(&path.child("protocol"), port.text("protocol"), PROTOCOLS, errors);
    if let Some(protocol) = port.at("appProtocol").as_str() {
        report(&path.child("appProtocol"), protocol, names::qualified_name(protocol), errors);
    }
}

fn addresses_cell(object: &Value) -> String {
    let subsets = object.items("subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let (mut shown, mut total) = (Vec::with_capacity(SHOWN), 0);
    for subset in subsets {
        let (addresses, ports) = (subset.items("addresses"), subset.items("ports"));
        let room = |shown: &Vec<String>| SHOWN - shown.len();
        if ports.is_empty() {
            total += addresses.len();
            shown.extend(addresses.iter().take(room(&shown)).map(|address| address.text("ip").to_owned()));
        }
        for port in ports {
            total += addresses.len();
            let number = port.int("port");
            let pair = |address: &Value| match address.text("ip") {
                six if six.contains(':') => format!("[{six}]:{number}"),
                four => format!("{four}:{number}"),
            };
            shown.extend(addresses.iter().take(room(&shown)).map(pair));
        }
    }
    shortened(&shown, total)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary, table_golden};

    #[test]
    fn golden_answers() {
        golden("endpoints", &KIND);
        table_golden("table.endpoints", &KIND);
    }

    fn metadata() -> Value {
        json!({"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "1"})
    }

    fn with_addresses(count: usize) -> Value {
        let addresses: Vec<Value> =
            (0..count).map(|i| json!({"ip": format!("10.1.{}.{}", i / 250, i % 250 + 1)})).collect();
        json!({"metadata": metadata(), "subsets": [{"addresses": addresses}]})
    }

    #[test]
    fn hand_made_ones_have_a_limit() {
        let check = |object: &Value| summary(|errors| EndpointsRules.validate_create(object, errors));
        assert_eq!(check(&with_addresses(1000)), "[]");
        assert_eq!(check(&with_addresses(1001)), "subsets: Too many: 1001: must have at most 1000 items");
        let mut managed = with_addresses(1001);
        managed.put("metadata.labels", json!({ENDPOINTS_MANAGED_BY: "somebody"}));
        assert_eq!(check(&managed), "[]");
        let unchanged = with_addresses(1001);
        assert_eq!(summary(|errors| EndpointsRules.validate_update(&unchanged, &unchanged, errors)), "[]");
    }

    #[test]
    fn unchanged_errors_pass() {
        let bad = json!({"metadata": metadata(), "subsets": [{"addresses": [{"ip": "x"}]}]});
        assert_eq!(summary(|errors| EndpointsRules.validate_update(&bad, &bad, errors)), "[]");
        let mut out = Vec::new();
        EndpointsRules.warnings(&with_addresses(2), None, &mut out);
        assert!(out.is_empty());
    }
}
