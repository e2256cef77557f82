//! The policies of a Job: which failures of Pods end it or do not count, and which successes are enough.

use serde_json::Value;

use super::super::common::{go_struct, invalid_omitted, invalid_struct, report};
use super::super::workload::not_negative;
use super::INDEXED;
use crate::field::{Errors, Path};
use crate::indexes;
use crate::names;
use crate::value::ValueExt as _;

const MAX_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_CONDITIONS: usize = 20;
/// Bytes of `succeededIndexes`.
const MAX_SUCCEEDED_INDEXES: usize = 64 * 1024;

const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: &[&str] = &["In", "NotIn"];
const STATUSES: &[&str] = &["False", "True", "Unknown"];

/// Checks `podFailurePolicy`.
pub(super) fn validate_failure_policy(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let policy = spec.at("podFailurePolicy");
    if policy.is_null() {
        return;
    }
    let path = path.child("podFailurePolicy");
    let path = path.child("rules");
    let rules = policy.items("rules");
    if rules.len() > MAX_RULES {
        errors.too_many(&path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_failure_rule(&path.index(index), spec, rule, errors);
    }
}

/// Rejects an empty value with the list of the valid ones, and an unknown one.
fn one_of(path: &Path<'_>, word: &str, known: &[&str], errors: &mut Errors) {
    if word.is_empty() {
        let list: Vec<String> = known.iter().map(|word| crate::field::quote(word)).collect();
        errors.required(path, &format!("valid values: [{}]", list.join(" ")));
    } else if !known.contains(&word) {
        errors.not_supported(path, word, known);
    }
}

fn validate_failure_rule(path: &Path<'_>, spec: &Value, rule: &Value, errors: &mut Errors) {
    let (action, exit_codes, conditions) = (rule.text("action"), rule.at("onExitCodes"), rule.items("onPodConditions"));
    if action == "FailIndex" && !spec.has("backoffLimitPerIndex") {
        errors.invalid(&path.child("action"), action, "requires the backoffLimitPerIndex to be set");
    }
    one_of(&path.child("action"), action, ACTIONS, errors);
    if !exit_codes.is_null() {
        validate_exit_codes(&path.child("onExitCodes"), spec, exit_codes, errors);
    }
    validate_pod_conditions(&path.child("onPodConditions"), conditions, errors);
    match (exit_codes.is_null(), conditions.is_empty()) {
        (false, false) => {
            invalid_omitted(path, "specifying both OnExitCodes and OnPodConditions is not supported", errors);
        }
        (true, true) => {
            invalid_omitted(path, "specifying one of OnExitCodes and OnPodConditions is required", errors);
        }
        _ => {}
    }
}

fn validate_pod_conditions(path: &Path<'_>, conditions: &[Value], errors: &mut Errors) {
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(path, conditions.len(), MAX_CONDITIONS);
    }
    for (index, pattern) in conditions.iter().enumerate() {
        let path = path.index(index);
        let kind = pattern.text("type");
        report(&path.child("type"), kind, names::qualified_name(kind), errors);
        one_of(&path.child("status"), pattern.text("status"), STATUSES, errors);
    }
}

fn validate_exit_codes(path: &Path<'_>, spec: &Value, codes: &Value, errors: &mut Errors) {
    let operator = codes.text("operator");
    one_of(&path.child("operator"), operator, OPERATORS, errors);
    if let Some(name) = codes.at("containerName").as_str() {
        let lists = ["template.spec.containers", "template.spec.initContainers"];
        let known = lists.iter().flat_map(|list| spec.items(list)).any(|container| container.text("name") == name);
        if !known {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(&path.child("containerName"), name, detail);
        }
    }
    let (path, values) = (path.child("values"), codes.items("values"));
    if values.is_empty() {
        errors.invalid(&path, codes.at("values"), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        errors.too_many(&path, values.len(), MAX_EXIT_CODES);
    }
    for (index, value) in values.iter().enumerate() {
        if operator == "In" && value.as_i64() == Some(0) {
            errors.invalid(&path.index(index), value, "must not be 0 for the In operator");
        }
        if values[..index].contains(value) {
            errors.duplicate(&path.index(index), value);
        }
    }
    if !values.is_sorted_by_key(Value::as_i64) {
        errors.invalid(&path, codes.at("values"), "must be ordered");
    }
}

/// Checks `successPolicy`.
pub(super) fn validate_success_policy(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let (path, policy) = (path.child("successPolicy"), spec.at("successPolicy"));
    if policy.is_null() {
        return;
    }
    let rules = policy.items("rules");
    if spec.text("completionMode") != INDEXED {
        return invalid_struct(&path, &printed(rules), "requires indexed completion mode", errors);
    }
    let path = path.child("rules");
    if rules.is_empty() {
        errors.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MAX_RULES {
        errors.too_many(&path, rules.len(), MAX_RULES);
    }
    for (index, rule) in rules.iter().enumerate() {
        validate_success_rule(&path.index(index), spec.int("completions"), rule, errors);
    }
}

/// A success policy as Go prints it.
fn printed(rules: &[Value]) -> String {
    let members = [("SucceededIndexes", "succeededIndexes?"), ("SucceededCount", "succeededCount?")];
    let rules: Vec<String> = rules.iter().map(|rule| go_struct(rule, &members)).collect();
    format!("{{\"Rules\":[{}]}}", rules.join(","))
}

fn validate_success_rule(path: &Path<'_>, completions: i64, rule: &Value, errors: &mut Errors) {
    let (indexes, count) = (rule.at("succeededIndexes").as_str(), rule.at("succeededCount").as_i64());
    if indexes.is_none() && count.is_none() {
        errors.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = None;
    if let Some(text) = indexes {
        let path = path.child("succeededIndexes");
        if text.len() > MAX_SUCCEEDED_INDEXES {
            errors.too_long(&path, MAX_SUCCEEDED_INDEXES);
        }
        let checked = indexes::check(text, completions);
        if let Err(why) = &checked {
            errors.invalid(&path, text, &format!("error parsing succeededIndexes: {why}"));
        }
        total = Some(checked.unwrap_or_default());
    }
    let Some(count) = count else { return };
    not_negative(path, rule, &["succeededCount"], errors);
    let path = path.child("succeededCount");
    if count > completions {
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.invalid(&path, count, &detail);
    }
    if let Some(total) = total.filter(|total| count > *total) {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&path, count, &detail);
    }
}
