//! ResourceQuota: limits of the total usage of a namespace. Measuring and checking usage is in [`crate::quota`].

mod validate;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, keep_status, status_of};
use crate::meta;
use crate::names;
use crate::quantity::Amount;
use crate::resources::ResourceList;
use crate::table::{AGE, NAME, Table, age, column, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    short_names: &["quota"],
    schema: "core.ResourceQuota",
    table: "resourcequotas",
    subresources: &[status_of("ResourceQuota")],
    delete_returns_object: true,
    table_view: &TABLE,
    ..Kind::common(&QuotaRules)
};

static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Request", "Used and allowed amounts of objects and requests."),
        column("Limit", "Used and allowed amounts of limits."),
        AGE,
    ],
    row: |quota, now| {
        vec![
            quota.text("metadata.name").into(),
            amounts(quota, false).into(),
            amounts(quota, true).into(),
            age(quota, now).into(),
        ]
    },
    conditions: no_conditions,
};

/// `pods: 1/3, requests.cpu: 600m/1`: used and allowed amounts, of `limits.*` resources or of all others.
fn amounts(quota: &Value, limits: bool) -> String {
    let used = ResourceList::of(quota.at("status.used"));
    let hard = ResourceList::of(quota.at("status.hard"));
    let shown = hard.0.iter().filter(|(name, _)| name.starts_with("limits.") == limits);
    let cells = shown.map(|(name, hard)| format!("{name}: {}/{hard}", used.get(name).unwrap_or(&Amount::ZERO)));
    cells.collect::<Vec<String>>().join(", ")
}

struct QuotaRules;

impl Rules for QuotaRules {
    fn prepare_create(&self, object: &mut Value) {
        object.drop_path("status");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        keep_status(new, old);
    }

    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        meta::validate(object, true, names::name_is_subdomain, errors);
        validate::spec(object.at("spec"), errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate::spec(new.at("spec"), errors);
        validate::same_scopes(new.at("spec.scopes"), old.at("spec.scopes"), errors);
    }

    fn validate_status(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        if new.text("metadata.resourceVersion").is_empty() {
            errors.required(&Path::Root("resourceVersion"), "");
        }
        validate::amounts(&Path::Root("status.hard"), new.at("status.hard"), errors);
        validate::amounts(&Path::Root("status.used"), new.at("status.used"), errors);
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, out: &mut Vec<String>) {
        if old.is_none() {
            let hard = ResourceList::of(new.at("spec.hard"));
            out.extend(
                ["cpu", "memory", "storage", "ephemeral-storage"].iter().filter_map(|name| warning(&hard, name)),
            );
        }
    }
}

/// The warning about a quota that allows more requests than limits.
fn warning(hard: &ResourceList, name: &str) -> Option<String> {
    let (request_name, limit_name) = (format!("requests.{name}"), format!("limits.{name}"));
    let bare = ["cpu", "memory"].contains(&name).then_some(name);
    let request_name = if hard.get(&request_name).is_some() { request_name.as_str() } else { bare? };
    let (request, limit) = (hard.get(request_name)?, hard.get(&limit_name)?);
    (request > limit)
        .then(|| format!("ResourceQuota {request_name} ({request}) should be less than {limit_name} ({limit})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::golden;

    #[test]
    fn golden_answers() {
        golden("../access/quota-limitrange", &KIND);
    }

    #[test]
    fn a_row_shows_used_and_allowed() {
        let quota = json!({
            "metadata": {"name": "q"},
            "status": {
                "hard": {"pods": "3", "limits.cpu": "2", "requests.cpu": "1"},
                "used": {"pods": "1", "limits.cpu": "500m"},
            },
        });
        let cells = (TABLE.row)(&quota, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(cells[..3], [json!("q"), json!("pods: 1/3, requests.cpu: 0/1"), json!("limits.cpu: 500m/2")]);
    }

    #[test]
    fn requests_over_limits_are_warned_of() {
        let warnings = |hard: Value| {
            let mut out = Vec::new();
            QuotaRules.warnings(&json!({"spec": {"hard": hard}}), None, &mut out);
            out
        };
        assert_eq!(
            warnings(json!({"requests.cpu": "2", "limits.cpu": "1", "memory": "2Gi", "limits.memory": "1Gi"})),
            [
                "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)",
                "ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)"
            ]
        );
        assert!(warnings(json!({"cpu": "1", "limits.cpu": "1", "requests.memory": "1"})).is_empty());
    }
}
