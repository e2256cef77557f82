//! Lease: the holder of something, and since when.
//!
//! Election by Lease relies on optimistic locking, so this is the one kind that refuses a PUT without a
//! resourceVersion.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    schema: "coordination.Lease",
    table: "leases",
    create_on_update: true,
    unconditional_update: false,
    table_view: &TABLE,
    ..Kind::common(&LeaseRules)
};

static TABLE: Table = Table {
    columns: &[NAME, column("Holder", "Who holds the lease."), AGE],
    row: |object, now| {
        vec![object.text("metadata.name").into(), object.text("spec.holderIdentity").into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

struct LeaseRules;

impl Rules for LeaseRules {
    // Coordinated election is not offered, so its fields are dropped as kube-apiserver drops them.
    fn prepare_create(&self, object: &mut Value) {
        for field in ["spec.strategy", "spec.preferredHolder"] {
            object.drop_path(field);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        for field in ["spec.strategy", "spec.preferredHolder"] {
            if !old.has(field) {
                new.drop_path(field);
            }
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate_spec(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_spec(new, errors);
    }
}

fn validate_spec(object: &Value, errors: &mut Errors) {
    if let Some(seconds) = object.at("spec.leaseDurationSeconds").as_i64().filter(|seconds| *seconds <= 0) {
        errors.invalid(&Path::Root("spec.leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(count) = object.at("spec.leaseTransitions").as_i64().filter(|count| *count < 0) {
        errors.invalid(&Path::Root("spec.leaseTransitions"), count, "must be greater than or equal to 0");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("config-lease-event", &KIND);
    }

    #[test]
    fn durations_are_positive() {
        let object = json!({
            "metadata": {"name": "l", "namespace": "n"}, "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1},
        });
        assert_eq!(
            summary(|errors| LeaseRules.validate_create(&object, errors)),
            "[spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0, spec.leaseTransitions: Invalid \
             value: -1: must be greater than or equal to 0]"
        );
    }
}
