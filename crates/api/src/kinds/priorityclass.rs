//! PriorityClass: a name for the priority of Pods. How a Pod gets its priority is in [`crate::priority`].

use serde_json::{Value, json};

use super::common::{immutable_text, one_of};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::priority::DEFAULT_POLICY;
use crate::table::{AGE, Column, NAME, Table, age, column, integer_column, no_conditions};
use crate::value::ValueExt as _;

/// The highest priority of a class that is not built in.
const HIGHEST_DEFINABLE: i64 = 1_000_000_000;
/// The prefix of names of built-in classes.
const SYSTEM_PREFIX: &str = "system-";

/// A class that every cluster has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SystemClass {
    /// Its name.
    pub name: &'static str,
    /// Its priority.
    pub value: i64,
    description: &'static str,
}

/// The built-in classes.
pub static SYSTEM_CLASSES: [SystemClass; 2] = [
    SystemClass {
        name: "system-cluster-critical",
        value: 2 * HIGHEST_DEFINABLE,
        description: "Used for system critical pods that must run in the cluster, but can be moved to another node if \
                      necessary.",
    },
    SystemClass {
        name: "system-node-critical",
        value: 2 * HIGHEST_DEFINABLE + 1000,
        description: "Used for system critical pods that must not be moved from their current node.",
    },
];

impl SystemClass {
    /// The built-in class of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SYSTEM_CLASSES.iter().find(|class| class.name == name)
    }

    /// The object.
    #[must_use]
    pub fn object(&self) -> Value {
        json!({
            "metadata": {"name": self.name}, "value": self.value, "description": self.description,
            "preemptionPolicy": DEFAULT_POLICY,
        })
    }
}

/// The kind.
pub static KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    namespaced: false,
    schema: "scheduling.PriorityClass",
    table: "priorityclasses",
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&ClassRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        integer_column("Value", "The priority of Pods of this class."),
        Column { kind: "boolean", ..column("Global-Default", "Whether Pods without a class have this one.") },
        AGE,
        column("PreemptionPolicy", "Whether Pods of this class preempt Pods with lower priority."),
    ],
    row: |object, now| {
        vec![
            object.text("metadata.name").into(),
            object.int("value").into(),
            object.flag("globalDefault").into(),
            age(object, now).into(),
            object.text("preemptionPolicy").into(),
        ]
    },
    conditions: no_conditions,
};

struct ClassRules;

impl Rules for ClassRules {
    fn default(&self, object: &mut Value) {
        if !object.has("preemptionPolicy") {
            object.put("preemptionPolicy", DEFAULT_POLICY);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_subdomain, errors);
        let (name, value) = (object.text("metadata.name"), object.int("value"));
        if name.starts_with(SYSTEM_PREFIX) {
            if let Err(why) = check_system_class(name, value, object.flag("globalDefault")) {
                let detail = format!(
                    "priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {why}"
                );
                errors.forbidden(&Path::Root("metadata.name"), &detail);
            }
        } else if value > HIGHEST_DEFINABLE {
            let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_DEFINABLE}");
            errors.forbidden(&Path::Root("value"), &detail);
        }
        if let Some(policy) = object.at("preemptionPolicy").as_str() {
            one_of(&Path::Root("preemptionPolicy"), policy, &[DEFAULT_POLICY, "Never"], errors);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        if new.int("value") != old.int("value") {
            errors.forbidden(&Path::Root("value"), "may not be changed in an update.");
        }
        let policy = |object: &Value| object.text("preemptionPolicy").to_owned();
        immutable_text(&Path::Root("preemptionPolicy"), &policy(new), &policy(old), errors);
    }
}

/// Whether a class with a reserved name is the built-in one.
fn check_system_class(name: &str, value: i64, global_default: bool) -> Result<(), String> {
    let class = SystemClass::find(name).ok_or_else(|| format!("{name} is not a known system priority class"))?;
    if value != class.value {
        return Err(format!("value of {name} PriorityClass must be {}", class.value));
    }
    if global_default {
        return Err(format!("globalDefault of {name} PriorityClass must be false"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::summary;

    fn class(name: &str, value: i64) -> Value {
        let mut object = json!({"metadata": {"name": name, "resourceVersion": "1"}, "value": value});
        ClassRules.default(&mut object);
        object
    }

    #[test]
    fn classes_are_checked() {
        let reserved = "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use \
                        only. error: ";
        let cases = [
            (class("high", 1_000_000_000), String::new()),
            (class("low", -2_147_483_648), String::new()),
            (
                class("high", 1_000_000_001),
                "value: Forbidden: maximum allowed value of a user defined priority is 1000000000".to_owned(),
            ),
            (class("system-mine", 1), format!("{reserved}system-mine is not a known system priority class")),
            (
                class("system-node-critical", 1),
                format!("{reserved}value of system-node-critical PriorityClass must be 2000001000"),
            ),
            (
                json!({"metadata": {"name": "x"}, "preemptionPolicy": "Always"}),
                "preemptionPolicy: Unsupported value: \"Always\": supported values: \"PreemptLowerPriority\", \"Never\""
                    .to_owned(),
            ),
        ];
        for (object, expected) in cases {
            let found = summary(|errors| ClassRules.validate_create(&object, errors));
            assert_eq!(found, if expected.is_empty() { "[]" } else { expected.as_str() }, "{object}");
        }
        for class in SYSTEM_CLASSES {
            assert_eq!(summary(|errors| ClassRules.validate_create(&class.object(), errors)), "[]");
        }
        let mut default = class("system-cluster-critical", 2_000_000_000);
        default.put("globalDefault", true);
        let found = summary(|errors| ClassRules.validate_create(&default, errors));
        assert_eq!(found, format!("{reserved}globalDefault of system-cluster-critical PriorityClass must be false"));
    }

    #[test]
    fn value_and_preemption_policy_are_fixed() {
        let old = class("high", 10);
        let mut new = class("high", 11);
        new.put("preemptionPolicy", "Never");
        assert_eq!(
            summary(|errors| ClassRules.validate_update(&new, &old, errors)),
            "[value: Forbidden: may not be changed in an update., preemptionPolicy: Invalid value: \"Never\": field is \
             immutable]"
        );
        let mut described = old.clone();
        described.put("description", "for what pays");
        described.put("globalDefault", true);
        assert_eq!(summary(|errors| ClassRules.validate_update(&described, &old, errors)), "[]");
    }

    #[test]
    fn a_row_has_every_column() {
        let cells = (TABLE.row)(&class("high", 10), jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells[..3], [json!("high"), json!(10), json!(false)]);
        assert_eq!((cells.len(), &cells[4]), (TABLE.columns.len(), &json!("PreemptLowerPriority")));
    }
}
