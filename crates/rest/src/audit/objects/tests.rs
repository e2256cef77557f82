use serde_json::json;

use super::*;
use crate::route::{self, Route};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn body(verb: &str, path: &str, content_type: &'static str, bytes: impl Into<Bytes>) -> RequestBody {
    let Route::Resource(target) = route::parse(path, api::custom::Kinds::fixed()) else { panic!("{path}") };
    RequestBody {
        content: Content::of(&target, verb),
        content_type: Some(HeaderValue::from_static(content_type)),
        bytes: bytes.into(),
    }
}

fn value(object: Option<Box<RawValue>>) -> Value {
    object.map_or(Value::Null, |raw| serde_json::from_str(raw.get()).unwrap())
}

fn service() -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "a", "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "m"}],
        },
        "spec": {"ports": [{"port": 80}]},
    })
}

#[test]
fn metadata_of_every_format() {
    let path = "/api/v1/namespaces/a/services";
    let service = service();
    let kind = kinds::find("", "v1", "services").unwrap();
    let message = proto::encode(kind.type_id(), &service);
    let wanted = Metadata { name: "web".into(), namespace: "a".into(), uid: "u".into(), resource_version: "7".into() };
    for (content_type, bytes) in [
        (JSON, service.to_string().into_bytes()),
        ("application/yaml", yaml::to_yaml(&service).into_bytes()),
        (PROTOBUF, proto::encode_envelope("v1", "Service", &message)),
    ] {
        let (metadata, object) = body("create", path, content_type, bytes.clone()).read(Level::Metadata, false, "");
        assert_eq!(metadata.as_ref(), Some(&wanted), "{content_type}");
        assert!(object.is_none(), "{content_type}: the object is not recorded at this level");
        let (metadata, object) = body("create", path, content_type, bytes).read(Level::Request, true, "");
        assert_eq!(metadata.as_ref(), Some(&wanted), "{content_type}");
        let object = value(object);
        assert_eq!((object.text("kind"), object.text("apiVersion")), ("Service", "v1"), "{content_type}");
        assert_eq!(object.text("spec.ports.0.protocol"), "");
        assert_eq!(object.items("spec.ports")[0].text("protocol"), "TCP", "{content_type}: with defaults");
        assert!(!object.has("metadata.managedFields"), "{content_type}");
    }
}

#[test]
fn managed_fields_stay_unless_they_are_omitted() {
    let request = body("update", "/api/v1/namespaces/a/services/web", JSON, service().to_string());
    let (_, object) = request.read(Level::RequestResponse, false, "");
    assert!(value(object).has("metadata.managedFields"));
}

