//! Clears fields that do not apply after a change of type.
//!
//! Some fields mean nothing for some types, and several of them were set by the server. A client that changes only
//! `type` should not have to clear them: a field is cleared when it no longer applies and the client did not change
//! it. If the client changed it too, it stays, and validation rejects it.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::fields::{
    has_node_ports, is_external_name, is_externally_accessible, is_load_balancer, needs_health_check, same,
};
use crate::value::ValueExt as _;

/// Clears what the new type has no use for.
pub(super) fn wipe(new: &mut Value, old: &Value) {
    if !is_external_name(old) && is_external_name(new) {
        wipe_addresses(new, old);
    }
    if has_node_ports(old) && !has_node_ports(new) && adds_no_node_port(new, old) {
        for port in new.items_mut("spec.ports") {
            port.drop_path("nodePort");
        }
    }
    if needs_health_check(old)
        && !needs_health_check(new)
        && new.int("spec.healthCheckNodePort") == old.int("spec.healthCheckNodePort")
    {
        new.drop_path("spec.healthCheckNodePort");
    }
    if is_load_balancer(old) && !is_load_balancer(new) {
        for field in ["spec.allocateLoadBalancerNodePorts", "spec.loadBalancerClass"] {
            drop_if_same(new, old, field);
        }
    }
    if is_externally_accessible(old) && !is_externally_accessible(new) {
        drop_if_same(new, old, "spec.externalTrafficPolicy");
    }
    if !is_load_balancer(new) {
        new.put("status.loadBalancer", json!({}));
    }
}

fn wipe_addresses(new: &mut Value, old: &Value) {
    if new.text("spec.clusterIP") == old.text("spec.clusterIP") && same(new, old, "spec.clusterIPs") {
        new.drop_path("spec.clusterIP");
        new.drop_path("spec.clusterIPs");
    }
    if same(new, old, "spec.ipFamilies") {
        new.drop_path("spec.ipFamilies");
    }
    drop_if_same(new, old, "spec.ipFamilyPolicy");
}

fn drop_if_same(new: &mut Value, old: &Value, field: &str) {
    if new.at(field) == old.at(field) {
        new.drop_path(field);
    }
}

/// Ports may come, go and change, as long as no number is new.
fn adds_no_node_port(new: &Value, old: &Value) -> bool {
    let before: HashSet<i64> = old.items("spec.ports").iter().map(|port| port.int("nodePort")).collect();
    new.items("spec.ports").iter().map(|port| port.int("nodePort")).all(|port| port == 0 || before.contains(&port))
}
