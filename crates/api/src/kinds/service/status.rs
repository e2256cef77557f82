//! `status.loadBalancer`: what a load balancer controller writes through the `status` subresource.

use serde_json::Value;

use super::fields::is_load_balancer;
use crate::field::{Errors, Path};
use crate::ip::{check_address, parse_lenient, warn_address};
use crate::names;
use crate::value::ValueExt as _;

const INGRESS: &str = "status.loadBalancer.ingress";

/// Checks the status of a Service whose spec is the stored one.
pub(super) fn validate(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::Root(INGRESS);
    let list = new.items(INGRESS);
    if !list.is_empty() && !is_load_balancer(new) {
        errors.forbidden(&path, "may only be used when `spec.type` is 'LoadBalancer'");
        return;
    }
    let before: Vec<&str> = old.items(INGRESS).iter().map(|ingress| ingress.text("ip")).collect();
    for (index, ingress) in list.iter().enumerate() {
        validate_ingress(&path.index(index), ingress, &before, errors);
    }
}

fn validate_ingress(path: &Path<'_>, ingress: &Value, before: &[&str], errors: &mut Errors) {
    let ip = ingress.text("ip");
    if !ip.is_empty() {
        check_address(&path.child("ip"), ip, before, errors);
    }
    let mode = path.child("ipMode");
    match (ingress.at("ipMode").as_str(), ip.is_empty()) {
        (None, true) | (Some("Proxy" | "VIP"), false) => {}
        (None, false) => errors.required(&mode, "must be specified when `ip` is set"),
        (Some(_), true) => errors.forbidden(&mode, "may not be specified when `ip` is not set"),
        (Some(other), false) => errors.not_supported(&mode, other, &["Proxy", "VIP"]),
    }
    let hostname = ingress.text("hostname");
    if hostname.is_empty() {
        return;
    }
    let path = path.child("hostname");
    for why in names::dns_subdomain(hostname) {
        errors.invalid(&path, hostname, &why);
    }
    if parse_lenient(hostname).is_some() {
        errors.invalid(&path, hostname, "must be a DNS name, not an IP address");
    }
}

/// Warns of addresses that are not in canonical form.
pub(super) fn warn(new: &Value, out: &mut Vec<String>) {
    let path = Path::Root(INGRESS);
    for (index, ingress) in new.items(INGRESS).iter().enumerate() {
        warn_address(&path.index(index), ingress.text("ip"), out);
    }
}
