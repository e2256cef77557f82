//! Documents in, values and complaints out.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema;

fn decode(ty: &str, text: &str) -> Result<Decoded, DecodeError> {
    decode_json(schema::named(ty), text.as_bytes())
}

fn service(spec: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"web"}},"spec":{spec}}}"#)
}

/// The complaint about a Service with this spec.
fn complaint(spec: &str) -> String {
    decode("core.Service", &service(spec)).map_err(|error| error.to_string()).expect_err("a complaint")
}

fn pruned(ty: &str, mut value: Value) -> Value {
    prune(schema::named(ty), &mut value);
    value
}

#[test]
fn strict_messages_come_in_the_order_of_the_document() {
    let text = r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","qux":1},
        "spec":{"ports":[{"port":80,"bar":1}],"foo":[1],"type":"ClusterIP","type":"NodePort","Ports":[]},"extra":{}}"#;
    let decoded = decode("core.Service", text).expect("decodes");
    assert_eq!(
        decoded.strict,
        [
            r#"unknown field "metadata.qux""#,
            r#"unknown field "spec.ports[0].bar""#,
            r#"unknown field "spec.foo""#,
            r#"duplicate field "spec.type""#,
            r#"unknown field "spec.Ports""#,
            r#"unknown field "extra""#,
        ]
    );
    assert_eq!(
        decoded.value,
        json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80}], "type": "NodePort"}})
    );
}

