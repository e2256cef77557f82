//! Node: a machine that runs Pods and proxies Services.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::common::{duplicate_struct, go_struct, report};
use crate::field::{Errors, FieldError, Path};
use crate::ip::{self, Family};
use crate::kind::{Kind, Rules, Selectable, Subresource, keep_all_but_status, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;
use crate::view::taints::NOT_READY;

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

/// What a taint does to Pods, in the order of messages.
pub(super) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    namespaced: false,
    schema: "core.Node",
    table: "minions",
    subresources: &[
        Subresource { name: "proxy", kind: "NodeProxyOptions", verbs: &["create", "delete", "get", "patch", "update"] },
        status_of("Node"),
    ],
    selectable: &[Selectable {
        label: "spec.unschedulable",
        value: |object| object.flag("spec.unschedulable").to_string(),
    }],
    table_view: &TABLE,
    ..Kind::common(&NodeRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Status", "Whether the node is ready and takes new Pods."),
        column("Roles", "What the node's labels say it is for."),
        AGE,
        column("Version", "The version of its agent."),
        wide_column("Internal-IP", "Its address inside the cluster."),
        wide_column("External-IP", "Its address outside the cluster."),
        wide_column("OS-Image", "Its operating system."),
        wide_column("Kernel-Version", "Its kernel and architecture."),
        wide_column("Container-Runtime", "What runs its containers."),
    ],
    row,
    conditions: no_conditions,
};

struct NodeRules;

