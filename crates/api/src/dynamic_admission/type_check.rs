//! Checks the expressions of a policy with the types of the kinds that it matches.
//!
//! In: a ValidatingAdmissionPolicy. Out: the warnings of `status.typeChecking`. When a policy is written, its `object` may be
//! anything; here `object`, `oldObject` and `params` have the fields of their kinds, so that misspelt fields are found. A
//! warning changes nothing about what the policy decides.

use std::collections::BTreeSet;

use cel::{ObjectTypes, Type};
use serde_json::{Value, json};

use super::expression::{Environment, Expressions as _};
use super::language::Set;
use crate::kind::Kind;
use crate::kinds;
use crate::schema::{self, Shape};
use crate::value::ValueExt as _;

/// How many kinds of a rule are checked.
const MAX_KINDS: usize = 10;

/// The warnings about a policy, as `status.typeChecking.expressionWarnings` has them.
#[must_use]
pub fn warnings(policy: &Value) -> Vec<Value> {
    let spec = policy.at("spec");
    let kinds = kinds_of(spec);
    let mut out = Vec::new();
    let mut check = |field: String, text: &str| {
        let found: Vec<String> = kinds.iter().filter_map(|kind| warning(spec, kind, text)).collect();
        if !found.is_empty() {
            out.push(json!({"fieldRef": field, "warning": found.join("\n")}));
        }
    };
    for (index, validation) in spec.items("validations").iter().enumerate() {
        check(format!("spec.validations[{index}].expression"), validation.text("expression"));
        match validation.text("messageExpression") {
            "" => {}
            text => check(format!("spec.validations[{index}].messageExpression"), text),
        }
    }
    out
}

/// What is wrong with an expression about objects of a kind.
fn warning(spec: &Value, kind: &'static Kind, expression: &str) -> Option<String> {
    let params = spec.at("paramKind");
    let environment = Environment { params: params.has("kind"), authorizer: true, stored: true };
    let mut set = Set::typed(object_type(Some(kind)), object_type(param_kind(params)));
    for variable in spec.items("variables") {
        // One that does not compile is of any type.
        let _ = set.declare(variable.text("name"), variable.text("expression"), environment);
    }
    let issues = set.check(expression, environment).err()?;
    Some(format!("{}/{}, Kind={}: {issues}\n", kind.group, kind.version, kind.kind))
}

fn object_type(kind: Option<&Kind>) -> Type {
    kind.map_or(Type::Dyn, |kind| Type::object(kind.schema))
}

fn param_kind(params: &Value) -> Option<&'static Kind> {
    let (group, version) = params.text("apiVersion").rsplit_once('/').unwrap_or(("", params.text("apiVersion")));
    kinds::find_kind(group, version, params.text("kind"))
}

/// The kinds that the rules of a policy name, in order; rules with wildcards name none.
fn kinds_of(spec: &Value) -> Vec<&'static Kind> {
    let mut found: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
    for rule in spec.at("matchConstraints").items("resourceRules") {
        let words = |field: &str| -> BTreeSet<&str> { rule.items(field).iter().filter_map(Value::as_str).collect() };
        let (groups, versions) = (words("apiGroups"), words("apiVersions"));
        if groups.iter().chain(&versions).any(|word| word.contains('*')) {
            continue;
        }
        let resources = words("resources");
        let plain = || resources.iter().filter(|resource| !resource.contains(['*', '/']));
        let named = groups.iter().flat_map(|group| versions.iter().map(move |version| (*group, *version)));
        let kinds = named.flat_map(|(group, version)| plain().filter_map(move |one| kinds::find(group, version, one)));
        found.extend(kinds.take(MAX_KINDS).map(|kind| (kind.group, kind.version, kind.kind)));
    }
    found.into_iter().filter_map(|(group, version, kind)| kinds::find_kind(group, version, kind)).collect()
}

/// The types of the schema tables, by their names there.
#[derive(Clone, Copy, Debug)]
pub(super) struct SchemaTypes;

