//! The update strategy of a DaemonSet: its defaults and its rules.

use serde_json::{Value, json};

use crate::field::{Errors, FieldError, Path};
use crate::portion::{self, Portion};
use crate::value::ValueExt as _;

/// RollingUpdate, one node at a time.
pub(super) fn default(object: &mut Value) {
    if object.text("spec.updateStrategy.type").is_empty() {
        object.put("spec.updateStrategy.type", "RollingUpdate");
    }
    if object.text("spec.updateStrategy.type") == "RollingUpdate" {
        for (field, value) in [("maxUnavailable", 1), ("maxSurge", 0)] {
            let path = format!("spec.updateStrategy.rollingUpdate.{field}");
            if !object.has(&path) {
                object.put(&path, value);
            }
        }
    }
}

pub(super) fn validate_strategy(path: &Path<'_>, strategy: &Value, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if rolling.is_null() => errors.required(&path.child("rollingUpdate"), ""),
        "RollingUpdate" => validate_rolling(&path.child("rollingUpdate"), rolling, errors),
        other => {
            let body = format!(
                "Unsupported value: {{\"Type\":{},\"RollingUpdate\":{}}}: supported values: \"RollingUpdate\", \
                 \"OnDelete\"",
                Value::from(other),
                internal(rolling)
            );
            errors.0.push(FieldError { reason: "FieldValueNotSupported", field: path.to_string(), body });
        }
    }
}

/// Exactly one of `maxUnavailable` and `maxSurge` is not 0.
fn validate_rolling(path: &Path<'_>, rolling: &Value, errors: &mut Errors) {
    let fields = ["maxUnavailable", "maxSurge"];
    for field in fields {
        portion::validate(&path.child(field), rolling.at(field), errors);
    }
    for field in fields {
        portion::validate_part(&path.child(field), rolling.at(field), errors);
    }
    let is_set = |field: &str| Portion::read(rolling.at(field)).is_some_and(|portion| portion.written() != 0);
    match fields.map(is_set) {
        [true, true] => {
            let detail = "may not be set when maxUnavailable is non-zero";
            errors.invalid(&path.child("maxSurge"), rolling.at("maxSurge"), detail);
        }
        [false, false] => errors.required(&path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// The form in which Kubernetes' messages show it: that of its internal type, whose fields have Go's names.
fn internal(rolling: &Value) -> String {
    if rolling.is_null() {
        return "null".to_owned();
    }
    let field = |name: &str| Some(rolling.at(name)).filter(|value| !value.is_null()).cloned().unwrap_or(json!(0));
    format!("{{\"MaxUnavailable\":{},\"MaxSurge\":{}}}", field("maxUnavailable"), field("maxSurge"))
}
