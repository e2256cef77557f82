//! Tests of rules, with the texts that Kubernetes answers.

mod estimates;

use serde_json::{Value, json};

use super::*;
use crate::field::{Errors, Path};
use crate::structural::Structural;

/// A schema whose `spec.f` is this one.
fn spec(f: &Value) -> Structural {
    Structural::parse(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"f": f}}}}))
}

fn texts(errors: &Errors) -> Vec<String> {
    errors.0.iter().map(ToString::to_string).collect()
}

/// The errors for a schema.
fn checked(schema: &Structural) -> Vec<String> {
    let mut errors = Errors::default();
    check_rules(schema, &Path::Root("s"), &Options::default(), &mut errors);
    texts(&errors)
}

/// The result for an object: errors, then warnings.
fn validated(schema: &Structural, object: &Value, old: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let compiled = Compiled::new(schema);
    assert!(!compiled.is_empty());
    let (mut errors, mut warnings) = (Errors::default(), Vec::new());
    compiled.validate(schema, object, old, &mut errors, &mut warnings);
    (texts(&errors), warnings)
}

/// Errors about an object whose `spec.f` is this value.
fn refused(schema: &Structural, f: &Value) -> Vec<String> {
    validated(schema, &json!({"metadata": {"name": "a"}, "spec": {"f": f}}), None).0
}

/// Errors about an update of `spec.f`.
fn update(schema: &Structural, old: &Value, new: &Value) -> (Vec<String>, Vec<String>) {
    validated(schema, &json!({"spec": {"f": new}}), Some(&json!({"spec": {"f": old}})))
}

#[test]
fn rules_that_do_not_hold_are_errors_in_order() {
    let rules = json!([
        {"rule": "self > 1", "message": " first "}, {"rule": "self > 2"}, {"rule": "self > 3", "reason": "FieldValueForbidden", "message": "no"},
        {"rule": "self > 3", "reason": "FieldValueDuplicate"}, {"rule": "self > 3", "reason": "FieldValueRequired", "message": "r"},
    ]);
    let schema = spec(&json!({"type": "integer", "x-kubernetes-validations": rules}));
    let wanted = [
        "spec.f: Invalid value: 0: first",
        "spec.f: Invalid value: 0: failed rule: self > 2",
        "spec.f: Forbidden: no",
        "spec.f: Duplicate value: 0",
        "spec.f: Required value: r",
    ];
    assert_eq!(refused(&schema, &json!(0)), wanted);
    assert_eq!(refused(&schema, &json!(4)), [""; 0]);
    assert_eq!(refused(&schema, &Value::Null), [""; 0], "rules are about values that are there");
    assert_eq!(checked(&schema), [""; 0]);
}

#[test]
fn objects_and_lists_are_not_shown() {
    let f = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "m": {"type": "object", "additionalProperties": {"type": "number"}}},
    "x-kubernetes-validations": [
        {"rule": "self.a < self.b", "fieldPath": ".b", "message": "b too small"},
        {"rule": "self.a < self.b", "fieldPath": ".m['x y']", "reason": "FieldValueDuplicate"},
        {"rule": "self.m['k'] < 2.0"},
    ]});
    let schema = spec(&f);
    let wanted = [
        "spec.f.b: Invalid value: b too small",
        "spec.f.m[x y]: Duplicate value",
        "spec.f: Invalid value: \"object\": no such key: k evaluating rule: self.m['k'] < 2.0",
    ];
    assert_eq!(refused(&schema, &json!({"a": 2, "b": 1, "m": {}})), wanted);
    assert_eq!(refused(&schema, &json!({"a": 0, "b": 1, "m": {"k": 1}})), [""; 0], "numbers are doubles");
}

#[test]
fn the_root_has_no_path_and_knows_the_name() {
    let json = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}}},
        "x-kubernetes-validations": [{"rule": "self.metadata.name == self.spec.a", "message": "name", "fieldPath": ".spec.a"}, {"rule": "self.kind == 'A'"}]});
    let schema = Structural::parse(&json);
    let object = json!({"kind": "B", "metadata": {"name": "a"}, "spec": {"a": "b"}});
    let wanted = ["spec.a: Invalid value: name", "<nil>: Invalid value: failed rule: self.kind == 'A'"];
    assert_eq!(validated(&schema, &object, None).0, wanted);
}

#[test]
fn message_expressions_fall_back() {
    for (expression, wanted) in [
        ("'is ' + string(self)", "is 0"),
        ("'  '", "plain"),
        ("string(1/self)", "plain"),
        ("'a\\nb'", "plain"),
        ("' x '", "x"),
    ] {
        let rule = json!([{"rule": "self > 1", "message": "plain", "messageExpression": expression}]);
        let schema = spec(&json!({"type": "integer", "x-kubernetes-validations": rule}));
        assert_eq!(refused(&schema, &json!(0)), [format!("spec.f: Invalid value: 0: {wanted}")]);
    }
}

