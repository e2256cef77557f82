//! Lines as kube-apiserver 1.36 writes them.

use serde_json::json;

use super::*;

fn at(micros: i64) -> Timestamp {
    let second = "2026-08-01T12:30:45Z".parse::<Timestamp>().unwrap();
    Timestamp::from_microsecond(second.as_microsecond() + micros).unwrap()
}

fn line(event: &Event<'_>) -> String {
    let mut out = Vec::new();
    event.append_line(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn all_fields_in_the_order_of_the_type() {
    let extra = BTreeMap::from([("z".to_owned(), vec!["1".to_owned()]), ("a".to_owned(), Vec::new())]);
    let groups = vec!["dev".to_owned(), "system:authenticated".to_owned()];
    let alice = User { name: "alice".into(), uid: "u1".into(), groups, extra };
    let bob = User { name: "bob".into(), groups: vec!["system:authenticated".into()], ..User::default() };
    let status = json!({
        "kind": "Status", "metadata": {"x": 1}, "status": "Failure", "message": "m <&>", "reason": "Invalid", "code": 422,
        "details": {
            "name": "web", "group": "g", "kind": "Service", "uid": "u", "retryAfterSeconds": 1,
            "causes": [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec"}],
        },
    });
    let annotations = BTreeMap::from([
        ("authorization.k8s.io/reason".into(), String::new()),
        ("authorization.k8s.io/decision".into(), "allow".to_owned()),
    ]);
    let addresses = ["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
    let text = |text: &str| text.to_owned();
    let common = Common::new(
        ("/api/v1/namespaces/a/services?limit=500&x=<y>", "create"),
        Some(&alice),
        (&addresses, "curl/8 \u{2028} \"x\" \u{1}\u{8}\u{c}\t \\ é 😀"),
        at(1),
    )
    .unwrap();
    let event = Event {
        impersonated: Some((&bob, Some("user-info"))),
        object_ref: Some(ObjectReference {
            resource: "services".into(),
            namespace: "a".into(),
            name: "web".into(),
            uid: "u".into(),
            api_group: "g".into(),
            api_version: "v1".into(),
            resource_version: "7".into(),
            subresource: "status".into(),
        }),
        response_status: Some(serde_json::from_value(status).unwrap()),
        request_object: Some(RawValue::from_string(text("{ \"a\" : \"<b> & \\u003c c\" ,\n \"d\": [1, 2] }")).unwrap()),
        response_object: Some(RawValue::from_string(text(r#"{"kind":"Status"}"#)).unwrap()),
        annotations: &annotations,
        ..Event::new(Level::RequestResponse, "id-1", Stage::ResponseComplete, &common, at(123_456))
    };
    let wanted = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id-1","#,
        r#""stage":"ResponseComplete","requestURI":"/api/v1/namespaces/a/services?limit=500\u0026x=\u003cy\u003e","#,
        r#""verb":"create","user":{"username":"alice","uid":"u1","groups":["dev","system:authenticated"],"#,
        r#""extra":{"a":[],"z":["1"]}},"impersonatedUser":{"username":"bob","groups":["system:authenticated"]},"#,
        r#""authenticationMetadata":{"impersonationConstraint":"impersonate:user-info"},"#,
        r#""sourceIPs":["10.0.0.1","::1"],"userAgent":"curl/8 \u2028 \"x\" \u0001\b\f\t \\ é 😀","#,
        r#""objectRef":{"resource":"services","namespace":"a","name":"web","uid":"u","apiGroup":"g","#,
        r#""apiVersion":"v1","resourceVersion":"7","subresource":"status"},"#,
        r#""responseStatus":{"metadata":{},"status":"Failure","message":"m \u003c\u0026\u003e","reason":"Invalid","#,
        r#""details":{"name":"web","group":"g","kind":"Service","uid":"u","#,
        r#""causes":[{"reason":"FieldValueInvalid","message":"bad","field":"spec"}],"retryAfterSeconds":1},"code":422},"#,
        r#""requestObject":{"a":"\u003cb\u003e \u0026 \u003c c","d":[1,2]},"responseObject":{"kind":"Status"},"#,
        r#""requestReceivedTimestamp":"2026-08-01T12:30:45.000001Z","stageTimestamp":"2026-08-01T12:30:45.123456Z","#,
        r#""annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":""}}"#,
        "\n",
    );
    assert_eq!(line(&event), wanted);
}

#[test]
fn empty_fields_are_omitted() {
    let common = Common::new(("/healthz", "get"), None, (&[], ""), at(0)).unwrap();
    let event = Event::new(Level::Metadata, "id-2", Stage::RequestReceived, &common, at(0));
    let wanted = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-2","stage":"RequestReceived","#,
        r#""requestURI":"/healthz","verb":"get","user":{},"requestReceivedTimestamp":"2026-08-01T12:30:45.000000Z","#,
        r#""stageTimestamp":"2026-08-01T12:30:45.000000Z"}"#,
        "\n",
    );
    assert_eq!(line(&event), wanted);
}

#[test]
fn empty_structs_are_not_omitted() {
    let status =
        ResponseStatus { details: Some(StatusDetails::default()), status: "Success".into(), ..Default::default() };
    let common = Common::new(("", ""), None, (&[], ""), at(10)).unwrap();
    let event = Event {
        object_ref: Some(ObjectReference::default()),
        response_status: Some(status),
        ..Event::new(Level::Metadata, "id-4", Stage::ResponseComplete, &common, at(20))
    };
    let wanted = concat!(
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id-4","stage":"ResponseComplete","#,
        r#""requestURI":"","verb":"","user":{},"objectRef":{},"#,
        r#""responseStatus":{"metadata":{},"status":"Success","details":{}},"#,
        r#""requestReceivedTimestamp":"2026-08-01T12:30:45.000010Z","stageTimestamp":"2026-08-01T12:30:45.000020Z"}"#,
        "\n",
    );
    assert_eq!(line(&event), wanted);
}
