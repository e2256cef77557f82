//! Binding: a Pod gets its node. Answered, never stored: it becomes `spec.nodeName` of the Pod.

use serde_json::Value;

use super::common::report;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::names;
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Binding",
    plural: "bindings",
    singular: "binding",
    schema: "core.Binding",
    verbs: &["create"],
    unconditional_update: false,
    ..Kind::common(&BindingRules)
};

struct BindingRules;

impl Rules for BindingRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let target = Path::Root("target");
        let (kind, name) = (object.text("target.kind"), object.text("target.name"));
        if !matches!(kind, "" | "Node") {
            errors.not_supported(&target.child("kind"), kind, &["Node", "<empty>"]);
        }
        if name.is_empty() {
            errors.required(&target.child("name"), "");
        } else {
            report(&target.child("name"), name, names::name_is_subdomain(name, false), errors);
        }
    }

    fn validate_update(&self, new: &Value, _old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    #[test]
    fn a_binding_needs_a_node() {
        let wrong = |target: Value| summary(|errors| BindingRules.validate_create(&json!({"target": target}), errors));
        assert_eq!(wrong(json!({"kind": "Node", "name": "a"})), "[]");
        assert_eq!(wrong(json!({})), "target.name: Required value");
        assert_eq!(
            wrong(json!({"kind": "Pod", "name": "a"})),
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\""
        );
    }
}
