//! The linked fields `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy`.
//!
//! These checks run twice: before addresses are claimed, so that claiming need not think of malformed input, and with
//! all the others.

use serde_json::Value;

use crate::field::Errors;
use crate::ip::{Family, check_address, parse_lenient};
use crate::kinds::service::fields::{
    NONE, PREFER_DUAL_STACK, REQUIRE_DUAL_STACK, SINGLE_STACK, SPEC, is_external_name, is_headless,
};
use crate::value::ValueExt as _;

/// Checks the four fields against each other.
pub(in crate::kinds::service) fn validate(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    if is_external_name(service) {
        return;
    }
    check_agreement(service, errors);
    check_families(service, errors);
    if !check_each(service, old, errors) {
        // Comparing families of what is no address would only confuse.
        return;
    }
    let ips = service.texts("spec.clusterIPs");
    if ips.len() > 1 && !is_one_of_each(&ips) {
        let why = "may specify no more than one IP for each IP family";
        errors.invalid(&SPEC.child("clusterIPs"), service.at("spec.clusterIPs"), why);
    }
    if !is_headless(service) {
        check_match(service, &ips, errors);
    }
}

fn check_agreement(service: &Value, errors: &mut Errors) {
    let path = SPEC.child("clusterIPs");
    let list = service.at("spec.clusterIPs");
    match (service.text("spec.clusterIP"), service.items("spec.clusterIPs").first()) {
        ("", Some(_)) => errors.invalid(&path, list, "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => errors.required(&path, ""),
        (single, Some(first)) if first != single => errors.invalid(&path, list, "first value must match `clusterIP`"),
        _ => {}
    }
}

fn check_families(service: &Value, errors: &mut Errors) {
    let path = SPEC.child("ipFamilies");
    let families = service.texts("spec.ipFamilies");
    for (index, family) in families.iter().enumerate() {
        if Family::named(family).is_none() {
            errors.not_supported(&path.index(index), *family, &["IPv4", "IPv6"]);
        }
        if families[..index].contains(family) {
            errors.duplicate(&path.index(index), *family);
        }
    }
    let policies = [PREFER_DUAL_STACK, REQUIRE_DUAL_STACK, SINGLE_STACK];
    let policy = service.text("spec.ipFamilyPolicy");
    if service.has("spec.ipFamilyPolicy") && !policies.contains(&policy) {
        errors.not_supported(&SPEC.child("ipFamilyPolicy"), policy, &policies);
    }
}

/// Checks each address by itself; returns whether all of them are valid addresses.
fn check_each(service: &Value, old: Option<&Value>, errors: &mut Errors) -> bool {
    let path = SPEC.child("clusterIPs");
    let list = service.at("spec.clusterIPs");
    let before = old.map(|old| old.texts("spec.clusterIPs")).unwrap_or_default();
    let ips = service.texts("spec.clusterIPs");
    let count = errors.0.len();
    for (index, ip) in ips.iter().enumerate() {
        if index > 0 || *ip != NONE {
            check_address(&path.index(index), ip, &before, errors);
        } else if ips.len() > 1 {
            errors.invalid(&path, list, "'None' must be the first and only value");
        }
    }
    let fine = errors.0.len() == count;
    if ips.len() > 2 {
        errors.invalid(&path, list, "may only hold up to 2 values");
    }
    fine
}

fn family(text: &str) -> Option<Family> {
    parse_lenient(text).map(Family::of)
}

fn is_one_of_each(ips: &[&str]) -> bool {
    [Family::V4, Family::V6].iter().all(|wanted| ips.iter().any(|ip| family(ip) == Some(*wanted)))
}

fn check_match(service: &Value, ips: &[&str], errors: &mut Errors) {
    let path = SPEC.child("clusterIPs");
    for (index, (ip, wanted)) in ips.iter().zip(service.texts("spec.ipFamilies")).enumerate() {
        let is_v6 = family(ip) == Some(Family::V6);
        if (wanted == "IPv4" && is_v6) || (wanted == "IPv6" && !is_v6) {
            let why = format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&path.index(index), *ip, &why);
        }
    }
}
