//! Validation of limits, scopes and usage of a ResourceQuota.
//!
//! In: `spec` or a map of amounts. Out: field errors. A scope restricts a quota to some Pods (or volume claims), so it
//! is valid only for resources of these.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::kinds::common::{IMMUTABLE, go_struct, invalid_struct};
use crate::quantity::Amount;
use crate::quota::scope::{self, Operator};
use crate::resources::names;
use crate::value::ValueExt as _;

const SPEC: Path<'static> = Path::Root("spec");
const UNSUITABLE: &str = "unsupported scope applied to resource";
const CONFLICTING: [[&str; 2]; 2] =
    [[scope::BEST_EFFORT, scope::NOT_BEST_EFFORT], [scope::TERMINATING, scope::NOT_TERMINATING]];

/// Validates the spec of a quota.
pub(super) fn spec(spec: &Value, errors: &mut Errors) {
    amounts(&SPEC.child("hard"), spec.at("hard"), errors);
    scopes(spec, errors);
    selector(spec, errors);
}

/// Validates names and amounts of resources.
pub(super) fn amounts(list: &Path<'_>, amounts: &Value, errors: &mut Errors) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let (path, amount) = (list.key(name), Amount::of(amount));
        names::validate_of_quota(&path, name, errors);
        if amount.is_negative() {
            errors.invalid(&path, amount.to_string(), "must be greater than or equal to 0");
        }
        if names::is_integer(name) && !amount.is_integer() {
            errors.invalid(&path, amount.to_string(), "must be an integer");
        }
    }
}

/// Refuses a change of the scopes; their order does not matter.
pub(super) fn same_scopes(new: &Value, old: &Value, errors: &mut Errors) {
    let set = |scopes: &Value| -> HashSet<String> {
        scopes.as_array().into_iter().flatten().filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
    };
    if set(new) != set(old) {
        errors.invalid(&SPEC.child("scopes"), new, IMMUTABLE);
    }
}

fn scopes(spec: &Value, errors: &mut Errors) {
    let (path, shown) = (SPEC.child("scopes"), spec.at("scopes"));
    let scopes = spec.texts("scopes");
    for scope in &scopes {
        if !scope::ALL.contains(scope) {
            errors.invalid(&path, shown, "unsupported scope");
        }
        for _ in unsuitable(scope, spec) {
            errors.invalid(&path, shown, UNSUITABLE);
        }
    }
    conflicting(&path, &scopes, shown, errors);
}

