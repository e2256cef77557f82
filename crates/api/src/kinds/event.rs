//! Event (core/v1): something that happened to an object.
//!
//! `events.k8s.io/v1` shows the same stored objects under other names ([`super::events_event`]); the checks are
//! shared, because kube-apiserver makes them on one internal form and names its fields as here.

use serde_json::Value;

use super::common::report;
use crate::field::{Errors, Path};
use crate::kind::{Kind, Rules, Selectable};
use crate::meta;
use crate::names;
use crate::table::{Column, NAME, Table, column, no_conditions, or, since, wide_column};
use crate::value::ValueExt as _;

const MAX_WORD: usize = 128;
const MAX_MESSAGE: usize = 1024;

/// The time to live of an Event, in seconds.
pub const TTL: u64 = 3600;

/// The kind.
pub static KIND: Kind = Kind {
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    schema: "core.Event",
    table: "events",
    create_on_update: true,
    ttl: Some(TTL),
    selectable: &[
        Selectable { label: "involvedObject.apiVersion", value: |e| e.text("involvedObject.apiVersion").to_owned() },
        Selectable { label: "involvedObject.fieldPath", value: |e| e.text("involvedObject.fieldPath").to_owned() },
        Selectable { label: "involvedObject.kind", value: |e| e.text("involvedObject.kind").to_owned() },
        Selectable { label: "involvedObject.name", value: |e| e.text("involvedObject.name").to_owned() },
        Selectable { label: "involvedObject.namespace", value: |e| e.text("involvedObject.namespace").to_owned() },
        Selectable {
            label: "involvedObject.resourceVersion",
            value: |e| e.text("involvedObject.resourceVersion").to_owned(),
        },
        Selectable { label: "involvedObject.uid", value: |e| e.text("involvedObject.uid").to_owned() },
        Selectable { label: "reason", value: |e| e.text("reason").to_owned() },
        Selectable { label: "reportingComponent", value: |e| e.text("reportingComponent").to_owned() },
        Selectable {
            label: "source",
            value: |e| or(e.text("source.component"), e.text("reportingComponent")).to_owned(),
        },
        Selectable { label: "type", value: |e| e.text("type").to_owned() },
    ],
    table_view: &TABLE,
    ..Kind::common(&EventRules)
};

static TABLE: Table = Table { columns: COLUMNS, row, conditions: no_conditions };

pub(super) const COLUMNS: &[Column] = &[
    column("Last Seen", "How long ago it last happened."),
    column("Type", "Whether it is normal or a warning."),
    column("Reason", "Why it happened, in one word."),
    column("Object", "What it happened to."),
    wide_column("Subobject", "Which part of the object."),
    wide_column("Source", "Who reports it."),
    column("Message", "What happened, for people."),
    wide_column("First Seen", "How long ago it first happened."),
    wide_column("Count", "How often it happened."),
    Column { priority: 1, ..NAME },
];

/// The row of an Event in core form.
pub(super) fn row(event: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let (first, last) = (event.at("firstTimestamp"), event.at("lastTimestamp"));
    let first = if first.is_null() { event.at("eventTime") } else { first };
    let last = if last.is_null() { first } else { last };
    let (last, count) = match event.at("series") {
        Value::Null => (last, event.int("count").max(1)),
        series => (series.at("lastObservedTime"), series.int("count")),
    };
    let kind = event.text("involvedObject.kind").to_lowercase();
    let object = match event.text("involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = or(event.text("source.component"), event.text("reportingComponent"));
    let source = match or(event.text("source.host"), event.text("reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        since(last, now).into(),
        event.text("type").into(),
        event.text("reason").into(),
        object.into(),
        event.text("involvedObject.fieldPath").into(),
        source.into(),
        event.text("message").trim().into(),
        since(first, now).into(),
        count.into(),
        event.text("metadata.name").into(),
    ]
}

struct EventRules;

impl Rules for EventRules {
    fn validate_create(&self, object: &Value, errors: &mut Errors) {
        validate_legacy(object, "reportingComponent", errors);
        // kube-apiserver validates the metadata of these only when everything else is valid.
        if errors.is_empty() {
            meta::validate(object, true, names::name_is_path_segment, errors);
        }
    }

    fn validate_update(&self, new: &Value, old: &Value, errors: &mut Errors) {
        meta::validate_update(new, old, errors);
        validate_legacy(new, "reportingComponent", errors);
    }
}

/// What every version checks, on the core form; `controller` is the version's name of `reportingComponent`.
pub(super) fn validate_legacy(event: &Value, controller: &str, errors: &mut Errors) {
    let (namespace, involved) = (event.text("metadata.namespace"), event.text("involvedObject.namespace"));
    let is_new = event.has("eventTime");
    let matches = match (is_new, involved) {
        (false, "") => matches!(namespace, "" | "default"),
        (false, _) => namespace == involved,
        (true, "") => matches!(namespace, "default" | "kube-system"),
        (true, _) => true,
    };
    if !matches {
        errors.invalid(&Path::Root("involvedObject.namespace"), involved, "does not match event.namespace");
    }
    if !is_new {
        return;
    }
    let reporter = event.text("reportingComponent");
    let path = Path::Root(controller);
    if reporter.is_empty() {
        errors.required(&path, "");
    }
    report(&path, reporter, names::qualified_name(reporter), errors);
    for field in ["reportingInstance", "action", "reason"] {
        let text = event.text(field);
        if text.is_empty() {
            errors.required(&Path::Root(field), "");
        }
        limit(field, text, MAX_WORD, errors);
    }
    limit("message", event.text("message"), MAX_MESSAGE, errors);
}

fn limit(field: &str, text: &str, max: usize, errors: &mut Errors) {
    if text.len() > max {
        errors.invalid(&Path::Root(field), "", &format!("can have at most {max} characters"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::testing::{golden, summary, table_golden};

    #[test]
    fn golden_answers() {
        golden("config-lease-event", &KIND);
        table_golden("table.events", &KIND);
    }

    #[test]
    fn new_events_name_their_reporter() {
        let event = json!({
            "metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "elsewhere"},
            "eventTime": "2024-01-01T00:00:00.000000Z", "message": "x".repeat(1025),
        });
        let text = summary(|errors| EventRules.validate_create(&event, errors));
        assert!(
            text.starts_with("[reportingComponent: Required value, reportingComponent: Invalid value: \"\""),
            "{text}"
        );
        let rest = "action: Required value, reason: Required value, message: Invalid value: \"\": can have at most 1024 \
                    characters]";
        assert!(text.ends_with(rest), "{text}");
    }

    #[test]
    fn a_series_tells_when_and_how_often() {
        let event = json!({
            "metadata": {"name": "e"}, "involvedObject": {"kind": "Pod"}, "reportingComponent": "c",
            "eventTime": "2024-01-01T00:00:00.000000Z",
            "series": {"count": 7, "lastObservedTime": "2024-01-01T00:59:00.000000Z"},
        });
        let cells = row(&event, "2024-01-01T01:00:00Z".parse().expect("a time"));
        assert_eq!(cells[0], "60s");
        assert_eq!(cells[3], "pod");
        assert_eq!(cells[5], "c");
        assert_eq!(cells[7], "60m");
        assert_eq!(cells[8], 7);
    }
}
