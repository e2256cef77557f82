//! Values and the validation errors of a kube-apiserver.

use serde_json::{Value, json};

use super::*;
use crate::field::{Errors, Path};

fn complaints_of_update(schema: &Value, object: &Value, old: Option<&Value>) -> Vec<String> {
    let schema = Structural::parse(schema);
    let mut object = object.clone();
    schema.prune(&mut object);
    schema.apply_defaults(&mut object);
    let mut errors = Errors::default();
    schema.validate(&object, old, None, &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

fn with_spec(f: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": f}}}})
}

/// The errors for a value of the field `spec.f` with this schema.
fn of_field(schema: &Value, value: &Value) -> Vec<String> {
    complaints_of_update(&with_spec(schema), &json!({"spec": {"f": value}}), None)
}

fn check(schema: &Value, cases: &[(Value, &[&str])]) {
    for (value, wanted) in cases {
        assert_eq!(of_field(schema, value), *wanted, "{schema} {value}");
    }
}

#[test]
fn types_are_checked() {
    check(
        &json!({"type": "string"}),
        &[
            (json!("x"), &[]),
            (json!(1), &["spec.f: Invalid value: \"integer\": spec.f in body must be of type string: \"integer\""]),
            (json!({}), &["spec.f: Invalid value: \"object\": spec.f in body must be of type string: \"object\""]),
        ],
    );
    check(
        &json!({"type": "integer"}),
        &[
            (json!(5), &[]),
            (json!(5.0), &[]),
            (
                json!(1.5),
                &[
                    "spec.f: Invalid value: \"number\": spec.f in body must be of type integer: \"number\"",
                    "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.f",
                ],
            ),
            (
                json!(99_999_999_999_999_999_999.0),
                &[
                    "spec.f: Invalid value: \"number\": spec.f in body must be of type integer: \"number\"",
                    "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.f",
                ],
            ),
        ],
    );
    check(
        &json!({"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%$", "maximum": 10}),
        &[
            (json!("5%"), &[]),
            (
                json!(true),
                &["spec.f: Invalid value: \"boolean\": spec.f in body must be of type integer,string: \"boolean\""],
            ),
            (json!("x"), &["spec.f: Invalid value: \"x\": spec.f in body should match '^[0-9]+%$'"]),
            (json!(11), &["spec.f: Invalid value: 11: spec.f in body should be less than or equal to 10"]),
        ],
    );
    check(
        &json!({"type": "array", "items": {"type": "string"}}),
        &[(json!([null]), &["spec.f[0]: Invalid value: \"null\": spec.f[0] in body must be of type string: \"null\""])],
    );
}

#[test]
fn bounds_are_checked() {
    let number = json!({"type": "number", "maximum": 5, "exclusiveMaximum": true, "multipleOf": 0.5});
    check(
        &number,
        &[
            (json!(4.5), &[]),
            (json!(4.2), &["spec.f: Invalid value: 4.2: spec.f in body should be a multiple of 0.5"]),
            (
                json!(5),
                &[
                    "spec.f: Invalid value: 0: factor MultipleOf declared for spec.f must be positive: 0",
                    "spec.f: Invalid value: 5: spec.f in body should be less than 5",
                ],
            ),
        ],
    );
    check(
        &json!({"type": "integer", "format": "int32", "minimum": 5}),
        &[
            (json!(4), &["spec.f: Invalid value: 4: spec.f in body should be greater than or equal to 5"]),
            (
                json!(3_000_000_000_i64),
                &["<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.f"],
            ),
        ],
    );
    check(
        &json!({"type": "string", "minLength": 3, "maxLength": 4}),
        &[
            (json!("äöü"), &[]),
            (json!("äö"), &["spec.f: Invalid value: \"äö\": spec.f in body should be at least 3 chars long"]),
            (json!("abcde"), &["spec.f: Too long: may not be more than 4 bytes"]),
        ],
    );
    check(
        &json!({"type": "array", "items": {"type": "string"}, "maxItems": 1, "minItems": 1}),
        &[
            (json!(["a", "b"]), &["spec.f: Too many: 2: must have at most 1 item"]),
            (json!([]), &["spec.f: Invalid value: 0: spec.f in body should have at least 1 items"]),
        ],
    );
    check(
        &json!({"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1}),
        &[
            (json!({}), &["spec.f: Invalid value: 0: spec.f in body should have at least 1 properties"]),
            (
                json!({"a.b": 1}),
                &["spec.f.a.b: Invalid value: \"integer\": spec.f.a.b in body must be of type string: \"integer\""],
            ),
        ],
    );
    check(
        &json!({"type": "object", "additionalProperties": false}),
        &[(json!({"a": 1}), &["spec.f: Invalid value: \"a\": spec.f.a in body is a forbidden property"])],
    );
}

#[test]
fn enumerations_and_formats_are_checked() {
    check(
        &json!({"type": "integer", "enum": [1, 2], "nullable": true}),
        &[
            (json!(2), &[]),
            (json!(3), &["spec.f: Unsupported value: 3: supported values: \"1\", \"2\""]),
            (json!(null), &["spec.f: Unsupported value: null: supported values: \"1\", \"2\""]),
        ],
    );
    check(
        &json!({"type": "string", "format": "date-time"}),
        &[
            (json!("2024-01-02T03:04:05Z"), &[]),
            (json!("x"), &["spec.f: Invalid value: \"x\": spec.f in body must be of type date-time: \"x\""]),
            (json!(1), &["spec.f: Invalid value: \"int64\": spec.f in body must be of type date-time: \"int64\""]),
            (json!([]), &[]),
        ],
    );
}

#[test]
fn junctors_report_what_came_closest() {
    let object = |junctor: &str| {
        json!({
            "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            junctor: [{"required": ["a"]}, {"required": ["b"]}],
        })
    };
    check(
        &object("anyOf"),
        &[
            (json!({"a": "1", "b": "1"}), &[]),
            (
                json!({}),
                &[
                    "<nil>: Invalid value: \"\": \"spec.f\" must validate at least one schema (anyOf)",
                    "spec.f.a: Required value",
                ],
            ),
        ],
    );
    check(
        &object("oneOf"),
        &[
            (json!({"a": "1"}), &[]),
            (
                json!({"a": "1", "b": "1"}),
                &[
                    "<nil>: Invalid value: \"\": \"spec.f\" must validate one and only one schema (oneOf). Found 2 valid \
                   alternatives",
                ],
            ),
            (
                json!({}),
                &[
                    "<nil>: Invalid value: \"\": \"spec.f\" must validate one and only one schema (oneOf). Found none valid",
                    "spec.f.a: Required value",
                ],
            ),
        ],
    );
    check(
        &json!({"type": "string", "allOf": [{"minLength": 2}, {"pattern": "^a"}], "not": {"enum": ["ab"]}}),
        &[
            (json!("ac"), &[]),
            (
                json!("b"),
                &[
                    "spec.f: Invalid value: \"b\": spec.f in body should be at least 2 chars long",
                    "spec.f: Invalid value: \"b\": spec.f in body should match '^a'",
                    "<nil>: Invalid value: \"\": \"spec.f\" must validate all the schemas (allOf). None validated",
                ],
            ),
            (json!("ab"), &["<nil>: Invalid value: \"\": \"spec.f\" must not validate the schema (not)"]),
        ],
    );
}

#[test]
fn unchanged_values_are_excused() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 3}, "b": {"type": "string"},
        "l": {"type": "array", "items": {"type": "string", "maxLength": 3}},
        "m": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "string", "enum": ["ok"]}}},
        },
    }}}});
    let old = json!({"spec": {
        "a": "long value", "b": "1", "l": ["toolong", "x"], "m": [{"k": "a", "v": "bad"}, {"k": "b", "v": "ok"}],
    }});
    let change = |field: &str, value: Value| {
        let mut new = old.clone();
        new["spec"][field] = value;
        complaints_of_update(&schema, &new, Some(&old))
    };
    assert!(change("b", json!("2")).is_empty());
    assert_eq!(change("a", json!("other long")), ["spec.a: Too long: may not be more than 3 bytes"]);
    assert_eq!(change("l", json!(["toolong", "y"])), ["spec.l[0]: Too long: may not be more than 3 bytes"]);
    assert!(change("m", json!([{"k": "b"}, {"k": "a", "v": "bad"}])).is_empty());
    assert_eq!(
        change("m", json!([{"k": "c", "v": "bad"}])),
        ["spec.m[0].v: Unsupported value: \"bad\": supported values: \"ok\""]
    );
}

#[test]
fn names_are_relative_to_the_path() {
    let schema =
        Structural::parse(&json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["m"]}));
    let mut errors = Errors::default();
    schema.validate_values(&json!({"n": "x"}), None, Some(&Path::Root("status")), &mut errors);
    assert_eq!(
        errors.summary(),
        "[status.n: Invalid value: \"string\": n in body must be of type integer: \"string\", status.m: Required value]"
    );
}

#[test]
fn errors_are_limited_and_said_once() {
    let values: Vec<u32> = (0..20_000).collect();
    let found = of_field(&json!({"type": "array", "items": {"type": "string"}}), &json!(values));
    assert_eq!(found.len(), 10_000);
    let twice = json!({"type": "string", "allOf": [{"minLength": 2}, {"minLength": 2}], "minLength": 2});
    assert_eq!(of_field(&twice, &json!("a")).len(), 2);
}
