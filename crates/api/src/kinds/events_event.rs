//! Event (events.k8s.io/v1): the newer face of the stored core Event.
//!
//! Stored is the core form; [`to_core`] and [`from_core`] rename the fields that differ. Checks run on the core form
//! and name its fields, as kube-apiserver does, and they are stricter here: only the series of an Event may change.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::common::{IMMUTABLE, go_struct, immutable_text, invalid_struct, same};
use super::event::{COLUMNS, TTL, row, validate_legacy};
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, Selectable};
use crate::meta;
use crate::names;
use crate::table::{Table, no_conditions};
use crate::value::ValueExt as _;

/// The kind.
pub static KIND: Kind = Kind {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    schema: "events.Event",
    table: "events",
    create_on_update: true,
    ttl: Some(TTL),
    // The values are those of the stored form.
    selectable: &[
        Selectable { label: "reason", value: |e| e.text("reason").to_owned() },
        Selectable { label: "regarding.apiVersion", value: |e| e.text("involvedObject.apiVersion").to_owned() },
        Selectable { label: "regarding.fieldPath", value: |e| e.text("involvedObject.fieldPath").to_owned() },
        Selectable { label: "regarding.kind", value: |e| e.text("involvedObject.kind").to_owned() },
        Selectable { label: "regarding.name", value: |e| e.text("involvedObject.name").to_owned() },
        Selectable { label: "regarding.namespace", value: |e| e.text("involvedObject.namespace").to_owned() },
        Selectable {
            label: "regarding.resourceVersion",
            value: |e| e.text("involvedObject.resourceVersion").to_owned(),
        },
        Selectable { label: "regarding.uid", value: |e| e.text("involvedObject.uid").to_owned() },
        Selectable { label: "reportingController", value: |e| e.text("reportingComponent").to_owned() },
        Selectable { label: "type", value: |e| e.text("type").to_owned() },
    ],
    table_view: &TABLE,
    ..Kind::common(&EventsEventRules)
};

static TABLE: Table = Table { columns: COLUMNS, row: |object, now| row(&core(object), now), conditions: no_conditions };

/// Names that differ: here, in core.
const RENAMED: &[(&str, &str)] = &[
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
];

struct EventsEventRules;

impl Rules for EventsEventRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        let event = core(object);
        validate_legacy(&event, "reportingController", errors);
        meta::validate(&event, true, names::name_is_subdomain, errors);
        validate_series(&event, errors);
        if !event.has("eventTime") {
            errors.required(&Path::Root("eventTime"), "");
        }
        let kind = event.text("type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.invalid(&Path::Root("type"), "", &format!("has invalid value: {kind}"));
        }
        for field in ["firstTimestamp", "lastTimestamp"] {
            forbid(field, event.has(field), errors);
        }
        forbid("count", event.int("count") != 0, errors);
        let source = !event.text("source.component").is_empty() || !event.text("source.host").is_empty();
        forbid("source", source, errors);
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        let (new, old) = (core(new), core(old));
        meta::validate_update(&new, &old, errors);
        validate_legacy(&new, "reportingController", errors);
        if !same(new.at("series"), old.at("series")) {
            validate_series(&new, errors);
        }
        for field in [
            "involvedObject",
            "reason",
            "message",
            "source",
            "firstTimestamp",
            "lastTimestamp",
            "count",
            "type",
            "eventTime",
            "action",
            "related",
            "reportingController",
            "reportingInstance",
        ] {
            keep(field, &new, &old, errors);
        }
    }

    fn converts(&self, _modified: u64) -> bool {
        true
    }

    fn shown_to_stored(&self, object: Value) -> Value {
        to_core(object)
    }

    fn stored_to_shown(&self, object: Value) -> Value {
        from_core(object)
    }
}

/// The core form of an Event in either form.
fn core(object: &Value) -> Cow<'_, Value> {
    if RENAMED.iter().any(|(here, _)| object.get(here).is_some()) {
        Cow::Owned(to_core(object.clone()))
    } else {
        Cow::Borrowed(object)
    }
}

/// The core form. An Event that has it already stays as it is.
#[must_use]
pub fn to_core(mut object: Value) -> Value {
    let Some(map) = object.as_object_mut() else { return object };
    for (here, there) in RENAMED {
        if let Some(value) = map.remove(*here) {
            map.insert((*there).to_owned(), value);
        }
    }
    for field in ["reportingComponent", "reportingInstance"] {
        map.entry(field).or_insert_with(|| "".into());
    }
    rename_version(map, "v1");
    object
}

