//! What an update may change: mostly anything, but not the addresses that clients rely on.
//!
//! A second address or family may be added or given up; the first stays as long as the Service has one. Passing
//! through ExternalName lifts that. The checks of the new object alone follow, without repeating an error.

use serde_json::Value;

use super::fields::{SINGLE_STACK, SPEC, is_external_name, is_headless, is_load_balancer, needs_health_check};
use super::validate;
use crate::field::Errors;
use crate::value::ValueExt as _;

const FIXED: &str = "may not change once set";

/// Checks a change, metadata excluded.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut Errors) {
    if !is_external_name(new) && !is_external_name(old) {
        check_addresses(new, old, errors);
        check_families(new, old, errors);
    }
    if is_load_balancer(old)
        && is_load_balancer(new)
        && new.at("spec.loadBalancerClass") != old.at("spec.loadBalancerClass")
    {
        errors.invalid(&SPEC.child("loadBalancerClass"), new.at("spec.loadBalancerClass"), FIXED);
    }
    validate::load_balancer_class(new, errors);
    if needs_health_check(old)
        && needs_health_check(new)
        && new.int("spec.healthCheckNodePort") != old.int("spec.healthCheckNodePort")
    {
        errors.forbidden(&SPEC.child("healthCheckNodePort"), "field is immutable");
    }
    let mut rest = Errors::default();
    validate::validate(new, Some(old), &mut rest);
    rest.0.retain(|error| !errors.0.contains(error));
    errors.0.append(&mut rest.0);
}

fn check_addresses(new: &Value, old: &Value, errors: &mut Errors) {
    if is_headless(old) && is_headless(new) {
        return;
    }
    let path = SPEC.child("clusterIPs");
    let (ips, before) = (new.items("spec.clusterIPs"), old.items("spec.clusterIPs"));
    let list = if ips.is_empty() { &Value::Null } else { new.at("spec.clusterIPs") };
    if ips.len() == before.len() {
        for (index, _) in ips.iter().zip(before).enumerate().filter(|(_, (ip, before))| ip != before) {
            errors.invalid(&path.index(index), list, FIXED);
        }
        return;
    }
    if ips.is_empty() {
        errors.invalid(&path.index(0), list, "primary clusterIP can not be unset");
    }
    if !ips.is_empty() && !before.is_empty() && ips[0] != before[0] {
        errors.invalid(&path.index(0), list, FIXED);
    }
    if ips.len() < before.len() && ips.len() == 1 {
        check_release(new, "clusterIP", errors);
    }
}

/// kube-apiserver prints the addresses, not the families, when their number changes.
fn check_families(new: &Value, old: &Value, errors: &mut Errors) {
    if is_headless(new) || is_headless(old) {
        return;
    }
    let path = SPEC.child("ipFamilies");
    let (families, before) = (new.items("spec.ipFamilies"), old.items("spec.ipFamilies"));
    if families.len() == before.len() {
        for _ in families.iter().zip(before).filter(|(family, before)| family != before) {
            errors.invalid(&path.index(0), new.at("spec.ipFamilies"), FIXED);
        }
        return;
    }
    if families.len() < before.len() && new.items("spec.clusterIPs").is_empty() {
        errors.invalid(&path.index(0), new.at("spec.ipFamilies"), "primary ipFamily can not be unset");
    }
    if !families.is_empty() && !before.is_empty() && families[0] != before[0] {
        errors.invalid(&path.index(0), new.at("spec.clusterIPs"), FIXED);
    }
    if families.len() < before.len() && families.len() == 1 {
        check_release(new, "ipFamily", errors);
    }
}

fn check_release(new: &Value, what: &str, errors: &mut Errors) {
    if new.text("spec.ipFamilyPolicy") != SINGLE_STACK {
        let why = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.invalid(&SPEC.child("ipFamilyPolicy"), new.at("spec.ipFamilyPolicy"), &why);
    }
}
