//! `autoscaling/v1` from `autoscaling/v2` and back.
//!
//! `autoscaling/v1` has a field for the utilization of the CPU. Everything else that `autoscaling/v2` has is in annotations, as
//! JSON in the form of `autoscaling/v1`, so that a client of the older version loses nothing when it writes what it has read.
//! Annotations come from clients: what does not fit the type of `autoscaling/v2` is ignored.

use serde_json::{Map, Value, json};

use crate::decode;
use crate::schema;
use crate::value::ValueExt as _;

const PREFIX: &str = "autoscaling.alpha.kubernetes.io/";
const METRICS: &str = "metrics";
const CURRENT_METRICS: &str = "current-metrics";
const BEHAVIOR: &str = "behavior";
const CONDITIONS: &str = "conditions";

/// Names of a field in `autoscaling/v2` and in `autoscaling/v1`; `{}` stands for `target` or `current`.
type Names = (&'static str, &'static str);

const UTILIZATION: Names = ("{}.averageUtilization", "{}AverageUtilization");
const AVERAGE: Names = ("{}.averageValue", "{}AverageValue");
const VALUE: Names = ("{}.value", "{}Value");
const METRIC_NAME: Names = ("metric.name", "metricName");
const SELECTOR: Names = ("metric.selector", "selector");

/// The fields of each source of metrics.
const SOURCES: [(&str, &[Names]); 5] = [
    ("resource", &[("name", "name"), UTILIZATION, AVERAGE]),
    ("containerResource", &[("name", "name"), ("container", "container"), UTILIZATION, AVERAGE]),
    ("pods", &[METRIC_NAME, SELECTOR, AVERAGE]),
    ("object", &[("describedObject", "target"), METRIC_NAME, SELECTOR, VALUE, ("{}.averageValue", "averageValue")]),
    ("external", &[METRIC_NAME, ("metric.selector", "metricSelector"), VALUE, AVERAGE]),
];

/// The metric of the utilization of the CPU.
pub(super) fn cpu_metric(percent: impl Into<Value>) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent.into()});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// Whether an object of `autoscaling/v1` has no metric at all.
pub(super) fn has_no_metric(object: &Value) -> bool {
    !object.has("spec.targetCPUUtilizationPercentage")
        && !list(object, METRICS).into_iter().flatten().any(|metric| newer(&metric, "target").is_some())
}

/// The object in `autoscaling/v2`. One that is in it already stays as it is.
pub(super) fn to_v2(mut object: Value) -> Value {
    let mut metrics = object.items("spec.metrics").to_vec();
    metrics.extend(list(&object, METRICS).into_iter().flatten().filter_map(|metric| newer(&metric, "target")));
    if let Some(percent) = object.drop_path("spec.targetCPUUtilizationPercentage") {
        metrics.push(cpu_metric(percent));
    }
    if !metrics.is_empty() {
        object.put("spec.metrics", metrics);
    }
    if let Some(behavior) = annotation(&object, BEHAVIOR).map(|text| renamed(&text, char::to_ascii_lowercase))
        && let Some(behavior) = fitting("autoscaling_v2.HorizontalPodAutoscalerBehavior", behavior)
    {
        object.put("spec.behavior", behavior);
    }
    if let Some(percent) = object.drop_path("status.currentCPUUtilizationPercentage") {
        let current = json!({"averageUtilization": percent});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "current": current}});
        object.put("status.currentMetrics", json!([metric]));
    }
    if let Some(current) = list(&object, CURRENT_METRICS) {
        let current: Vec<Value> = current.iter().filter_map(|metric| newer(metric, "current")).collect();
        object.put("status.currentMetrics", current);
    }
    if let Some(conditions) = list(&object, CONDITIONS) {
        let fit = |one: Value| fitting("autoscaling_v2.HorizontalPodAutoscalerCondition", one);
        let conditions: Vec<Value> = conditions.into_iter().filter_map(fit).collect();
        object.put("status.conditions", conditions);
    }
    drop_annotations(&mut object);
    object
}

/// The object in `autoscaling/v1`.
pub(super) fn to_v1(mut object: Value) -> Value {
    drop_annotations(&mut object);
    let metrics = object.drop_path("spec.metrics");
    let metrics = metrics.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let (cpu, others): (Vec<&Value>, Vec<&Value>) = metrics.iter().partition(|metric| is_cpu(metric, "target"));
    if let Some(metric) = cpu.last() {
        let percent = metric.at("resource.target.averageUtilization").clone();
        object.put("spec.targetCPUUtilizationPercentage", percent);
    }
    let others: Vec<Value> = others.into_iter().map(|metric| older(metric, "target")).collect();
    annotate(&mut object, METRICS, others);
    if let Some(behavior) = object.drop_path("spec.behavior").filter(|behavior| !behavior.is_null()) {
        put_annotation(&mut object, BEHAVIOR, &renamed(&behavior, char::to_ascii_uppercase));
    }
    let current = object.drop_path("status.currentMetrics");
    let current = current.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if let Some(metric) = current.iter().rfind(|metric| is_cpu(metric, "current")) {
        let percent = metric.at("resource.current.averageUtilization").clone();
        object.put("status.currentCPUUtilizationPercentage", percent);
    }
    annotate(&mut object, CURRENT_METRICS, current.iter().map(|metric| older(metric, "current")).collect());
    if let Some(Value::Array(conditions)) = object.drop_path("status.conditions") {
        annotate(&mut object, CONDITIONS, conditions);
    }
    object
}

fn is_cpu(metric: &Value, word: &str) -> bool {
    let value = metric.at("resource").at(word);
    metric.text("resource.name") == "cpu" && value.has("averageUtilization")
}

