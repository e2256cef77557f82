//! Pod: containers that run together and share an address.
//!
//! ```text
//! defaults ─▶ admission (tolerations, priority) and QoS class ─▶ spec, containers, handlers ─▶ change ─▶ table
//! ```
//! The server of Services needs Pods for their labels, ports and addresses; the checks cover that and what authors get
//! wrong most. Who places and runs Pods is elsewhere.

mod change;
mod containers;
mod defaults;
mod handlers;
pub(crate) mod qos;
mod spec;
mod table;
pub(super) mod template;
#[cfg(test)]
mod tests;
mod volumes;
mod warn;

use serde_json::{Value, json};

use crate::field::{Errors, Path};
use crate::ip;
use crate::kind::{Kind, Rules, Selectable, Subresource, keep_all_but_status, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::value::ValueExt as _;
use crate::view::taints;

const CONNECT: &[&str] = &["create", "get"];
/// The subresource with which a Pod gets its node.
pub const BINDING: &str = "binding";

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Pod",
    plural: "pods",
    singular: "pod",
    short_names: &["po"],
    categories: &["all"],
    schema: "core.Pod",
    table: "pods",
    subresources: &[
        Subresource { name: "attach", kind: "PodAttachOptions", verbs: CONNECT },
        Subresource { name: BINDING, kind: "Binding", verbs: &["create"] },
        Subresource { name: "ephemeralcontainers", kind: "Pod", verbs: &["get", "patch", "update"] },
        Subresource { name: "eviction", kind: "Eviction", verbs: &["create"] },
        Subresource { name: "exec", kind: "PodExecOptions", verbs: CONNECT },
        Subresource { name: "log", kind: "Pod", verbs: &["get"] },
        Subresource { name: "portforward", kind: "PodPortForwardOptions", verbs: CONNECT },
        Subresource { name: "proxy", kind: "PodProxyOptions", verbs: &["create", "delete", "get", "patch", "update"] },
        Subresource { name: "resize", kind: "Pod", verbs: &["get", "patch", "update"] },
        status_of("Pod"),
    ],
    delete_returns_object: true,
    generation: true,
    selectable: &[
        Selectable { label: "spec.host", value: |pod| pod.text("spec.nodeName").to_owned() },
        Selectable { label: "spec.hostNetwork", value: |pod| pod.flag("spec.hostNetwork").to_string() },
        Selectable { label: "spec.nodeName", value: |pod| pod.text("spec.nodeName").to_owned() },
        Selectable { label: "spec.restartPolicy", value: |pod| pod.text("spec.restartPolicy").to_owned() },
        Selectable { label: "spec.schedulerName", value: |pod| pod.text("spec.schedulerName").to_owned() },
        Selectable { label: "spec.serviceAccountName", value: |pod| pod.text("spec.serviceAccountName").to_owned() },
        Selectable { label: "status.nominatedNodeName", value: |pod| pod.text("status.nominatedNodeName").to_owned() },
        Selectable { label: "status.phase", value: |pod| pod.text("status.phase").to_owned() },
        Selectable {
            label: "status.podIP",
            value: |pod| pod.at("status.podIPs").get(0).map_or("", |ip| ip.text("ip")).to_owned(),
        },
        // Accepted by kube-apiserver, which then never finds anything.
        Selectable { label: "status.podIPs", value: |_| String::new() },
    ],
    table_view: &table::TABLE,
    ..Kind::common(&PodRules)
};

struct PodRules;

impl Rules for PodRules {
    fn default(&self, object: &mut Value) {
        defaults::fill(object);
    }

