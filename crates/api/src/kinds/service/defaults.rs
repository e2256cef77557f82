//! What clients may leave out, and what readers see of objects that older servers stored.
//!
//! [`fill`] runs on everything that is decoded. [`fill_on_read`] runs on what is read: it cannot be part of the
//! former, because there an absent family means "choose one" and here "none was recorded".

use std::borrow::Cow;

use serde_json::{Value, json};

use super::fields::{NONE, REQUIRE_DUAL_STACK, SINGLE_STACK, is_external_name, is_externally_accessible};
use super::fields::{is_headless_without_selector, is_load_balancer, kind_of};
use super::normalise;
use crate::ip::{Family, parse_lenient};
use crate::value::ValueExt as _;

/// How long a client sticks to its endpoint.
const AFFINITY_SECONDS: i64 = 10_800;

/// Fills what the client left out.
pub(super) fn fill(service: &mut Value) {
    fill_affinity(service);
    if kind_of(service).is_empty() {
        service.put("spec.type", "ClusterIP");
    }
    for port in service.items_mut("spec.ports") {
        if port.text("protocol").is_empty() {
            port.put("protocol", "TCP");
        }
        let target = port.at("targetPort");
        if target.is_null() || target == 0 || target == "" {
            let number = port.int("port");
            port.put("targetPort", number);
        }
    }
    if is_externally_accessible(service) && service.text("spec.externalTrafficPolicy").is_empty() {
        service.put("spec.externalTrafficPolicy", "Cluster");
    }
    let has_address = matches!(kind_of(service), "ClusterIP" | "NodePort" | "LoadBalancer");
    if has_address && !service.has("spec.internalTrafficPolicy") {
        service.put("spec.internalTrafficPolicy", "Cluster");
    }
    if is_load_balancer(service) {
        fill_load_balancer(service);
    }
}

fn fill_affinity(service: &mut Value) {
    match service.text("spec.sessionAffinity") {
        "" => service.put("spec.sessionAffinity", "None"),
        "ClientIP" => {
            if !service.has("spec.sessionAffinityConfig.clientIP.timeoutSeconds") {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                service.put("spec.sessionAffinityConfig", config);
            }
            return;
        }
        "None" => {}
        _ => return,
    }
    service.drop_path("spec.sessionAffinityConfig");
}

fn fill_load_balancer(service: &mut Value) {
    if !service.has("spec.allocateLoadBalancerNodePorts") {
        service.put("spec.allocateLoadBalancerNodePorts", true);
    }
    for ingress in service.items_mut("status.loadBalancer.ingress") {
        if !ingress.text("ip").is_empty() && !ingress.has("ipMode") {
            ingress.put("ipMode", "VIP");
        }
    }
}

/// Fills what readers expect. Objects that were written through this server have their families; only one that was
/// created through its `status` has none, and for it IPv4 stands for an unknown primary family.
pub(super) fn fill_on_read(service: &mut Value, primary: Option<Family>) {
    normalise::on_create(service);
    if is_external_name(service) {
        service.drop_path("spec.internalTrafficPolicy");
        return;
    }
    if !service.items("spec.ipFamilies").is_empty() {
        return;
    }
    let primary = primary.unwrap_or(Family::V4);
    let (families, policy) = if is_headless_without_selector(service) {
        (vec![primary, primary.other()], REQUIRE_DUAL_STACK)
    } else if service.text("spec.clusterIP") == NONE {
        (vec![primary], SINGLE_STACK)
    } else {
        let families: Vec<Family> = service.texts("spec.clusterIPs").into_iter().map(family_of).collect();
        let policy = if families.len() == 2 { REQUIRE_DUAL_STACK } else { SINGLE_STACK };
        (families, policy)
    };
    if !families.is_empty() {
        service.put("spec.ipFamilies", families.into_iter().map(Family::as_str).collect::<Vec<_>>());
        service.put("spec.ipFamilyPolicy", policy);
    }
}

/// The family of an address; what is none counts as IPv4.
pub(super) fn family_of(text: &str) -> Family {
    parse_lenient(text).map_or(Family::V4, Family::of)
}

/// A stored object as readers see it.
pub(super) fn seen(stored: &Value) -> Cow<'_, Value> {
    seen_with(stored, None)
}

/// A stored object as readers see it, on a cluster with this primary family.
pub(super) fn seen_with(stored: &Value, primary: Option<Family>) -> Cow<'_, Value> {
    let complete = if is_external_name(stored) {
        !stored.has("spec.internalTrafficPolicy") && stored.text("spec.clusterIP").is_empty()
    } else {
        !stored.items("spec.ipFamilies").is_empty() && !stored.items("spec.clusterIPs").is_empty()
    };
    if complete {
        return Cow::Borrowed(stored);
    }
    let mut copy = stored.clone();
    fill_on_read(&mut copy, primary);
    Cow::Owned(copy)
}
