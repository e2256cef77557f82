//! Access and identity reviews: answered, never stored.
//!
//! Only names, shapes and checks are here; the server answers. Kubernetes reports errors of access reviews under
//! an empty kind: the server does the same with the errors of these rules.

use serde_json::{Map, Value};

use super::common::{go_struct, invalid_struct};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::value::ValueExt as _;

const fn review(
    group: &'static str,
    kind: &'static str,
    names: (&'static str, &'static str),
    schema: &'static str,
    namespaced: bool,
    rules: &'static dyn Rules,
) -> Kind {
    Kind {
        group,
        kind,
        plural: names.0,
        singular: names.1,
        namespaced,
        schema,
        table: "",
        verbs: &["create"],
        unconditional_update: false,
        ..Kind::common(rules)
    }
}

/// May this user do that, in this namespace?
pub static LOCAL_SUBJECT_ACCESS_REVIEW: Kind = review(
    "authorization.k8s.io",
    "LocalSubjectAccessReview",
    ("localsubjectaccessreviews", "localsubjectaccessreview"),
    "authorization.LocalSubjectAccessReview",
    true,
    &AccessRules { subject: true, local: true },
);

/// May I do that?
pub static SELF_SUBJECT_ACCESS_REVIEW: Kind = review(
    "authorization.k8s.io",
    "SelfSubjectAccessReview",
    ("selfsubjectaccessreviews", "selfsubjectaccessreview"),
    "authorization.SelfSubjectAccessReview",
    false,
    &AccessRules { subject: false, local: false },
);

/// What may I do in this namespace?
pub static SELF_SUBJECT_RULES_REVIEW: Kind = review(
    "authorization.k8s.io",
    "SelfSubjectRulesReview",
    ("selfsubjectrulesreviews", "selfsubjectrulesreview"),
    "authorization.SelfSubjectRulesReview",
    false,
    &OpenRules,
);

/// May this user do that?
pub static SUBJECT_ACCESS_REVIEW: Kind = review(
    "authorization.k8s.io",
    "SubjectAccessReview",
    ("subjectaccessreviews", "subjectaccessreview"),
    "authorization.SubjectAccessReview",
    false,
    &AccessRules { subject: true, local: false },
);

/// SelfSubjectReview.
pub static SELF_SUBJECT_REVIEW: Kind = review(
    "authentication.k8s.io",
    "SelfSubjectReview",
    ("selfsubjectreviews", "selfsubjectreview"),
    "authentication.SelfSubjectReview",
    false,
    &OpenRules,
);

/// Whose token is this?
pub static TOKEN_REVIEW: Kind = review(
    "authentication.k8s.io",
    "TokenReview",
    ("tokenreviews", "tokenreview"),
    "authentication.TokenReview",
    false,
    &OpenRules,
);

/// Reviews of which only the shape is checked.
struct OpenRules;

impl Rules for OpenRules {
    fn validate_create(&self, _object: &Value, _errors: &mut Errors) {}

    fn validate_update(&self, _new: &Value, _old: &Value, _errors: &mut Errors) {}
}

/// Reviews of one request.
struct AccessRules {
    /// The review names a user.
    subject: bool,
    /// The review is namespaced.
    local: bool,
}

impl Rules for AccessRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let spec = object.at("spec");
        let (resource, other) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
        if resource.is_null() == other.is_null() {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            invalid_struct(&Path::Root("spec"), &request_path(other), detail, errors);
        }
        if self.subject && spec.text("user").is_empty() && spec.items("groups").is_empty() {
            errors.invalid(&Path::Root("spec.user"), "", "at least one of user or group must be specified");
        }
        for selector in ["fieldSelector", "labelSelector"] {
            validate_selector(selector, resource.at(selector), errors);
        }
        validate_metadata(object, self.local, errors);
        if self.local {
            validate_local(object, errors);
        }
    }

    fn validate_update(&self, new: &Value, _old: &Value, errors: &mut Errors) {
        self.validate_create(new, errors);
    }
}