impl ObjectTypes for SchemaTypes {
    fn contains(&self, name: &str) -> bool {
        schema::find(name).is_some()
    }

    fn field(&self, name: &str, field: &str) -> Option<Type> {
        let kind = schema::find(name)?.get();
        let plain = || cel::unescape(field).and_then(|json| kind.field(&json));
        kind.field(field).or_else(plain).map(|field| type_of(&field.shape))
    }
}

fn type_of(shape: &Shape) -> Type {
    match shape {
        Shape::String | Shape::Duration => Type::String,
        Shape::Bool => Type::Bool,
        Shape::Int32 | Shape::Int64 => Type::Int,
        Shape::Float64 => Type::Double,
        Shape::Bytes => Type::Bytes,
        Shape::Time | Shape::MicroTime => Type::Timestamp,
        // Values of several types, or of types without fields that are known.
        Shape::Quantity | Shape::IntOrString | Shape::Raw | Shape::FieldsV1 => Type::Dyn,
        Shape::Json | Shape::Union(..) => Type::Dyn,
        Shape::Object(id) => Type::object(id.get().name),
        Shape::List(items) => Type::list(type_of(items)),
        Shape::Map(values) => Type::map(Type::String, type_of(values)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &Value, validation: &Value) -> Vec<(String, String)> {
        let spec = json!({
            "matchConstraints": {"resourceRules": rules},
            "variables": [{"name": "ports", "expression": "object.spec.ports"}],
            "validations": [validation],
        });
        let text = |warning: &Value, field| warning.text(field).to_owned();
        let found = warnings(&json!({"spec": spec}));
        found.iter().map(|warning| (text(warning, "fieldRef"), text(warning, "warning"))).collect()
    }

    fn services() -> Value {
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services", "pods/status"]}])
    }

    #[test]
    fn misspelt_fields_are_found() {
        let found = check(&services(), &json!({"expression": "object.spec.frob == 'x'"}));
        let warning = "/v1, Kind=Service: ERROR: <input>:1:12: undefined field 'frob'\n | object.spec.frob == 'x'\n | \
                       ...........^\n";
        assert_eq!(found, [("spec.validations[0].expression".to_owned(), warning.to_owned())]);
        let message = json!({"expression": "true", "messageExpression": "object.frob"});
        assert_eq!(check(&services(), &message)[0].0, "spec.validations[0].messageExpression");
        let variable = json!({"expression": "variables.ports.all(port, port.nodeport > 1)"});
        assert_eq!(check(&services(), &variable), [], "objects in variables are of any type, as in Kubernetes");
    }

    #[test]
    fn good_expressions_have_no_warnings() {
        for text in [
            "object.metadata.namespace == 'a' && object.metadata.__namespace__ == oldObject.metadata.namespace",
            "object.metadata.labels['a'] == 'b' && object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')",
            "variables.ports.all(port, port.port < 1024 || port.targetPort == 'http')",
            "authorizer.requestResource.check('get').allowed() && request.dryRun",
        ] {
            assert_eq!(check(&services(), &json!({"expression": text})), [], "{text}");
        }
    }

    #[test]
    fn wildcards_and_unknown_kinds_are_not_checked() {
        let bad = json!({"expression": "object.frob"});
        for rules in [
            json!([{"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["services"]}]),
            json!([{"apiGroups": [""], "apiVersions": ["*"], "resources": ["services"]}]),
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*", "pods/*"]}]),
            json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["frobs"]}]),
            Value::Null,
        ] {
            assert_eq!(check(&rules, &bad), [], "{rules}");
        }
        let both = json!([{"apiGroups": ["apps", ""], "apiVersions": ["v1"], "resources": ["deployments", "pods"]}]);
        let found = &check(&both, &bad)[0].1;
        assert!(
            found.starts_with("/v1, Kind=Pod: ERROR") && found.contains("\n\napps/v1, Kind=Deployment: "),
            "{found}"
        );
    }
}
