//! ValidatingAdmissionPolicy: expressions that must hold for requests. A binding puts a policy into force.

use serde_json::{Map, Value};

use super::{check_name, common, conditions, put_missing, rules, warn_of_name};
use crate::dynamic_admission::expression::{self, Compiler, Environment, Expressions, Gives};
use crate::dynamic_admission::language::Cel;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, keep_all_but_status, keep_status, status_of};
use crate::kinds::common::{go_struct, invalid_struct, keep_metadata, report, validate_conditions};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, integer_column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    schema: "admissionregistration.ValidatingAdmissionPolicy",
    table: "validatingadmissionpolicies",
    subresources: &[status_of("ValidatingAdmissionPolicy")],
    table_view: &TABLE,
    ..common(&PolicyRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        integer_column("Validations", "How many validations there are."),
        column("ParamKind", "The kind of the parameters."),
        AGE,
    ],
    row: |object, now| {
        let kind = object.at("spec.paramKind");
        let shown = match kind {
            Value::Null => "<unset>".to_owned(),
            _ => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")),
        };
        let validations = object.items("spec.validations").len();
        vec![object.text("metadata.name").into(), validations.into(), shown.into(), age(object, now).into()]
    },
    conditions: no_conditions,
};

const SPEC: Path<'static> = Path::Root("spec");
const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
/// Bytes of an expression of an audit annotation.
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
struct PolicyRules;

