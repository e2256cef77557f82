//! Where traffic may go: the policies for traffic from outside and inside, and the wish for near endpoints.

use serde_json::Value;

use super::check_word;
use crate::field::Errors;
use crate::kinds::service::fields::{SPEC, is_externally_accessible, kind_of, needs_health_check};
use crate::names;
use crate::value::ValueExt as _;

const POLICIES: [&str; 2] = ["Cluster", "Local"];
/// In the order of kube-apiserver, which is not the alphabetical one.
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];

/// Checks the policies and the health check port that one of them needs.
pub(super) fn validate(service: &Value, errors: &mut Errors) {
    let policy = service.text("spec.externalTrafficPolicy");
    if is_externally_accessible(service) {
        check_word(service, "externalTrafficPolicy", &POLICIES, errors);
    } else if !policy.is_empty() {
        let why = "may only be set for externally-accessible services";
        errors.invalid(&SPEC.child("externalTrafficPolicy"), policy, why);
    }
    check_health_port(service, errors);
    check_internal(service, errors);
    let distribution = service.text("spec.trafficDistribution");
    if service.has("spec.trafficDistribution") && !DISTRIBUTIONS.contains(&distribution) {
        errors.not_supported(&SPEC.child("trafficDistribution"), distribution, &DISTRIBUTIONS);
    }
}

fn check_health_port(service: &Value, errors: &mut Errors) {
    let path = SPEC.child("healthCheckNodePort");
    let port = service.int("spec.healthCheckNodePort");
    match (needs_health_check(service), port) {
        (true, 0) => errors.required(&path, ""),
        (true, _) => {
            for why in names::port_number(port) {
                errors.invalid(&path, port, &why);
            }
        }
        (false, 0) => {}
        (false, _) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid(&path, port, why);
        }
    }
}

fn check_internal(service: &Value, errors: &mut Errors) {
    let path = SPEC.child("internalTrafficPolicy");
    match service.at("spec.internalTrafficPolicy").as_str() {
        None if matches!(kind_of(service), "ClusterIP" | "NodePort" | "LoadBalancer") => errors.required(&path, ""),
        Some(policy) if !POLICIES.contains(&policy) => errors.not_supported(&path, policy, &POLICIES),
        _ => {}
    }
}