#[test]
fn bodies_that_are_refused_are_not_recorded() {
    let path = "/api/v1/namespaces/a/services";
    let recorded = |content_type, text: &'static str, query: &str| {
        let (metadata, object) = body("create", path, content_type, text).read(Level::Request, false, query);
        metadata.is_some() || object.is_some()
    };
    assert!(recorded(JSON, r#"{"metadata": {"name": "x"}, "frob": 1}"#, "fieldValidation=Warn"));
    assert!(!recorded(JSON, r#"{"metadata": {"name": "x"}, "frob": 1}"#, "fieldValidation=Strict"));
    assert!(!recorded(JSON, "{", "") && !recorded(JSON, r#"{"spec": 1}"#, "") && !recorded("text/html", "{}", ""));
}

#[test]
fn patches_options_and_messages() {
    let object = |verb, path, content_type, text: &'static str, level| {
        value(body(verb, path, content_type, text).read(level, true, "").1)
    };
    let web = "/api/v1/namespaces/a/services/web";
    let merge = "application/merge-patch+json";
    let patch = r#"{"metadata": {"managedFields": []}}"#;
    assert_eq!(object("patch", web, merge, patch, Level::Request), json!({"metadata": {"managedFields": []}}));
    assert_eq!(object("patch", web, merge, patch, Level::Metadata), Value::Null);
    let apply = "application/apply-patch+yaml";
    assert_eq!(
        object("patch", web, apply, "spec:\n  type: NodePort\n", Level::Request),
        json!({"spec": {"type": "NodePort"}})
    );
    assert_eq!(object("patch", web, apply, "a: [", Level::Request), Value::Null);
    assert_eq!(
        object("delete", web, JSON, r#"{"propagationPolicy": "Foreground"}"#, Level::Request),
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"})
    );
    let eviction = object(
        "create",
        "/api/v1/namespaces/a/pods/p/eviction",
        JSON,
        r#"{"metadata": {"name": "p"}}"#,
        Level::Request,
    );
    assert_eq!((eviction.text("kind"), eviction.text("apiVersion")), ("Eviction", "policy/v1"));
    let token = object(
        "create",
        "/api/v1/namespaces/a/serviceaccounts/s/token",
        JSON,
        r#"{"spec": {"audiences": ["x"]}}"#,
        Level::Request,
    );
    assert_eq!((token.text("kind"), token.texts("spec.audiences")), ("TokenRequest", vec!["x"]));
}

fn response(code: u16, content_type: &'static str, bytes: impl Into<Bytes>) -> Response {
    Response { code, content_type, bytes: bytes.into() }
}

#[test]
fn the_status_of_a_response_in_every_format() {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "NotFound",
        "details": {"name": "x", "kind": "services"}, "code": 404,
    });
    let message = proto::encode(schema::named("meta.Status"), &status);
    for (content_type, bytes) in [
        (JSON, status.to_string().into_bytes()),
        ("application/yaml", yaml::to_yaml(&status).into_bytes()),
        (PROTOBUF, proto::encode_envelope("v1", "Status", &message)),
    ] {
        let (read, object) = response(404, content_type, bytes).read(Level::Metadata, false);
        assert_eq!((read.message.as_str(), read.reason.as_str(), read.code), ("no", "NotFound", 404), "{content_type}");
        assert!(read.details.is_some() && object.is_none(), "{content_type}");
    }
    let (plain, _) = response(404, "text/plain", "404 page not found\n").read(Level::RequestResponse, false);
    assert_eq!(plain, ResponseStatus { code: 404, ..ResponseStatus::default() });
}

#[test]
fn objects_of_responses_in_every_format() {
    let kind = kinds::find("", "v1", "services").unwrap();
    let mut typed = service();
    typed.put("kind", "Service");
    typed.put("apiVersion", "v1");
    let list =
        json!({"kind": "ServiceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": [service()]});
    let message = proto::encode_list(kind.type_id(), list.at("metadata"), list.items("items"));
    let partial = proto::encode_partial_list(&json!({}), [&service()]);
    for (content_type, bytes, wanted) in [
        (JSON, serde_json::to_vec_pretty(&typed).unwrap(), "Service"),
        ("application/yaml", yaml::to_yaml(&typed).into_bytes(), "Service"),
        (PROTOBUF, proto::encode_envelope("v1", "Service", &proto::encode(kind.type_id(), &typed)), "Service"),
        (JSON, list.to_string().into_bytes(), "ServiceList"),
        (PROTOBUF, proto::encode_envelope("v1", "ServiceList", &message), "ServiceList"),
        (
            PROTOBUF,
            proto::encode_envelope("meta.k8s.io/v1", "PartialObjectMetadataList", &partial),
            "PartialObjectMetadataList",
        ),
    ] {
        for omit in [false, true] {
            let (status, object) = response(200, content_type, bytes.clone()).read(Level::RequestResponse, omit);
            assert_eq!(status, ResponseStatus { code: 200, ..ResponseStatus::default() });
            let object = value(object);
            assert_eq!(object.text("kind"), wanted, "{content_type}");
            let first = object.items("items").first().unwrap_or(&object);
            assert_eq!(first.text("metadata.name"), "web", "{content_type} {wanted}");
            assert_eq!(first.has("metadata.managedFields"), !omit, "{content_type} {wanted}");
        }
    }
    let (_, version) = response(200, JSON, r#"{"major": "1"}"#).read(Level::RequestResponse, false);
    assert!(version.is_none(), "a document without a kind is no object");
}

#[test]
fn rows_of_tables_lose_their_managed_fields() {
    let mut table = json!({"kind": "Table", "rows": [{"cells": ["web"], "object": service()}]});
    drop_managed_fields(&mut table);
    assert!(!table.items("rows")[0].has("object.metadata.managedFields"));
    assert_eq!(table.items("rows")[0].text("object.metadata.name"), "web");
}
