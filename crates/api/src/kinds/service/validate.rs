//! The checks of a Service, in the order in which their errors are reported.
//!
//! In: a Service whose defaults are filled in and whose addresses are claimed, and what was before. Out: field errors.
//! Addresses that the old object had pass, even if they would be refused today.

use serde_json::Value;

use super::fields::{SPEC, has_node_ports, is_external_name, is_headless, is_load_balancer, kind_of};
use crate::field::{Errors, Path};
use crate::ip::{check_address, check_not_special};
use crate::value::ValueExt as _;
use crate::view::annotations::{TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE};
use crate::{meta, names};

mod cluster_ips;
mod load_balancer;
mod ports;
mod traffic;

pub(super) use cluster_ips::validate as addresses;
pub(super) use load_balancer::validate_class as load_balancer_class;

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITY_MAX: i64 = 86_400;

/// Checks everything but the metadata.
pub(super) fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    check_topology(service, errors);
    if service.items("spec.ports").is_empty() && !is_headless(service) && !is_external_name(service) {
        errors.required(&SPEC.child("ports"), "");
    }
    check_type_needs(service, errors);
    ports::validate_each(service, errors);
    meta::validate_labels(&SPEC.child("selector"), service.at("spec.selector"), errors);
    check_affinity(service, errors);
    addresses(service, old, errors);
    check_external_ips(service, old, errors);
    check_word(service, "type", &TYPES, errors);
    ports::validate_node_ports(service, errors);
    ports::validate_pairs(service, errors);
    load_balancer::validate(service, old, errors);
    traffic::validate(service, errors);
}

/// A string that must be one of these values.
fn check_word(service: &Value, field: &str, words: &[&str], errors: &mut Errors) {
    match service.at("spec").text(field) {
        "" => errors.required(&SPEC.child(field), ""),
        word if !words.contains(&word) => errors.not_supported(&SPEC.child(field), word, words),
        _ => {}
    }
}

fn check_topology(service: &Value, errors: &mut Errors) {
    let annotations = service.at("metadata.annotations");
    if let (Some(mode), Some(hints)) = (annotations.get(TOPOLOGY_MODE), annotations.get(TOPOLOGY_AWARE_HINTS))
        && mode != hints
    {
        let path = Path::Root("metadata");
        let path = path.child("annotations");
        let why = format!("must match annotations[{TOPOLOGY_AWARE_HINTS}] when both are specified");
        errors.invalid(&path.key(TOPOLOGY_MODE), mode, &why);
    }
}

/// What a type demands of the addresses and the external name.
fn check_type_needs(service: &Value, errors: &mut Errors) {
    if has_node_ports(service) && is_headless(service) {
        let why = format!("may not be set to 'None' for {} services", kind_of(service));
        errors.invalid(&SPEC.child("clusterIPs").index(0), &service.items("spec.clusterIPs")[0], &why);
    }
    if !is_external_name(service) {
        return;
    }
    let why = "may not be set for ExternalName services";
    for list in ["clusterIPs", "ipFamilies"] {
        if !service.at("spec").items(list).is_empty() {
            errors.forbidden(&SPEC.child(list), why);
        }
    }
    if service.has("spec.ipFamilyPolicy") {
        errors.forbidden(&SPEC.child("ipFamilyPolicy"), why);
    }
    // A trailing dot means that the name is fully qualified.
    let name = service.text("spec.externalName");
    let name = name.strip_suffix('.').unwrap_or(name);
    let path = SPEC.child("externalName");
    if name.is_empty() {
        errors.required(&path, "");
        return;
    }
    for why in names::dns_subdomain(name) {
        errors.invalid(&path, name, &why);
    }
}

fn check_affinity(service: &Value, errors: &mut Errors) {
    check_word(service, "sessionAffinity", &["ClientIP", "None"], errors);
    let config = SPEC.child("sessionAffinityConfig");
    match service.text("spec.sessionAffinity") {
        "ClientIP" => {
            let client = config.child("clientIP");
            let seconds = client.child("timeoutSeconds");
            let why = "when session affinity type is ClientIP";
            if !service.has("spec.sessionAffinityConfig") {
                errors.required(&config, why);
            } else if !service.has("spec.sessionAffinityConfig.clientIP") {
                errors.required(&client, why);
            } else if !service.has("spec.sessionAffinityConfig.clientIP.timeoutSeconds") {
                errors.required(&seconds, why);
            } else {
                let value = service.int("spec.sessionAffinityConfig.clientIP.timeoutSeconds");
                if !(1..=AFFINITY_MAX).contains(&value) {
                    let why = format!("must be greater than 0 and less than {AFFINITY_MAX}");
                    errors.invalid(&seconds, value, &why);
                }
            }
        }
        "None" if service.has("spec.sessionAffinityConfig") => {
            errors.forbidden(&config, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn check_external_ips(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    let before = old.map(|old| old.texts("spec.externalIPs")).unwrap_or_default();
    let path = SPEC.child("externalIPs");
    for (index, text) in service.texts("spec.externalIPs").into_iter().enumerate() {
        let count = errors.0.len();
        check_address(&path.index(index), text, &before, errors);
        if errors.0.len() == count {
            check_not_special(&path.index(index), text, errors);
        }
    }
}

/// Whether the load balancer fields make sense for this type; used by several checks.
fn only_for_load_balancers(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !is_load_balancer(service) {
        errors.forbidden(path, "may only be used when `type` is 'LoadBalancer'");
    }
}
