//! Job: Pods that run to completion.
//!
//! Unless its author manages the selector, the server generates it, with labels of the template, from the UID of the Job: Pods of another Job can never
//! match.

mod policies;
mod spec;
mod status;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(super) use self::spec::validate_template;
use super::pod::template;
use super::workload::{container_cells, selector_cell, warn_of_name, warn_of_template};
use crate::field::Errors;
use crate::kind::{Kind, Rules, Selectable, keep_status, status_of};
use crate::meta;
use crate::table::{AGE, NAME, Table, age, column, duration, no_conditions, wide_column};
use crate::value::ValueExt as _;
use crate::view::labels;

/// On Pods that no status counts yet.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The value of `spec.managedBy` of Jobs that the controller of the server manages.
pub const CONTROLLER: &str = "kubernetes.io/job-controller";

/// The completion mode in which each Pod has an index.
const INDEXED: &str = "Indexed";
/// `completions` above which a large number of failed indexes cannot be tracked.
const COMPLETIONS_SOFT_LIMIT: i64 = 100_000;

/// The kind.
pub static KIND: Kind = Kind {
    group: "batch",
    kind: "Job",
    plural: "jobs",
    singular: "job",
    categories: &["all"],
    schema: "batch.Job",
    table: "jobs",
    subresources: &[status_of("Job")],
    generation: true,
    selectable: &[Selectable {
        label: "status.successful",
        value: |object| object.int("status.succeeded").to_string(),
    }],
    table_view: &TABLE,
    ..Kind::common(&JobRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Status", "Whether it runs, is suspended, or has finished."),
        column("Completions", "How many Pods succeeded, of how many."),
        column("Duration", "How long it ran."),
        AGE,
        wide_column("Containers", "The names of the containers of each Pod."),
        wide_column("Images", "Their images."),
        wide_column("Selector", "The labels of its Pods."),
    ],
    row: |object, now| {
        let [containers, images] = container_cells(object);
        vec![
            object.text("metadata.name").into(),
            state(object).into(),
            completions(object).into(),
            run_time(object, now).into(),
            age(object, now).into(),
            containers,
            images,
            selector_cell(object.at("spec.selector")),
        ]
    },
    conditions: no_conditions,
};

fn state(object: &Value) -> &'static str {
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| has_condition(object, kind, "True"));
    let terminating = object.has("metadata.deletionTimestamp").then_some("Terminating");
    let state = first(&["Complete", "Failed"]).or(terminating);
    state.or_else(|| first(&["Suspended", "FailureTarget", "SuccessCriteriaMet"])).unwrap_or("Running")
}

