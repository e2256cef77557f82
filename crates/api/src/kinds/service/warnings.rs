//! Warnings about accepted fields: deprecated, ignored, or written in an unusual way.

use serde_json::Value;

use super::fields::{NONE, SPEC, is_external_name, kind_of};
use crate::ip::{warn_address, warn_cidr};
use crate::value::ValueExt as _;
use crate::view::annotations::{TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE};

/// Gathers the warnings of a create or an update.
pub(super) fn warn(service: &Value, out: &mut Vec<String>) {
    if service.at("metadata.annotations").get(TOPOLOGY_AWARE_HINTS).is_some() {
        out.push(format!("annotation {TOPOLOGY_AWARE_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    if !matches!(service.text("spec.clusterIP"), "" | NONE) {
        warn_addresses(service, "clusterIPs", out);
    }
    let headless = kind_of(service) == "ClusterIP" && service.text("spec.clusterIP") == NONE;
    if headless {
        warn_headless(service, out);
    }
    warn_addresses(service, "externalIPs", out);
    let has_external_ips = !service.items("spec.externalIPs").is_empty();
    if has_external_ips && !headless && !is_external_name(service) {
        out.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    warn_address(&SPEC.child("loadBalancerIP"), service.text("spec.loadBalancerIP"), out);
    let path = SPEC.child("loadBalancerSourceRanges");
    for (index, range) in service.texts("spec.loadBalancerSourceRanges").into_iter().enumerate() {
        warn_cidr(&path.index(index), range, out);
    }
    if is_external_name(service) {
        if has_external_ips {
            out.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
        }
    } else if !service.text("spec.externalName").is_empty() {
        out.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if service.text("spec.trafficDistribution") == "PreferClose" {
        out.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

fn warn_addresses(service: &Value, field: &str, out: &mut Vec<String>) {
    let path = SPEC.child(field);
    for (index, text) in service.at("spec").texts(field).into_iter().enumerate() {
        warn_address(&path.index(index), text, out);
    }
}

fn warn_headless(service: &Value, out: &mut Vec<String>) {
    let ignored = [
        (!service.text("spec.loadBalancerIP").is_empty(), "spec.loadBalancerIP"),
        (!service.items("spec.externalIPs").is_empty(), "spec.externalIPs"),
        (service.text("spec.sessionAffinity") != "None", "spec.SessionAffinity"),
    ];
    for (_, field) in ignored.into_iter().filter(|(set, _)| *set) {
        out.push(format!("{field} is ignored for headless services"));
    }
}
