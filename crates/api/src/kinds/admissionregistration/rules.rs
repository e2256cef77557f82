//! Which requests a policy or webhook is about: operations, groups, versions, resources, scope, selectors.

use serde_json::{Map, Value};

use super::put_missing;
use crate::field::{Errors, Path};
use crate::kinds::common::report;
use crate::kinds::workload::validate_labels_selector;
use crate::names;
use crate::value::ValueExt as _;

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: &[&str] = &["*", "Cluster", "Namespaced"];
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];

/// Fills what a `matchConstraints` or `matchResources` leaves out.
pub(super) fn default_resources(resources: &mut Value) {
    default_match(resources);
    for list in ["resourceRules", "excludeResourceRules"] {
        resources.items_mut(list).iter_mut().for_each(default_rule);
    }
}

/// Fills policy and selectors of whatever has them.
pub(super) fn default_match(holder: &mut Value) {
    put_missing(holder, "matchPolicy", "Equivalent");
    put_missing(holder, "namespaceSelector", Map::new());
    put_missing(holder, "objectSelector", Map::new());
}

pub(super) fn default_rule(rule: &mut Value) {
    put_missing(rule, "scope", "*");
}

/// Checks a `matchConstraints` or `matchResources`.
pub(super) fn validate_resources(path: &Path<'_>, resources: &Value, errors: &mut Errors) {
    if resources.has("matchPolicy") {
        validate_match_policy(path, resources, errors);
    } else {
        errors.required(&path.child("matchPolicy"), "");
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        if resources.has(selector) {
            validate_labels_selector(&path.child(selector), resources.at(selector), errors);
        } else {
            errors.required(&path.child(selector), "");
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        let rules = path.child(list);
        for (index, rule) in resources.items(list).iter().enumerate() {
            validate_named_rule(&rules.index(index), rule, errors);
        }
    }
}

pub(super) fn validate_match_policy(path: &Path<'_>, holder: &Value, errors: &mut Errors) {
    let policy = holder.at("matchPolicy");
    if !policy.is_null() && !MATCH_POLICIES.contains(&holder.text("matchPolicy")) {
        errors.not_supported(&path.child("matchPolicy"), policy, MATCH_POLICIES);
    }
}

fn validate_named_rule(path: &Path<'_>, rule: &Value, errors: &mut Errors) {
    let (list, resource_names) = (path.child("resourceNames"), rule.texts("resourceNames"));
    for (index, name) in resource_names.iter().enumerate() {
        report(&list.index(index), name, names::name_is_path_segment(name, false), errors);
        if resource_names[..index].contains(name) {
            errors.duplicate(&list.index(index), *name);
        }
    }
    validate_rule(path, rule, errors);
}

/// Checks a rule with operations.
pub(super) fn validate_rule(path: &Path<'_>, rule: &Value, errors: &mut Errors) {
    let list = path.child("operations");
    let operations = rule.texts("operations");
    require_some(&list, &operations, errors);
    refuse_beside_wildcard(&list, rule.at("operations"), "operations", errors);
    for (index, operation) in operations.iter().enumerate().filter(|(_, operation)| !OPERATIONS.contains(operation)) {
        errors.not_supported(&list.index(index), *operation, OPERATIONS);
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        require_some(&path.child(field), &rule.texts(field), errors);
        refuse_beside_wildcard(&path.child(field), rule.at(field), what, errors);
    }
    let list = path.child("apiVersions");
    for (index, _) in rule.texts("apiVersions").iter().enumerate().filter(|(_, version)| version.is_empty()) {
        errors.required(&list.index(index), "");
    }
    validate_resource_names(&path.child("resources"), rule.at("resources"), errors);
    if rule.has("scope") && !SCOPES.contains(&rule.text("scope")) {
        errors.not_supported(&path.child("scope"), rule.text("scope"), SCOPES);
    }
}

fn require_some(path: &Path<'_>, list: &[&str], errors: &mut Errors) {
    if list.is_empty() {
        errors.required(path, "");
    }
}

/// `*` stands alone.
fn refuse_beside_wildcard(path: &Path<'_>, list: &Value, what: &str, errors: &mut Errors) {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        errors.invalid(path, list, &format!("if '*' is present, must not specify other {what}"));
    }
}

/// `resources`: names of resources, of subresources (`pods/log`), and wildcards that must not overlap others.
fn validate_resource_names(path: &Path<'_>, list: &Value, errors: &mut Errors) {
    let resources: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    require_some(path, &resources, errors);
    let (mut all_parts_of, mut part_of_all): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // Only the last resource without a part counts, as in kube-apiserver.
    let mut last_is_named = false;
    for (index, entry) in resources.iter().enumerate() {
        if entry.is_empty() {
            errors.required(&path.index(index), "");
            continue;
        }
        let Some((resource, part)) = entry.split_once('/') else {
            last_is_named = *entry != "*";
            continue;
        };
        if all_parts_of.contains(&resource) {
            let why = format!("if '{resource}/*' is present, must not specify {entry}");
            errors.invalid(&path.index(index), *entry, &why);
        }
        if part_of_all.contains(&part) {
            errors.invalid(&path.index(index), *entry, &format!("if '*/{part}' is present, must not specify {entry}"));
        }
        if part == "*" {
            all_parts_of.push(resource);
        }
        if resource == "*" {
            part_of_all.push(part);
        }
    }
    if resources.len() > 1 && resources.contains(&"*/*") {
        errors.invalid(path, list, "if '*/*' is present, must not specify other resources");
    }
    if resources.contains(&"*") && last_is_named {
        errors.invalid(path, list, "if '*' is present, must not specify other resources without subresources");
    }
}