impl Rules for NodeRules {
    fn default(&self, object: &mut Value) {
        sync_pod_cidrs(object);
        if !object.has("status.allocatable") && object.has("status.capacity") {
            let capacity = object.at("status.capacity").clone();
            object.put("status.allocatable", capacity);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        for field in ["spec.configSource", "status.config", "spec.podPreemptionPolicy"] {
            object.drop_path(field);
        }
        // A new node is not ready until a controller sets it; without the taint Pods could be placed in between.
        let taints = object.items("spec.taints");
        if !taints.iter().any(|taint| taint.text("key") == NOT_READY && taint.text("effect") == "NoSchedule") {
            let mut taints = taints.to_vec();
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            object.put("spec.taints", taints);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        for field in ["spec.configSource", "spec.podPreemptionPolicy"] {
            if !old.has(field) {
                new.drop_path(field);
            }
        }
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        if !old.has("status.config") {
            new.drop_path("status.config");
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_subdomain, errors);
        validate_taints(object.items("spec.taints"), errors);
        validate_declared_features(object, errors);
        validate_pod_cidrs(object.items("spec.podCIDRs"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        self.validate_create(new, errors);
        validate_change(new, old, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_change(new, old, errors);
    }

    fn warnings(&self, new: &Value, _old: Option<&Value>, out: &mut Vec<String>) {
        if new.has("spec.configSource") {
            out.push("spec.configSource: the feature is removed".to_owned());
        }
        if !new.text("spec.externalID").is_empty() {
            out.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let path = Path::Root("spec.podCIDRs");
        for (index, cidr) in new.texts("spec.podCIDRs").into_iter().enumerate() {
            ip::warn_cidr(&path.index(index), cidr, out);
        }
    }
}

/// The old single field wins over the list when they disagree, for old clients.
fn sync_pod_cidrs(object: &mut Value) {
    let (one, first) = (object.text("spec.podCIDR"), object.at("spec.podCIDRs").get(0));
    let first = first.and_then(Value::as_str).unwrap_or_default();
    if one == first {
        return;
    }
    if one.is_empty() {
        let first = first.to_owned();
        object.put("spec.podCIDR", first);
    } else {
        let list = json!([one]);
        object.put("spec.podCIDRs", list);
    }
}

fn validate_taints(taints: &[Value], errors: &mut Errors) {
    // kube-apiserver reports taints under metadata.
    let list = Path::Root("metadata.taints");
    let mut seen = HashSet::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = list.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        report(&path.child("key"), key, names::qualified_name(key), errors);
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.invalid(&path.child("value"), value, &wrong.join(";"));
        }
        if effect.is_empty() {
            errors.required(&path.child("effect"), "");
        } else if !EFFECTS.contains(&effect) {
            errors.not_supported(&path.child("effect"), effect, EFFECTS);
        }
        if !seen.insert((key, effect)) {
            let members = [("Key", "key"), ("Value", "value"), ("Effect", "effect"), ("TimeAdded", "timeAdded?")];
            let detail = "taints must be unique by key and effect pair";
            duplicate_struct(&path, &go_struct(taint, &members), detail, errors);
        }
    }
}

/// Features are listed once each, in order.
fn validate_declared_features(object: &Value, errors: &mut Errors) {
    let path = Path::Root("status.declaredFeatures");
    let features = object.texts("status.declaredFeatures");
    for (index, pair) in features.windows(2).enumerate() {
        match pair[0].cmp(pair[1]) {
            std::cmp::Ordering::Equal => errors.duplicate(&path.index(index + 1), pair[1]),
            std::cmp::Ordering::Greater => {
                errors.invalid(&path.index(index + 1), pair[1], "list must be sorted alphabetically");
            }
            std::cmp::Ordering::Less => {}
        }
    }
}

fn validate_pod_cidrs(cidrs: &[Value], errors: &mut Errors) {
    let path = Path::Root("spec.podCIDRs");
    let mut families = HashSet::new();
    let mut unreadable = None;
    for (index, cidr) in cidrs.iter().enumerate() {
        let text = cidr.as_str().unwrap_or_default();
        ip::check_cidr(&path.index(index), text, &[], errors);
        match text.split_once('/').and_then(|(address, _)| ip::parse_lenient(address)) {
            Some(address) => {
                families.insert(Family::of(address));
            }
            None => unreadable = unreadable.or(Some((index, text))),
        }
    }
    if cidrs.len() < 2 {
        return;
    }
    if let Some((index, text)) = unreadable {
        let why = format!("invalid CIDR[{index}]: <nil> (invalid CIDR address: {text})");
        let body = format!("Internal error: invalid PodCIDRs. failed to check with dual stack with error:{why}");
        errors.0.push(FieldError { reason: "InternalError", field: path.to_string(), body });
    }
    if unreadable.is_some() || families.len() != 2 || cidrs.len() > 2 {
        errors.invalid(&path, Value::from(cidrs.to_vec()), "may specify no more than one CIDR for each IP family");
    }
}

/// What may not change, on the main resource and on its status.
fn validate_change(new: &Value, old: &Value, errors: &mut Errors) {
    let mut addresses = HashSet::new();
    let path = Path::Root("status.addresses");
    for (index, address) in new.items("status.addresses").iter().enumerate() {
        if !addresses.insert((address.text("type"), address.text("address"))) {
            let printed = go_struct(address, &[("Type", "type"), ("Address", "address")]);
            duplicate_struct(&path.index(index), &printed, "", errors);
        }
    }
    let (cidrs, before) = (new.items("spec.podCIDRs"), old.items("spec.podCIDRs"));
    if !before.is_empty() {
        let changes = if cidrs.len() == before.len() {
            cidrs.iter().zip(before).filter(|(new, old)| new != old).count()
        } else {
            1
        };
        for _ in 0..changes {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            errors.forbidden(&Path::Root("spec.podCIDRs"), detail);
        }
    }
    let (provider, before) = (new.text("spec.providerID"), old.text("spec.providerID"));
    if !before.is_empty() && provider != before {
        let what = if provider.is_empty() { "cleared" } else { "modified" };
        errors.invalid(&Path::Root("spec.providerID"), Value::Null, &format!("field cannot be {what} once set"));
    }
    validate_taints(new.items("spec.taints"), errors);
    if new.text("spec.externalID") != old.text("spec.externalID") {
        errors.forbidden(&Path::Root("spec.externalID"), "may not be updated");
    }
}

fn row(node: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let ready = node.items("status.conditions").iter().rfind(|condition| condition.text("type") == "Ready");
    let mut status = match ready.map(|condition| condition.text("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node.flag("spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let found = node.items("status.addresses").iter().find(|address| address.text("type") == kind);
        found.map_or("<none>", |address| address.text("address")).to_owned()
    };
    let info = node.at("status.nodeInfo");
    let mut kernel = or(info.text("kernelVersion"), "<unknown>").to_owned();
    if !info.text("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info.text("architecture"));
    }
    vec![
        node.text("metadata.name").into(),
        status.into(),
        roles_cell(node).into(),
        age(node, now).into(),
        info.text("kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        or(info.text("osImage"), "<unknown>").into(),
        kernel.into(),
        or(info.text("containerRuntimeVersion"), "<unknown>").into(),
    ]
}

fn roles_cell(node: &Value) -> String {
    let role = |(key, value): (&String, &Value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role.to_owned()),
        None if key == ROLE_LABEL => value.as_str().map(str::to_owned),
        None => None,
    };
    let labels = node.map("metadata.labels").into_iter().flatten();
    let mut roles: Vec<String> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort_unstable();
    roles.dedup();
    or(&roles.join(","), "<none>").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::{golden, summary, table_golden};

    #[test]
    fn golden_answers() {
        golden("pod-node", &KIND);
        golden("delete", &KIND);
        table_golden("table.nodes", &KIND);
    }

    fn node(spec: &Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"}, "spec": spec})
    }

    #[test]
    fn one_cidr_for_each_family() {
        let check =
            |cidrs: Value| summary(|errors| NodeRules.validate_create(&node(&json!({"podCIDRs": cidrs})), errors));
        assert_eq!(check(json!(["10.0.0.0/24", "fd00::/64"])), "[]");
        assert_eq!(
            check(json!(["10.0.0.0/24", "10.0.1.0/24"])),
            "spec.podCIDRs: Invalid value: [\"10.0.0.0/24\",\"10.0.1.0/24\"]: may specify no more than one CIDR for \
             each IP family"
        );
    }

    #[test]
    fn the_single_cidr_wins() {
        let mut object = node(&json!({"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]}));
        NodeRules.default(&mut object);
        assert_eq!(object.at("spec.podCIDRs"), &json!(["10.1.0.0/24"]));
        let mut object = node(&json!({"podCIDRs": ["10.0.0.0/24"]}));
        NodeRules.default(&mut object);
        assert_eq!(object.text("spec.podCIDR"), "10.0.0.0/24");
    }

    #[test]
    fn taints_are_unique() {
        let taint = json!({"key": "a", "effect": "NoExecute"});
        let object = node(&json!({"taints": [taint, taint, {"key": "a", "effect": "Never"}]}));
        assert_eq!(
            summary(|errors| NodeRules.validate_create(&object, errors)),
            "[metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoExecute\",\
             \"TimeAdded\":null}: taints must be unique by key and effect pair, metadata.taints[2].effect: Unsupported \
             value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"]"
        );
    }

    #[test]
    fn identities_stay() {
        let old = node(&json!({"providerID": "a"}));
        for (id, what) in [("", "cleared"), ("b", "modified")] {
            let new = node(&json!({"providerID": id}));
            assert_eq!(
                summary(|errors| NodeRules.validate_update(&new, &old, errors)),
                format!("spec.providerID: Invalid value: null: field cannot be {what} once set")
            );
        }
    }

    #[test]
    fn addresses_are_listed_once() {
        let old = node(&json!({}));
        let mut new = old.clone();
        let address = json!({"type": "InternalIP", "address": "1.2.3.4"});
        new.put("status.addresses", json!([address, address]));
        assert_eq!(
            summary(|errors| NodeRules.validate_status(&new, &old, errors)),
            "status.addresses[1]: Duplicate value: {\"Type\":\"InternalIP\",\"Address\":\"1.2.3.4\"}"
        );
    }
}
