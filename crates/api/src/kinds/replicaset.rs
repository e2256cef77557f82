//! ReplicaSet: a number of Pods of one template.

use serde_json::Value;

use super::pod::template;
use super::workload::{
    SPEC, STATUS, immutable, not_more_than_all, not_negative, one_replica, replicas_row, replicas_table, selector_cell,
    validate_selector, validate_template, warn_of_name, warn_of_template,
};
use crate::field::Errors;
use crate::kind::{Kind, Rules, Selectable, keep_status, scale, status_of};
use crate::meta;
use crate::names;
use crate::table::Table;
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "apps",
    kind: "ReplicaSet",
    plural: "replicasets",
    singular: "replicaset",
    short_names: &["rs"],
    categories: &["all"],
    schema: "apps.ReplicaSet",
    table: "replicasets",
    subresources: &[scale(), status_of("ReplicaSet")],
    generation: true,
    selectable: &[Selectable { label: "status.replicas", value: |set| set.int("status.replicas").to_string() }],
    table_view: &TABLE,
    ..Kind::common(&ReplicaSetRules)
};

static TABLE: Table = replicas_table(|set, now| replicas_row(set, now, selector_cell(set.at("spec.selector"))));

struct ReplicaSetRules;

impl Rules for ReplicaSetRules {
    fn default(&self, object: &mut Value) {
        one_replica(object);
        template::fill(object.at_mut("spec.template"));
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
        immutable(new, old, &["selector"], errors);
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
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    not_negative(&SPEC, spec, &["replicas", "minReadySeconds"], errors);
    // kube-apiserver has `deployment` here, too.
    let selector = validate_selector(spec, "deployment", errors);
    validate_template(spec, selector.as_ref(), errors);
}

/// Checks the counts in the status of a ReplicaSet or a ReplicationController.
pub(super) fn validate_counts(status: &Value, errors: &mut Errors) {
    let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    not_negative(&STATUS, status, &counts, errors);
    not_negative(&STATUS, status, &["terminatingReplicas"], errors);
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    not_more_than_all(status, &parts, "readyReplicas", errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn set() -> Value {
        let mut set = json!({
            "metadata": {"name": "web", "namespace": "n", "resourceVersion": "1"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        });
        ReplicaSetRules.default(&mut set);
        set
    }

    fn wrong(change: impl FnOnce(&mut Value)) -> String {
        let mut set = set();
        change(&mut set);
        summary(|errors| ReplicaSetRules.validate_create(&set, errors))
    }

    #[test]
    fn templates_get_the_defaults_of_pods() {
        let set = set();
        assert_eq!(set.int("spec.replicas"), 1);
        assert_eq!(set.text("spec.template.spec.restartPolicy"), "Always");
        assert_eq!(set.items("spec.template.spec.containers")[0].text("imagePullPolicy"), "Always");
        assert_eq!(summary(|errors| ReplicaSetRules.validate_create(&set, errors)), "[]");
    }

    #[test]
    fn labels_must_be_selected() {
        assert_eq!(
            wrong(|set| set.put("spec.template.metadata.labels", json!({"app": "other"}))),
            "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`"
        );
        assert_eq!(wrong(|set| drop(set.drop_path("spec.selector"))), "spec.selector: Required value");
        assert_eq!(
            wrong(|set| set.put("spec.selector", json!({}))),
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment"
        );
        let odd = json!({"matchExpressions": [{"key": "a", "operator": "Like"}]});
        assert_eq!(
            wrong(|set| set.put("spec.selector", odd.clone())),
            format!(
                "[spec.selector.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator, \
                 spec.selector: Invalid value: {odd}: invalid label selector]"
            )
        );
    }

    #[test]
    fn pods_of_templates_are_checked_where_they_stand() {
        assert_eq!(
            wrong(|set| set.put("spec.template.spec.containers", json!([{"name": "A", "image": "i"}]))),
            "[spec.template.spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of \
             lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. \
             'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?'), \
             spec.template.spec.containers[0].terminationMessagePolicy: Required value, \
             spec.template.spec.containers[0].imagePullPolicy: Required value]"
        );
        assert_eq!(
            wrong(|set| set.put("spec.template.spec.restartPolicy", "Never")),
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""
        );
        assert_eq!(
            wrong(|set| set.put("spec.replicas", -1)),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
        );
    }

    #[test]
    fn selectors_stay_and_counts_fit() {
        let (old, mut new) = (set(), set());
        new.put("spec.selector.matchLabels", json!({"app": "b"}));
        new.put("spec.template.metadata.labels", json!({"app": "b"}));
        assert_eq!(
            summary(|errors| ReplicaSetRules.validate_update(&new, &old, errors)),
            "spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"b\"}}: field is immutable"
        );
        new.put("status", json!({"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}));
        assert_eq!(
            summary(|errors| ReplicaSetRules.validate_status(&new, &old, errors)),
            "[status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas, \
             status.availableReplicas: Invalid value: 3: cannot be greater than status.replicas, \
             status.availableReplicas: Invalid value: 3: cannot be greater than readyReplicas]"
        );
    }

    #[test]
    fn scaling_changes_nothing_else() {
        let old = set();
        let mut new = json!({"spec": {"replicas": 3, "selector": {}}, "metadata": {"name": "other"}});
        ReplicaSetRules.prepare_part("scale", &mut new, &old);
        assert_eq!(new.int("spec.replicas"), 3);
        new.put("spec.replicas", 1);
        assert_eq!(new.at("spec"), old.at("spec"));
        assert_eq!(new.text("metadata.name"), "web");
    }
}
