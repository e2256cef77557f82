//! ServiceAccount: a name for programs, with the secrets it may use.

use serde_json::{Value, json};

use crate::field::Errors;
use crate::kind::{Kind, Rules, Subresource};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, no_conditions};
use crate::value::ValueExt as _;
use crate::view::annotations::ENFORCE_MOUNTABLE_SECRETS;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "ServiceAccount",
    plural: "serviceaccounts",
    singular: "serviceaccount",
    short_names: &["sa"],
    schema: "core.ServiceAccount",
    table: "serviceaccounts",
    subresources: &[Subresource { name: "token", kind: "TokenRequest", verbs: &["create"] }],
    delete_returns_object: true,
    table_view: &TABLE,
    ..Kind::common(&ServiceAccountRules)
};

static TABLE: Table = Table {
    columns: &[NAME, AGE],
    row: |object, now| vec![object.text("metadata.name").into(), age(object, now).into()],
    conditions: no_conditions,
};

struct ServiceAccountRules;

impl Rules for ServiceAccountRules {
    fn prepare_create(&self, object: &mut Value) {
        keep_secret_names(object);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        keep_secret_names(new);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        self.validate_create(new, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        let is_set = |object: &Value| object.at("metadata.annotations").get(ENFORCE_MOUNTABLE_SECRETS).is_some();
        if is_set(new) && !old.is_some_and(is_set) {
            out.push(format!(
                "metadata.annotations[{ENFORCE_MOUNTABLE_SECRETS}]: deprecated in v1.32+; prefer separate namespaces to isolate access \
                 to mounted secrets"
            ));
        }
    }
}

/// A secret is referred to by its name and nothing else.
fn keep_secret_names(object: &mut Value) {
    for secret in object.items_mut("secrets") {
        *secret = match secret.text("name") {
            "" => json!({}),
            name => json!({"name": name}),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_secrets_stay() {
        let mut object = json!({"secrets": [{"name": "a", "namespace": "x"}, {"uid": "u"}]});
        ServiceAccountRules.prepare_create(&mut object);
        assert_eq!(object, json!({"secrets": [{"name": "a"}, {}]}));
    }

    #[test]
    fn a_new_annotation_warns_once() {
        let object = json!({"metadata": {"annotations": {ENFORCE_MOUNTABLE_SECRETS: "true"}}});
        let mut out = Vec::new();
        ServiceAccountRules.warnings(&object, Some(&object), &mut out);
        assert!(out.is_empty());
        ServiceAccountRules.warnings(&object, None, &mut out);
        assert_eq!(out.len(), 1);
    }
}
