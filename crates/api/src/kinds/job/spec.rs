//! The spec of a Job: counts, selector, template, and what of it may change.

use serde_json::{Value, json};

use super::super::common::{IMMUTABLE, report, same};
use super::super::pod::template;
use super::super::workload::{SPEC, immutable, not_negative, validate_labels_selector};
use super::policies::{validate_failure_policy, validate_success_policy};
use super::{COMPLETIONS_SOFT_LIMIT, INDEXED, has_condition, is_indexed};
use crate::field::{Errors, Path};
use crate::meta;
use crate::names;
use crate::selector;
use crate::value::ValueExt as _;
use crate::view::labels;

const MAX_PARALLELISM: i64 = 100_000;
const MAX_FAILED_INDEXES: i64 = 100_000;
/// The limit of `parallelism` and `maxFailedIndexes` above [`COMPLETIONS_SOFT_LIMIT`].
const HIGH_COMPLETIONS_LIMIT: i64 = 10_000;
const MAX_MANAGED_BY: usize = 63;

/// Checks a Job; `prefixed` is set if its template must have the labels of `batch.kubernetes.io`.
pub(super) fn validate(job: &Value, prefixed: bool, errors: &mut Errors) {
    meta::validate(job, true, names::name_is_subdomain, errors);
    validate_generated_selector(job, prefixed, errors);
    validate_spec(job.at("spec"), errors);
    let completions = job.int("spec.completions");
    if is_indexed(job) && completions > 0 {
        let name = job.text("metadata.name");
        let hostname = format!("{name}-{}", completions - 1);
        if !names::dns_label(&hostname).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
            errors.invalid(&Path::Root("metadata").child("name"), name, &detail);
        }
    }
}

