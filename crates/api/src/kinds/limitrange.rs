//! LimitRange: minimum, maximum and default resources of the Pods, containers and volume claims of a namespace.
//! Admission by LimitRanges is in [`crate::limit_range`].

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::common::report;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules};
use crate::limit_range::{CLAIM, CONTAINER, MAX_MILLI, POD};
use crate::meta;
use crate::names as texts;
use crate::quantity::Amount;
use crate::resources::{ResourceList, names};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "LimitRange",
    plural: "limitranges",
    singular: "limitrange",
    short_names: &["limits"],
    schema: "core.LimitRange",
    table: "limitranges",
    create_on_update: true,
    ..Kind::common(&LimitRangeRules)
};

const NOT_FOR_PODS: &str = "may not be specified when `type` is 'Pod'";

struct LimitRangeRules;

impl Rules for LimitRangeRules {
    fn default(&self, object: &mut Value) {
        for limit in object.items_mut("spec.limits") {
            if limit.text("type") == CONTAINER {
                fill_missing(limit, "default", "max");
                fill_missing(limit, "defaultRequest", "default");
                fill_missing(limit, "defaultRequest", "min");
            }
        }
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, texts::name_is_subdomain, errors);
        let list = Path::Root("spec.limits");
        let mut seen = HashSet::new();
        for (index, limit) in object.items("spec.limits").iter().enumerate() {
            let path = list.index(index);
            let kind = limit.text("type");
            validate_type(&path.child("type"), kind, errors);
            if !seen.insert(kind) {
                errors.duplicate(&path.child("type"), kind);
            }
            validate_limit(&path, limit, errors);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        self.validate_create(new, errors);
    }
}

/// Copies the amounts that one map lacks from another one.
fn fill_missing(limit: &mut Value, field: &str, source: &str) {
    let mut amounts = limit.map(field).cloned().unwrap_or_default();
    for (name, amount) in limit.map(source).into_iter().flatten() {
        amounts.entry(name.clone()).or_insert_with(|| amount.clone());
    }
    limit.put(field, amounts);
}

fn validate_type(path: &Path<'_>, kind: &str, errors: &mut Errors) {
    let wrong = texts::qualified_name(kind);
    if wrong.is_empty() && !kind.contains('/') && ![POD, CONTAINER, CLAIM].contains(&kind) {
        errors.invalid(path, kind, "must be a standard limit type or fully qualified");
    }
    report(path, kind, wrong, errors);
}

fn validate_limit(path: &Path<'_>, limit: &Value, errors: &mut Errors) {
    let kind = limit.text("type");
    let check_name = if [POD, CONTAINER].contains(&kind) { names::validate_of_container } else { names::validate };
    let check_names = |field: &str, errors: &mut Errors| {
        for name in limit.map(field).into_iter().flat_map(Map::keys) {
            check_name(&path.child(field).key(name), name, errors);
        }
    };
    check_names("max", errors);
    check_names("min", errors);
    for field in ["default", "defaultRequest"] {
        if kind != POD {
            check_names(field, errors);
        } else if limit.map(field).is_some_and(|amounts| !amounts.is_empty()) {
            errors.forbidden(&path.child(field), NOT_FOR_PODS);
        }
    }
    if kind == CLAIM && !["min", "max"].into_iter().any(|field| limit.at(field).has("storage")) {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), detail);
    }
    check_names("maxLimitRequestRatio", errors);
    let bounds = Bounds::of(limit);
    for name in bounds.names() {
        bounds.validate(path, name, errors);
    }
}

/// The amounts of one limit.
struct Bounds {
    min: ResourceList,
    max: ResourceList,
    default: ResourceList,
    default_request: ResourceList,
    max_ratio: ResourceList,
}

impl Bounds {
    fn of(limit: &Value) -> Self {
        let is_pod = limit.text("type") == POD;
        let read = |field: &str| ResourceList::of(limit.at(field));
        let default = |field: &str| if is_pod { ResourceList::default() } else { read(field) };
        Self {
            min: read("min"),
            max: read("max"),
            default: default("default"),
            default_request: default("defaultRequest"),
            max_ratio: read("maxLimitRequestRatio"),
        }
    }

    fn names(&self) -> BTreeSet<&str> {
        let lists = [&self.min, &self.max, &self.default, &self.default_request, &self.max_ratio];
        lists.into_iter().flat_map(|list| list.0.keys().map(String::as_str)).collect()
    }

