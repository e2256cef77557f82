//! Deployment: Pods of a template, replaced step by step when the template changes.

use serde_json::Value;

use super::common::same;
use super::pod::template;
use super::workload::{
    SPEC, STATUS, collisions_only_grow, container_cells, immutable, not_more_than_all, not_negative, one_replica,
    selector_cell, validate_selector, validate_template, warn_of_name, warn_of_template,
};
use crate::field::{Errors, FieldError, Path};
use crate::kind::{Kind, Rules, keep_all_but_status, keep_status, scale, status_of};
use crate::meta;
use crate::names;
use crate::portion::{self, Portion};
use crate::table::{AGE, NAME, Table, age, column, no_conditions, wide_column};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "apps",
    kind: "Deployment",
    plural: "deployments",
    singular: "deployment",
    short_names: &["deploy"],
    categories: &["all"],
    schema: "apps.Deployment",
    table: "deployments",
    subresources: &[scale(), status_of("Deployment")],
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&DeploymentRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Ready", "How many Pods are ready, of how many."),
        column("Up-to-date", "How many Pods are of the present template."),
        column("Available", "How many Pods have been ready for long enough."),
        AGE,
        wide_column("Containers", "The names of the containers of each Pod."),
        wide_column("Images", "Their images."),
        wide_column("Selector", "The labels of its Pods."),
    ],
    row: |object, now| {
        let [containers, images] = container_cells(object);
        vec![
            object.text("metadata.name").into(),
            format!("{}/{}", object.int("status.readyReplicas"), object.int("spec.replicas")).into(),
            object.int("status.updatedReplicas").into(),
            object.int("status.availableReplicas").into(),
            age(object, now).into(),
            containers,
            images,
            selector_cell(object.at("spec.selector")),
        ]
    },
    conditions: no_conditions,
};

struct DeploymentRules;

impl Rules for DeploymentRules {
    fn default(&self, object: &mut Value) {
        one_replica(object);
        template::fill(object.at_mut("spec.template"));
        if object.text("spec.strategy.type").is_empty() {
            object.put("spec.strategy.type", "RollingUpdate");
        }
        if object.text("spec.strategy.type") == "RollingUpdate" {
            for field in ["spec.strategy.rollingUpdate.maxUnavailable", "spec.strategy.rollingUpdate.maxSurge"] {
                set(object, field, "25%");
            }
        }
        set(object, "spec.revisionHistoryLimit", 10);
        set(object, "spec.progressDeadlineSeconds", 600);
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        match old.at("metadata.labels") {
            Value::Null => drop(new.drop_path("metadata.labels")),
            labels => new.put("metadata.labels", labels.clone()),
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate_spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new.at("spec"), errors);
        immutable(new, old, &["selector"], errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let status = new.at("status");
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        not_negative(&STATUS, status, &["observedGeneration", "replicas"], errors);
        not_negative(&STATUS, status, &parts, errors);
        not_negative(&STATUS, status, &["unavailableReplicas", "terminatingReplicas", "collisionCount"], errors);
        not_more_than_all(status, &parts, "readyReplicas", errors);
        collisions_only_grow(new, old, errors);
    }

    /// Annotations are copied to the ReplicaSets, so a change of them is news.
    fn new_generation(&self, new: &Value, old: &Value) -> bool {
        new.at("spec") != old.at("spec") || !same(new.at("metadata.annotations"), old.at("metadata.annotations"))
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() {
            warn_of_name(new, out);
        }
        warn_of_template(new, old, out);
    }
}

fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if !object.has(field) {
        object.put(field, value);
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    not_negative(&SPEC, spec, &["replicas"], errors);
    let selector = validate_selector(spec, "deployment", errors);
    validate_template(spec, selector.as_ref(), errors);
    validate_strategy(&SPEC.child("strategy"), spec.at("strategy"), errors);
    not_negative(&SPEC, spec, &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"], errors);
    let deadline = spec.at("progressDeadlineSeconds").as_i64();
    if let Some(deadline) = deadline.filter(|deadline| *deadline <= spec.int("minReadySeconds")) {
        errors.invalid(&SPEC.child("progressDeadlineSeconds"), deadline, "must be greater than minReadySeconds");
    }
}

fn validate_strategy(path: &Path<'_>, strategy: &Value, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if !rolling.is_null() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden(&path.child("rollingUpdate"), detail);
            }
        }
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            portion::validate(&path.child("maxUnavailable"), unavailable, errors);
            portion::validate(&path.child("maxSurge"), surge, errors);
            let is_none = |value: &Value| Portion::read(value).is_none_or(|portion| portion.written() == 0);
            if is_none(unavailable) && is_none(surge) {
                errors.invalid(&path.child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0");
            }
            portion::validate_part(&path.child("maxUnavailable"), unavailable, errors);
        }
        other => {
            let body = format!(
                "Unsupported value: {{\"Type\":{},\"RollingUpdate\":{rolling}}}: supported values: \"Recreate\", \
                 \"RollingUpdate\"",
                Value::from(other)
            );
            errors.0.push(FieldError { reason: "FieldValueNotSupported", field: path.to_string(), body });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn deployment() -> Value {
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]},
                },
            },
        });
        DeploymentRules.default(&mut object);
        object
    }

    fn wrong(field: &str, value: Value) -> String {
        let mut object = deployment();
        object.put(field, value);
        summary(|errors| DeploymentRules.validate_create(&object, errors))
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let object = deployment();
        assert_eq!(
            object.at("spec.strategy"),
            &json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
        );
        assert_eq!(object.int("spec.revisionHistoryLimit"), 10);
        assert_eq!(object.int("spec.progressDeadlineSeconds"), 600);
        assert_eq!(summary(|errors| DeploymentRules.validate_create(&object, errors)), "[]");
        let mut recreate = json!({"spec": {"strategy": {"type": "Recreate"}}});
        DeploymentRules.default(&mut recreate);
        assert!(!recreate.has("spec.strategy.rollingUpdate"));
    }

    #[test]
    fn strategies_are_checked() {
        assert_eq!(
            wrong("spec.strategy.type", json!("Recreate")),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"
        );
        assert_eq!(
            wrong("spec.strategy", json!({"type": "Canary"})),
            "spec.strategy: Unsupported value: {\"Type\":\"Canary\",\"RollingUpdate\":null}: supported values: \
             \"Recreate\", \"RollingUpdate\""
        );
        assert_eq!(
            wrong("spec.strategy.rollingUpdate", json!({"maxSurge": 0, "maxUnavailable": "0%"})),
            "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"
        );
        assert_eq!(
            wrong("spec.strategy.rollingUpdate", json!({"maxSurge": "ten", "maxUnavailable": "101%"})),
            "[spec.strategy.rollingUpdate.maxSurge: Invalid value: \"ten\": a valid percent string must be a numeric \
             string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%'), \
             spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%]"
        );
        assert_eq!(
            wrong("spec.minReadySeconds", json!(600)),
            "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"
        );
    }

    #[test]
    fn annotations_make_a_new_generation_and_labels_are_no_status() {
        let (old, mut new) = (deployment(), deployment());
        assert!(!DeploymentRules.new_generation(&new, &old));
        new.put("metadata.annotations", json!({"a": "b"}));
        assert!(DeploymentRules.new_generation(&new, &old));
        new.put("metadata.labels", json!({"a": "b"}));
        new.put("spec.replicas", 7);
        DeploymentRules.prepare_status(&mut new, &old);
        assert!(!new.has("metadata.labels") && new.int("spec.replicas") == 1);
    }
}
