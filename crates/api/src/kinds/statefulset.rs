//! StatefulSet: Pods with stable identities; a name outlives its Pod.
//!
//! There are no persistent volumes here, so a set that requests some is rejected: without them its Pods would start
//! empty each time, which is what a StatefulSet is meant to prevent.

use serde_json::Value;

use super::common::report;
use super::pod::template;
use super::workload::{
    SPEC, STATUS, collisions_only_grow, container_cells, immutable, not_more_than_all, not_negative, one_replica,
    validate_selector, warn_of_template,
};
use crate::field::Errors;
use crate::kind::{Kind, Rules, keep_status, scale, status_of};
use crate::meta;
use crate::names;
use crate::portion;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, wide_column};
use crate::value::ValueExt as _;

const NO_VOLUMES: &str = "this server has no persistent volumes; remove volumeClaimTemplates and give \
     spec.template.spec.volumes a volume of each name instead (emptyDir, hostPath, configMap, secret)";

/// The kind.
pub static KIND: Kind = Kind {
    group: "apps",
    kind: "StatefulSet",
    plural: "statefulsets",
    singular: "statefulset",
    short_names: &["sts"],
    categories: &["all"],
    schema: "apps.StatefulSet",
    table: "statefulsets",
    subresources: &[scale(), status_of("StatefulSet")],
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&StatefulSetRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Ready", "How many Pods are ready, of how many."),
        AGE,
        wide_column("Containers", "The names of the containers of each Pod."),
        wide_column("Images", "Their images."),
    ],
    row: |object, now| {
        let [containers, images] = container_cells(object);
        vec![
            object.text("metadata.name").into(),
            format!("{}/{}", object.int("status.readyReplicas"), object.int("spec.replicas")).into(),
            age(object, now).into(),
            containers,
            images,
        ]
    },
    conditions: no_conditions,
};

struct StatefulSetRules;

impl Rules for StatefulSetRules {
    fn default(&self, object: &mut Value) {
        template::fill(object.at_mut("spec.template"));
        one_replica(object);
        set_text(object, "spec.podManagementPolicy", "OrderedReady");
        if object.text("spec.updateStrategy.type").is_empty() {
            object.put("spec.updateStrategy.type", "RollingUpdate");
            set(object, "spec.updateStrategy.rollingUpdate", serde_json::Map::new());
        }
        if object.text("spec.updateStrategy.type") == "RollingUpdate" && object.has("spec.updateStrategy.rollingUpdate")
        {
            set(object, "spec.updateStrategy.rollingUpdate.partition", 0);
        }
        set_text(object, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain");
        set_text(object, "spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain");
        set(object, "spec.revisionHistoryLimit", 10);
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_label, errors);
        let service = object.text("spec.serviceName");
        if !service.is_empty() {
            report(&SPEC.child("serviceName"), service, names::dns_label(service), errors);
        }
        if !object.items("spec.volumeClaimTemplates").is_empty() {
            errors.forbidden(&SPEC.child("volumeClaimTemplates"), NO_VOLUMES);
        }
        validate_spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new.at("spec"), errors);
        let fixed = ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"];
        immutable(new, old, &fixed, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let status = new.at("status");
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        not_negative(&STATUS, status, &["replicas"], errors);
        not_negative(&STATUS, status, &parts, errors);
        not_negative(&STATUS, status, &["observedGeneration", "collisionCount"], errors);
        not_more_than_all(status, &parts, "status.readyReplicas", errors);
        meta::validate_update(new, old, errors);
        collisions_only_grow(new, old, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        warn_of_template(new, old, out);
        if new.int("spec.revisionHistoryLimit") < 0 {
            let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                        recommended";
            out.push(text.to_owned());
        }
    }
}

fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if !object.has(field) {
        object.put(field, value);
    }
}

