//! DaemonSet: a Pod of a template on each node that its constraints allow.
//!
//! Kubernetes counts the templates of a DaemonSet in an annotation (`deprecated.daemonset.template.generation`), which clients set when they create it
//! and the server keeps afterwards.

mod strategy;

use std::num::IntErrorKind;

use serde_json::{Map, Value};

use self::strategy::validate_strategy;
use super::pod::template;
use super::workload::{
    SPEC, STATUS, collisions_only_grow, container_cells, immutable, not_negative, selector_cell,
    validate_labels_selector,
};
use crate::claims::Claims;
use crate::decode;
use crate::field::{Errors, quote};
use crate::kind::{Kind, Rules, keep_all_but_status, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::schema;
use crate::selector;
use crate::status::Status;
use crate::table::{AGE, NAME, Table, age, column, integer_column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

/// The annotation with the number of the template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The kind.
pub static KIND: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    plural: "daemonsets",
    singular: "daemonset",
    short_names: &["ds"],
    categories: &["all"],
    schema: "apps.DaemonSet",
    table: "daemonsets",
    subresources: &[status_of("DaemonSet")],
    generation: true,
    table_view: &TABLE,
    ..Kind::common(&DaemonSetRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        integer_column("Desired", "How many nodes should run the Pod."),
        integer_column("Current", "How many of them have one."),
        integer_column("Ready", "On how many of them it is ready."),
        integer_column("Up-to-date", "On how many of them it is of the present template."),
        integer_column("Available", "On how many of them it has been ready for long enough."),
        column("Node Selector", "The labels of the nodes that should run it."),
        AGE,
        wide_column("Containers", "The names of the containers of each Pod."),
        wide_column("Images", "Their images."),
        wide_column("Selector", "The labels of its Pods."),
    ],
    row: |object, now| {
        let [containers, images] = container_cells(object);
        let labels = object.map("spec.template.spec.nodeSelector").into_iter().flatten();
        let labels: Vec<String> =
            labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
        let mut row: Vec<Value> = vec![object.text("metadata.name").into()];
        let counts = [
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ];
        row.extend(counts.map(|field| Value::from(object.at("status").int(field))));
        row.push(or(&labels.join(","), "<none>").into());
        row.push(age(object, now).into());
        row.extend([containers, images, selector_cell(object.at("spec.selector"))]);
        row
    },
    conditions: no_conditions,
};

struct DaemonSetRules;

impl Rules for DaemonSetRules {
    fn default(&self, object: &mut Value) {
        template::fill(object.at_mut("spec.template"));
        strategy::default(object);
        if !object.has("spec.revisionHistoryLimit") {
            object.put("spec.revisionHistoryLimit", 10);
        }
        // As in Kubernetes, where the number is a field of the spec behind the API: field managers own it.
        if annotation(object).is_none() {
            set_template_generation(object, 0);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
        let number = template_generation(object).unwrap_or_default().max(1);
        set_template_generation(object, number);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
        let number = template_generation(old).unwrap_or_default();
        let step = i64::from(!is_same_template(new, old));
        set_template_generation(new, number.wrapping_add(step));
    }

    fn prepare_status(&self, new: &mut Value, old: &Value) {
        keep_all_but_status(new, old);
        set_template_generation(new, template_generation(old).unwrap_or_default());
    }

    fn begin_create(&self, object: &mut Value, _: &mut dyn Claims) -> Result<(), Status> {
        check_annotation(object)
    }

    fn begin_update(&self, new: &mut Value, _: &Value, _: &mut dyn Claims) -> Result<(), Status> {
        check_annotation(new)
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate_spec(object, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let [number, before] = [new, old].map(|object| template_generation(object).unwrap_or_default());
        if number < before {
            errors.invalid(&SPEC.child("templateGeneration"), number, "must not be decremented");
        }
        immutable(new, old, &["selector"], errors);
        validate_spec(new, errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        not_negative(&STATUS, new.at("status"), &counts, errors);
        collisions_only_grow(new, old, errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none_or(|old| template_generation(old) != template_generation(new)) {
            template::warn(&SPEC.child("template"), new.at("spec.template"), out);
        }
    }
}

/// The number of the template, if the annotation has one.
#[must_use]
pub fn template_generation(object: &Value) -> Option<i64> {
    annotation(object)?.parse().ok()
}

fn annotation(object: &Value) -> Option<&str> {
    object.map("metadata.annotations")?.get(TEMPLATE_GENERATION)?.as_str()
}

fn set_template_generation(object: &mut Value, number: i64) {
    if !object.at("metadata.annotations").is_object() {
        object.put("metadata.annotations", Map::new());
    }
    if let Some(Value::Object(annotations)) = object.at_mut("metadata.annotations") {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), number.to_string().into());
    }
}

/// Refuses an annotation that is not a number, with the error of Kubernetes' decoder.
fn check_annotation(object: &Value) -> Result<(), Status> {
    let Some(text) = annotation(object) else { return Ok(()) };
    let Err(error) = text.parse::<i64>() else { return Ok(()) };
    let why = match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    };
    Err(Status::bad_request(format!(
        "DaemonSet in version \"v1\" cannot be handled as a DaemonSet: strconv.ParseInt: parsing {}: {why}",
        quote(text)
    )))
}

/// Whether the template of a request is the stored one. The stored one has no empty fields.
fn is_same_template(new: &Value, old: &Value) -> bool {
    let mut template = new.at("spec.template").clone();
    decode::prune(schema::named("core.PodTemplateSpec"), &mut template);
    template == *old.at("spec.template")
}

fn validate_spec(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    validate_template(spec, errors);
    not_negative(&SPEC, spec, &["minReadySeconds"], errors);
    let number = template_generation(object).unwrap_or_default();
    if number < 0 {
        errors.invalid(&SPEC.child("templateGeneration"), number, "must be greater than or equal to 0");
    }
    validate_strategy(&SPEC.child("updateStrategy"), spec.at("updateStrategy"), errors);
    not_negative(&SPEC, spec, &["revisionHistoryLimit"], errors);
}

fn validate_template(spec: &Value, errors: &mut Errors) {
    let (template_path, selector_path) = (SPEC.child("template"), SPEC.child("selector"));
    let (template, object) = (spec.at("template"), spec.at("selector"));
    validate_labels_selector(&selector_path, object, errors);
    match selector::from_object(object).filter(|_| !object.is_null()) {
        Some(selector) => {
            if selector.is_everything() {
                errors.invalid(&selector_path, object, "empty selector is invalid for daemonset");
            }
            template::validate_selected(&template_path, template, &selector, errors);
        }
        None => {
            // A missing selector selects nothing; an invalid one has its error already.
            if object.is_null() {
                let (metadata, labels) = (template_path.child("metadata"), template.at("metadata.labels"));
                errors.invalid(&metadata.child("labels"), labels, "`selector` does not match template `labels`");
            }
            template::validate(&template_path, template, errors);
        }
    }
    template::validate_lasting(&template_path, template, "DaemonSet", errors);
}

#[cfg(test)]
mod tests;
