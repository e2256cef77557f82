//! Metrics of an autoscaler in `autoscaling/v2`: checks, and the cell of a row.

use serde_json::Value;

use super::validate_reference;
use crate::field::{Errors, Path};
use crate::names;
use crate::quantity::Amount;
use crate::value::ValueExt as _;

/// How many metrics a cell shows.
const SHOWN: usize = 2;
/// Types and the fields that belong to them, in the order in which they are checked.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const TYPES: &[&str] = &["ContainerResource", "External", "Object", "Pods", "Resource"];

/// Checks the metrics.
pub(super) fn validate(list: &Path<'_>, metrics: &[Value], errors: &mut Errors) {
    for (index, metric) in metrics.iter().enumerate() {
        validate_metric(&list.index(index), metric, errors);
    }
}

fn validate_metric(path: &Path<'_>, metric: &Value, errors: &mut Errors) {
    let kind = metric.text("type");
    let own = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, field)| *field);
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric source type");
    }
    if own.is_none() {
        errors.not_supported(&path.child("type"), kind, TYPES);
    }
    let present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.has(field)).collect();
    if let Some(field) = present.first() {
        validate_source(&path.child(field), field, metric.at(field), errors);
    }
    if let Some(own) = own.filter(|own| !metric.has(own)) {
        errors.required(&path.child(own), "must populate information for the given metric source");
    }
    if present.len() > 1 {
        for field in present.into_iter().filter(|field| Some(*field) != own) {
            errors.forbidden(&path.child(field), "must populate the given metric source only");
        }
    }
}

fn validate_source(path: &Path<'_>, field: &str, source: &Value, errors: &mut Errors) {
    let (target_path, target) = (path.child("target"), source.at("target"));
    match field {
        "resource" | "containerResource" => {
            if source.text("name").is_empty() {
                errors.required(&path.child("name"), "must specify a resource name");
            }
            if field == "containerResource" && source.text("container").is_empty() {
                errors.required(&path.child("container"), "must specify a container");
            }
        }
        _ => {
            if field == "object" {
                validate_reference(&path.child("describedObject"), source.at("describedObject"), errors);
            }
            let (metric, name) = (path.child("metric"), source.text("metric.name"));
            if name.is_empty() {
                errors.required(&metric.child("name"), "must specify a metric name");
            }
            for why in names::name_is_path_segment(name, false).into_iter().filter(|_| !name.is_empty()) {
                errors.invalid(&metric.child("name"), name, &why);
            }
        }
    }
    validate_target(&target_path, target, errors);
    let has = |field: &str| target.has(field);
    let (missing, detail) = match field {
        "object" => (!has("value") && !has("averageValue"), "must set either a target value or averageValue"),
        "external" => {
            let both = "may not set both a target value for metric and a per-pod target";
            if has("value") && has("averageValue") {
                errors.forbidden(&target_path.child("value"), both);
            }
            (!has("value") && !has("averageValue"), "must set either a target value for metric or a per-pod target")
        }
        "pods" => (!has("averageValue"), "must specify a positive target averageValue"),
        _ => return validate_utilization(&target_path, target, errors),
    };
    if missing {
        errors.required(&target_path.child("averageValue"), detail);
    }
}

fn validate_utilization(path: &Path<'_>, target: &Value, errors: &mut Errors) {
    match (target.has("averageUtilization"), target.has("averageValue")) {
        (false, false) => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(&path.child("averageUtilization"), detail);
        }
        (true, true) => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(&path.child("averageValue"), detail);
        }
        _ => {}
    }
}

fn validate_target(path: &Path<'_>, target: &Value, errors: &mut Errors) {
    let kind = target.text("type");
    if kind.is_empty() {
        errors.required(&path.child("type"), "must specify a metric target type");
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(&path.child("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let quantity = target.at(field);
        if !quantity.is_null() && Amount::of(quantity) <= Amount::ZERO {
            errors.invalid(&path.child(field), quantity, "must be positive");
        }
    }
    let utilization = target.at("averageUtilization");
    if utilization.as_i64().is_some_and(|percent| percent < 1) {
        errors.invalid(&path.child("averageUtilization"), utilization, "must be greater than 0");
    }
}

/// `cpu: 40%/80%, 3/10 (avg)`: the current and the desired value of each metric.
pub(super) fn cell(metrics: &[Value], current: &[Value]) -> String {
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let cells: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(SHOWN)
        .map(|(index, metric)| one_cell(metric, current.get(index).unwrap_or(&Value::Null)))
        .collect();
    let text = cells.join(", ");
    if metrics.len() > SHOWN { format!("{text} + {} more...", metrics.len() - SHOWN) } else { text }
}

fn one_cell(metric: &Value, status: &Value) -> String {
    let Some((kind, field)) = SOURCES.iter().find(|(name, _)| *name == metric.text("type")) else {
        return "<unknown type>".to_owned();
    };
    let (source, current) = (metric.at(field), status.at(field).at("current"));
    let target = source.at("target");
    let unknown = || "<unknown>".to_owned();
    let value = |name: &str| current.at(name).as_str().map_or_else(unknown, str::to_owned);
    match (*kind, target.has("averageValue")) {
        ("Resource" | "ContainerResource", true) => {
            format!("{}: {}/{}", source.text("name"), value("averageValue"), target.text("averageValue"))
        }
        ("Resource" | "ContainerResource", false) => {
            let percent = |value: &Value| value.as_i64().map(|percent| format!("{percent}%"));
            let current = percent(current.at("averageUtilization")).unwrap_or_else(unknown);
            let wanted = percent(target.at("averageUtilization")).unwrap_or_else(|| "<auto>".to_owned());
            format!("{}: {current}/{wanted}", source.text("name"))
        }
        ("Pods", _) => format!("{}/{}", value("averageValue"), target.text("averageValue")),
        (_, true) => format!("{}/{} (avg)", value("averageValue"), target.text("averageValue")),
        (_, false) => format!("{}/{}", value("value"), target.text("value")),
    }
}