fn set_text(object: &mut Value, field: &str, value: &str) {
    if object.text(field).is_empty() {
        object.put(field, value);
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    match spec.text("podManagementPolicy") {
        "" => errors.required(&SPEC.child("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => {
            errors.invalid(&SPEC.child("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    validate_strategy(spec.at("updateStrategy"), errors);
    let retention = SPEC.child("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        let policy = spec.at("persistentVolumeClaimRetentionPolicy").text(field);
        if !matches!(policy, "Retain" | "Delete" | "") {
            errors.not_supported(&retention.child(field), policy, &["Retain", "Delete"]);
        }
    }
    not_negative(&SPEC, spec, &["replicas", "minReadySeconds", "ordinals.start"], errors);
    let selector = validate_selector(spec, "statefulset", errors);
    let path = SPEC.child("template");
    match selector {
        None => errors.invalid(&SPEC.child("selector"), spec.at("selector"), ""),
        Some(selector) => {
            // The controller gives each Pod its own host name below that of the Service.
            let mut template = spec.at("template").clone();
            for field in ["spec.subdomain", "spec.hostname"] {
                template.drop_path(field);
            }
            template::validate_selected(&path, &template, &selector, errors);
        }
    }
    template::validate_lasting(&path, spec.at("template"), "StatefulSet", errors);
}

fn validate_strategy(strategy: &Value, errors: &mut Errors) {
    let path = SPEC.child("updateStrategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(&path, ""),
        "OnDelete" => {
            if !rolling.is_null() {
                let detail = "only allowed for updateStrategy 'RollingUpdate'";
                errors.invalid(&path.child("rollingUpdate"), rolling, detail);
            }
        }
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            not_negative(&path, rolling, &["partition"], errors);
            let unavailable = rolling.at("maxUnavailable");
            if !unavailable.is_null() {
                let path = path.child("maxUnavailable");
                portion::validate(&path, unavailable, errors);
                if portion::Portion::read(unavailable).is_some_and(|portion| portion.written() == 0) {
                    errors.invalid(&path, unavailable, "cannot be 0");
                }
                portion::validate_part(&path, unavailable, errors);
            }
        }
        _ => errors.invalid(&path, strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn set_of() -> Value {
        let mut object = json!({
            "metadata": {"name": "db", "namespace": "n", "resourceVersion": "1"},
            "spec": {
                "selector": {"matchLabels": {"app": "db"}}, "serviceName": "db",
                "template": {
                    "metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]},
                },
            },
        });
        StatefulSetRules.default(&mut object);
        object
    }

    fn wrong(field: &str, value: Value) -> String {
        let mut object = set_of();
        object.put(field, value);
        summary(|errors| StatefulSetRules.validate_create(&object, errors))
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let object = set_of();
        assert_eq!(
            object.at("spec.updateStrategy"),
            &json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        );
        assert_eq!(object.text("spec.podManagementPolicy"), "OrderedReady");
        assert_eq!(object.text("spec.persistentVolumeClaimRetentionPolicy.whenScaled"), "Retain");
        assert_eq!(summary(|errors| StatefulSetRules.validate_create(&object, errors)), "[]");
    }

    #[test]
    fn volumes_that_nobody_makes_are_refused() {
        let text = wrong("spec.volumeClaimTemplates", json!([{"metadata": {"name": "data"}}]));
        assert!(
            text.starts_with("spec.volumeClaimTemplates: Forbidden: this server has no persistent volumes"),
            "{text}"
        );
    }

    #[test]
    fn fields_are_checked() {
        assert_eq!(
            wrong("spec.podManagementPolicy", json!("Any")),
            "spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'"
        );
        assert_eq!(
            wrong("spec.updateStrategy.rollingUpdate", json!({"partition": -1, "maxUnavailable": 0})),
            "[spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0, \
             spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0]"
        );
        assert_eq!(
            wrong("metadata.name", json!("a.b")),
            "metadata.name: Invalid value: \"a.b\": must not contain dots"
        );
        let (old, mut new) = (set_of(), set_of());
        new.put("spec.serviceName", "other");
        assert_eq!(
            summary(|errors| StatefulSetRules.validate_update(&new, &old, errors)),
            "spec.serviceName: Invalid value: \"other\": field is immutable"
        );
    }
}
