//! CronJob: a template of Jobs and when to start them.

use serde_json::Value;

use super::super::common::one_of;
use super::super::job;
use super::super::pod::template;
use super::super::workload::{not_negative, selector_cell};
use super::{SPEC, Stored, cron, flag_cell, set, set_text};
use crate::field::Errors;
use crate::kind::{Kind, status_of};
use crate::names;
use crate::table::{AGE, Column, NAME, Table, age, column, integer_column, no_conditions, or, since, wide_column};
use crate::value::ValueExt as _;

/// The name of a Job is that of its CronJob and 11 characters more.
const MAX_NAME: usize = 52;

/// The kind.
pub static KIND: Kind = Kind {
    group: "batch",
    kind: "CronJob",
    plural: "cronjobs",
    singular: "cronjob",
    short_names: &["cj"],
    categories: &["all"],
    schema: "batch.CronJob",
    table: "cronjobs",
    subresources: &[status_of("CronJob")],
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&RULES)
};

static RULES: Stored = Stored { name: check_name, default, validate, ..Stored::new("batch/v1", "CronJob") };

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Schedule", "When Jobs start, in Cron format."),
        column("Timezone", "The time zone of the schedule."),
        Column { kind: "boolean", ..column("Suspend", "Whether no Jobs are started.") },
        integer_column("Active", "How many Jobs are running."),
        column("Last Schedule", "How long ago a Job was started."),
        AGE,
        wide_column("Containers", "The names of the containers of each Pod."),
        wide_column("Images", "Their images."),
        wide_column("Selector", "The labels of its Pods."),
    ],
    row: |object, now| {
        let last = match object.at("status.lastScheduleTime") {
            Value::Null => "<none>".to_owned(),
            time => since(time, now),
        };
        let containers = object.items("spec.jobTemplate.spec.template.spec.containers");
        let all = |field: &str| containers.iter().map(|one| one.text(field)).collect::<Vec<_>>().join(",");
        vec![
            object.text("metadata.name").into(),
            object.text("spec.schedule").into(),
            or(object.text("spec.timeZone"), "<none>").into(),
            flag_cell(object.at("spec.suspend")),
            object.items("status.active").len().into(),
            last.into(),
            age(object, now).into(),
            all("name").into(),
            all("image").into(),
            selector_cell(object.at("spec.jobTemplate.spec.selector")),
        ]
    },
    conditions: no_conditions,
};

fn check_name(name: &str, prefix: bool) -> Vec<String> {
    let mut wrong = names::name_is_subdomain(name, prefix);
    if !prefix && name.len() > MAX_NAME {
        wrong.push("must be no more than 52 characters".to_owned());
    }
    wrong
}

fn default(object: &mut Value) {
    set_text(object, "spec.concurrencyPolicy", "Allow");
    set(object, "spec.suspend", false);
    set(object, "spec.successfulJobsHistoryLimit", 3);
    set(object, "spec.failedJobsHistoryLimit", 1);
    template::fill(object.at_mut("spec.jobTemplate.spec.template"));
    job::fill_failure_policy(object.at_mut("spec.jobTemplate.spec"));
}

fn validate(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    validate_schedule(spec, errors);
    not_negative(&SPEC, spec, &["startingDeadlineSeconds"], errors);
    let zone = spec.at("timeZone");
    if zone.as_str() == Some("") {
        errors.invalid(&SPEC.child("timeZone"), zone, "timeZone must be nil or non-empty string");
    }
    let policy = SPEC.child("concurrencyPolicy");
    one_of(&policy, spec.text("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], errors);
    job::validate_template(&SPEC.child("jobTemplate").child("spec"), spec.at("jobTemplate.spec"), errors);
    not_negative(&SPEC, spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], errors);
}

fn validate_schedule(spec: &Value, errors: &mut Errors) {
    let (path, schedule) = (SPEC.child("schedule"), spec.text("schedule"));
    if schedule.is_empty() {
        return errors.required(&path, "");
    }
    if let Err(why) = cron::check(schedule) {
        errors.invalid(&path, schedule, &why);
    }
    if schedule.contains("TZ") {
        errors.invalid(&path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    }
}
