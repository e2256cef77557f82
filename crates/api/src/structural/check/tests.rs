//! Schemas and their validation errors, as returned by a kube-apiserver.

use serde_json::{Value, json};

use super::*;

const ROOT: Path<'static> = Path::Root("schema");

fn complaints(schema: &Value) -> Vec<String> {
    let mut errors = Errors::default();
    check_schema(schema, &ROOT, &Options::default(), &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

/// The errors for a schema whose field `a` has this schema; the path of that field is left out.
fn of_field(schema: &Value) -> Vec<String> {
    let spec = json!({"type": "object", "properties": {"a": schema}});
    let found = complaints(&json!({"type": "object", "properties": {"spec": spec}}));
    found.into_iter().map(|line| line.replace("schema.properties[spec].properties[a]", "A")).collect()
}

#[test]
fn valid_schemas_pass() {
    for schema in [
        json!({"type": "string", "anyOf": [{"minLength": 1}, {"pattern": "^a"}]}),
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
        json!({"x-kubernetes-int-or-string": true,
            "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "x"}]}),
        json!({"type": "object", "properties": {"b": {"type": "string", "default": "x"}}, "default": {}}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "string", "format": "nonsense"}),
        json!({"x-kubernetes-int-or-string": true, "default": "25%"}),
    ] {
        assert_eq!(of_field(&schema), Vec::<String>::new(), "{schema}");
    }
}

#[test]
fn types_must_be_said_once() {
    let cases = [
        (json!({}), "A.type: Required value: must not be empty for specified object fields"),
        (
            json!({"type": "array", "items": {"properties": {"b": {"type": "string"}}}}),
            "A.items.type: Required value: must not be empty for specified array items",
        ),
        (json!({"type": "array"}), "A.items: Required value: must be specified"),
        (
            json!({"type": "string", "anyOf": [{"type": "string"}]}),
            "A.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            json!({"type": "string", "oneOf": [{"default": "x"}]}),
            "A.oneOf[0].default: Forbidden: must be undefined to be structural",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            "A.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
             x-kubernetes-preserve-unknown-fields",
        ),
        (
            json!({"type": "string", "pattern": "("}),
            "A.pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: \
             missing closing ): `(`",
        ),
        (
            json!({"type": "strin"}),
            "A.type: Unsupported value: \"strin\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \
             \"object\", \"string\"",
        ),
    ];
    for (schema, wanted) in cases {
        assert_eq!(of_field(&schema), [wanted], "{schema}");
    }
}

#[test]
fn constructs_that_are_not_supported_are_refused() {
    let cases = [
        (json!({"$ref": "#/definitions/x"}), "A.$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "object", "definitions": {"x": {"type": "string"}}}),
            "A.definitions: Forbidden: definitions is not supported",
        ),
        (
            json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
            "A.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            "A.items: Forbidden: items must be a schema object and not an array",
        ),
        (json!({"type": "string", "id": "x"}), "A.id: Forbidden: id is not supported"),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            "A.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
            "A.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            json!({"type": "string", "$schema": "x"}),
            "schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported",
        ),
    ];
    for (schema, wanted) in cases {
        assert_eq!(of_field(&schema), [wanted], "{schema}");
    }
}

#[test]
fn lists_and_maps_have_the_types_they_need() {
    let keyed = |items: Value| json!({"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]});
    let cases = [
        (
            json!({"type": "object", "x-kubernetes-list-type": "set"}),
            "A.type: Invalid value: \"object\": must be array if x-kubernetes-list-type is specified",
        ),
        (
            json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
            "A.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
             x-kubernetes-list-type=set",
        ),
        (
            keyed(json!({"type": "object", "properties": {"k": {"type": "string"}}})),
            "A.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
             have a default or be a required property",
        ),
        (
            keyed(json!({"type": "object", "properties": {"k": {"type": "object"}}, "required": ["k"]})),
            "A.items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's \
             x-kubernetes-list-type is map",
        ),
        (
            keyed(json!({"type": "string"})),
            "A.items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
        ),
        (
            keyed(json!({"type": "object", "properties": {"b": {"type": "string"}}})),
            "A.x-kubernetes-list-map-keys: Invalid value: [\"k\"]: entries must all be names of item properties",
        ),
        (
            json!({"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}),
            "A.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            json!({"type": "object", "x-kubernetes-map-type": "loose"}),
            "A.x-kubernetes-map-type: Unsupported value: \"loose\": supported values: \"atomic\", \"granular\"",
        ),
    ];
    for (schema, wanted) in cases {
        assert_eq!(of_field(&schema), [wanted], "{schema}");
    }
}

#[test]
fn defaults_must_be_valid() {
    let cases = [
        (
            json!({"type": "integer", "minimum": 5, "default": 3}),
            "A.default: Invalid value: 3:  in body should be greater than or equal to 5",
        ),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"c": 1}}),
            "A.default: Invalid value: {\"c\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"b": 1}}),
            "A.default.b: Invalid value: \"integer\": b in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "default": [1]}),
            "A.default.[0]: Invalid value: \"integer\": [0] in body must be of type string: \"integer\"",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
                "default": {"apiVersion": "v1"}}),
            "A.default.kind: Required value",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata":
                {"type": "object", "properties": {"name": {"type": "string", "default": "a/b"}}}}}),
            "A.properties[metadata].properties[name].default: Invalid value: \"a/b\": must result in valid metadata: \
             metadata.name: Invalid value: \"a/b\": may not contain '/'",
        ),
    ];
    for (schema, wanted) in cases {
        assert_eq!(of_field(&schema), [wanted], "{schema}");
    }
}