/// Checks that a generated selector and its labels are those that the server generated.
fn validate_generated_selector(job: &Value, prefixed: bool, errors: &mut Errors) {
    if job.flag("spec.manualSelector") || !job.has("spec.selector") {
        return;
    }
    let (name, uid) = (job.text("metadata.name"), job.text("metadata.uid"));
    if uid.is_empty() {
        errors.required(&Path::Root("metadata").child("uid"), "");
    }
    let legacy = [(labels::LEGACY_JOB_CONTROLLER_UID, uid), (labels::LEGACY_JOB_NAME, name)];
    let current = [(labels::JOB_CONTROLLER_UID, uid), (labels::JOB_NAME, name)];
    let expected = legacy.into_iter().chain(current.into_iter().filter(|_| prefixed));
    let (template, metadata) = (SPEC.child("template"), job.at("spec.template.metadata"));
    let metadata_path = template.child("metadata");
    let path = metadata_path.child("labels");
    for (key, value) in expected.clone() {
        match metadata.at("labels").get(key).and_then(Value::as_str) {
            None => errors.required(&path.key(key), &format!("must be '{value}'")),
            Some(have) if have != value => {
                errors.invalid(&path.key(key), metadata.at("labels"), &format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let labels: Value = expected.map(|(key, value)| (key.to_owned(), json!(value))).collect();
    let facts = crate::kind::labels_of(&json!({"metadata": {"labels": labels}}));
    let selector = selector::from_object(job.at("spec.selector"));
    if selector.is_some_and(|selector| !selector.matches(&facts, "", "")) {
        errors.invalid(&SPEC.child("selector"), job.at("spec.selector"), "`selector` not auto-generated");
    }
}

/// Checks the spec of a Job.
pub(super) fn validate_spec(spec: &Value, errors: &mut Errors) {
    validate_common(&SPEC, spec, errors);
    let (path, selector) = (SPEC.child("template"), spec.at("selector"));
    if selector.is_null() {
        errors.required(&SPEC.child("selector"), "");
        let detail = "`selector` does not match template `labels`";
        errors.invalid(&path.child("metadata").child("labels"), spec.at("template.metadata.labels"), detail);
        return;
    }
    validate_labels_selector(&SPEC.child("selector"), selector, errors);
    if let Some(selector) = selector::from_object(selector) {
        template::validate_labels(&path, spec.at("template"), &selector, errors);
    }
}

/// Checks the spec of a template of Jobs: each Job gets its own selector.
pub(in crate::kinds) fn validate_template(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    validate_common(path, spec, errors);
    let selector = spec.at("selector");
    if !selector.is_null() {
        errors.invalid(&path.child("selector"), selector, "`selector` will be auto-generated");
    }
    if spec.flag("manualSelector") {
        errors.not_supported(&path.child("manualSelector"), spec.at("manualSelector"), &["nil", "false"]);
    }
}

/// Checks everything but the selector.
fn validate_common(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    not_negative(path, spec, &counts, errors);
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.at("managedBy").as_str() {
        validate_manager(&path.child("managedBy"), manager, errors);
    }
    validate_mode(path, spec, errors);
    validate_failure_policy(path, spec, errors);
    validate_success_policy(path, spec, errors);
    validate_replacement_policy(path, spec, errors);
    let template = path.child("template");
    template::validate(&template, spec.at("template"), errors);
    validate_restart_policy(&template, spec, errors);
}

/// A domain and a path below it.
fn validate_manager(path: &Path<'_>, manager: &str, errors: &mut Errors) {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    match manager.split_once('/') {
        _ if manager.is_empty() => errors.required(path, ""),
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            report(path, domain, names::dns_subdomain(domain), errors);
            if !rest.chars().all(is_path) {
                let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.invalid(path, rest, detail);
            }
        }
        _ => errors.invalid(path, manager, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if manager.len() > MAX_MANAGED_BY {
        errors.too_long(path, MAX_MANAGED_BY);
    }
}

fn validate_mode(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    match spec.at("completionMode").as_str() {
        None | Some("NonIndexed") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if spec.has(field) {
                    errors.invalid(&path.child(field), spec.int(field), "requires indexed completion mode");
                }
            }
        }
        Some(INDEXED) => validate_indexed(path, spec, errors),
        Some(other) => errors.not_supported(&path.child("completionMode"), other, &["NonIndexed", INDEXED]),
    }
}

fn validate_indexed(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let not_above = |field: &str, limit: i64, detail: &str, errors: &mut Errors| {
        if spec.int(field) > limit {
            errors.invalid(&path.child(field), spec.int(field), &format!("must be less than or equal to {detail}"));
        }
    };
    let completions = spec.at("completions").as_i64();
    if completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    let detail = format!("{MAX_PARALLELISM} when completion mode is Indexed");
    not_above("parallelism", MAX_PARALLELISM, &detail, errors);
    if let Some(completions) = completions {
        not_above("maxFailedIndexes", completions, "completions", errors);
    }
    not_above("maxFailedIndexes", MAX_FAILED_INDEXES, &MAX_FAILED_INDEXES.to_string(), errors);
    if completions.is_some_and(|completions| completions > COMPLETIONS_SOFT_LIMIT) && spec.has("backoffLimitPerIndex") {
        if !spec.has("maxFailedIndexes") {
            let detail = format!("must be specified when completions is above {COMPLETIONS_SOFT_LIMIT}");
            errors.required(&path.child("maxFailedIndexes"), &detail);
        }
        let detail = format!(
            "{HIGH_COMPLETIONS_LIMIT} when completions are above {COMPLETIONS_SOFT_LIMIT} and used with backoff limit per \
             index"
        );
        not_above("parallelism", HIGH_COMPLETIONS_LIMIT, &detail, errors);
        not_above("maxFailedIndexes", HIGH_COMPLETIONS_LIMIT, &detail, errors);
    }
}

fn validate_replacement_policy(path: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let Some(policy) = spec.at("podReplacementPolicy").as_str() else { return };
    let known: &[&str] = if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !known.contains(&policy) {
        errors.not_supported(&path.child("podReplacementPolicy"), policy, known);
    }
}

fn validate_restart_policy(template: &Path<'_>, spec: &Value, errors: &mut Errors) {
    let parent = template.child("spec");
    let (path, policy) = (parent.child("restartPolicy"), spec.text("template.spec.restartPolicy"));
    match policy {
        "" | "Always" => errors.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" => {
            if spec.has("podFailurePolicy") {
                errors.invalid(&path, policy, "only \"Never\" is supported when podFailurePolicy is specified");
            }
        }
        other => errors.not_supported(&path, other, &["OnFailure", "Never"]),
    }
}

/// Checks what a change of the spec may not change.
pub(super) fn validate_change(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (new.at("spec"), old.at("spec").at("completions"));
    let completions = spec.at("completions");
    if !is_indexed(new) {
        immutable(new, old, &["completions"], errors);
    } else if completions != before && !completions.is_null() && completions != spec.at("parallelism") {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.invalid(&SPEC.child("completions"), completions, detail);
    }
    immutable(new, old, &["selector"], errors);
    validate_template_change(new, old, errors);
    let fixed = ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];
    immutable(new, old, &fixed, errors);
}

/// A template is immutable, apart from labels, annotations, resources and scheduling directives of a suspended Job without Pods.
fn validate_template_change(new: &Value, old: &Value, errors: &mut Errors) {
    let suspended =
        old.flag("spec.suspend") && has_condition(old, "Suspended", "True") && old.int("status.active") == 0;
    if !suspended {
        immutable(new, old, &["template"], errors);
        return;
    }
    let new = new.at("spec.template.spec");
    let mut allowed = old.at("spec.template.spec").clone();
    for field in ["affinity.nodeAffinity", "nodeSelector", "tolerations", "schedulingGates"] {
        match new.at(field) {
            Value::Null => drop(allowed.drop_path(field)),
            value => allowed.put(field, value.clone()),
        }
    }
    for list in ["containers", "initContainers"] {
        copy_resources(new.items(list), allowed.items_mut(list));
    }
    if !same(new, &allowed) {
        let template = SPEC.child("template");
        errors.invalid(&template.child("spec"), new, IMMUTABLE);
    }
}

fn copy_resources(new: &[Value], allowed: &mut [Value]) {
    if new.len() != allowed.len() {
        return;
    }
    for (new, allowed) in new.iter().zip(allowed).filter(|(new, allowed)| new.text("name") == allowed.text("name")) {
        match new.at("resources") {
            Value::Null => drop(allowed.drop_path("resources")),
            resources => allowed.put("resources", resources.clone()),
        }
    }
}