fn completions(object: &Value) -> String {
    let (succeeded, parallelism) = (object.int("status.succeeded"), object.int("spec.parallelism"));
    match object.at("spec.completions").as_i64() {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn run_time(object: &Value, now: Timestamp) -> String {
    let time = |path: &str| object.text(path).parse::<Timestamp>().ok();
    let Some(started) = time("status.startTime") else { return String::new() };
    let ended = time("status.completionTime").unwrap_or(now);
    duration(ended.as_millisecond().saturating_sub(started.as_millisecond()))
}

/// Whether a Job has a condition with this status.
#[must_use]
pub fn has_condition(job: &Value, kind: &str, status: &str) -> bool {
    let is = |condition: &Value| condition.text("type") == kind && condition.text("status") == status;
    job.items("status.conditions").iter().any(is)
}

/// Whether a Job is complete or has failed.
#[must_use]
pub fn is_finished(job: &Value) -> bool {
    ["Complete", "Failed"].iter().any(|kind| has_condition(job, kind, "True"))
}

/// Whether each Pod of a Job has an index.
#[must_use]
pub fn is_indexed(job: &Value) -> bool {
    job.text("spec.completionMode") == INDEXED
}

struct JobRules;

impl Rules for JobRules {
    fn default(&self, object: &mut Value) {
        template::fill(object.at_mut("spec.template"));
        if !object.has("spec.completions") && !object.has("spec.parallelism") {
            object.put("spec.completions", 1);
        }
        set(object, "spec.parallelism", 1);
        let limit = if object.has("spec.backoffLimitPerIndex") { i32::MAX } else { 6 };
        set(object, "spec.backoffLimit", limit);
        set(object, "spec.completionMode", "NonIndexed");
        set(object, "spec.suspend", false);
        let policy = if object.has("spec.podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
        set(object, "spec.podReplacementPolicy", policy);
        set(object, "spec.manualSelector", false);
        fill_failure_policy(object.at_mut("spec"));
        // A new Job gets its labels when its selector is generated.
        if object.has("spec.selector") {
            copy_labels(object);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
        if !object.flag("spec.manualSelector") {
            generate_selector(object);
        }
        copy_labels(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        spec::validate(object, true, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let labels = old.map("spec.template.metadata.labels");
        let had = |key: &str| labels.is_some_and(|labels| labels.contains_key(key));
        spec::validate(new, had(labels::JOB_NAME) && had(labels::JOB_CONTROLLER_UID), errors);
        meta::validate_update(new, old, errors);
        // As in kube-apiserver, each error of the spec is among the causes twice.
        spec::validate_spec(new.at("spec"), errors);
        spec::validate_change(new, old, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        status::validate(new, old, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() {
            warn_of_name(new, out);
        }
        let changed = old.is_none_or(|old| old.int("metadata.generation") != new.int("metadata.generation"));
        let (completions, parallelism) = (new.int("spec.completions"), new.int("spec.parallelism"));
        if changed && is_indexed(new) && completions > COMPLETIONS_SOFT_LIMIT && parallelism > 10_000 {
            let text = "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than \
                        10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail";
            out.push(text.to_owned());
        }
        warn_of_template(new, old, out);
    }

    fn orphan_warning(&self) -> Option<&'static str> {
        Some(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them \
             or set propagationPolicy=Orphan to suppress this warning",
        )
    }
}

/// Sets the defaults of `podFailurePolicy` in the spec of a Job or of a template of Jobs.
pub(super) fn fill_failure_policy(spec: Option<&mut Value>) {
    let Some(spec) = spec else { return };
    for rule in spec.items_mut("podFailurePolicy.rules") {
        for pattern in rule.items_mut("onPodConditions") {
            if pattern.text("status").is_empty() {
                pattern.put("status", "True");
            }
        }
    }
}

fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    if !object.has(field) {
        object.put(field, value);
    }
}

/// Sets an entry of a map; one that its author gave stays, and validation refuses it if it is another.
fn set_entry(object: &mut Value, map: &str, key: &str, value: &str) {
    if object.map(map).is_none() {
        object.put(map, Map::new());
    }
    if let Some(map) = object.at_mut(map).and_then(Value::as_object_mut) {
        map.entry(key).or_insert_with(|| value.into());
    }
}

/// Labels of the template by name and UID, and the selector by UID.
fn generate_selector(object: &mut Value) {
    let (name, uid) = (object.text("metadata.name").to_owned(), object.text("metadata.uid").to_owned());
    for (key, value) in [
        (labels::LEGACY_JOB_NAME, &name),
        (labels::JOB_NAME, &name),
        (labels::LEGACY_JOB_CONTROLLER_UID, &uid),
        (labels::JOB_CONTROLLER_UID, &uid),
    ] {
        set_entry(object, "spec.template.metadata.labels", key, value);
    }
    set_entry(object, "spec.selector.matchLabels", labels::JOB_CONTROLLER_UID, &uid);
}

/// A Job without labels has those of its template.
fn copy_labels(object: &mut Value) {
    let labels = object.at("spec.template.metadata.labels").clone();
    if labels.is_object() && object.map("metadata.labels").is_none_or(Map::is_empty) {
        object.put("metadata.labels", labels);
    }
}