#[test]
fn the_root_is_an_object_with_implied_metadata() {
    assert_eq!(
        complaints(&json!({"type": "string"})),
        ["schema.type: Invalid value: \"string\": must be object at the root"]
    );
    assert_eq!(
        complaints(&json!({"type": "object", "nullable": true})),
        ["schema.nullable: Forbidden: nullable cannot be true at the root"]
    );
    let with_metadata = |metadata: Value| complaints(&json!({"type": "object", "properties": {"metadata": metadata}}));
    assert!(with_metadata(json!({"type": "object", "properties": {"name": {"type": "string"}}})).is_empty());
    assert_eq!(
        with_metadata(json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
        ["schema.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
          metadata is implicitly specified"]
    );
    assert_eq!(
        with_metadata(json!({"type": "object", "properties": {"name": {"type": "string", "default": "x"}}})),
        ["schema.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"]
    );
}

#[test]
fn junctors_of_the_root_restrict_only_what_is_described() {
    assert_eq!(
        complaints(&json!({"type": "object", "anyOf": [{"properties": {"spec": {"required": ["a"]}}}]})),
        ["schema.properties[spec]: Required value: because it is defined in schema.anyOf[0].properties[spec]"]
    );
}

#[test]
fn a_status_subresource_restricts_the_root() {
    let options = Options { status: true, ..Options::default() };
    let mut errors = Errors::default();
    check_schema(&json!({"type": "object", "minProperties": 1}), &ROOT, &options, &mut errors);
    let [error] = &errors.0[..] else { panic!("{errors:?}") };
    let start =
        "schema: Invalid value: {\"ID\":\"\",\"Schema\":\"\",\"Ref\":null,\"Description\":\"\",\"Type\":\"object\",";
    assert!(error.to_string().starts_with(start), "{error}");
    let end = "\"MinProperties\":1,\"Required\":null,";
    assert!(error.body.contains(end), "{error}");
    assert!(
        error.body.ends_with(
            "XValidations] fields are allowed at the root of the schema if the status subresource is enabled"
        )
    );
}

#[test]
fn updates_are_lenient_about_what_was_wrong_before() {
    let old = json!({"type": "object", "properties": {"a": {"type": "strin"}, "b": {}}});
    let options = Options::for_update(&[&old]);
    assert!(!options.structural && !options.known_types && options.pruned_defaults && options.atomic_sets);
    let mut errors = Errors::default();
    assert!(!check_schema(&old, &ROOT, &options, &mut errors));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(Options::for_update(&[&json!({"type": "object"})]), Options::default());
}
