//! TrafficPolicy: what holds for the traffic of Gateways, routes and Services beyond the Gateway API.
//!
//! A kind of Waypost that attaches to other objects of its namespace (GEP-713). What a policy means is in
//! `routing::traffic`; here are its defaults and checks, in [`spec`] those of the fields. Defaults that depend on nothing
//! else are written into the object, so that all readers see the same values.

mod access;
mod backends;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::common::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

/// The most entries of a status (GEP-713).
const MOST_ANCESTORS: usize = 16;

/// Fields that are defaults of a part, once there is such a part.
const DEFAULTS: &[(&str, &[(&str, &str)])] = &[
    ("authentication.external", &[("method", "GET"), ("signInRedirectParameter", "rd")]),
    ("outlierDetection", &[("baseEjectionTime", "30s"), ("maxEjectionTime", "5m")]),
];

/// The same for numbers.
const NUMBERS: &[(&str, &str, i64)] =
    &[("outlierDetection", "consecutiveErrors", 5), ("outlierDetection", "maxEjectionPercent", 50)];

/// The kind.
pub static KIND: Kind = Kind {
    group: "waypost.dev",
    kind: "TrafficPolicy",
    plural: "trafficpolicies",
    singular: "trafficpolicy",
    short_names: &["tp"],
    schema: "waypost.TrafficPolicy",
    table: "trafficpolicies",
    generation: true,
    subresources: &[status_of("TrafficPolicy")],
    table_view: &TABLE,
    ..Kind::common(&TrafficPolicyRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Targets", "The objects that the policy is attached to."),
        column("Accepted", "Whether the policy has an effect."),
        AGE,
        wide_column("Fields", "The fields that are set."),
    ],
    row: |object, now| {
        let targets: Vec<String> = object.items("spec.targetRefs").iter().map(target).collect();
        let fields: Vec<&str> =
            spec::FIELDS.iter().copied().filter(|field| spec::sets(object.at("spec"), field)).collect();
        vec![
            object.text("metadata.name").into(),
            or(&targets.join(","), "<none>").into(),
            accepted(object.items("status.ancestors")).into(),
            age(object, now).into(),
            or(&fields.join(","), "<none>").into(),
        ]
    },
    conditions: no_conditions,
};

/// A target in short: `Gateway/public/https`.
fn target(target: &Value) -> String {
    let parts = [target.text("kind"), target.text("name"), target.text("sectionName")];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

/// `True` if all ancestors say so, `False` if one does, else `Unknown`.
fn accepted(ancestors: &[Value]) -> &'static str {
    let says = |ancestor: &Value, status: &str| {
        let mut conditions = ancestor.items("conditions").iter();
        conditions.any(|condition| condition.text("type") == "Accepted" && condition.text("status") == status)
    };
    if ancestors.iter().any(|ancestor| says(ancestor, "False")) {
        "False"
    } else if !ancestors.is_empty() && ancestors.iter().all(|ancestor| says(ancestor, "True")) {
        "True"
    } else {
        "Unknown"
    }
}

struct TrafficPolicyRules;

impl Rules for TrafficPolicyRules {
    fn default(&self, object: &mut Value) {
        for target in object.items_mut("spec.targetRefs") {
            if let Some(group) = spec::group_of(target.text("kind")).filter(|_| target.text("group").is_empty()) {
                target.put("group", group);
            }
        }
        for (part, fields) in DEFAULTS {
            let Some(part) = object.at_mut(&format!("spec.{part}")).filter(|part| part.is_object()) else { continue };
            for (field, text) in fields.iter().filter(|(field, _)| part.text(field).is_empty()).collect::<Vec<_>>() {
                part.put(field, *text);
            }
        }
        for (part, field, number) in NUMBERS {
            let Some(part) = object.at_mut(&format!("spec.{part}")).filter(|part| part.is_object()) else { continue };
            if part.int(field) == 0 {
                part.put(field, *number);
            }
        }
        for limit in object.items_mut("spec.rateLimits") {
            if !limit.has("burst") {
                let requests = limit.int("requests");
                limit.put("burst", requests);
            }
            if !limit.has("key") {
                limit.put("key.type", "Client");
            }
        }
        if object.at("spec.session").is_object() && !object.has("spec.session.changeOnFailure") {
            object.put("spec.session.changeOnFailure", true);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object.put("status", Map::new());
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        spec::validate(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        spec::validate(new.at("spec"), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        let (path, ancestors) = (Path::Root("status.ancestors"), new.items("status.ancestors"));
        if ancestors.len() > MOST_ANCESTORS {
            errors.too_many(&path, ancestors.len(), MOST_ANCESTORS);
        }
        for (index, ancestor) in ancestors.iter().enumerate() {
            let path = path.index(index);
            if ancestor.text("ancestorRef.name").is_empty() {
                errors.required(&path.child("ancestorRef").child("name"), "");
            }
            if ancestor.text("controllerName").is_empty() {
                errors.required(&path.child("controllerName"), "");
            }
            validate_conditions(&path.child("conditions"), ancestor.items("conditions"), errors);
        }
    }
}