fn selector(spec: &Value, errors: &mut Errors) {
    let selector = SPEC.child("scopeSelector");
    let path = selector.child("matchExpressions");
    let requirements = spec.items("scopeSelector.matchExpressions");
    for requirement in requirements {
        let scope = requirement.text("scopeName");
        if !scope::ALL.contains(&scope) {
            errors.invalid(&path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in unsuitable(scope, spec) {
            invalid_struct(&path, &shown_selector(requirements), UNSUITABLE, errors);
        }
        validate_operator(&path, requirement, errors);
    }
    let scopes: Vec<&str> = requirements.iter().map(|requirement| requirement.text("scopeName")).collect();
    // As in kube-apiserver, the message shows `spec.scopes`.
    conflicting(&path, &scopes, spec.at("scopes"), errors);
}

fn validate_operator(path: &Path<'_>, requirement: &Value, errors: &mut Errors) {
    let (operator, values) = (requirement.text("operator"), requirement.items("values"));
    if scope::WITHOUT_VALUES.contains(&requirement.text("scopeName")) && operator != "Exists" {
        let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                      ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort \
                      or ResourceQuotaScopeCrossNamespacePodAffinity";
        errors.invalid(&path.child("operator"), operator, detail);
    }
    match Operator::of(operator) {
        Some(Operator::In | Operator::NotIn) if values.is_empty() => {
            let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
            errors.required(&path.child("values"), detail);
        }
        Some(Operator::Exists | Operator::DoesNotExist) if !values.is_empty() => {
            let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
            errors.invalid(&path.child("values"), requirement.at("values"), detail);
        }
        Some(_) => {}
        None => errors.invalid(&path.child("operator"), operator, "not a valid selector operator"),
    }
}

/// The limited resources for which a scope is not valid.
fn unsuitable<'s>(scope: &'s str, spec: &'s Value) -> impl Iterator<Item = &'s String> {
    let names = spec.map("hard").into_iter().flat_map(serde_json::Map::keys);
    names.filter(move |name| names::is_standard_quota(name) && !scope::is_valid_for(scope, name))
}

fn conflicting(path: &Path<'_>, scopes: &[&str], shown: &Value, errors: &mut Errors) {
    for pair in CONFLICTING {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid(path, shown, "conflicting scopes");
        }
    }
}

/// A selector as Go prints the struct behind it.
fn shown_selector(requirements: &[Value]) -> String {
    let members = [("ScopeName", "scopeName"), ("Operator", "operator"), ("Values", "values?")];
    let printed = requirements.iter().map(|requirement| go_struct(requirement, &members));
    format!("{{\"MatchExpressions\":[{}]}}", printed.collect::<Vec<String>>().join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::summary;

    fn check(object: &Value) -> String {
        summary(|errors| spec(object, errors)).replace("spec.", "")
    }

    fn selecting(name: &str, operator: &str, values: &Value) -> String {
        let requirement = json!({"scopeName": name, "operator": operator, "values": values});
        check(&json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [requirement]}}))
            .replace("scopeSelector.matchExpressions", "M")
    }

    #[test]
    fn amounts_are_whole_and_not_negative() {
        assert_eq!(
            check(&json!({"hard": {"requests.cpu": "1500m", "count/pods": "2", "requests.example.com/x": "1.5"}})),
            "[]"
        );
        assert_eq!(
            check(&json!({"hard": {"count/pods": "1.5", "pods": "-1"}})),
            "[hard[count/pods]: Invalid value: \"1500m\": must be an integer, \
             hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0]"
        );
    }

    #[test]
    fn scopes_are_valid_for_resources_of_pods() {
        assert_eq!(check(&json!({"hard": {"pods": "1", "count/x": "1"}, "scopes": ["BestEffort"]})), "[]");
        assert_eq!(
            check(&json!({"hard": {"services": "1", "cpu": "1"}, "scopes": ["BestEffort"]})),
            "scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"
        );
        let affinity = json!({"hard": {"persistentvolumeclaims": "1"}, "scopes": ["VolumeAttributesClass"]});
        assert_eq!(check(&affinity), "[]");
    }

    #[test]
    fn operators_have_the_values_they_need() {
        assert_eq!(selecting("PriorityClass", "In", &json!(["high"])), "[]");
        assert_eq!(selecting("PriorityClass", "DoesNotExist", &Value::Null), "[]");
        assert_eq!(
            selecting("PriorityClass", "NotIn", &Value::Null),
            "M.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
        );
        assert_eq!(
            selecting("PriorityClass", "Exists", &json!(["high"])),
            "M.values: Invalid value: [\"high\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for \
             scope selector"
        );
        assert!(selecting("Terminating", "In", &json!(["x"])).contains("must be 'Exists' when scope is any of"));
        assert_eq!(
            selecting("Frob", "Exists", &Value::Null),
            "M.scopeName: Invalid value: \"Frob\": unsupported scope"
        );
    }

    #[test]
    fn a_selector_is_shown_by_its_go_names() {
        let requirement = json!({"scopeName": "PriorityClass", "operator": "Exists"});
        assert_eq!(
            check(&json!({"hard": {"services": "1"}, "scopeSelector": {"matchExpressions": [requirement]}})),
            "scopeSelector.matchExpressions: Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\
             \"PriorityClass\",\"Operator\":\"Exists\",\"Values\":null}]}: unsupported scope applied to resource"
        );
    }

    #[test]
    fn scopes_are_immutable() {
        let change = |new: Value, old: Value| summary(|errors| same_scopes(&new, &old, errors));
        assert_eq!(change(json!(["A", "B"]), json!(["B", "A"])), "[]");
        assert_eq!(change(Value::Null, json!(["A"])), "spec.scopes: Invalid value: null: field is immutable");
    }
}
