//! Validation of access reviews, in the order and with the messages of kube-apiserver.
//!
//! In: the review. Out: nothing, or 422. Selectors in a review are validated, but do not change the decision: no rule depends on them, and
//! ignoring one checks for more than requested, never for less.

use api::field::{Errors, Path};
use api::names;
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::{Map, Value, json};

const ONE_OF: &str = "exactly one of nonResourceAttributes or resourceAttributes must be specified";

/// A SelfSubjectAccessReview.
pub(super) fn self_access(body: &Value) -> Result<(), Status> {
    let mut errors = Errors::default();
    one_of(body, &mut errors);
    selectors(body, &mut errors);
    no_metadata(body, &[], "must be empty", &mut errors);
    finish(&errors)
}

/// A SubjectAccessReview.
pub(super) fn access(body: &Value) -> Result<(), Status> {
    let mut errors = Errors::default();
    subject_spec(body, &mut errors);
    no_metadata(body, &[], "must be empty", &mut errors);
    finish(&errors)
}

/// A LocalSubjectAccessReview.
pub(super) fn local_access(body: &Value) -> Result<(), Status> {
    let mut errors = Errors::default();
    subject_spec(body, &mut errors);
    no_metadata(body, &["namespace"], "must be empty except for namespace", &mut errors);
    let spec = Path::Root("spec");
    let asked = body.at("spec.resourceAttributes");
    if !asked.is_null() && asked.text("namespace") != body.text("metadata.namespace") {
        let path = spec.child("resourceAttributes");
        errors.invalid(&path.child("namespace"), asked.text("namespace"), "must match metadata.namespace");
    }
    if body.has("spec.nonResourceAttributes") {
        let path = spec.child("nonResourceAttributes");
        errors.invalid(&path, non_resource(body), "disallowed on this kind of request");
    }
    finish(&errors)
}

fn finish(errors: &Errors) -> Result<(), Status> {
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("authorization.k8s.io", "", "", errors)) }
}

fn subject_spec(body: &Value, errors: &mut Errors) {
    one_of(body, errors);
    if body.text("spec.user").is_empty() && body.items("spec.groups").is_empty() {
        errors.invalid(&Path::Root("spec").child("user"), "", "at least one of user or group must be specified");
    }
    selectors(body, errors);
}

fn one_of(body: &Value, errors: &mut Errors) {
    if body.has("spec.resourceAttributes") == body.has("spec.nonResourceAttributes") {
        errors.invalid(&Path::Root("spec"), non_resource(body), ONE_OF);
    }
}

/// The attributes in the format of kube-apiserver, with the Go type names.
fn non_resource(body: &Value) -> Value {
    match body.at("spec.nonResourceAttributes") {
        Value::Null => Value::Null,
        attributes => json!({"Path": attributes.text("path"), "Verb": attributes.text("verb")}),
    }
}

fn no_metadata(body: &Value, allowed: &[&str], detail: &str, errors: &mut Errors) {
    let Some(metadata) = body.map("metadata") else { return };
    let given: Map<String, Value> = metadata
        .iter()
        .filter(|(key, value)| !is_empty(value) && *key != "managedFields")
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if given.keys().any(|key| !allowed.contains(&key.as_str())) {
        errors.invalid(&Path::Root("metadata"), Value::Object(given), detail);
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

// === selectors ===

fn selectors(body: &Value, errors: &mut Errors) {
    let spec = Path::Root("spec");
    let attributes = spec.child("resourceAttributes");
    for name in ["fieldSelector", "labelSelector"] {
        let selector = body.at("spec.resourceAttributes").at(name);
        if selector.is_null() {
            continue;
        }
        let path = attributes.child(name);
        let (raw, requirements) = (selector.text("rawSelector"), selector.items("requirements"));
        if !raw.is_empty() && !requirements.is_empty() {
            errors.invalid(&path.child("rawSelector"), raw, "may not specified at the same time as requirements");
        }
        let list = path.child("requirements");
        if raw.is_empty() && requirements.is_empty() {
            errors.required(&list, &format!("when {path} is specified, requirements or rawSelector is required"));
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let path = list.index(index);
            if name == "fieldSelector" {
                if requirement.text("key").is_empty() {
                    errors.required(&path.child("key"), "must be specified");
                }
                values(requirement, &path, errors);
            } else {
                values(requirement, &path, errors);
                label_syntax(requirement, &path, errors);
            }
        }
    }
}

/// Unknown operators may come from newer clients: they are not errors.
fn values(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let none = requirement.items("values").is_empty();
    match requirement.text("operator") {
        "In" | "NotIn" if none => {
            errors.required(&path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !none => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.forbidden(&path.child("values"), detail);
        }
        _ => {}
    }
}

fn label_syntax(requirement: &Value, path: &Path<'_>, errors: &mut Errors) {
    let key = requirement.text("key");
    for why in names::qualified_name(key) {
        errors.invalid(&path.child("key"), key, &why);
    }
    let list = path.child("values");
    for (index, value) in requirement.texts("values").into_iter().enumerate() {
        for why in names::label_value(value) {
            errors.invalid(&list.index(index), value, &why);
        }
    }
}

/// The selectors that could not be parsed, wholly or in part. Raw selectors are not parsed.
pub(super) fn selector_problems(body: &Value) -> Vec<String> {
    let understood_field = |requirement: &&Value| {
        matches!(requirement.text("operator"), "In" | "NotIn") && requirement.items("values").len() == 1
    };
    let understood_label =
        |requirement: &&Value| matches!(requirement.text("operator"), "In" | "NotIn" | "Exists" | "DoesNotExist");
    let count = |name: &str, understood: &dyn Fn(&&Value) -> bool| {
        let requirements = body.at("spec.resourceAttributes").at(name).items("requirements");
        let partially = match requirements.iter().filter(understood).count() {
            all if all == requirements.len() => return None,
            0 => "",
            _ => "partially ",
        };
        Some(format!("spec.resourceAttributes.{name} {partially}ignored due to parse error"))
    };
    [count("fieldSelector", &understood_field), count("labelSelector", &understood_label)]
        .into_iter()
        .flatten()
        .collect()
}
