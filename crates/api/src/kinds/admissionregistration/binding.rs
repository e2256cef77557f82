//! ValidatingAdmissionPolicyBinding: for which requests, with which parameters and with what effect a policy is in force.

use serde_json::Value;

use super::{check_name, common, rules, warn_of_name};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::kinds::common::report;
use crate::kinds::workload::validate_labels_selector;
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    singular: "validatingadmissionpolicybinding",
    schema: "admissionregistration.ValidatingAdmissionPolicyBinding",
    table: "validatingadmissionpolicybindings",
    table_view: &TABLE,
    ..common(&BindingRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("PolicyName", "The policy that is bound."),
        column("ParamRef", "The parameters it is bound with."),
        AGE,
    ],
    row: |object, now| {
        let (name, policy) = (object.text("metadata.name"), object.text("spec.policyName"));
        vec![name.into(), policy.into(), param_cell(object.at("spec.paramRef")).into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

/// The parameters as a cell shows them.
fn param_cell(reference: &Value) -> String {
    match (reference.text("namespace"), reference.text("name")) {
        (_, "") if reference.has("selector") => go_selector(reference.at("selector")),
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go prints it.
fn go_selector(selector: &Value) -> String {
    let labels = selector.map("matchLabels").into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    let one = |one: &Value| {
        let (key, operator, values) = (one.text("key"), one.text("operator"), one.texts("values").join(" "));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: String = selector.items("matchExpressions").iter().map(one).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

const SPEC: Path<'static> = Path::Root("spec");
const ACTIONS: &[&str] = &["Audit", "Deny", "Warn"];
const NOT_FOUND_ACTIONS: &[&str] = &["Deny", "Allow"];

struct BindingRules;

impl Rules for BindingRules {
    fn default(&self, object: &mut Value) {
        if let Some(resources @ Value::Object(_)) = object.at_mut("spec.matchResources") {
            rules::default_resources(resources);
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate(object, errors);
        check_name(object, errors);
        require(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate(new, errors);
        require(new, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        warn_of_name(new, old, out);
    }
}

fn validate(object: &Value, errors: &mut Errors) {
    meta::validate(object, false, names::name_is_subdomain, errors);
    let spec = object.at("spec");
    let policy = spec.text("policyName");
    if !policy.is_empty() {
        report(&SPEC.child("policyName"), policy, names::name_is_subdomain(policy, false), errors);
    }
    if spec.has("paramRef") {
        validate_param_ref(&SPEC.child("paramRef"), spec.at("paramRef"), errors);
    }
    if spec.has("matchResources") {
        rules::validate_resources(&SPEC.child("matchResources"), spec.at("matchResources"), errors);
    }
    validate_actions(&SPEC.child("validationActions"), spec.at("validationActions"), errors);
}

/// What must be there. Generated rules find this in kube-apiserver, so it is reported last.
fn require(object: &Value, errors: &mut Errors) {
    if object.text("spec.policyName").is_empty() {
        errors.required(&SPEC.child("policyName"), "");
    }
    if object.items("spec.validationActions").is_empty() {
        errors.required(&SPEC.child("validationActions"), "");
    }
}

fn validate_actions(path: &Path<'_>, list: &Value, errors: &mut Errors) {
    let actions: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.not_supported(&path.index(index), *action, ACTIONS);
        }
        if actions[..index].contains(action) {
            errors.duplicate(&path.index(index), *action);
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        errors.invalid(path, list, why);
    }
}

fn validate_param_ref(path: &Path<'_>, reference: &Value, errors: &mut Errors) {
    let (name, has_selector) = (reference.text("name"), reference.has("selector"));
    const BOTH: &str = "name and selector are mutually exclusive";
    if !name.is_empty() {
        report(&path.child("name"), name, names::name_is_path_segment(name, false), errors);
        if has_selector {
            errors.forbidden(&path.child("name"), BOTH);
        }
    }
    if has_selector {
        validate_labels_selector(&path.child("selector"), reference.at("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.child("selector"), BOTH);
        }
    }
    if name.is_empty() && !has_selector {
        errors.required(path, "one of name or selector must be specified");
    }
    let (path, action) = (path.child("parameterNotFoundAction"), reference.text("parameterNotFoundAction"));
    if action.is_empty() {
        errors.required(&path, "");
    } else if !NOT_FOUND_ACTIONS.contains(&action) {
        errors.not_supported(&path, action, NOT_FOUND_ACTIONS);
    }
}