#[test]
fn values_have_the_types_of_their_formats() {
    for (f, rule, value) in [
        (
            json!({"type": "string", "format": "date-time"}),
            "self < timestamp('2030-01-01T00:00:00Z')",
            json!("2026-01-01T00:00:00Z"),
        ),
        (json!({"type": "string", "format": "date"}), "self.getFullYear() == 2026", json!("2026-01-01")),
        (json!({"type": "string", "format": "duration"}), "self == duration('48h')", json!("2 days")),
        (json!({"type": "string", "format": "byte"}), "self == b'hi'", json!("aGk=")),
        (json!({"type": "number"}), "self == 1.0 && type(self) == double", json!(1)),
        (json!({"x-kubernetes-int-or-string": true}), "type(self) == int ? self < 10 : self == '50%'", json!("50%")),
        (
            json!({"type": "object", "properties": {"namespace": {"type": "string"}, "a-b": {"type": "string", "nullable": true}}}),
            "self.__namespace__ == self.namespace && !has(self.a__dash__b)",
            json!({"namespace": "n", "a-b": null}),
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            "self.metadata.name == 'x' && self.kind == 'K'",
            json!({"kind": "K", "metadata": {"name": "x"}}),
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            "self == ['b', 'a'] && self + ['b', 'c'] == ['c', 'a', 'b']",
            json!(["a", "b"]),
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}}),
            "(self + self).size() == 2 && self == self + self",
            json!([{"k": "a", "v": 1}, {"k": "b"}]),
        ),
    ] {
        let mut f = f;
        f["x-kubernetes-validations"] = json!([{"rule": rule}]);
        let schema = spec(&f);
        assert_eq!(refused(&schema, &value), [""; 0], "{rule}");
    }
    let dates = spec(
        &json!({"type": "string", "format": "date-time", "x-kubernetes-validations": [{"rule": "self > timestamp(0)"}]}),
    );
    let wanted = "spec.f: Invalid value: \"string\": Invalid date-time formatted string x: parsing time \"x\" as \
                  \"2006-01-02T15:04:05\": cannot parse \"x\" as \"2006\" evaluating rule: self > timestamp(0)";
    assert_eq!(refused(&dates, &json!("x")), [wanted]);
    let any = spec(&json!({"x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{"rule": "self < 10"}]}));
    let wanted = "spec.f: Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function \
                  or macro signature for rule: self < 10";
    assert_eq!(refused(&any, &json!("x")), [wanted]);
}

#[test]
fn transition_rules_need_an_old_value() {
    let schema = spec(&json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}));
    assert_eq!(refused(&schema, &json!(1)), [""; 0]);
    assert_eq!(update(&schema, &json!(1), &json!(2)).0, [""; 0]);
    assert_eq!(update(&schema, &json!(2), &json!(1)).0, ["spec.f: Invalid value: 1: failed rule: self >= oldSelf"]);
    let rule = json!([{"rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1", "optionalOldSelf": true, "message": "grow"}]);
    let schema = spec(&json!({"type": "integer", "x-kubernetes-validations": rule}));
    assert_eq!(refused(&schema, &json!(2)), ["spec.f: Invalid value: 2: grow"]);
    assert_eq!(refused(&schema, &json!(1)), [""; 0]);
    assert_eq!(update(&schema, &json!(3), &json!(2)).0, ["spec.f: Invalid value: 2: grow"]);
}

