//! `spec.ports`: each port by itself, then the ports among each other.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{Errors, FieldError, Path, quote};
use crate::kinds::service::fields::{SPEC, kind_of};
use crate::names;
use crate::value::ValueExt as _;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Checks each port by itself; names are needed and unique when there are several.
pub(super) fn validate_each(service: &Value, errors: &mut Errors) {
    let ports = service.items("spec.ports");
    let path = SPEC.child("ports");
    let mut seen = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = port.text("name");
        if !name.is_empty() {
            check_all(&path.child("name"), name, names::dns_label(name), errors);
            if !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        } else if ports.len() > 1 {
            errors.required(&path.child("name"), "");
        }
        validate_numbers(&path, port, errors);
    }
}

fn validate_numbers(path: &Path<'_>, port: &Value, errors: &mut Errors) {
    let number = port.int("port");
    for why in names::port_number(number) {
        errors.invalid(&path.child("port"), number, &why);
    }
    match port.text("protocol") {
        "" => errors.required(&path.child("protocol"), ""),
        other if !PROTOCOLS.contains(&other) => errors.not_supported(&path.child("protocol"), other, &PROTOCOLS),
        _ => {}
    }
    let target = path.child("targetPort");
    match port.at("targetPort") {
        Value::String(name) => check_all(&target, name, names::port_name(name), errors),
        other => {
            let number = other.as_i64().unwrap_or_default();
            for why in names::port_number(number) {
                errors.invalid(&target, number, &why);
            }
        }
    }
    if let Some(protocol) = port.at("appProtocol").as_str() {
        check_all(&path.child("appProtocol"), protocol, names::qualified_name(protocol), errors);
    }
}

fn check_all(path: &Path<'_>, value: &str, wrong: Vec<String>, errors: &mut Errors) {
    for why in wrong {
        errors.invalid(path, value, &why);
    }
}

/// Node ports belong to two types, and a pair of protocol and node port to one port.
pub(super) fn validate_node_ports(service: &Value, errors: &mut Errors) {
    let path = SPEC.child("ports");
    let numbers = || service.items("spec.ports").iter().enumerate().filter(|(_, port)| port.int("nodePort") != 0);
    if kind_of(service) == "ClusterIP" {
        for (index, _) in numbers() {
            errors.forbidden(&path.index(index).child("nodePort"), "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut seen = HashSet::new();
    for (index, port) in numbers() {
        let number = port.int("nodePort");
        if !seen.insert((port.text("protocol"), number)) {
            errors.duplicate(&path.index(index).child("nodePort"), number);
        }
    }
}

/// A pair of protocol and port must be unique. kube-apiserver prints its internal struct for it.
pub(super) fn validate_pairs(service: &Value, errors: &mut Errors) {
    let path = SPEC.child("ports");
    let mut seen = HashSet::new();
    for (index, port) in service.items("spec.ports").iter().enumerate() {
        let (protocol, number) = (port.text("protocol"), port.int("port"));
        if !seen.insert((protocol, number)) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                quote(protocol)
            );
            errors.0.push(FieldError {
                reason: "FieldValueDuplicate",
                field: path.index(index).to_string(),
                body: format!("Duplicate value: {shown}"),
            });
        }
    }
}
