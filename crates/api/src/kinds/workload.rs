//! What the kinds that keep Pods running have in common: checks of their selectors and counts, cells of their rows.
//!
//! In: objects of ReplicaSet, Deployment, StatefulSet and ReplicationController. Out: field errors as in Kubernetes.

use jiff::Timestamp;
use serde_json::Value;

use super::common::{IMMUTABLE, same};
use super::pod::template;
use crate::field::{Errors, Path};
use crate::names;
use crate::selector::{self, Selector};
use crate::table::{AGE, Column, NAME, Table, age, integer_column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

/// The place of a spec.
pub(super) const SPEC: Path<'static> = Path::Root("spec");
/// The place of a status.
pub(super) const STATUS: Path<'static> = Path::Root("status");

/// Refuses numbers below nothing.
pub(super) fn not_negative(parent: &Path<'_>, object: &Value, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        let value = object.int(field);
        if value < 0 {
            errors.invalid(&parent.child(field), value, "must be greater than or equal to 0");
        }
    }
}

/// Refuses counts in a status that are larger than the whole.
pub(super) fn not_more_than_all(status: &Value, fields: &[&str], ready: &str, errors: &mut Errors) {
    for field in fields {
        if status.int(field) > status.int("replicas") {
            errors.invalid(&STATUS.child(field), status.int(field), "cannot be greater than status.replicas");
        }
    }
    let available = status.int("availableReplicas");
    if available > status.int("readyReplicas") {
        errors.invalid(&STATUS.child("availableReplicas"), available, &format!("cannot be greater than {ready}"));
    }
}

/// Rejects a decreasing collision count: names of old revisions would be reused.
pub(super) fn collisions_only_grow(new: &Value, old: &Value, errors: &mut Errors) {
    let path = "status.collisionCount";
    if new.int(path) < old.int(path) {
        errors.invalid(&STATUS.child("collisionCount"), new.int(path), "cannot be decremented");
    }
}

/// Checks a LabelSelector that must select something; gives it back when it means anything.
pub(super) fn validate_selector(spec: &Value, owner: &str, errors: &mut Errors) -> Option<Selector> {
    let (path, object) = (SPEC.child("selector"), spec.at("selector"));
    if object.is_null() {
        errors.required(&path, "");
        return Some(Selector::default());
    }
    validate_labels_selector(&path, object, errors);
    let selector = selector::from_object(object);
    if selector.as_ref().is_some_and(Selector::is_everything) {
        errors.invalid(&path, object, &format!("empty selector is invalid for {owner}"));
    }
    selector
}

/// Checks a LabelSelector, which may be empty.
pub(super) fn validate_labels_selector(path: &Path<'_>, object: &Value, errors: &mut Errors) {
    crate::meta::validate_labels(&path.child("matchLabels"), object.at("matchLabels"), errors);
    let list = path.child("matchExpressions");
    for (index, one) in object.items("matchExpressions").iter().enumerate() {
        validate_requirement(&list.index(index), one, errors);
    }
}

fn validate_requirement(path: &Path<'_>, one: &Value, errors: &mut Errors) {
    let (values, operator) = (path.child("values"), one.text("operator"));
    match (operator, one.items("values").is_empty()) {
        ("In" | "NotIn", true) => {
            errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        ("Exists" | "DoesNotExist", false) => {
            errors.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => {}
        _ => errors.invalid(&path.child("operator"), operator, "not a valid selector operator"),
    }
    for why in names::qualified_name(one.text("key")) {
        errors.invalid(&path.child("key"), one.text("key"), &why);
    }
    for (index, value) in one.texts("values").into_iter().enumerate() {
        for why in names::label_value(value) {
            errors.invalid(&values.index(index), value, &why);
        }
    }
}

/// Checks the template of a ReplicaSet or of what makes ReplicaSets.
pub(super) fn validate_template(spec: &Value, selector: Option<&Selector>, errors: &mut Errors) {
    let path = SPEC.child("template");
    match selector {
        None => errors.invalid(&SPEC.child("selector"), spec.at("selector"), "invalid label selector"),
        Some(selector) => {
            template::validate_selected(&path, spec.at("template"), selector, errors);
            template::validate_lasting(&path, spec.at("template"), "ReplicaSet", errors);
        }
    }
}

/// Refuses a change of fields of the spec.
pub(super) fn immutable(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    for field in fields {
        let (new, old) = (new.at("spec").at(field), old.at("spec").at(field));
        if !same(new, old) {
            errors.invalid(&SPEC.child(field), new, IMMUTABLE);
        }
    }
}

/// Warns of names that make bad names of Pods.
pub(super) fn warn_of_name(object: &Value, out: &mut Vec<String>) {
    let wrong = names::dns_label(object.text("metadata.name"));
    if !wrong.is_empty() {
        out.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            wrong.join(" ")
        ));
    }
}

/// Adds warnings about the template of a new or changed object.
pub(super) fn warn_of_template(new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
    if old.is_none_or(|old| old.int("metadata.generation") != new.int("metadata.generation")) {
        template::warn(&SPEC.child("template"), new.at("spec.template"), out);
    }
}

/// One Pod by default.
pub(super) fn one_replica(object: &mut Value) {
    if !object.has("spec.replicas") {
        object.put("spec.replicas", 1);
    }
}

/// The cells of the containers and of their images.
pub(super) fn container_cells(object: &Value) -> [Value; 2] {
    let containers = object.items("spec.template.spec.containers");
    ["name", "image"].map(|field| {
        let all: Vec<&str> = containers.iter().map(|container| container.text(field)).collect();
        all.join(",").into()
    })
}

/// The cell of a selector.
pub(super) fn selector_cell(selector: &Value) -> Value {
    let text = selector::text(selector);
    or(&text, "<none>").into()
}

/// The columns of ReplicaSets and ReplicationControllers.
const REPLICAS: &[Column] = &[
    NAME,
    integer_column("Desired", "How many Pods there should be."),
    integer_column("Current", "How many there are."),
    integer_column("Ready", "How many of them are ready."),
    AGE,
    wide_column("Containers", "The names of the containers of each Pod."),
    wide_column("Images", "Their images."),
    wide_column("Selector", "The labels of its Pods."),
];

/// The table of ReplicaSets and ReplicationControllers, which differ in their selectors alone.
pub(super) const fn replicas_table(row: fn(&Value, Timestamp) -> Vec<Value>) -> Table {
    Table { columns: REPLICAS, row, conditions: no_conditions }
}

/// A row of it.
pub(super) fn replicas_row(object: &Value, now: Timestamp, selector: Value) -> Vec<Value> {
    let [containers, images] = container_cells(object);
    vec![
        object.text("metadata.name").into(),
        object.int("spec.replicas").into(),
        object.int("status.replicas").into(),
        object.int("status.readyReplicas").into(),
        age(object, now).into(),
        containers,
        images,
        selector,
    ]
}