#[test]
fn items_and_entries_correspond_by_their_keys() {
    let items = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.v == oldSelf.v", "message": "immutable"}]});
    let list = spec(
        &json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items}),
    );
    let old = json!([{"k": "a", "v": "1"}, {"k": "b", "v": "2"}]);
    assert_eq!(update(&list, &old, &json!([{"k": "b", "v": "2"}, {"k": "c", "v": "9"}])).0, [""; 0]);
    assert_eq!(update(&list, &old, &json!([{"k": "b", "v": "3"}])).0, ["spec.f[0]: Invalid value: immutable"]);
    let many: Vec<Value> = (0..100).map(|at| json!({"k": at.to_string(), "v": "1"})).collect();
    assert_eq!(update(&list, &json!(many), &json!([{"k": "77", "v": "2"}])).0, ["spec.f[0]: Invalid value: immutable"]);
    let map = spec(
        &json!({"type": "object", "additionalProperties": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
    );
    assert_eq!(update(&map, &json!({"a": "1"}), &json!({"a": "1", "b": "1"})).0, [""; 0]);
    let wanted = ["spec.f[a]: Invalid value: \"2\": failed rule: self == oldSelf"];
    assert_eq!(update(&map, &json!({"a": "1"}), &json!({"a": "2"})).0, wanted);
}

#[test]
fn unchanged_values_are_warned_about() {
    let f = json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'new'"}]},
        "l": {"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'new'"}]}}, "o": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.a == 'new'", "message": "new only"}]});
    let schema = spec(&f);
    let old = json!({"a": "old", "l": ["x"], "o": "1"});
    let (errors, warnings) = update(&schema, &old, &old);
    assert_eq!(errors, [""; 0]);
    let a = "spec.f.a: Invalid value: \"old\": failed rule: self == 'new'";
    let l = "spec.f.l[0]: Invalid value: \"x\": failed rule: self == 'new'";
    assert_eq!(warnings, ["spec.f: Invalid value: new only", a, l]);
    let (errors, warnings) = update(&schema, &old, &json!({"a": "old", "l": ["x", "new"], "o": "2"}));
    assert_eq!(errors, ["spec.f: Invalid value: new only", l]);
    assert_eq!(warnings, [a]);
}

