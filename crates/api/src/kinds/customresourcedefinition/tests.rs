//! Recorded answers, and cases beside them.

use serde_json::{Value, json};

use super::*;
use crate::kinds::testing::{golden_where, summary};
use crate::lifecycle;

#[test]
fn golden_answers() {
    // Conditions are set by the server.
    let needs_conditions = |id: &str| id == "crd-objects.spec-ignores-status";
    golden_where("../crds/crd-objects", &KIND, |case| !needs_conditions(case.text("id")));
}

/// A definition with this spec on top of a good one, as the server validates it.
fn definition(change: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema()}}],
        },
    });
    for (key, value) in change.as_object().into_iter().flatten() {
        object.put(&format!("spec.{key}"), value.clone());
    }
    DefinitionRules.default(&mut object);
    DefinitionRules.prepare_create(&mut object);
    object
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer"}, "color": {"type": "string"},
    }}}})
}

fn wrong(change: &Value) -> String {
    summary(|errors| DefinitionRules.validate_create(&definition(change), errors))
}

fn version(name: &str, storage: bool, more: &Value) -> Value {
    let mut version =
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema()}});
    for (key, value) in more.as_object().into_iter().flatten() {
        version.put(key, value.clone());
    }
    version
}

#[test]
fn defaults_are_filled_in() {
    let object = definition(&json!({"conversion": {"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"name": "s", "namespace": "n"}}, "conversionReviewVersions": ["v1"]}}}));
    assert_eq!(
        object.at("spec.names"),
        &json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
    );
    assert_eq!(object.int("spec.conversion.webhook.clientConfig.service.port"), 443);
    assert_eq!(object.at("status"), &json!({"storedVersions": ["v1"]}));
    assert_eq!(definition(&json!({})).at("spec.conversion"), &json!({"strategy": "None"}));
    assert_eq!(wrong(&json!({})), "[]");
    let empty = definition(&json!({"conversion": {"strategy": "None", "webhook": {}}}));
    assert_eq!(empty.at("spec.conversion"), &json!({"strategy": "None"}));
}

#[test]
fn errors_name_versions_that_differ() {
    let column = json!({"additionalPrinterColumns": [{"name": "a", "type": "text", "jsonPath": "x", "format": "f"}]});
    let both = json!({"versions": [version("v1", true, &column), version("v2", false, &json!({}))]});
    assert_eq!(
        wrong(&both),
        "[spec.versions[0].additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of \
         boolean,date,integer,number,string, spec.versions[0].additionalPrinterColumns[0].format: Invalid value: \"f\": \
         must be one of byte,date,date-time,double,float,int32,int64,password, \
         spec.versions[0].additionalPrinterColumns[0].JSONPath: Invalid value: \"x\": must be a simple json path starting \
         with .]"
    );
    let same = json!({"versions": [version("v1", true, &column), version("v2", false, &column)]});
    assert!(wrong(&same).starts_with("[spec.additionalPrinterColumns[0].type"), "{}", wrong(&same));
}

#[test]
fn versions_are_printed_as_go_does() {
    let scale =
        json!({"subresources": {"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}}});
    let two = json!({"versions": [version("v1", true, &json!({})), version("v2", true, &scale)]});
    assert_eq!(
        wrong(&two),
        "[spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":true,\"Deprecated\":false,\
         \"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
         \"SelectableFields\":null},{\"Name\":\"v2\",\"Served\":true,\"Storage\":true,\"Deprecated\":false,\
         \"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":{\"Status\":null,\"Scale\":{\"SpecReplicasPath\":\
         \".spec.size\",\"StatusReplicasPath\":\".status.n\",\"LabelSelectorPath\":null}},\
         \"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage \
         version, status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v2]"
    );
    let value = json!({"items": {"type": "string"}, "additionalProperties": false, "enum": ["<a>"]});
    let printed = go_value::version(&json!({"schema": {"openAPIV3Schema": value}}), &[]);
    let start = "{\"OpenAPIV3Schema\":{\"ID\":\"\",\"Schema\":\"\",\"Ref\":null,\"Description\":\"\",\"Type\":\"\",\"Nullable\":";
    assert!(printed.contains(start), "{printed}");
    assert!(printed.contains("\"AdditionalProperties\":{\"Allows\":false,\"Schema\":null}"), "{printed}");
    assert!(printed.contains("\"Enum\":[\"\\u003ca\\u003e\"]"), "{printed}");
    assert!(printed.contains("\"Items\":{\"Schema\":{\"ID\":\"\""), "{printed}");
}

#[test]
fn the_root_is_plain_beside_a_status() {
    let status = json!({"subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "maxProperties": 3}}});
    let text = wrong(&json!({"versions": [version("v1", true, &status)]}));
    assert!(text.starts_with("spec.validation.openAPIV3Schema: Invalid value: {\"ID\":\"\""), "{text}");
    assert!(text.contains("\"MaxProperties\":3,"), "{text}");
    assert!(text.ends_with(
        "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern \
         MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields \
         XValidations] fields are allowed at the root of the schema if the status subresource is enabled"
    ));
}

#[test]
fn webhooks_need_an_address_and_a_version() {
    let webhook = |config: Value, versions: Value| {
        wrong(&json!({"conversion": {"strategy": "Webhook",
            "webhook": {"clientConfig": config, "conversionReviewVersions": versions}}}))
    };
    assert_eq!(webhook(json!({"url": "https://a.example.com/x"}), json!(["v1"])), "[]");
    assert_eq!(
        webhook(json!({}), json!(["v3", "v3"])),
        "[spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required, \
         spec.conversion.conversionReviewVersions[1]: Invalid value: \"v3\": duplicate version, \
         spec.conversion.conversionReviewVersions: Invalid value: [\"v3\",\"v3\"]: must include at least one of v1, v1beta1]"
    );
    assert_eq!(
        webhook(json!({"url": "http://a"}), json!(["v1"])),
        "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired \
         format: https://host[/path]"
    );
    assert_eq!(
        wrong(&json!({"conversion": {"strategy": "Some"}})),
        "spec.conversion.strategy: Unsupported value: \"Some\": supported values: \"None\", \"Webhook\""
    );
    assert_eq!(
        conversion::read_ca_bundle("eA=="),
        Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned())
    );
}

#[test]
fn selectable_fields_are_scalars_of_the_schema() {
    let select = |paths: &[&str]| {
        let fields: Vec<Value> = paths.iter().map(|path| json!({"jsonPath": path})).collect();
        wrong(&json!({"versions": [version("v1", true, &json!({"selectableFields": fields}))]}))
    };
    assert_eq!(select(&[".spec.size", ".spec.color"]), "[]");
    let place = "spec.selectableFields[0].jsonPath";
    for (path, why) in [
        (".spec['size']", "is an invalid path: array notation is not allowed"),
        (".spec.", "is an invalid path: unexpected end of JSON path"),
        ("spec.size", "is an invalid path: expected [ or . but got: spec"),
        (".spec.size.x", "is an invalid path: does not refer to a valid field"),
        (
            ".spec",
            "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are \
             allowed.",
        ),
    ] {
        assert_eq!(select(&[path]), format!("{place}: Invalid value: \"{path}\": {why}"));
    }
    assert_eq!(
        select(&[".spec.size", ".spec.size"]),
        "spec.selectableFields[1].jsonPath: Duplicate value: \".spec.size\""
    );
    assert_eq!(select(&[""]), format!("{place}: Required value"));
}

#[test]
fn an_established_kind_keeps_its_names() {
    let mut old = definition(&json!({}));
    old.put("metadata.uid", "u");
    old.put("metadata.resourceVersion", "1");
    let check = |new: &Value, old: &Value| summary(|errors| DefinitionRules.validate_update(new, old, errors));
    let mut new = old.clone();
    new.put("spec.scope", "Cluster");
    new.put("spec.names.kind", "Gadget");
    assert_eq!(check(&new, &old), "[]");
    old.put("status.conditions", json!([{"type": "Established", "status": "True"}]));
    assert_eq!(
        check(&new, &old),
        "[spec.scope: Invalid value: \"Cluster\": field is immutable, spec.names.kind: Invalid value: \"Gadget\": field is \
         immutable]"
    );
    let mut new = old.clone();
    new.put("spec.preserveUnknownFields", true);
    assert!(check(&new, &old).contains("spec.preserveUnknownFields: Invalid value: true: cannot set to true"));
    assert!(!DefinitionRules.new_generation(&old, &old) && DefinitionRules.new_generation(&new, &old));
}

#[test]
fn a_new_storage_version_is_noted() {
    let old = definition(&json!({}));
    let mut new = definition(&json!({"versions": [version("v1", false, &json!({})), version("v2", true, &json!({}))]}));
    DefinitionRules.prepare_update(&mut new, &old);
    assert_eq!(new.texts("status.storedVersions"), ["v1", "v2"]);
    lifecycle::set_generation(&KIND, &mut new, &old);
    assert_eq!(new.int("metadata.generation"), 1);
    assert_eq!(
        (KIND.table_view.row)(&new, jiff::Timestamp::UNIX_EPOCH)[1..3],
        [json!("Namespaced"), json!("v1,v2(storage)")]
    );
}

#[test]
fn protected_groups_need_an_approval() {
    let approved = |text: &str| {
        let mut object = definition(&json!({"group": "x.k8s.io"}));
        object.put("metadata.name", "widgets.x.k8s.io");
        object.put("metadata.annotations", json!({"api-approved.kubernetes.io": text}));
        summary(|errors| DefinitionRules.validate_create(&object, errors))
    };
    assert_eq!(approved("https://github.com/kubernetes/enhancements/pull/1111"), "[]");
    assert_eq!(approved("unapproved, experimental"), "[]");
    assert_eq!(
        approved("yes"),
        "metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"yes\": protected groups must have approval \
         annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see \
         https://github.com/kubernetes/enhancements/pull/1111"
    );
}

#[test]
fn unknown_formats_are_warned_of_once() {
    let odd = json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {
        "a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "format": "odd"},
        "c": {"type": "integer", "format": "int16"}}}}});
    let (object, mut out) = (definition(&json!({"versions": [version("v1", true, &odd)]})), Vec::new());
    DefinitionRules.warnings(&object, None, &mut out);
    assert_eq!(out, ["unrecognized format \"odd\"", "unrecognized format \"int16\""]);
    out.clear();
    DefinitionRules.warnings(&object, Some(&object), &mut out);
    assert!(out.is_empty());
}

#[test]
fn schemas_are_decoded_and_written_as_they_are() {
    let text = r#"{"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "maximum": 10.0,
        "properties": {"a": {"type": "array", "items": {"type": "string", "odd": 1}, "default": null, "enum": [null, {"x": 1}]},
        "b": {"additionalProperties": false}, "c": {"additionalProperties": {"type": "string"}}}}}}]}}"#;
    let decoded = decode::decode_json(KIND.type_id(), text.as_bytes()).expect("decodes");
    assert!(decoded.strict.is_empty(), "{:?}", decoded.strict);
    let schema = decoded.value.items("spec.versions")[0].at("schema.openAPIV3Schema");
    assert_eq!(
        schema,
        &json!({"type": "object", "maximum": 10, "properties": {
            "a": {"type": "array", "items": {"type": "string"}, "enum": [null, {"x": 1}]},
            "b": {"additionalProperties": false}, "c": {"additionalProperties": {"type": "string"}}}})
    );
    let raw = crate::proto::encode(KIND.type_id(), &decoded.value);
    let back = crate::proto::decode(KIND.type_id(), &raw).expect("reads");
    assert_eq!(back.items("spec.versions")[0].at("schema.openAPIV3Schema"), schema);
    let bad = r#"{"spec": {"versions": [{"schema": {"openAPIV3Schema": {"additionalProperties": 3}}}]}}"#;
    let error = decode::decode_json(KIND.type_id(), bad.as_bytes()).expect_err("no schema");
    assert_eq!(error.to_string(), "boolean or JSON schema expected");
}