impl Rules for PolicyRules {
    fn default(&self, object: &mut Value) {
        put_missing(object, "spec.failurePolicy", "Fail");
        if let Some(resources @ Value::Object(_)) = object.at_mut("spec.matchConstraints") {
            rules::default_resources(resources);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", Map::new());
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        keep_metadata(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate(object, None, &Cel, errors);
        check_name(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate(new, Some(old), &Cel, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let path = Path::Root("status.typeChecking.expressionWarnings");
        for (index, warning) in new.items("status.typeChecking.expressionWarnings").iter().enumerate() {
            let (warning_is_empty, path) = (warning.text("warning").is_empty(), path.index(index));
            if warning_is_empty {
                errors.required(&path.child("warning"), "");
            }
            if warning.text("fieldRef").trim().is_empty() {
                errors.required(&path.child("fieldRef"), "");
            }
        }
        validate_conditions(&Path::Root("status.conditions"), new.items("status.conditions"), errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        warn_of_name(new, old, out);
    }
}

/// Checks a policy. Expressions that `old` has too were accepted earlier.
pub(super) fn validate(object: &Value, old: Option<&Value>, compiler: &dyn Compiler, errors: &mut Errors) {
    meta::validate(object, false, names::name_is_subdomain, errors);
    let (spec, before) = (object.at("spec"), old.map_or(&Value::Null, |old| old.at("spec")));
    if !spec.has("failurePolicy") {
        errors.required(&SPEC.child("failurePolicy"), "");
    } else if !FAILURE_POLICIES.contains(&spec.text("failurePolicy")) {
        errors.not_supported(&SPEC.child("failurePolicy"), spec.text("failurePolicy"), FAILURE_POLICIES);
    }
    if spec.has("paramKind") {
        validate_param_kind(&SPEC.child("paramKind"), spec.at("paramKind"), errors);
    }
    let constraints = SPEC.child("matchConstraints");
    if spec.has("matchConstraints") {
        rules::validate_resources(&constraints, spec.at("matchConstraints"), errors);
        if spec.items("matchConstraints.resourceRules").is_empty() {
            errors.required(&constraints.child("resourceRules"), "");
        }
    } else {
        errors.required(&constraints, "");
    }
    let has_params = spec.has("paramKind");
    let same_conditions = old.is_some()
        && spec.at("paramKind") == before.at("paramKind")
        && spec.items("matchConditions") == before.items("matchConditions");
    if !same_conditions {
        let accepted: Vec<&str> = conditions::texts(before.items("matchConditions")).collect();
        let (path, all) = (SPEC.child("matchConditions"), spec.items("matchConditions"));
        conditions::validate(&path, all, has_params, &accepted, compiler, errors);
    }
    let expressions = compiler.expressions(!spec.items("variables").is_empty());
    PolicyCheck { expressions, has_params, before, errors }.run(object.text("metadata.name"), spec);
}

fn validate_param_kind(path: &Path<'_>, kind: &Value, errors: &mut Errors) {
    let (version_path, api_version) = (path.child("apiVersion"), kind.text("apiVersion"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if api_version.is_empty() {
        errors.required(&version_path, "");
    } else if version.contains('/') {
        let why = format!("unexpected GroupVersion string: {api_version}");
        errors.invalid(&version_path, api_version, &why);
    } else {
        let wrong = if group.is_empty() { Vec::new() } else { names::dns_subdomain(group) };
        if !wrong.is_empty() {
            errors.invalid(&version_path, group, &wrong.join(","));
        }
        let wrong = names::dns_1035_label(version);
        if version.is_empty() {
            errors.invalid(&version_path, api_version, "version must be specified");
        } else if !wrong.is_empty() {
            errors.invalid(&version_path, version, &wrong.join(","));
        }
    }
    let wrong = names::dns_1035_label(&kind.text("kind").to_lowercase());
    if kind.text("kind").is_empty() {
        errors.required(&path.child("kind"), "");
    } else if !wrong.is_empty() {
        let why = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.invalid(&path.child("kind"), kind.text("kind"), &why);
    }
}

/// The expressions of a policy, compiled one after the other: variables first, because the others may name them.
struct PolicyCheck<'a> {
    expressions: Box<dyn Expressions>,
    has_params: bool,
    /// The spec that was accepted earlier, or null.
    before: &'a Value,
    errors: &'a mut Errors,
}

impl PolicyCheck<'_> {
    fn run(mut self, name: &str, spec: &Value) {
        let path = SPEC.child("variables");
        for (index, variable) in spec.items("variables").iter().enumerate() {
            self.variable(&path.index(index), variable);
        }
        let (validations, annotations) = (spec.items("validations"), spec.items("auditAnnotations"));
        if validations.is_empty() && annotations.is_empty() {
            let why = "validations or auditAnnotations must contain at least one item";
            self.errors.required(&SPEC.child("validations"), why);
            return self.errors.required(&SPEC.child("auditAnnotations"), why);
        }
        let path = SPEC.child("validations");
        for (index, validation) in validations.iter().enumerate() {
            self.validation(&path.index(index), validation);
        }
        let path = SPEC.child("auditAnnotations");
        if annotations.len() > MAX_AUDIT_ANNOTATIONS {
            let members = [("Key", "key"), ("ValueExpression", "valueExpression")];
            let all: Vec<String> = annotations.iter().map(|annotation| go_struct(annotation, &members)).collect();
            let why = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
            invalid_struct(&path, &format!("[{}]", all.join(",")), &why, self.errors);
        }
        for (index, annotation) in annotations.iter().enumerate() {
            self.annotation(&path.index(index), name, annotation);
            let key = annotation.text("key");
            if annotations[..index].iter().any(|earlier| earlier.text("key") == key) {
                self.errors.duplicate(&path.index(index).child("key"), key);
            }
        }
    }

    /// Whether an expression was accepted earlier, in a field of a list.
    fn environment(&self, list: &str, field: &str, text: &str) -> Environment {
        let stored = self.before.items(list).iter().any(|earlier| earlier.text(field) == text);
        Environment { params: self.has_params, authorizer: true, stored }
    }

    fn variable(&mut self, path: &Path<'_>, variable: &Value) {
        let (name, text) = (variable.text("name"), variable.text("expression"));
        if name.trim().is_empty() {
            self.errors.required(&path.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            self.errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
        }
        if text.trim().is_empty() {
            return self.errors.required(&path.child("expression"), "expression is not specified");
        }
        // kube-apiserver looks for earlier variables among the validations.
        let environment = self.environment("validations", "expression", text);
        if let Err(why) = self.expressions.declare(name, text, environment) {
            self.errors.invalid(&path.child("expression"), text, &why);
        }
    }

    fn validation(&mut self, path: &Path<'_>, validation: &Value) {
        let text = validation.text("expression");
        if text.trim().is_empty() {
            self.errors.required(&path.child("expression"), "expression is not specified");
        } else {
            let environment = self.environment("validations", "expression", text);
            self.compile(&path.child("expression"), text, environment, Gives::Bool);
        }
        let text = validation.text("messageExpression");
        if !text.is_empty() && text.trim().is_empty() {
            self.errors.invalid(&path.child("messageExpression"), text, "must be non-empty if specified");
        } else if !text.is_empty() {
            let environment = self.environment("validations", "messageExpression", text);
            let environment = Environment { authorizer: false, ..environment };
            self.compile(&path.child("messageExpression"), text, environment, Gives::Text);
        }
        let message = validation.text("message");
        if !message.is_empty() && message.trim().is_empty() {
            self.errors.invalid(&path.child("message"), message, "must be non-empty if specified");
        } else if message.trim().contains(['\n', '\r']) {
            self.errors.invalid(&path.child("message"), message, "must not contain line breaks");
        }
        if validation.has("reason") && !REASONS.contains(&validation.text("reason")) {
            self.errors.not_supported(&path.child("reason"), validation.text("reason"), REASONS);
        }
    }

    fn annotation(&mut self, path: &Path<'_>, policy: &str, annotation: &Value) {
        let key = annotation.text("key");
        if policy.is_empty() {
            self.errors.invalid(&path.child("key"), key, "requires metadata.name be non-empty");
        } else {
            let qualified = format!("{policy}/{key}");
            report(&path.child("key"), &qualified, names::qualified_name(&qualified), self.errors);
        }
        let (path, text) = (path.child("valueExpression"), annotation.text("valueExpression"));
        if text.trim().is_empty() {
            self.errors.required(&path, "valueExpression is not specified");
        } else if text.trim().len() > MAX_VALUE_EXPRESSION {
            self.errors.required(&path, &format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length"));
        } else {
            let environment = self.environment("auditAnnotations", "valueExpression", text);
            let done = expression::compile(self.expressions.as_mut(), text.trim(), environment, Gives::TextOrNull);
            if let Err(why) = done {
                self.errors.invalid(&path, text, &why);
            }
        }
    }

    fn compile(&mut self, path: &Path<'_>, text: &str, environment: Environment, gives: Gives) {
        if let Err(why) = expression::compile(self.expressions.as_mut(), text, environment, gives) {
            self.errors.invalid(path, text, &why);
        }
    }
}

/// `[_a-zA-Z][_a-zA-Z0-9]*`, but no reserved word.
fn is_identifier(name: &str) -> bool {
    let starts_well = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic());
    starts_well && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) && !cel::is_reserved(name)
}