#[test]
fn the_budget_ends_the_evaluation() {
    let rule = "self.all(x, self.all(y, self.all(z, x != y || y != z || x == z)))";
    let schema = spec(
        &json!({"type": "array", "items": {"type": "integer"}, "maxItems": 300, "x-kubernetes-validations": [{"rule": rule}]}),
    );
    let numbers: Vec<i64> = (0..300).collect();
    let wanted = format!(
        "spec.f: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further \
                          validation rules will be run due to call cost exceeds limit for rule: {rule}"
    );
    assert_eq!(refused(&schema, &json!(numbers)), [wanted]);
    let rule = "self.map(x, x).all(x, [1, 2, 3, 4, 5, 6, 7, 8, 9].exists(y, y == 10) || true)";
    let schema = spec(&json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": rule}]}}));
    let rows: Vec<Vec<i64>> = (0..40).map(|_| (0..5_000).collect()).collect();
    let errors = refused(&schema, &json!(rows));
    assert!(
        errors.last().is_some_and(|error| error.ends_with(
            "\"array\": validation failed due to running out of cost budget, no further validation rules will be run"
        )),
        "{errors:?}"
    );
    assert_eq!(errors.len(), 1);
}

#[test]
fn rules_that_do_not_compile_fail_closed() {
    let schema = spec(&json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self.x"}]}));
    let wanted = "spec.f: Invalid value: \"integer\": rule compile error: compilation failed: ERROR: <input>:1:5: type 'int' \
                  does not support field selection\n | self.x\n | ....^";
    assert_eq!(refused(&schema, &json!(1)), [wanted]);
    let free = json!({"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-validations": [{"rule": "true"}]}});
    let wanted = "s.properties[spec].properties[f].items.x-kubernetes-validations: Internal error: internal error: failed to \
                  construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
    assert_eq!(checked(&spec(&free)), [wanted]);
}

#[test]
fn defaults_are_checked_as_new_values_too() {
    let rule = json!([{"rule": "oldSelf.hasValue() || self == 'y'", "optionalOldSelf": true}]);
    let schema = Structural::parse(&json!({"type": "string", "x-kubernetes-validations": rule}));
    let (mut errors, mut budget) = (Errors::default(), BUDGET);
    let compiled = Compiled::of(&schema, false);
    compiled.validate_default(&schema, &json!("x"), &Path::Root("s.default"), &mut budget, &mut errors);
    assert_eq!(texts(&errors), ["s.default: Invalid value: \"x\": failed rule: oldSelf.hasValue() || self == 'y'"]);
    assert!(budget < BUDGET);
}

#[test]
fn fields_of_rules_are_checked() {
    let at = |field: &str, text: &str| {
        format!("s.properties[spec].properties[f].x-kubernetes-validations[0].{field}: {text}")
    };
    for (rule, wanted) in [
        (json!({"rule": " "}), vec![at("rule", "Required value: rule is not specified")]),
        (
            json!({"rule": "true", "message": " "}),
            vec![at("message", "Invalid value: \" \": must be non-empty if specified")],
        ),
        (
            json!({"rule": "true", "message": "a\nb"}),
            vec![at("message", "Invalid value: \"a\\nb\": must not contain line breaks")],
        ),
        (
            json!({"rule": "true\n||true"}),
            vec![at("message", "Required value: message must be specified if rule contains line breaks")],
        ),
        (
            json!({"rule": "true", "messageExpression": " "}),
            vec![at("messageExpression", "Required value: messageExpression must be non-empty if specified")],
        ),
        (
            json!({"rule": "true", "reason": "No"}),
            vec![at(
                "reason",
                "Unsupported value: \"No\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            )],
        ),
        (
            json!({"rule": "true", "fieldPath": ".c"}),
            vec![at("fieldPath", "Invalid value: \".c\": must be a valid path")],
        ),
        (
            json!({"rule": "true", "fieldPath": "b"}),
            vec![at("fieldPath", "Invalid value: \"b\": must be a valid path")],
        ),
        (json!({"rule": "true", "fieldPath": ".b"}), vec![]),
        (
            json!({"rule": "self.b > 1", "messageExpression": "self.b"}),
            vec![at(
                "messageExpression",
                "Invalid value: {\"Rule\":\"self.b \\u003e 1\",\"Message\":\"\",\"MessageExpression\":\"self.b\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: messageExpression must evaluate to a string",
            )],
        ),
        (
            json!({"rule": "self.b", "reason": "FieldValueInvalid"}),
            vec![at(
                "rule",
                "Invalid value: {\"Rule\":\"self.b\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":\"FieldValueInvalid\",\"FieldPath\":\"\",\"OptionalOldSelf\":null}: cel expression must evaluate to a bool",
            )],
        ),
        (
            json!({"rule": "self.b > 1", "optionalOldSelf": false}),
            vec![at("optionalOldSelf", "Invalid value: false: may not be set if oldSelf is not used in rule")],
        ),
    ] {
        let f = json!({"type": "object", "properties": {"b": {"type": "integer"}}, "x-kubernetes-validations": [rule]});
        assert_eq!(checked(&spec(&f)), wanted, "{rule}");
    }
}

#[test]
fn old_values_cannot_be_used_where_items_do_not_correspond() {
    let items = json!({"type": "array", "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self==oldSelf"}]}, "maxItems": 2});
    let wanted = "s.properties[spec].properties[f].items.items.x-kubernetes-validations[0].rule: Invalid value: \"self==oldSelf\": \
                  oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[spec].properties[f]";
    let schema = spec(&json!({"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 2, "items": items}));
    assert_eq!(checked(&schema), [wanted]);
}

#[test]
fn rules_that_may_cost_too_much_are_refused() {
    let rule = |rule: &str| json!([{"rule": rule}]);
    let f = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": rule("self.all(x, self.all(y, x == y))")});
    let text = "exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    let at = "s.properties[spec].properties[f].x-kubernetes-validations[0].rule";
    let wanted = [
        format!("{at}: Forbidden: estimated rule cost {text}"),
        format!(
            "{at}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        ),
        format!("s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema {text}"),
    ];
    assert_eq!(checked(&spec(&f)), wanted);
    let mut errors = Errors::default();
    let unchanged = Options { unchanged: true, ..Options::default() };
    check_rules(&spec(&f), &Path::Root("s"), &unchanged, &mut errors);
    assert_eq!(texts(&errors), wanted[1..], "the limit of the whole schema stays");
    let f = json!({"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 20}, "x-kubernetes-validations": rule("self.all(x, self.all(y, x == y))")});
    assert_eq!(checked(&spec(&f)), [""; 0]);
}

#[test]
fn stored_rules_may_use_new_functions() {
    let f = json!({"type": "array", "maxItems": 9, "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.includes(1)"}]});
    let schema = spec(&f);
    assert_eq!(checked(&schema).len(), 1);
    let mut known = Known::default();
    known.add(&schema);
    let mut errors = Errors::default();
    check_rules(&schema, &Path::Root("s"), &Options { known: Some(&known), ..Options::default() }, &mut errors);
    assert_eq!(texts(&errors), [""; 0]);
}

#[test]
fn deep_schemas_are_walked() {
    let mut inner = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == 'x'"}]});
    let mut value = json!("y");
    for _ in 0..100 {
        inner = json!({"type": "object", "properties": {"a": inner}, "x-kubernetes-validations": [{"rule": "has(self.a)"}]});
        value = json!({"a": value});
    }
    let schema = spec(&inner);
    assert_eq!(checked(&schema).len(), 0);
    assert_eq!(refused(&schema, &value).len(), 1);
}

#[test]
fn blocking_errors_are_told_apart() {
    let mut errors = Errors::default();
    errors.invalid(&Path::Root("a"), 1, "b");
    assert!(!blocks(&errors));
    errors.required(&Path::Root("a"), "");
    assert!(blocks(&errors));
    let text = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
                existing errors to complete validation";
    assert_eq!(not_checked().to_string(), text);
}