    /// Checks the order of the amounts of one resource. Some messages show an amount of another field, as in the
    /// original.
    fn validate(&self, path: &Path<'_>, name: &str, errors: &mut Errors) {
        let (min, max) = (self.min.get(name), self.max.get(name));
        let (default, request) = (self.default.get(name), self.default_request.get(name));
        let mut wrong = |field: &str, shown: &Amount, detail: String| {
            errors.invalid(&path.child(field).key(name), shown.to_string(), &detail);
        };
        if let Some((min, max)) = disordered(min, max) {
            wrong("min", min, format!("min value {min} is greater than max value {max}"));
        }
        if let Some((min, request)) = disordered(min, request) {
            wrong(
                "defaultRequest",
                request,
                format!("min value {min} is greater than default request value {request}"),
            );
        }
        if let Some((request, max)) = disordered(request, max) {
            wrong(
                "defaultRequest",
                request,
                format!("default request value {request} is greater than max value {max}"),
            );
        }
        if let Some((request, default)) = disordered(request, default) {
            let detail = format!("default request value {request} is greater than default limit value {default}");
            wrong("defaultRequest", request, detail);
        }
        if let Some((min, default)) = disordered(min, default) {
            wrong("default", min, format!("min value {min} is greater than default value {default}"));
        }
        if let Some((default, max)) = disordered(default, max) {
            wrong("default", max, format!("default value {default} is greater than max value {max}"));
        }
        if let Some((ratio, detail)) = self.wrong_ratio(name) {
            wrong("maxLimitRequestRatio", ratio, detail);
        }
        if let Some((ratio, limit)) = self.unreachable_ratio(name) {
            wrong("maxLimitRequestRatio", ratio, format!("ratio {ratio} is greater than max/min = {limit:.6}"));
        }
        if let Some((default, request)) = default.zip(request)
            && default != request
            && !names::is_overcommit_allowed(name)
        {
            let detail = format!("default value {default} must equal to defaultRequest value {request} in {name}");
            wrong("defaultRequest", request, detail);
        }
    }

    fn wrong_ratio(&self, name: &str) -> Option<(&Amount, String)> {
        let ratio = self.max_ratio.get(name).filter(|ratio| **ratio < Amount::whole(1))?;
        Some((ratio, format!("ratio {ratio} is less than 1")))
    }

    /// A maximum ratio that exceeds max/min, and max/min.
    #[expect(clippy::cast_precision_loss, reason = "the original divides floating-point numbers")]
    fn unreachable_ratio(&self, name: &str) -> Option<(&Amount, f64)> {
        let (ratio, min, max) = (self.max_ratio.get(name)?, self.min.get(name)?, self.max.get(name)?);
        let is_fine = [ratio, min, max].into_iter().all(|amount| amount.value() < MAX_MILLI);
        let (wanted, limit) = if is_fine {
            (ratio.thousandths() as f64 / 1000.0, max.thousandths() as f64 / min.thousandths() as f64)
        } else {
            (ratio.value() as f64, max.value() as f64 / min.value() as f64)
        };
        (wanted > limit).then_some((ratio, limit))
    }
}

/// Both amounts, if both are set and the first is greater than the second.
fn disordered<'a>(low: Option<&'a Amount>, high: Option<&'a Amount>) -> Option<(&'a Amount, &'a Amount)> {
    low.zip(high).filter(|(low, high)| low > high)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    fn check(limits: &Value) -> String {
        let mut object = json!({"metadata": {"name": "l", "namespace": "n"}, "spec": {"limits": limits}});
        LimitRangeRules.default(&mut object);
        summary(|errors| LimitRangeRules.validate_create(&object, errors)).replace("spec.limits[0].", "")
    }

    #[test]
    fn golden_answers() {
        golden("../access/quota-limitrange", &KIND);
    }

    #[test]
    fn defaults_are_derived() {
        let mut object = json!({"spec": {"limits": [
            {
                "type": "Container", "default": {"cpu": "1"},
                "max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "1", "x": "1"},
            },
            {"type": "Pod", "max": {"cpu": "2"}},
        ]}});
        LimitRangeRules.default(&mut object);
        let [container, pod] = object.items("spec.limits") else { panic!("two limits") };
        assert_eq!(container.at("default"), &json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(container.at("defaultRequest"), &json!({"cpu": "1", "memory": "1Gi", "x": "1"}));
        assert!(!pod.has("default"));
    }

    #[test]
    fn amounts_must_be_ordered() {
        let limit =
            json!({"type": "Container", "max": {"cpu": "4"}, "defaultRequest": {"cpu": "3"}, "default": {"cpu": "2"}});
        assert_eq!(
            check(&json!([limit])),
            "defaultRequest[cpu]: Invalid value: \"3\": default request value 3 is greater than default limit value 2"
        );
        let (default, request) = (json!({"hugepages-2Mi": "4Mi"}), json!({"hugepages-2Mi": "2Mi"}));
        let limit = json!({"type": "Container", "defaultRequest": request, "default": default});
        assert_eq!(
            check(&json!([limit])),
            "defaultRequest[hugepages-2Mi]: Invalid value: \"2Mi\": default value 4Mi must equal to defaultRequest \
             value 2Mi in hugepages-2Mi"
        );
    }

    #[test]
    fn ratios_are_between_one_and_max_by_min() {
        let with = |ratio: &str| {
            check(&json!([{
                "type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "1500m"}, "maxLimitRequestRatio": {"cpu": ratio},
            }]))
        };
        assert_eq!(with("1.5"), "[]");
        assert_eq!(with("500m"), "maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1");
        assert_eq!(
            with("2"),
            "maxLimitRequestRatio[cpu]: Invalid value: \"2\": ratio 2 is greater than max/min = 1.500000"
        );
    }

    #[test]
    fn resource_names_depend_on_the_type() {
        assert_eq!(check(&json!([{"type": "example.com/Frob", "max": {"storage": "1"}}])), "[]");
        assert_eq!(
            check(&json!([{"type": "Pod", "max": {"storage": "1"}}])),
            "max[storage]: Invalid value: \"storage\": must be a standard resource for containers"
        );
        assert_eq!(
            check(&json!([{"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}])),
            "limits: Required value: either minimum or maximum storage value is required, but neither was provided"
        );
    }
}
