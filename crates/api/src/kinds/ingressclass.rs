//! IngressClass: which controller serves an Ingress.

use serde_json::Value;

use super::common::{immutable_text, report};
use super::ingress::validate_reference;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;
use crate::view::annotations::DEFAULT_INGRESS_CLASS;

const MAX_CONTROLLER: usize = 250;

/// The kind.
pub static KIND: Kind = Kind {
    group: "networking.k8s.io",
    kind: "IngressClass",
    plural: "ingressclasses",
    singular: "ingressclass",
    namespaced: false,
    schema: "networking.IngressClass",
    table: "ingressclasses",
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&IngressClassRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Controller", "Who serves Ingresses of this class."),
        column("Parameters", "An object with further settings."),
        AGE,
    ],
    row: |object, now| {
        let name = object.text("metadata.name");
        let name = if is_default(object) { format!("{name} (default)") } else { name.to_owned() };
        vec![
            name.into(),
            object.text("spec.controller").into(),
            parameters_cell(object.at("spec.parameters")).into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

struct IngressClassRules;

impl Rules for IngressClassRules {
    fn default(&self, object: &mut Value) {
        if object.has("spec.parameters") && !object.has("spec.parameters.scope") {
            object.put("spec.parameters.scope", "Cluster");
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, false, names::name_is_subdomain, errors);
        validate_controller(object.text("spec.controller"), errors);
        if object.has("spec.parameters") {
            validate_parameters(object.at("spec.parameters"), errors);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let path = Path::Root("spec.controller");
        immutable_text(&path, new.text("spec.controller"), old.text("spec.controller"), errors);
        self.validate_create(new, errors);
    }
}

/// Whether Ingresses without a class get this one.
#[must_use]
pub fn is_default(object: &Value) -> bool {
    object.at("metadata.annotations").get(DEFAULT_INGRESS_CLASS).and_then(Value::as_str) == Some("true")
}

fn validate_controller(controller: &str, errors: &mut Errors) {
    let path = Path::Root("spec.controller");
    if controller.len() > MAX_CONTROLLER {
        errors.too_long(&path, MAX_CONTROLLER);
    }
    if controller.is_empty() {
        errors.required(&path, "");
        return;
    }
    let (host, rest) = controller.split_once('/').unwrap_or_default();
    if host.is_empty() || rest.is_empty() {
        errors.invalid(&path, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    }
    report(&path, host, names::dns_subdomain(host), errors);
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(&path, rest, detail);
    }
}

fn validate_parameters(parameters: &Value, errors: &mut Errors) {
    let path = Path::Root("spec.parameters");
    let before = errors.0.len();
    validate_reference(&path, parameters, errors);
    // Generated rules of Kubernetes find missing names, so they are reported last.
    let (required, others): (Vec<_>, Vec<_>) =
        errors.0.drain(before..).partition(|error| error.reason == "FieldValueRequired");
    errors.0.extend(others);
    let namespace = parameters.at("namespace").as_str();
    match (parameters.text("scope"), namespace) {
        ("Namespace", None) => {
            errors.required(&path.child("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        ("Namespace", Some(name)) => {
            report(&path.child("namespace"), name, names::name_is_label(name, false), errors);
        }
        ("Cluster", Some(_)) => {
            errors.forbidden(&path.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        ("Cluster", None) => {}
        (scope, _) => errors.not_supported(&path.child("scope"), scope, &["Cluster", "Namespace"]),
    }
    errors.0.extend(required);
}

fn parameters_cell(parameters: &Value) -> String {
    if parameters.is_null() {
        return "<none>".to_owned();
    }
    let group = parameters.at("apiGroup").as_str().map_or_else(String::new, |group| format!(".{group}"));
    format!("{}{group}/{}", parameters.text("kind"), parameters.text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("ingress", &KIND);
    }

    fn check(spec: &Value) -> String {
        let object = json!({"metadata": {"name": "a"}, "spec": spec});
        summary(|errors| IngressClassRules.validate_create(&object, errors))
    }

    #[test]
    fn controllers_are_paths_in_a_domain() {
        assert_eq!(check(&json!({"controller": "example.com/a-b/c"})), "[]");
        let domain = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        assert_eq!(check(&json!({"controller": "x"})), format!("spec.controller: Invalid value: \"x\": {domain}"));
        assert!(check(&json!({"controller": "a/b c"})).contains("\"b c\": Invalid path"));
        let long = format!("a/{}", "x".repeat(250));
        assert_eq!(check(&json!({"controller": long})), "spec.controller: Too long: may not be more than 250 bytes");
    }

    #[test]
    fn scope_and_namespace_belong_together() {
        let with = |parameters: Value| check(&json!({"controller": "a.b/c", "parameters": parameters}));
        assert_eq!(
            with(json!({"kind": "K", "name": "n", "scope": "Cluster", "namespace": "x"})),
            "spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"
        );
        assert_eq!(
            with(json!({"scope": "Other"})),
            "[spec.parameters.scope: Unsupported value: \"Other\": supported values: \"Cluster\", \"Namespace\", \
             spec.parameters.kind: Required value, spec.parameters.name: Required value]"
        );
    }

    #[test]
    fn the_default_class_is_marked() {
        let object = json!({
            "metadata": {"name": "a", "annotations": {DEFAULT_INGRESS_CLASS: "true"}},
            "spec": {"controller": "a.b/c", "parameters": {"apiGroup": "g", "kind": "K", "name": "n"}},
        });
        let cells = (TABLE.row)(&object, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells, vec![json!("a (default)"), json!("a.b/c"), json!("K.g/n"), json!("<unknown>")]);
    }
}