fn request_path(attributes: &Value) -> String {
    if attributes.is_null() { "null".to_owned() } else { go_struct(attributes, &[("Path", "path"), ("Verb", "verb")]) }
}

fn validate_selector(name: &str, selector: &Value, errors: &mut Errors) {
    if selector.is_null() {
        return;
    }
    let attributes = Path::Root("spec.resourceAttributes");
    let path = attributes.child(name);
    let (raw, requirements) = (selector.text("rawSelector"), selector.items("requirements"));
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.invalid(&path.child("rawSelector"), raw, detail);
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {path} is specified, requirements or rawSelector is required");
        errors.required(&path.child("requirements"), &detail);
    }
}

/// A review has no identity.
fn validate_metadata(object: &Value, local: bool, errors: &mut Errors) {
    let is_set = |(key, value): (&String, &Value)| match key.as_str() {
        "managedFields" => false,
        "namespace" => !local && value != "",
        _ => !(value.is_null() || value == "" || value.as_object().is_some_and(Map::is_empty)),
    };
    if object.map("metadata").is_some_and(|metadata| metadata.iter().any(is_set)) {
        let detail = if local { "must be empty except for namespace" } else { "must be empty" };
        errors.invalid(&Path::Root("metadata"), object.at("metadata"), detail);
    }
}

fn validate_local(object: &Value, errors: &mut Errors) {
    let resource = object.at("spec.resourceAttributes");
    let namespace = resource.text("namespace");
    if !resource.is_null() && namespace != object.text("metadata.namespace") {
        let path = Path::Root("spec.resourceAttributes.namespace");
        errors.invalid(&path, namespace, "must match metadata.namespace");
    }
    let other = object.at("spec.nonResourceAttributes");
    if !other.is_null() {
        let path = Path::Root("spec.nonResourceAttributes");
        invalid_struct(&path, &request_path(other), "disallowed on this kind of request", errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn check(kind: &Kind, object: &Value) -> String {
        summary(|errors| kind.rules.validate_create(object, errors))
    }

    #[test]
    fn one_request_is_asked_about() {
        let one = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        let both = json!({"spec": {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/", "verb": "get"}}});
        assert_eq!(
            check(&SELF_SUBJECT_ACCESS_REVIEW, &both),
            format!("spec: Invalid value: {{\"Path\":\"/\",\"Verb\":\"get\"}}: {one}")
        );
        assert_eq!(check(&SELF_SUBJECT_ACCESS_REVIEW, &json!({})), format!("spec: Invalid value: null: {one}"));
    }

    #[test]
    fn somebody_is_asked_about() {
        let object = json!({"spec": {"resourceAttributes": {"verb": "get"}}});
        assert_eq!(
            check(&SUBJECT_ACCESS_REVIEW, &object),
            "spec.user: Invalid value: \"\": at least one of user or group must be specified"
        );
        assert_eq!(check(&SELF_SUBJECT_ACCESS_REVIEW, &object), "[]");
    }

    #[test]
    fn a_question_has_no_name() {
        let object = json!({"metadata": {"name": "x"}, "spec": {"resourceAttributes": {"verb": "get"}}});
        assert!(check(&SELF_SUBJECT_ACCESS_REVIEW, &object).ends_with("must be empty"));
        let object = json!({
            "metadata": {"namespace": "n", "labels": {}},
            "spec": {"user": "u", "resourceAttributes": {"namespace": "other"}},
        });
        assert_eq!(
            check(&LOCAL_SUBJECT_ACCESS_REVIEW, &object),
            "spec.resourceAttributes.namespace: Invalid value: \"other\": must match metadata.namespace"
        );
    }

    #[test]
    fn selectors_say_something() {
        let object = json!({"spec": {"resourceAttributes": {"fieldSelector": {}}}});
        assert_eq!(
            check(&SELF_SUBJECT_ACCESS_REVIEW, &object),
            "spec.resourceAttributes.fieldSelector.requirements: Required value: when \
             spec.resourceAttributes.fieldSelector is specified, requirements or rawSelector is required"
        );
    }
}
