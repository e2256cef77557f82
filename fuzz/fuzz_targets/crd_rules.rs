//! A rule in CEL, a zero byte, and JSON for the `spec` that it checks: compiled with the types of a schema or refused, evaluated
//! within the budget, the same each time, for a new object and for an update.
#![no_main]

use std::sync::LazyLock;

use api::field::{Errors, Path};
use api::structural::Structural;
use api::structural::rules::{self, Compiled, check_rules};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

/// Fields of all types that rules support, with limits so that estimates are finite.
static FIELDS: LazyLock<Value> = LazyLock::new(|| {
    let text = json!({"type": "string", "maxLength": 100});
    let entry = json!({"type": "object", "required": ["k"], "properties": {"k": text, "v": {"type": "integer"}}});
    json!({
        "n": {"type": "integer"}, "x": {"type": "number"}, "s": text, "b": {"type": "boolean"},
        "t": {"type": "string", "format": "date-time"}, "d": {"type": "string", "format": "duration"},
        "bytes": {"type": "string", "format": "byte", "maxLength": 100}, "day": {"type": "string", "format": "date"},
        "list": {"type": "array", "maxItems": 20, "items": text},
        "set": {"type": "array", "maxItems": 20, "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
        "map": {"type": "array", "maxItems": 20, "items": entry, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
        "labels": {"type": "object", "maxProperties": 20, "additionalProperties": text},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "either": {"x-kubernetes-int-or-string": true}, "maybe": {"type": "string", "nullable": true, "maxLength": 100},
        "inner": {"type": "object", "properties": {"if": {"type": "integer"}, "a-b": text, "namespace": {"type": "boolean"}}},
        "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
    })
});

/// A schema with the rule at an object, at a map and at the elements of a list, and as the text of a message.
fn schema(rule: &str) -> Structural {
    let mut fields = FIELDS.clone();
    let here = json!([{"rule": rule}]);
    fields["labels"]["x-kubernetes-validations"] = here.clone();
    fields["map"]["items"]["x-kubernetes-validations"] = here;
    let twice = json!([{"rule": rule}, {"rule": "has(self.b)", "messageExpression": rule}]);
    let spec = json!({"type": "object", "properties": fields, "x-kubernetes-validations": twice});
    Structural::parse(&json!({"type": "object", "properties": {"spec": spec}}))
}

fn run(schema: &Structural, object: &Value, old: Option<&Value>) -> (Errors, Vec<String>) {
    let (mut errors, mut warnings) = (Errors::default(), Vec::new());
    Compiled::new(schema).validate(schema, object, old, &mut errors, &mut warnings);
    (errors, warnings)
}

fuzz_target!(|data: &[u8]| {
    let (rule, body) = common::halves(data);
    let Ok(rule) = std::str::from_utf8(rule) else { return };
    let schema = schema(rule);
    let (path, mut errors) = (Path::Root("schema"), Errors::default());
    check_rules(&schema, &path, &rules::Options::default(), &mut errors);

    let spec =
        serde_json::from_slice(body).unwrap_or_else(|_| json!({"n": 1, "s": "a", "list": ["a"], "labels": {"a": "b"}}));
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec});
    schema.prune(&mut object);
    schema.apply_defaults(&mut object);
    let mut errors = Errors::default();
    schema.validate(&object, None, None, &mut errors);
    if rules::blocks(&errors) {
        return;
    }
    let old = json!({"spec": {"n": 2, "s": "b", "list": ["b"], "labels": {"a": "c"}, "map": [{"k": "a", "v": 1}], "b": true}});
    for old in [None, Some(&old)] {
        let (errors, warnings) = run(&schema, &object, old);
        let again = run(&schema, &object, old);
        assert_eq!((errors.0, warnings), (again.0.0, again.1), "evaluation depends on something else");
    }
});
