//! Scale: how many Pods something has and should have, the same for every kind that has some.
//!
//! It is never stored: the subresource `scale` of a kind shows it, and what is written to it becomes the kind's own
//! `spec.replicas`. So it is in no table of kinds.

use serde_json::{Value, json};

use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::selector;
use crate::table::{AGE, NAME, Table, age, integer_column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "autoscaling",
    kind: "Scale",
    plural: "scales",
    singular: "scale",
    schema: "autoscaling.Scale",
    verbs: &["get", "patch", "update"],
    table_view: &TABLE,
    ..Kind::common(&ScaleRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        integer_column("Desired", "How many Pods there should be."),
        integer_column("Available", "How many there are."),
        AGE,
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            object.int("spec.replicas").into(),
            object.int("status.replicas").into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

struct ScaleRules;

impl Rules for ScaleRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let replicas = object.int("spec.replicas");
        if replicas < 0 {
            errors.invalid(&Path::Root("spec.replicas"), replicas, "must be greater than or equal to 0");
        }
    }

    fn validate_update(&self, new: &Value, _old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
    }
}

/// The scale of an object that has Pods.
#[must_use]
pub fn of(object: &Value) -> Value {
    let selector = object.at("spec.selector");
    // A ReplicationController selects by a plain map.
    let is_map = object.text("kind") == "ReplicationController";
    let text = if is_map { selector::text(&json!({"matchLabels": selector})) } else { selector::text(selector) };
    build(object, object.int("spec.replicas"), object.int("status.replicas"), &text)
}

/// The scale of an object whose numbers are known.
pub(crate) fn build(object: &Value, replicas: i64, current: i64, selector: &str) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        let value = object.at("metadata").at(field);
        if !value.is_null() {
            metadata.put(field, value.clone());
        }
    }
    let mut scale = json!({
        "kind": KIND.kind, "apiVersion": KIND.api_version(), "metadata": metadata, "spec": {},
        "status": {"replicas": current},
    });
    if replicas != 0 {
        scale.put("spec.replicas", replicas);
    }
    if !selector.is_empty() {
        scale.put("status.selector", selector);
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_what_is_and_what_should_be() {
        let object = json!({
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}, "status": {"replicas": 2},
        });
        assert_eq!(
            of(&object),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "web", "namespace": "n", "uid": "u", "resourceVersion": "7"},
                "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=web"},
            })
        );
        let old = json!({"kind": "ReplicationController", "spec": {"selector": {"b": "2", "a": "1"}}});
        assert_eq!(of(&old).text("status.selector"), "a=1,b=2");
    }
}