    fn is_graceful(&self) -> bool {
        true
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> i64 {
        grace_period(object, asked)
    }

    fn prepare_create(&self, object: &mut Value) {
        add_default_tolerations(object);
        let mut status = json!({"phase": "Pending", "qosClass": qos::class(object)});
        if !object.items("spec.schedulingGates").is_empty() {
            status["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": null,
                "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
        object.put("status", status);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        add_default_tolerations(new);
        for field in ["spec.priority", "spec.preemptionPolicy", "spec.resources"] {
            if !new.has(field) && old.has(field) {
                new.put(field, old.at(field).clone());
            }
        }
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        for field in ["metadata.deletionTimestamp", "metadata.ownerReferences"] {
            if old.has(field) {
                new.put(field, old.at(field).clone());
            } else {
                new.drop_path(field);
            }
        }
        // What an older agent does not know it leaves out; that must not erase it.
        for field in
            ["qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses"]
        {
            let path = format!("status.{field}");
            if !new.has(&path) && old.has(&path) {
                new.put(&path, old.at(&path).clone());
            }
        }
        keep_observed_generations(new, old);
    }

    /// A binding changes nothing of the Pod but its node ([`bind`]).
    fn prepare_part(&self, part: &str, new: &mut Value, old: &Value) {
        if part != BINDING {
            self.prepare_status(new, old);
        }
    }

    fn validate_part(&self, part: &str, new: &Value, old: &Value, errors: &mut Errors) {
        if part == BINDING {
            meta::validate_update(new, old, errors);
        } else {
            self.validate_status(new, old, errors);
        }
    }

    /// Where a Pod runs is nothing that its author changed.
    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        let all = |pod: &Value| pod.map("spec").map_or(0, serde_json::Map::len) - usize::from(pod.has("spec.nodeName"));
        let differs =
            |(field, value): (&String, &Value)| field != "nodeName" && old.at("spec").get(field) != Some(value);
        all(new) != all(old) || new.map("spec").into_iter().flatten().any(differs)
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        let spec = object.at("spec");
        spec::validate(&Path::Root("spec"), spec, errors);
        containers::validate_images(spec, errors);
        if !spec.items("ephemeralContainers").is_empty() {
            errors.forbidden(&Path::Root("spec.ephemeralContainers"), "cannot be set on create");
        }
        if !spec.text("nodeName").is_empty() && !spec.items("schedulingGates").is_empty() {
            let detail = "cannot be set until all schedulingGates have been cleared";
            errors.forbidden(&Path::Root("spec.nodeName"), detail);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        meta::validate(new, true, names::name_is_subdomain, errors);
        spec::validate(&Path::Root("spec"), new.at("spec"), errors);
        containers::validate_images(new.at("spec"), errors);
        change::validate_spec(new, old, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        change::validate_status(new, old, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() {
            warn::collect(new, out);
        }
    }

    fn status_warnings(&self, new: &Value, _old: &Value, out: &mut Vec<String>) {
        for list in ["podIPs", "hostIPs"] {
            let status = Path::Root("status");
            let path = status.child(list);
            for (index, address) in new.at("status").items(list).iter().enumerate() {
                ip::warn_address(&path.index(index).child("ip"), address.text("ip"), out);
            }
        }
    }
}

/// Gives a Pod its node.
///
/// # Errors
/// Why it cannot have one.
pub fn bind(pod: &mut Value, node: &str, now: &str) -> Result<(), String> {
    let name = pod.text("metadata.name");
    if pod.has("metadata.deletionTimestamp") {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !pod.text("spec.nodeName").is_empty() {
        return Err(format!("pod {name} is already assigned to node {:?}", pod.text("spec.nodeName")));
    }
    if !pod.items("spec.schedulingGates").is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.put("spec.nodeName", node);
    let mut conditions = pod.items("status.conditions").to_vec();
    conditions.retain(|condition| condition.text("type") != "PodScheduled");
    conditions.push(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    }));
    pod.put("status.conditions", conditions);
    Ok(())
}

/// A Pod tolerates a short absence of its node, unless it sets its own tolerations.
fn add_default_tolerations(pod: &mut Value) {
    let mut tolerations = pod.items("spec.tolerations").to_vec();
    let before = tolerations.len();
    for taint in [taints::NOT_READY, taints::UNREACHABLE] {
        let tolerated = tolerations[..before].iter().any(|toleration| {
            let (key, effect) = (toleration.text("key"), toleration.text("effect"));
            (key == taint || key.is_empty()) && matches!(effect, "NoExecute" | "")
        });
        if !tolerated {
            tolerations
                .push(json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    if tolerations.len() > before {
        pod.put("spec.tolerations", tolerations);
    }
}

/// The generations that an older agent did not report stay as they were.
fn keep_observed_generations(new: &mut Value, old: &Value) {
    if new.int("status.observedGeneration") == 0 && old.int("status.observedGeneration") != 0 {
        new.put("status.observedGeneration", old.int("status.observedGeneration"));
    }
    for condition in new.items_mut("status.conditions") {
        let kind = condition.text("type");
        let before = old.items("status.conditions").iter().find(|before| before.text("type") == kind);
        let generation = before.map_or(0, |before| before.int("observedGeneration"));
        if condition.int("observedGeneration") == 0 && generation != 0 {
            condition.put("observedGeneration", generation);
        }
    }
}

/// Grace period of a deleted Pod: as requested, or as in its spec; none when no node runs it.
#[must_use]
fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let idle = pod.text("spec.nodeName").is_empty() || matches!(pod.text("status.phase"), "Failed" | "Succeeded");
    match asked.unwrap_or_else(|| pod.int("spec.terminationGracePeriodSeconds")) {
        _ if idle => 0,
        negative if negative < 0 => 1,
        seconds => seconds,
    }
}
