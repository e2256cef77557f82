//! HorizontalPodAutoscaler: how many Pods there should be, by metrics. Nothing measures or scales.
//!
//! Stored is `autoscaling/v2`; [`conversion`] makes `autoscaling/v1` of it, which has one metric and annotations for the rest.

mod conversion;
mod metrics;

use serde_json::{Value, json};

use super::{SPEC, STORED_ONLY, Stored, set};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, Subresource, keep_status, status_of};
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// Percent of the requested CPU; the default metric.
const CPU_UTILIZATION: i64 = 80;
/// Seconds.
const MAX_PERIOD: i64 = 1800;
const MAX_STABILIZATION_WINDOW: i64 = 3600;

/// The kind in `autoscaling/v2`.
pub static V2: Kind = Kind { version: "v2", schema: "autoscaling_v2.HorizontalPodAutoscaler", ..kind(&RULES) };

/// The kind in `autoscaling/v1`.
pub static V1: Kind = Kind { schema: "autoscaling.HorizontalPodAutoscaler", ..kind(&V1Rules) };

const fn kind(rules: &'static dyn Rules) -> Kind {
    const SUBRESOURCES: &[Subresource] = &[status_of("HorizontalPodAutoscaler")];
    Kind {
        group: "autoscaling",
        kind: "HorizontalPodAutoscaler",
        plural: "horizontalpodautoscalers",
        singular: "horizontalpodautoscaler",
        short_names: &["hpa"],
        categories: &["all"],
        table: "horizontalpodautoscalers",
        subresources: SUBRESOURCES,
        table_view: &TABLE,
        ..Kind::common(rules)
    }
}

static RULES: Stored = Stored { default, validate, ..Stored::new("autoscaling/v2", "HorizontalPodAutoscaler") };

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Reference", "What is scaled."),
        column("Targets", "Metrics: their current and their desired value."),
        column("MinPods", "The smallest number of Pods."),
        column("MaxPods", "The largest number of Pods."),
        column("Replicas", "How many Pods there are."),
        AGE,
    ],
    row: |object, now| {
        let converted;
        let object = if object.has("spec.targetCPUUtilizationPercentage") {
            converted = conversion::to_v2(object.clone());
            &converted
        } else {
            object
        };
        let target = object.at("spec.scaleTargetRef");
        let min = object.at("spec.minReplicas").as_i64().map_or_else(|| "<unset>".to_owned(), |min| min.to_string());
        vec![
            object.text("metadata.name").into(),
            format!("{}/{}", target.text("kind"), target.text("name")).into(),
            metrics::cell(object.items("spec.metrics"), object.items("status.currentMetrics")).into(),
            min.into(),
            object.int("spec.maxReplicas").into(),
            object.int("status.currentReplicas").into(),
            age(object, now).into(),
        ]
    },
    conditions: no_conditions,
};

fn default(object: &mut Value) {
    set(object, "spec.minReplicas", 1);
    if object.items("spec.metrics").is_empty() {
        object.put("spec.metrics", json!([conversion::cpu_metric(CPU_UTILIZATION)]));
    }
    if !object.at("spec.behavior").is_object() {
        return;
    }
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    set(object, "spec.behavior.scaleUp.stabilizationWindowSeconds", 0);
    for (direction, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
        set(object, &format!("spec.behavior.{direction}.selectPolicy"), "Max");
        set(object, &format!("spec.behavior.{direction}.policies"), policies);
    }
}

fn validate(object: &Value, errors: &mut Errors) {
    let spec = object.at("spec");
    let (min, max) = (spec.at("minReplicas").as_i64(), spec.int("maxReplicas"));
    if let Some(min) = min.filter(|min| *min < 1) {
        errors.invalid(&SPEC.child("minReplicas"), min, "must be greater than or equal to 1");
    }
    let path = SPEC.child("maxReplicas");
    if max == 0 {
        errors.required(&path, "must be set and greater than 0");
    } else if max < 0 {
        errors.invalid(&path, max, "must be greater than or equal to 1");
    }
    if min.is_some_and(|min| max < min) {
        errors.invalid(&path, max, "must be greater than or equal to `minReplicas`");
    }
    validate_reference(&SPEC.child("scaleTargetRef"), spec.at("scaleTargetRef"), errors);
    metrics::validate(&SPEC.child("metrics"), spec.items("metrics"), errors);
    let behavior = SPEC.child("behavior");
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.at("behavior").at(direction);
        if !rules.is_null() {
            validate_scaling(&behavior.child(direction), rules, errors);
        }
    }
}

/// Checks a reference to an object of any version.
fn validate_reference(path: &Path<'_>, reference: &Value, errors: &mut Errors) {
    for field in ["kind", "name"] {
        match reference.text(field) {
            "" => errors.required(&path.child(field), ""),
            name => {
                for why in names::name_is_path_segment(name, false) {
                    errors.invalid(&path.child(field), name, &why);
                }
            }
        }
    }
}

fn validate_scaling(path: &Path<'_>, rules: &Value, errors: &mut Errors) {
    let (window_path, window) = (path.child("stabilizationWindowSeconds"), rules.int("stabilizationWindowSeconds"));
    if window < 0 {
        errors.invalid(&window_path, window, "must be greater than or equal to zero");
    } else if window > MAX_STABILIZATION_WINDOW {
        errors.invalid(&window_path, window, &format!("must be less than or equal to {MAX_STABILIZATION_WINDOW}"));
    }
    let selects = ["Disabled", "Max", "Min"];
    super::optional_one_of(&path.child("selectPolicy"), rules.text("selectPolicy"), &selects, errors);
    let (list, policies) = (path.child("policies"), rules.items("policies"));
    if policies.is_empty() {
        errors.required(&list, "must specify at least one Policy");
    }
    for (index, policy) in policies.iter().enumerate() {
        let (path, kind, period) = (list.index(index), policy.text("type"), policy.int("periodSeconds"));
        if !matches!(kind, "Pods" | "Percent") {
            errors.not_supported(&path.child("type"), kind, &["Percent", "Pods"]);
        }
        if policy.int("value") <= 0 {
            errors.invalid(&path.child("value"), policy.int("value"), "must be greater than zero");
        }
        if period <= 0 {
            errors.invalid(&path.child("periodSeconds"), period, "must be greater than zero");
        } else if period > MAX_PERIOD {
            let detail = format!("must be less than or equal to {MAX_PERIOD}");
            errors.invalid(&path.child("periodSeconds"), period, &detail);
        }
    }
}

/// The rules of `autoscaling/v1`: those of `autoscaling/v2`, on the converted object.
struct V1Rules;

impl Rules for V1Rules {
    fn default(&self, object: &mut Value) {
        set(object, "spec.minReplicas", 1);
        if conversion::has_no_metric(object) {
            object.put("spec.targetCPUUtilizationPercentage", CPU_UTILIZATION);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        RULES.validate_create(&conversion::to_v2(object.clone()), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        RULES.validate_update(&conversion::to_v2(new.clone()), &conversion::to_v2(old.clone()), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        RULES.validate_status(new, old, errors);
    }

    fn warnings(&self, _new: &Value, _old: Option<&Value>, out: &mut Vec<String>) {
        out.push(format!("autoscaling/v1 HorizontalPodAutoscaler {STORED_ONLY}"));
    }

    fn converts(&self, _modified: u64) -> bool {
        true
    }

    fn shown_to_stored(&self, object: Value) -> Value {
        conversion::to_v2(object)
    }

    fn stored_to_shown(&self, object: Value) -> Value {
        conversion::to_v1(object)
    }
}
