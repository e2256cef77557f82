//! What may change of a Pod once it exists: images, its deadline, more tolerations, and the status by its node.

use std::collections::HashSet;

use serde_json::Value;

use super::spec;
use crate::field::{Errors, FieldError, Path};
use crate::ip::{self, Family};
use crate::kinds::common::{immutable_text, invalid_struct, report, same};
use crate::meta;
use crate::names;
use crate::value::ValueExt as _;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
     `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
     set to 1 if it was previously negative)";

/// Checks that an update of the spec changes only what may change.
pub(super) fn validate_spec(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (new.at("spec"), old.at("spec"));
    for list in ["containers", "initContainers"] {
        if !check_containers(list, new.items(list), old.items(list), errors) {
            return;
        }
    }
    if !check_deadline(new, old, errors) {
        return;
    }
    check_tolerations(new, old, errors);
    check_scheduling_gates(new, old, errors);
    if same(new, old) {
        return;
    }
    let changed: Vec<&str> = changed_fields(new, old);
    if !changed.is_empty() {
        let detail =
            format!("pod updates may not change fields other than {UPDATABLE}\nchanged: {}", changed.join(", "));
        errors.forbidden(&Path::Root("spec"), &detail);
    }
}

/// Checks that containers stay, with images; returns whether to continue.
fn check_containers(list: &str, new: &[Value], old: &[Value], errors: &mut Errors) -> bool {
    let spec = Path::Root("spec");
    let path = spec.child(list);
    if new.len() != old.len() {
        errors.forbidden(&path, "pod updates may not add or remove containers");
        return false;
    }
    for (index, container) in new.iter().enumerate() {
        if container.text("image").is_empty() {
            errors.required(&path.index(index).child("image"), "");
        }
    }
    true
}

/// A deadline may be set or moved forward, not removed or extended; returns whether to continue.
fn check_deadline(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let path = Path::Root("spec.activeDeadlineSeconds");
    let seconds = |spec: &Value| spec.at("activeDeadlineSeconds").as_i64();
    match (seconds(new), seconds(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(&path, new, "must be between 0 and 2147483647, inclusive");
            false
        }
        (Some(new), Some(old)) if old < new => {
            errors.invalid(&path, new, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

/// Tolerations may be added, and their time may change.
fn check_tolerations(new: &Value, old: &Value, errors: &mut Errors) {
    let timeless =
        |toleration: &Value| ["key", "operator", "value", "effect"].map(|field| toleration.text(field).to_owned());
    let have: HashSet<_> = new.items("tolerations").iter().map(timeless).collect();
    if !old.items("tolerations").iter().all(|toleration| have.contains(&timeless(toleration))) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(&Path::Root("spec.tolerations"), detail);
    } else {
        spec::validate_tolerations(&Path::Root("spec.tolerations"), new, errors);
    }
}

fn check_scheduling_gates(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::Root("spec.schedulingGates");
    let known: HashSet<&str> = old.items("schedulingGates").iter().map(|gate| gate.text("name")).collect();
    for (index, gate) in new.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        if !known.contains(name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&path.index(index).child("name"), &detail);
        }
    }
}

/// The members of the spec that changed although they may not.
fn changed_fields<'s>(new: &'s Value, old: &'s Value) -> Vec<&'s str> {
    let keys = |spec: &'s Value| spec.as_object().into_iter().flat_map(|map| map.keys().map(String::as_str));
    let mut fields: Vec<&str> = keys(new).chain(keys(old)).filter(|field| is_changed(field, new, old)).collect();
    fields.sort_unstable();
    fields.dedup();
    fields
}

fn is_changed(field: &str, new: &Value, old: &Value) -> bool {
    let gated = !old.items("schedulingGates").is_empty();
    match field {
        "activeDeadlineSeconds" | "schedulingGates" | "tolerations" => false,
        // Where a Pod may go can be narrowed while it waits to be scheduled.
        "nodeSelector" if gated => {
            old.map(field).into_iter().flatten().any(|(key, value)| new.at(field).get(key) != Some(value))
        }
        "terminationGracePeriodSeconds" if old.int(field) < 0 && new.int(field) == 1 => false,
        "containers" | "initContainers" => new.items(field).iter().zip(old.items(field)).any(|(new, old)| {
            let mut new = new.clone();
            new.put("image", old.text("image"));
            !same(&new, old)
        }),
        _ => !same(new.at(field), old.at(field)),
    }
}

/// Checks a change of the status.
pub(super) fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    meta::validate_update(new, old, errors);
    let path = Path::Root("status");
    let conditions = path.child("conditions");
    for (index, condition) in new.items("status.conditions").iter().enumerate() {
        let path = conditions.index(index);
        if condition.int("observedGeneration") < 0 {
            let generation = condition.int("observedGeneration");
            errors.invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer");
        }
        let kind = condition.text("type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            report(&path.child("Type"), kind, names::qualified_name(kind), errors);
        }
    }
    let (node, before) = (new.text("status.nominatedNodeName"), old.text("status.nominatedNodeName"));
    if node != before && !node.is_empty() {
        let path = path.child("nominatedNodeName");
        report(&path, node, names::name_is_subdomain(node, false), errors);
        if !old.text("spec.nodeName").is_empty() {
            errors.forbidden(&path, "may not be set on pods that are already bound to a node");
        }
    }
    if new.int("status.observedGeneration") < 0 {
        let generation = new.int("status.observedGeneration");
        errors.invalid(&path.child("observedGeneration"), generation, "must be a non-negative integer");
    }
    immutable_text(&path.child("qosClass"), new.text("status.qosClass"), old.text("status.qosClass"), errors);
    check_restarts(new, old, errors);
    check_addresses("podIP", "podIPs", new, old, errors);
    check_addresses("hostIP", "hostIPs", new, old, errors);
}

/// A container that ended stays ended unless the Pod restarts it.
fn check_restarts(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::Root("status.containerStatuses");
    for (index, before) in old.items("status.containerStatuses").iter().enumerate() {
        let terminated = before.at("state.terminated");
        let name = before.text("name");
        let container = old.items("spec.containers").iter().find(|container| container.text("name") == name);
        let policy = container.map_or("", |container| container.text("restartPolicy"));
        let policy = crate::table::or(policy, old.text("spec.restartPolicy"));
        let restarts = match policy {
            "Never" => false,
            "OnFailure" => terminated.int("exitCode") != 0,
            _ => true,
        };
        let now = new.items("status.containerStatuses").iter().find(|status| status.text("name") == name);
        if !terminated.is_null() && !restarts && now.is_some_and(|status| !status.has("state.terminated")) {
            let detail = "may not be transitioned to non-terminated state";
            errors.forbidden(&path.index(index).child("state"), detail);
        }
    }
}

/// One address for each family at most, and the single field is the first of the list.
fn check_addresses(one: &str, list: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let status = Path::Root("status");
    let path = status.child(list);
    let addresses: Vec<&str> = new.at("status").items(list).iter().map(|address| address.text("ip")).collect();
    let known: Vec<&str> = old.at("status").items(list).iter().map(|address| address.text("ip")).collect();
    for (index, address) in addresses.iter().enumerate() {
        ip::check_address(&path.index(index), address, &known, errors);
    }
    let printed = || {
        let items: Vec<String> = addresses.iter().map(|ip| format!("{{\"IP\":{}}}", Value::from(*ip))).collect();
        if items.is_empty() { "null".to_owned() } else { format!("[{}]", items.join(",")) }
    };
    if addresses.len() > 1 {
        let unreadable = addresses.iter().position(|address| ip::parse_lenient(address).is_none());
        if let Some(index) = unreadable {
            let body =
                format!("Internal error: failed to check for dual stack with error:ip {} is invalid", addresses[index]);
            errors.0.push(FieldError { reason: "InternalError", field: path.to_string(), body });
        }
        let families: HashSet<Family> =
            addresses.iter().filter_map(|ip| ip::parse_lenient(ip)).map(Family::of).collect();
        if unreadable.is_some() || families.len() != 2 || addresses.len() > 2 {
            invalid_struct(&path, &printed(), "may specify no more than one IP for each IP family", errors);
        }
    }
    let single = new.at("status").text(one);
    // Defaults keep podIP and podIPs together; hostIPs stand alone.
    if let Some(first) = addresses.first()
        && *first != single
    {
        errors.invalid(&path.index(0).child("ip"), *first, &format!("must be equal to `{one}`"));
    }
}
