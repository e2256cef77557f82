//! NetworkPolicy: which connections Pods may have. Waypost does not enforce it, and warns on every write.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::super::common::report;
use super::super::workload::{selector_cell, validate_labels_selector};
use super::{SPEC, Stored};
use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::Kind;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    singular: "networkpolicy",
    short_names: &["netpol"],
    schema: "networking.NetworkPolicy",
    table: "networkpolicies",
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored =
    Stored { has_status: false, default, validate, ..Stored::new("networking.k8s.io/v1", "NetworkPolicy") };

static TABLE: Table = Table {
    columns: &[NAME, column("Pod-Selector", "The labels of the Pods that the policy is for."), AGE],
    row: |object, now| {
        vec![object.text("metadata.name").into(), selector_cell(object.at("spec.podSelector")), age(object, now).into()]
    },
    conditions: no_conditions,
};

/// Both directions: the list of rules, and the list of peers of a rule.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn default(object: &mut Value) {
    for (direction, _) in DIRECTIONS {
        for rule in object.items_mut(&format!("spec.{direction}")) {
            for port in rule.items_mut("ports") {
                super::set(port, "protocol", "TCP");
            }
        }
    }
    if object.has("spec") && object.items("spec.policyTypes").is_empty() {
        let has_egress = !object.items("spec.egress").is_empty();
        let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
        object.put("spec.policyTypes", types);
    }
}

fn validate(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    validate_labels_selector(&SPEC.child("podSelector"), spec.at("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        let list = SPEC.child(direction);
        for (index, rule) in spec.items(direction).iter().enumerate() {
            validate_rule(&list.index(index), rule, peers, errors);
        }
    }
    let (path, types) = (SPEC.child("policyTypes"), spec.texts("policyTypes"));
    if types.len() > 2 {
        return errors.invalid(&path, spec.at("policyTypes"), "may not specify more than two policyTypes");
    }
    for (index, one) in types.into_iter().enumerate() {
        if !matches!(one, "Ingress" | "Egress") {
            errors.not_supported(&path.index(index), one, &["Ingress", "Egress"]);
        }
    }
}

fn validate_rule(path: &Path<'_>, rule: &Value, peers: &str, errors: &mut Errors) {
    let ports = path.child("ports");
    for (index, port) in rule.items("ports").iter().enumerate() {
        validate_port(&ports.index(index), port, errors);
    }
    let list = path.child(peers);
    for (index, peer) in rule.items(peers).iter().enumerate() {
        validate_peer(&list.index(index), peer, errors);
    }
}

fn validate_port(path: &Path<'_>, port: &Value, errors: &mut Errors) {
    super::optional_one_of(&path.child("protocol"), port.text("protocol"), &["TCP", "UDP", "SCTP"], errors);
    let (end_path, end) = (path.child("endPort"), port.at("endPort").as_i64());
    let path = path.child("port");
    match (port.at("port"), end) {
        (Value::Null, Some(end)) => errors.invalid(&end_path, end, "may not be specified when `port` is not specified"),
        (Value::Null, None) => {}
        (Value::String(name), end) => {
            if let Some(end) = end {
                errors.invalid(&end_path, end, "may not be specified when `port` is non-numeric");
            }
            report(&path, name, names::port_name(name), errors);
        }
        (number, end) => {
            let number = number.as_i64().unwrap_or_default();
            for why in names::port_number(number) {
                errors.invalid(&path, number, &why);
            }
            let Some(end) = end else { return };
            if end < number {
                errors.invalid(&end_path, number, "must be greater than or equal to `port`");
            }
            for why in names::port_number(end) {
                errors.invalid(&end_path, end, &why);
            }
        }
    }
}

fn validate_peer(path: &Path<'_>, peer: &Value, errors: &mut Errors) {
    let selectors = ["podSelector", "namespaceSelector"].map(|field| (field, peer.at(field)));
    let given = || selectors.iter().filter(|(_, selector)| !selector.is_null());
    for (field, selector) in given() {
        validate_labels_selector(&path.child(field), selector, errors);
    }
    let block = peer.at("ipBlock");
    if !block.is_null() {
        validate_block(&path.child("ipBlock"), block, errors);
    }
    match (given().count(), block.is_null()) {
        (0, true) => errors.required(path, "must specify a peer"),
        (1.., false) => errors.forbidden(path, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn validate_block(path: &Path<'_>, block: &Value, errors: &mut Errors) {
    let cidr = block.text("cidr");
    if cidr.is_empty() {
        return errors.required(&path.child("cidr"), "");
    }
    ip::check_cidr(&path.child("cidr"), cidr, &[], errors);
    let Some(whole) = network(cidr) else { return };
    let list = path.child("except");
    for (index, except) in block.texts("except").into_iter().enumerate() {
        ip::check_cidr(&list.index(index), except, &[], errors);
        if network(except).is_some_and(|part| !is_strictly_inside(part, whole)) {
            errors.invalid(&list.index(index), except, "must be a strict subset of `cidr`");
        }
    }
}

/// The bits of an address from the left, how many bits it has, and the length of its prefix.
fn network(cidr: &str) -> Option<(u128, u32, u32)> {
    let (address, prefix) = cidr.split_once('/')?;
    let prefix: u32 = prefix.parse().ok()?;
    let (bits, width) = match ip::parse_lenient(address)? {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    };
    (prefix <= width).then_some((bits, width, prefix))
}

fn is_strictly_inside(part: (u128, u32, u32), whole: (u128, u32, u32)) -> bool {
    let shift = 128 - whole.2;
    let common = |bits: u128| bits.checked_shr(shift).unwrap_or_default();
    part.1 == whole.1 && part.2 > whole.2 && common(part.0) == common(whole.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_smaller_than_their_block() {
        let inside = |part: &str, whole: &str| {
            is_strictly_inside(network(part).expect("a network"), network(whole).expect("a network"))
        };
        assert!(inside("10.1.0.0/16", "10.0.0.0/8") && inside("10.0.0.0/8", "0.0.0.0/0"));
        assert!(!inside("10.0.0.0/8", "10.0.0.0/8") && !inside("11.0.0.0/16", "10.0.0.0/8"));
        assert!(!inside("::/96", "0.0.0.0/0") && inside("2001:db8::/64", "2001:db8::/32"));
        assert!(network("10.0.0.0/33").is_none() && network("10.0.0.0").is_none());
    }
}