#[test]
fn wrong_types_are_told_in_go() {
    let field = "json: cannot unmarshal";
    for (spec, expected) in [
        (r#"{"ports":[{"port":80.5}]}"#, "number 80.5 into Go struct field ServicePort.spec.ports.port of type int32"),
        (
            r#"{"ports":[{"port":3000000000}]}"#,
            "number 3000000000 into Go struct field ServicePort.spec.ports.port of type int32",
        ),
        (
            r#"{"ports":[{"targetPort":{"a":1}}]}"#,
            "object into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (r#"{"ports":"x"}"#, "string into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort"),
        (r#"{"selector":{"a":1}}"#, "number into Go struct field ServiceSpec.spec.selector of type string"),
        (
            r#"{"publishNotReadyAddresses":"true"}"#,
            "string into Go struct field ServiceSpec.spec.publishNotReadyAddresses of type bool",
        ),
        (r#"{"type":7}"#, "number into Go struct field ServiceSpec.spec.type of type v1.ServiceType"),
        (r#"{"ipFamilies":[true]}"#, "bool into Go struct field ServiceSpec.spec.ipFamilies of type v1.IPFamily"),
        (r#"{"ipFamilies":{}}"#, "object into Go struct field ServiceSpec.spec.ipFamilies of type []v1.IPFamily"),
        ("[]", "array into Go struct field Service.spec of type v1.ServiceSpec"),
        (r#"{"type":7,"ports":"x"}"#, "number into Go struct field ServiceSpec.spec.type of type v1.ServiceType"),
    ] {
        assert_eq!(complaint(spec), format!("{field} {expected}"));
    }
    let error = decode("core.Service", r#"{"metadata":"x"}"#).expect_err("a string is no metadata");
    assert_eq!(
        error.to_string(),
        format!("{field} string into Go struct field Service.metadata of type v1.ObjectMeta")
    );
    let error = decode("core.Service", "[1]").expect_err("a list is no Service");
    assert_eq!(error.to_string(), format!("{field} array into Go value of type v1.Service"));
    let error = decode("core.Pod", r#"{"spec":{"volumes":[{"emptyDir":1}]}}"#).expect_err("a number is no volume");
    let place = "Volume.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource";
    assert_eq!(error.to_string(), format!("{field} number into Go struct field {place}"));
}

#[test]
fn values_with_a_parser_of_their_own_stop_at_once() {
    let text = r#"{"metadata":{"name":1},"spec":{"renewTime":"2024-01-01T00:00:01Z"}}"#;
    let error = decode("coordination.Lease", text).expect_err("no fraction");
    assert_eq!(
        error.to_string(),
        "parsing time \"2024-01-01T00:00:01Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\""
    );
    let error = decode("core.Node", r#"{"status":{"capacity":{"cpu":"x"}}}"#).expect_err("no quantity");
    assert!(error.to_string().starts_with("quantities must match the regular expression"));
}

#[test]
fn scalars_take_their_canonical_form() {
    let text = r#"{"metadata":{"creationTimestamp":"2024-01-01T01:00:00+01:00","labels":{"a":null}},
        "status":{"capacity":{"cpu":2.5,"memory":"1024Ki","x":null}}}"#;
    let decoded = decode("core.Node", text).expect("decodes");
    assert_eq!(
        decoded.value,
        json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z", "labels": {"a": ""}},
            "status": {"capacity": {"cpu": "2500m", "memory": "1Mi", "x": "0"}}})
    );
    let secret = decode("core.Secret", "{\"data\":{\"a\":\"YW\\nI=\"}}").expect("decodes");
    assert_eq!(secret.value, json!({"data": {"a": "YWI="}}));
    let error = decode("core.Secret", r#"{"data":{"a":"Y!=="}}"#).expect_err("no base64");
    assert_eq!(error.to_string(), "illegal base64 data at input byte 1");
}

#[test]
fn a_field_given_twice_is_decoded_on_top() {
    let text = r#"{"spec":{"type":"NodePort","selector":{"a":"1"}},"spec":{"selector":{"b":"2"},"type":null}}"#;
    let decoded = decode("core.Service", text).expect("decodes");
    assert_eq!(decoded.value, json!({"spec": {"type": "NodePort", "selector": {"a": "1", "b": "2"}}}));
    assert_eq!(decoded.strict, [r#"duplicate field "spec""#]);
}

#[test]
fn syntax_errors_use_the_words_of_go() {
    for (text, expected) in [
        ("", "unexpected end of JSON input"),
        (r#"{"x":"#, "unexpected end of JSON input"),
        ("apiVersion: v1", "invalid character 'a' looking for beginning of value"),
        (r#"{"a":1}{"a":1}"#, "invalid character '{' after top-level value"),
        (r#"{"a":"\q"}"#, "invalid escape sequence `\\q` in string"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("[1 2]", "invalid character '2' after array element"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
        ("[tru]", "invalid character ']' in literal true (expecting 'e')"),
        ("[-x]", "invalid character 'x' in number"),
        ("[\"\n\"]", "invalid character '\\n' in string"),
    ] {
        let error = parse_json(text.as_bytes()).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
        assert_eq!(find_kind(text.as_bytes()), Err(error), "{text}");
    }
}

#[test]
fn deep_documents_are_refused() {
    let deep = "[".repeat(100_000);
    assert_eq!(parse_json(deep.as_bytes()), Err(JsonError("exceeded max depth".into())));
    let mut value = json!("x");
    for _ in 0..200 {
        value = json!({"f:a": value});
    }
    let mut object = json!({"metadata": {"managedFields": [{"fieldsV1": value}]}});
    assert_eq!(check(schema::named("core.Service"), &mut object), Err(TypeError("exceeded max depth".into())));
}

#[test]
fn the_kind_is_found_in_any_place() {
    let found =
        find_kind(br#"{"spec":{"kind":"X"},"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}"#).expect("finds");
    assert_eq!(found, TypeMeta { api_version: "coordination.k8s.io/v1".into(), kind: "Lease".into() });
    assert_eq!(find_kind(b"null"), Ok(TypeMeta::default()));
    let error = find_kind(b"[]").expect_err("a list has no kind").to_string();
    assert_eq!(
        error,
        "json: cannot unmarshal array into Go value of type struct { APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }"
    );
}

#[test]
fn patches_tell_of_duplicates() {
    let (value, duplicates) = parse_json(br#"[{"op":"add","op":"test","a":{"b":1,"b":2}}]"#).expect("parses");
    assert_eq!(value, json!([{"op": "test", "a": {"b": 2}}]));
    assert_eq!(duplicates, [r#"duplicate field "[0].op""#, r#"duplicate field "[0].a.b""#]);
}

#[test]
fn checking_a_value_removes_what_is_unknown() {
    let mut value = json!({"spec": {"foo": 1, "ports": [{"port": 80, "bar": 2}], "clusterIP": null}});
    let strict = check(schema::named("core.Service"), &mut value).expect("fits");
    assert_eq!(strict, [r#"unknown field "spec.foo""#, r#"unknown field "spec.ports[0].bar""#]);
    assert_eq!(value, json!({"spec": {"ports": [{"port": 80}]}}));
}

#[test]
fn pruned_objects_have_what_go_prints() {
    assert_eq!(
        pruned(
            "core.Service",
            json!({"metadata": {"labels": {}, "name": ""}, "spec": {"ports": [{"name": "", "port": 0}],
            "selector": {}, "clusterIPs": [], "publishNotReadyAddresses": false, "ipFamilyPolicy": ""}})
        ),
        json!({"metadata": {}, "spec": {"ports": [{"port": 0, "targetPort": 0}], "ipFamilyPolicy": ""},
            "status": {"loadBalancer": {}}})
    );
    assert_eq!(
        pruned("discovery.EndpointSlice", json!({"endpoints": [{"addresses": []}], "ports": []})),
        json!({"metadata": {}, "addressType": "", "endpoints": [{"addresses": null, "conditions": {}}], "ports": null})
    );
    let pod = pruned("core.Pod", json!({"spec": {"containers": [{"name": "c", "livenessProbe": {}}]}}));
    assert_eq!(pod["spec"]["containers"][0], json!({"name": "c", "resources": {}, "livenessProbe": {}}));
    let node = pruned("core.Node", json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    assert_eq!(
        node["status"]["conditions"][0],
        json!({"type": "Ready", "status": "True", "lastHeartbeatTime": null, "lastTransitionTime": null})
    );
    let ingress = pruned("networking.Ingress", json!({"spec": {"rules": [{"http": {"paths": [{}]}}]}}));
    assert_eq!(ingress["spec"]["rules"][0]["http"]["paths"], json!([{"pathType": null, "backend": {}}]));
}

proptest! {
    #[test]
    fn pruning_twice_changes_nothing(text in "[a-z]{0,2}", port in 0..3_i32, empty in any::<bool>()) {
        let items = if empty { json!([]) } else { json!([{"port": port, "name": text}, null]) };
        let once = pruned("core.Service", json!({"metadata": {"name": text}, "spec": {"ports": items, "type": text}}));
        prop_assert_eq!(pruned("core.Service", once.clone()), once);
    }

    #[test]
    fn no_document_panics(text in r#"[\[\]{}:," a-z0-9.eE\\-]{0,60}"#) {
        let parsed = parse_json(text.as_bytes());
        let _ = find_kind(text.as_bytes());
        let decoded = decode_json(schema::named("core.Pod"), text.as_bytes());
        prop_assert!(parsed.is_ok() || decoded.is_err());
    }

    #[test]
    fn the_slow_reader_agrees_with_the_fast_one(text in r#"[\[\]{}:,"a1 .eE\\-]{0,24}"#) {
        let fast = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        prop_assert_eq!(syntax::explain(&text).is_none(), fast);
    }
}
