//! Dual-stack: decides `ipFamilyPolicy` and `ipFamilies` before addresses are claimed.
//!
//! In: the client's fields, the old object, the cluster's families. Out: both fields filled in, or a 422. The
//! principle: never move between one and two families unless the client requests it with the policy.

use serde_json::Value;

use super::defaults::family_of;
use super::fields::{
    NONE, PREFER_DUAL_STACK, REQUIRE_DUAL_STACK, SINGLE_STACK, SPEC, is_external_name, is_headless_without_selector,
    kind_of, refuse_all, same,
};
use super::validate;
use crate::field::Errors;
use crate::ip::Family;
use crate::status::Status;
use crate::value::ValueExt as _;

/// Fills in the policy and the families. `configured` are the families of the cluster, the primary first.
///
/// # Errors
/// 422 when the request contradicts itself or the cluster.
pub(super) fn settle(service: &mut Value, old: Option<&Value>, configured: &[Family]) -> Result<(), Status> {
    if is_external_name(service) || old.is_some_and(|old| keeps_preference(service, old)) {
        return Ok(());
    }
    settle_policy(service, old);
    let mut errors = Errors::default();
    validate::addresses(service, old, &mut errors);
    stop_at(service, &errors)?;

    if let Some(old) = old {
        shrink(service, old, &mut errors);
    }
    check_counts(service, &mut errors);
    infer_families(service, configured, &mut errors);
    stop_at(service, &errors)?;

    if is_headless_without_selector(service) {
        // Endpoints written by hand may use a family that the cluster does not have.
        complete(service, configured, true);
        return Ok(());
    }
    check_configured(service, configured, &mut errors);
    stop_at(service, &errors)?;
    complete(service, configured, configured.len() == 2);
    Ok(())
}

/// A Service that prefers two families and is not changed in this respect stays as it is, also when the cluster
/// gained or lost a family meanwhile.
pub(super) fn keeps_preference(service: &Value, old: &Value) -> bool {
    let prefers = |it: &Value| it.text("spec.ipFamilyPolicy") == PREFER_DUAL_STACK;
    prefers(service)
        && (prefers(old) || !old.has("spec.ipFamilyPolicy"))
        && kind_of(service) == kind_of(old)
        && matches!(kind_of(service), "ClusterIP" | "NodePort" | "LoadBalancer")
        && same(service, old, "spec.clusterIPs")
        && same(service, old, "spec.ipFamilies")
}

fn stop_at(service: &Value, errors: &Errors) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(refuse_all(service, errors)) }
}

fn settle_policy(service: &mut Value, old: Option<&Value>) {
    if service.has("spec.ipFamilyPolicy") {
        return;
    }
    let before = old.map(|old| old.text("spec.ipFamilyPolicy")).filter(|policy| !policy.is_empty());
    let policy = match before {
        Some(policy) => policy,
        None if is_headless_without_selector(service) => REQUIRE_DUAL_STACK,
        None => SINGLE_STACK,
    };
    service.put("spec.ipFamilyPolicy", policy);
}

fn is_single(service: &Value) -> bool {
    service.text("spec.ipFamilyPolicy") == SINGLE_STACK
}

/// Going from two to one: the policy alone is enough to say so, and nothing else is.
fn shrink(service: &mut Value, old: &Value, errors: &mut Errors) {
    let (ips, families) = ("spec.clusterIPs", "spec.ipFamilies");
    if is_single(service) {
        for list in [ips, families] {
            if same(service, old, list) && service.items(list).len() > 1 {
                let first = service.items(list)[..1].to_vec();
                service.put(list, first);
            }
        }
        return;
    }
    for (list, what) in [(ips, "cluster IP"), (families, "IP family")] {
        let have = service.items(list).len();
        if have > 0 && have < old.items(list).len() {
            let why = format!("must be 'SingleStack' to release the secondary {what}");
            errors.invalid(&SPEC.child("ipFamilyPolicy"), service.at("spec.ipFamilyPolicy"), &why);
        }
    }
}

fn check_counts(service: &Value, errors: &mut Errors) {
    if !is_single(service) {
        return;
    }
    for (list, what) in [("spec.clusterIPs", "cluster IPs"), ("spec.ipFamilies", "IP families")] {
        if service.items(list).len() == 2 {
            let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid(&SPEC.child("ipFamilyPolicy"), service.at("spec.ipFamilyPolicy"), &why);
        }
    }
}

/// An address whose family is not named names it.
fn infer_families(service: &mut Value, configured: &[Family], errors: &mut Errors) {
    let mut families: Vec<Value> = service.items("spec.ipFamilies").to_vec();
    let named = families.len();
    for (index, ip) in service.texts("spec.clusterIPs").into_iter().enumerate() {
        if ip == NONE {
            break;
        }
        if index < families.len() {
            continue;
        }
        let family = family_of(ip);
        if configured.contains(&family) {
            families.push(family.as_str().into());
        } else {
            let why = format!("{} is not configured on this cluster", family.as_str());
            errors.invalid(&SPEC.child("clusterIPs").index(index), service.at("spec.clusterIPs"), &why);
        }
    }
    if families.len() > named {
        service.put("spec.ipFamilies", families);
    }
}

fn check_configured(service: &Value, configured: &[Family], errors: &mut Errors) {
    if service.text("spec.ipFamilyPolicy") == REQUIRE_DUAL_STACK && configured.len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        errors.invalid(&SPEC.child("ipFamilyPolicy"), service.at("spec.ipFamilyPolicy"), why);
    }
    for (index, name) in service.texts("spec.ipFamilies").into_iter().enumerate() {
        if !Family::named(name).is_some_and(|family| configured.contains(&family)) {
            errors.invalid(&SPEC.child("ipFamilies").index(index), name, "not configured on this cluster");
        }
    }
}

/// Adds the primary family if missing, and the other one if two are requested and available.
fn complete(service: &mut Value, configured: &[Family], two: bool) {
    let primary = configured.first().copied().unwrap_or(Family::V4);
    let mut families = service.texts("spec.ipFamilies");
    let first = families.first().and_then(|name| Family::named(name)).unwrap_or(primary);
    if families.is_empty() {
        families.push(primary.as_str());
    }
    if families.len() == 1 && two && !is_single(service) {
        families.push(first.other().as_str());
    }
    let families = Value::from(families);
    service.put("spec.ipFamilies", families);
}
