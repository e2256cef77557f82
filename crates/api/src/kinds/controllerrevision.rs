//! ControllerRevision: an earlier state of an owner of Pods, for rollbacks.

use serde_json::Value;

use super::common::{IMMUTABLE, same};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "apps",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    schema: "apps.ControllerRevision",
    table: "controllerrevisions",
    table_view: &TABLE,
    ..Kind::common(&RevisionRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Controller", "Whose revision it is."),
        column("Revision", "Which one: the larger, the newer."),
        AGE,
    ],
    row: |object, now| {
        let owner = object.items("metadata.ownerReferences").iter().find(|owner| owner.flag("controller"));
        let owner = owner.map_or_else(|| "<none>".to_owned(), named);
        vec![object.text("metadata.name").into(), owner.into(), object.int("revision").into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

/// `statefulset.apps/db`.
fn named(owner: &Value) -> String {
    let kind = owner.text("kind").to_lowercase();
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", owner.text("name")),
        None => format!("{kind}/{}", owner.text("name")),
    }
}

struct RevisionRules;

impl Rules for RevisionRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        check_number(object, errors);
        if object.at("data").is_null() {
            errors.required(&Path::Root("data"), "data is mandatory");
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        check_number(new, errors);
        if !same(new.at("data"), old.at("data")) {
            errors.invalid(&Path::Root("data"), new.at("data"), IMMUTABLE);
        }
    }
}

fn check_number(object: &Value, errors: &mut Errors) {
    let number = object.int("revision");
    if number < 0 {
        errors.invalid(&Path::Root("revision"), number, "must be greater than or equal to 0");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    #[test]
    fn data_is_there_and_stays() {
        let new = |data: Value| {
            let metadata = json!({"name": "r", "namespace": "n", "resourceVersion": "1"});
            json!({"metadata": metadata, "data": data, "revision": 1})
        };
        let wrong = summary(|errors| RevisionRules.validate_create(&new(Value::Null), errors));
        assert_eq!(wrong, "data: Required value: data is mandatory");
        let (old, new) = (new(json!({"spec": 1})), new(json!({"spec": 2})));
        let wrong = summary(|errors| RevisionRules.validate_update(&new, &old, errors));
        assert_eq!(wrong, "data: Invalid value: {\"spec\":2}: field is immutable");
    }

    #[test]
    fn rows_name_the_owner() {
        let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true}]);
        let object = json!({"metadata": {"name": "db-1", "ownerReferences": owner}, "revision": 3});
        let cells = (TABLE.row)(&object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells[1..3], [json!("statefulset.apps/db"), json!(3)]);
    }
}
