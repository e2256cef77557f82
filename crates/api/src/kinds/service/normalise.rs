//! Completes linked fields for clients that send only some of them.
//!
//! `clusterIP` and `clusterIPs` are redundant, and clients that were written before the second one send only the
//! first. And a client that sends its manifest again, without what was allocated, wants to keep it.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::fields::{allocates_node_ports, is_external_name, needs_health_check, same};
use crate::value::ValueExt as _;

/// A client that gives only the singular field means the plural one too. The other way round it is an error.
pub(super) fn on_create(service: &mut Value) {
    let single = service.text("spec.clusterIP");
    if !single.is_empty() && service.items("spec.clusterIPs").is_empty() {
        let list = json!([single]);
        service.put("spec.clusterIPs", list);
    }
}

/// Makes the plural field follow when only the singular one changed.
pub(super) fn on_update(new: &mut Value, old: &Value) {
    let single = new.text("spec.clusterIP");
    let same_single = single == old.text("spec.clusterIP");
    if same_single {
        if new.items("spec.clusterIPs").is_empty() && !old.items("spec.clusterIPs").is_empty() {
            new.put("spec.clusterIPs", old.at("spec.clusterIPs").clone());
        }
    } else if same(new, old, "spec.clusterIPs") {
        if single.is_empty() {
            new.drop_path("spec.clusterIPs");
        } else {
            let list = json!([single]);
            new.put("spec.clusterIPs", list);
        }
    }
}

/// Takes over what was allocated before and is not mentioned now.
pub(super) fn keep_allocated(new: &mut Value, old: &Value) {
    if !is_external_name(old) && !is_external_name(new) {
        if new.text("spec.clusterIP").is_empty() && !old.text("spec.clusterIP").is_empty() {
            new.put("spec.clusterIP", old.text("spec.clusterIP"));
        }
        if new.items("spec.clusterIPs").is_empty() && !old.items("spec.clusterIPs").is_empty() {
            new.put("spec.clusterIPs", old.at("spec.clusterIPs").clone());
        }
    }
    if allocates_node_ports(old) && allocates_node_ports(new) {
        keep_node_ports(new, old);
    }
    if needs_health_check(old) && needs_health_check(new) && new.int("spec.healthCheckNodePort") == 0 {
        let port = old.int("spec.healthCheckNodePort");
        if port != 0 {
            new.put("spec.healthCheckNodePort", port);
        }
    }
}

/// Node ports are kept by the name of the port, except numbers that the client moved to another port.
fn keep_node_ports(new: &mut Value, old: &Value) {
    let asked: HashSet<i64> = new.items("spec.ports").iter().map(|port| port.int("nodePort")).collect();
    let before: HashMap<&str, i64> =
        old.items("spec.ports").iter().map(|port| (port.text("name"), port.int("nodePort"))).collect();
    for port in new.items_mut("spec.ports") {
        if port.int("nodePort") != 0 {
            continue;
        }
        if let Some(number) = before.get(port.text("name")).filter(|number| **number != 0 && !asked.contains(number)) {
            port.put("nodePort", *number);
        }
    }
}