/// The form of events.k8s.io/v1.
#[must_use]
pub fn from_core(mut object: Value) -> Value {
    let Some(map) = object.as_object_mut() else { return object };
    for (here, there) in RENAMED {
        if let Some(value) = map.remove(*there) {
            map.insert((*here).to_owned(), value);
        }
    }
    for field in ["reportingController", "reportingInstance"] {
        if map.get(field).is_some_and(|value| value == "") {
            map.remove(field);
        }
    }
    rename_version(map, "events.k8s.io/v1");
    object
}

fn rename_version(map: &mut Map<String, Value>, version: &str) {
    if let Some(stated) = map.get_mut("apiVersion") {
        *stated = version.into();
    }
}

fn validate_series(event: &Value, errors: &mut Errors) {
    if !event.has("series") {
        return;
    }
    if event.int("series.count") < 2 {
        errors.invalid(&Path::Root("series.count"), "", "should be at least 2");
    }
    if !event.has("series.lastObservedTime") {
        errors.required(&Path::Root("series.lastObservedTime"), "");
    }
}

fn forbid(field: &str, is_set: bool, errors: &mut Errors) {
    if is_set {
        errors.invalid(&Path::Root(field), "", "needs to be unset");
    }
}

/// Rejects a change of a field, which messages call `field`.
fn keep(field: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let stored = if field == "reportingController" { "reportingComponent" } else { field };
    let (value, before) = (new.at(stored), old.at(stored));
    let path = Path::Root(field);
    let members: &[(&str, &str)] = match field {
        "involvedObject" | "related" => &[
            ("Kind", "kind"),
            ("Namespace", "namespace"),
            ("Name", "name"),
            ("UID", "uid"),
            ("APIVersion", "apiVersion"),
            ("ResourceVersion", "resourceVersion"),
            ("FieldPath", "fieldPath"),
        ],
        "source" => &[("Component", "component"), ("Host", "host")],
        "count" => return keep_count(value, before, errors),
        "firstTimestamp" | "lastTimestamp" | "eventTime" => {
            if value != before {
                errors.invalid(&path, value, IMMUTABLE);
            }
            return;
        }
        _ => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return immutable_text(&path, &text(value), &text(before), errors);
        }
    };
    if same(value, before) {
        return;
    }
    if value.is_null() && field == "related" {
        errors.invalid(&path, Value::Null, IMMUTABLE);
    } else {
        invalid_struct(&path, &go_struct(value, members), IMMUTABLE, errors);
    }
}

fn keep_count(value: &Value, before: &Value, errors: &mut Errors) {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    if number(value) != number(before) {
        errors.invalid(&Path::Root("count"), number(value), IMMUTABLE);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary};

    #[test]
    fn golden_answers() {
        golden("config-lease-event", &KIND);
    }

    fn event() -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1",
            "metadata": {"name": "e", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "example.com/c",
            "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal", "note": "n",
            "regarding": {"kind": "Service", "namespace": "n", "name": "web"},
        })
    }

    #[test]
    fn both_forms_are_one_object() {
        let stored = to_core(event());
        assert_eq!(stored.text("apiVersion"), "v1");
        assert_eq!(stored.text("involvedObject.name"), "web");
        assert_eq!(stored.text("message"), "n");
        assert_eq!(to_core(stored.clone()), stored);
        assert_eq!(from_core(stored), event());
    }

    #[test]
    fn old_fields_are_for_old_clients() {
        let mut object = event();
        for (field, value) in [
            ("deprecatedCount", json!(1)),
            ("deprecatedSource", json!({"host": "h"})),
            ("deprecatedLastTimestamp", json!("2024-01-01T00:00:00Z")),
            ("series", json!({"count": 1})),
        ] {
            object.put(field, value);
        }
        assert_eq!(
            summary(|errors| EventsEventRules.validate_create(&object, errors)),
            "[series.count: Invalid value: \"\": should be at least 2, series.lastObservedTime: Required value, \
             lastTimestamp: Invalid value: \"\": needs to be unset, count: Invalid value: \"\": needs to be unset, \
             source: Invalid value: \"\": needs to be unset]"
        );
    }

    #[test]
    fn only_the_series_changes() {
        let mut new = event();
        new.put("series", json!({"count": 2, "lastObservedTime": "2024-01-01T00:00:05.000000Z"}));
        assert_eq!(summary(|errors| EventsEventRules.validate_update(&new, &event(), errors)), "[]");
        new.put("reportingController", "example.com/d");
        new.put("type", "Warning");
        new.put("regarding.name", "x");
        assert_eq!(
            summary(|errors| EventsEventRules.validate_update(&new, &event(), errors)),
            "[involvedObject: Invalid value: {\"Kind\":\"Service\",\"Namespace\":\"n\",\"Name\":\"x\",\"UID\":\"\",\
             \"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable, type: Invalid \
             value: \"Warning\": field is immutable, reportingController: Invalid value: \
             \"example.com/d\": field is immutable]"
        );
    }
}
