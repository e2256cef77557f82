//! PodDisruptionBudget: how many Pods of an application may be evicted at the same time. What its status decides is in [`crate::disruption`].

use serde_json::Value;

use super::common::{go_struct, invalid_struct, validate_conditions};
use super::workload::{SPEC, STATUS, not_negative, validate_labels_selector};
use crate::field::Errors;
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::meta;
use crate::portion;
use crate::table::{AGE, NAME, Table, age, column, integer_column, no_conditions};
use crate::value::ValueExt as _;

/// Unhealthy Pods are evicted whatever the budget.
pub const ALWAYS_ALLOW: &str = "AlwaysAllow";

const POLICIES: [&str; 2] = [ALWAYS_ALLOW, "IfHealthyBudget"];
/// The Go names of the fields of a spec, in their order.
const GO_SPEC: [(&str, &str); 4] = [
    ("MinAvailable", "minAvailable?"),
    ("Selector", "selector?"),
    ("MaxUnavailable", "maxUnavailable?"),
    ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy?"),
];

/// The kind.
pub static KIND: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    short_names: &["pdb"],
    schema: "policy.PodDisruptionBudget",
    table: "poddisruptionbudgets",
    subresources: &[status_of("PodDisruptionBudget")],
    unconditional_update: false,
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&BudgetRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Min Available", "The minimum number of pods that must be available."),
        column("Max Unavailable", "The maximum number of pods that may be unavailable."),
        integer_column("Allowed Disruptions", "Calculated number of pods that may be disrupted at this time."),
        AGE,
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            portion_cell(object.at("spec.minAvailable")).into(),
            portion_cell(object.at("spec.maxUnavailable")).into(),
            object.int("status.disruptionsAllowed").into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

fn portion_cell(value: &Value) -> String {
    match value {
        Value::Null => "N/A".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

struct BudgetRules;

impl Rules for BudgetRules {
    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    /// The name is only checked as a path segment, which is done for every kind.
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate_spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new.at("spec"), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_conditions(&STATUS.child("conditions"), new.items("status.conditions"), errors);
        let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        not_negative(&STATUS, new.at("status"), &counts, errors);
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    if spec.has("minAvailable") && spec.has("maxUnavailable") {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        invalid_struct(&SPEC, &go_struct(spec, &GO_SPEC), detail, errors);
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let (path, value) = (SPEC.child(field), spec.at(field));
        portion::validate(&path, value, errors);
        portion::validate_part(&path, value, errors);
    }
    validate_labels_selector(&SPEC.child("selector"), spec.at("selector"), errors);
    if let Some(policy) = spec.at("unhealthyPodEvictionPolicy").as_str().filter(|policy| !POLICIES.contains(policy)) {
        errors.not_supported(&SPEC.child("unhealthyPodEvictionPolicy"), policy, &POLICIES);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn wrong(spec: &Value) -> String {
        let object = json!({"metadata": {"name": "b", "namespace": "n"}, "spec": spec});
        summary(|errors| BudgetRules.validate_create(&object, errors))
    }

    #[test]
    fn specs_are_checked() {
        let cases = [
            (json!({}), "[]"),
            (json!({"minAvailable": "100%", "selector": {}}), "[]"),
            (json!({"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "AlwaysAllow"}), "[]"),
            (
                json!({"minAvailable": 1, "maxUnavailable": "50%", "selector": {"matchLabels": {"a": "b"}}}),
                "spec: Invalid value: {\"MinAvailable\":1,\"Selector\":{\"matchLabels\":{\"a\":\"b\"}},\
                 \"MaxUnavailable\":\"50%\",\"UnhealthyPodEvictionPolicy\":null}: minAvailable and maxUnavailable cannot \
                 be both set",
            ),
            (json!({"minAvailable": -1}), "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
            (
                json!({"maxUnavailable": "101%"}),
                "spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
            ),
            (
                json!({"maxUnavailable": "3"}),
                "spec.maxUnavailable: Invalid value: \"3\": a valid percent string must be a numeric string followed by \
                 an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
            ),
            (
                json!({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or \
                 'NotIn'",
            ),
            (
                json!({"unhealthyPodEvictionPolicy": "Never"}),
                "spec.unhealthyPodEvictionPolicy: Unsupported value: \"Never\": supported values: \"AlwaysAllow\", \
                 \"IfHealthyBudget\"",
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(wrong(&spec), expected, "{spec}");
        }
    }

    #[test]
    fn counts_of_a_status_are_not_negative() {
        let old = json!({"metadata": {"name": "b", "namespace": "n", "resourceVersion": "1"}});
        let mut new = old.clone();
        new.put("status", json!({"disruptionsAllowed": -1, "conditions": [{"type": "DisruptionAllowed"}]}));
        let found = summary(|errors| BudgetRules.validate_status(&new, &old, errors));
        for part in ["status.conditions[0].status: Required value", "status.disruptionsAllowed: Invalid value: -1"] {
            assert!(found.contains(part), "{part} in {found}");
        }
    }

    #[test]
    fn a_row_shows_what_is_allowed() {
        let budget = json!({
            "metadata": {"name": "b"}, "spec": {"minAvailable": 2}, "status": {"disruptionsAllowed": 1},
        });
        let cells = (TABLE.row)(&budget, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells[..4], [json!("b"), json!("2"), json!("N/A"), json!(1)]);
        assert_eq!(portion_cell(&json!("25%")), "25%");
    }

    #[test]
    fn a_patch_replaces_the_selector() {
        let old = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}});
        let patch = br#"{"spec":{"selector":{"matchLabels":{"b":"2"}}}}"#;
        let patch = crate::patch::Patch::parse(
            crate::patch::PatchKind::Strategic,
            patch,
            crate::options::FieldValidation::default(),
        );
        let new = patch.expect("a patch").apply(KIND.type_id(), &old).expect("an object");
        assert_eq!(new.at("spec.selector"), &json!({"matchLabels": {"b": "2"}}));
    }
}
