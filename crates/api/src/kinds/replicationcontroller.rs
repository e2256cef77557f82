//! ReplicationController: a number of Pods of one template; the predecessor of ReplicaSets.

use serde_json::Value;

use super::pod::template;
use super::replicaset::validate_counts;
use super::workload::{SPEC, not_negative, one_replica, replicas_row, replicas_table, warn_of_name, warn_of_template};
use crate::field::Errors;
use crate::kind::{Kind, Rules, Selectable, keep_status, scale, status_of};
use crate::meta;
use crate::names;
use crate::selector;
use crate::table::{Table, or};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    short_names: &["rc"],
    categories: &["all"],
    schema: "core.ReplicationController",
    table: "controllers",
    subresources: &[scale(), status_of("ReplicationController")],
    generation: true,
    selectable: &[Selectable { label: "status.replicas", value: |set| set.int("status.replicas").to_string() }],
    table_view: &TABLE,
    ..Kind::common(&ControllerRules)
};

static TABLE: Table = replicas_table(|controller, now| {
    let labels = controller.map("spec.selector").into_iter().flatten();
    let labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    replicas_row(controller, now, or(&labels.join(","), "<none>").into())
});

struct ControllerRules;

impl Rules for ControllerRules {
    /// Labels that its author gave only to the template are its own and its selector, too.
    fn default(&self, object: &mut Value) {
        one_replica(object);
        template::fill(object.at_mut("spec.template"));
        let labels = object.at("spec.template.metadata.labels").clone();
        if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
            for field in ["spec.selector", "metadata.labels"] {
                if object.map(field).is_none_or(serde_json::Map::is_empty) {
                    object.put(field, labels.clone());
                }
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate_spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new.at("spec"), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_counts(new.at("status"), errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() {
            warn_of_name(new, out);
        }
        warn_of_template(new, old, out);
    }

    fn orphans_dependents(&self) -> bool {
        true
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    not_negative(&SPEC, spec, &["minReadySeconds"], errors);
    let selector = selector::from_map(spec.at("selector"));
    if selector.is_everything() {
        errors.required(&SPEC.child("selector"), "");
    }
    not_negative(&SPEC, spec, &["replicas"], errors);
    let path = SPEC.child("template");
    if !spec.has("template") {
        errors.required(&path, "");
        return;
    }
    template::validate_selected(&path, spec.at("template"), &selector, errors);
    template::validate_lasting(&path, spec.at("template"), "ReplicationController", errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    #[test]
    fn labels_of_the_template_are_the_default_selector() {
        let mut object = json!({
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {"template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
            }},
        });
        ControllerRules.default(&mut object);
        assert_eq!(object.at("spec.selector"), &json!({"app": "web"}));
        assert_eq!(object.at("metadata.labels"), &json!({"app": "web"}));
        assert_eq!(summary(|errors| ControllerRules.validate_create(&object, errors)), "[]");
    }

    #[test]
    fn a_template_is_needed() {
        let object = json!({"metadata": {"name": "web", "namespace": "n"}, "spec": {"replicas": 1}});
        assert_eq!(
            summary(|errors| ControllerRules.validate_create(&object, errors)),
            "[spec.selector: Required value, spec.template: Required value]"
        );
    }
}