/// A metric in `autoscaling/v1`; `word` is `target` for a desired and `current` for a measured one.
fn older(metric: &Value, word: &str) -> Value {
    let mut out = json!({"type": metric.at("type")});
    for (source, fields) in SOURCES.iter().filter(|(source, _)| metric.has(source)) {
        let mut fields_of = Map::new();
        for (new, old) in *fields {
            let value = metric.at(source).at(&new.replace("{}", word));
            if !value.is_null() {
                fields_of.insert(old.replace("{}", word), value.clone());
            }
        }
        out.put(source, fields_of);
    }
    out
}

/// A metric in `autoscaling/v2`, if it fits its type.
fn newer(metric: &Value, word: &str) -> Option<Value> {
    let mut out = json!({"type": metric.get("type")?.as_str()?});
    for (source, fields) in SOURCES.iter().filter(|(source, _)| metric.has(source)) {
        for (new, old) in *fields {
            if let Some(value) = metric.at(source).get(old.replace("{}", word)) {
                out.put(&format!("{source}.{}", new.replace("{}", word)), value.clone());
            }
        }
        if word == "target" {
            let target = out.at(source).at("target");
            let kind = [("averageUtilization", "Utilization"), ("averageValue", "AverageValue")]
                .into_iter()
                .find_map(|(field, kind)| target.has(field).then_some(kind))
                .unwrap_or("Value");
            out.put(&format!("{source}.target.type"), kind);
        }
    }
    let name = if word == "target" { "autoscaling_v2.MetricSpec" } else { "autoscaling_v2.MetricStatus" };
    fitting(name, out)
}

/// The value, if it fits a type of the tables; without fields that the type does not have.
fn fitting(name: &str, mut value: Value) -> Option<Value> {
    decode::check(schema::named(name), &mut value).is_ok().then_some(value)
}

/// The value with names that begin in another case: behavior is written with the names of Go's fields.
fn renamed(value: &Value, case: fn(&char) -> char) -> Value {
    match value {
        Value::Object(map) => {
            let rename = |(name, value): (&String, &Value)| {
                let mut chars = name.chars();
                let first: String = chars.next().iter().map(case).collect();
                (first + chars.as_str(), renamed(value, case))
            };
            Value::Object(map.iter().map(rename).collect())
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, case)).collect(),
        other => other.clone(),
    }
}

fn annotation(object: &Value, name: &str) -> Option<Value> {
    let text = object.map("metadata.annotations")?.get(&format!("{PREFIX}{name}"))?.as_str()?;
    serde_json::from_str(text).ok()
}

fn list(object: &Value, name: &str) -> Option<Vec<Value>> {
    match annotation(object, name)? {
        Value::Array(items) => Some(items),
        _ => None,
    }
}

fn annotate(object: &mut Value, name: &str, items: Vec<Value>) {
    if !items.is_empty() {
        put_annotation(object, name, &Value::Array(items));
    }
}

fn put_annotation(object: &mut Value, name: &str, value: &Value) {
    let mut annotations = object.map("metadata.annotations").cloned().unwrap_or_default();
    annotations.insert(format!("{PREFIX}{name}"), value.to_string().into());
    object.put("metadata.annotations", annotations);
}

fn drop_annotations(object: &mut Value) {
    let Some(Value::Object(mut annotations)) = object.drop_path("metadata.annotations") else { return };
    for name in [METRICS, CURRENT_METRICS, BEHAVIOR, CONDITIONS] {
        annotations.remove(&format!("{PREFIX}{name}"));
    }
    if !annotations.is_empty() {
        object.put("metadata.annotations", annotations);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newer_object() -> Value {
        json!({
            "metadata": {"name": "web", "annotations": {"a": "b"}},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
                "minReplicas": 1, "maxReplicas": 5,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "Object", "object": {
                        "describedObject": {"kind": "Ingress", "name": "web"}, "metric": {"name": "hits"},
                        "target": {"type": "Value", "value": "2k"},
                    }},
                    cpu_metric(60),
                ],
                "behavior": {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
            },
            "status": {"desiredReplicas": 1, "conditions": [{"type": "AbleToScale", "status": "True"}]},
        })
    }

    #[test]
    fn the_older_version_loses_nothing() {
        let older = to_v1(newer_object());
        assert_eq!(older.int("spec.targetCPUUtilizationPercentage"), 60);
        assert!(!older.has("spec.metrics") && !older.has("spec.behavior") && !older.has("status.conditions"));
        let annotation = |name: &str| -> Value {
            let text = older.at("metadata.annotations")[format!("{PREFIX}{name}")].as_str().expect("an annotation");
            serde_json::from_str(text).expect("JSON")
        };
        assert_eq!(
            annotation("metrics"),
            json!([
                {"type": "Pods", "pods": {"metricName": "rps", "targetAverageValue": "10"}},
                {"type": "Object", "object": {
                    "target": {"kind": "Ingress", "name": "web"}, "metricName": "hits", "targetValue": "2k",
                }},
            ])
        );
        let policies = json!([{"Type": "Pods", "Value": 1, "PeriodSeconds": 60}]);
        assert_eq!(annotation("behavior"), json!({"ScaleDown": {"Policies": policies}}));
        assert_eq!(to_v2(older), newer_object());
        assert_eq!(to_v2(newer_object()), newer_object());
    }

    #[test]
    fn annotations_that_are_not_metrics_are_ignored() {
        for text in ["", "{}", "[1]", r#"[{"type":"Pods","pods":{"targetAverageValue":{}}}]"#, r#"[{"type":5}]"#] {
            let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": text});
            let object = json!({"metadata": {"annotations": annotations}, "spec": {"maxReplicas": 2}});
            let converted = to_v2(object);
            assert_eq!(converted, json!({"metadata": {}, "spec": {"maxReplicas": 2}}), "{text}");
        }
    }
}
