use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::*;
use crate::discovery::fixture::KINDS;

mod wire;

fn v3(path: &str) -> Value {
    let document = OpenApi::new(KINDS).v3(path).expect("a document");
    serde_json::from_slice(&document.plain()).expect("JSON")
}

fn v2() -> Value {
    serde_json::from_slice(&OpenApi::new(KINDS).v2_json().plain()).expect("JSON")
}

/// Every `$ref` below a value.
fn references(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get("$ref") {
                out.insert(target.clone());
            }
            members.values().for_each(|value| references(value, out));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, out)),
        _ => {}
    }
}

/// The document's definitions are exactly those it refers to.
fn assert_closed(document: &Value, definitions: &str, prefix: &str) {
    let mut wanted = BTreeSet::new();
    references(document, &mut wanted);
    let wanted: BTreeSet<&str> = wanted.iter().map(|target| target.strip_prefix(prefix).expect("a prefix")).collect();
    let have = document.pointer(definitions).and_then(Value::as_object).expect("definitions");
    let have: BTreeSet<&str> = have.keys().map(String::as_str).collect();
    assert_eq!(wanted, have);
}

#[test]
fn every_reference_resolves() {
    for (group, version) in discovery::group_versions(KINDS) {
        assert_closed(&v3(&discovery::path(group, version)), "/components/schemas", "#/components/schemas/");
    }
    assert_closed(&v2(), "/definitions", "#/definitions/");
}

#[test]
fn the_kinds_that_are_served_are_all_described() {
    let openapi = OpenApi::new(api::kinds::KINDS);
    for kind in api::kinds::KINDS {
        let document = openapi.v3(&discovery::path(kind.group, kind.version)).expect("a document").plain();
        let document: Value = serde_json::from_slice(&document).expect("JSON");
        assert_closed(&document, "/components/schemas", "#/components/schemas/");
        let schema = &document["components"]["schemas"][exchange::definition_name(kind.schema)];
        assert!(schema["description"].is_string(), "{}: is it in the list of build.rs?", kind.kind);
        let gvk = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
        assert_eq!(schema["x-kubernetes-group-version-kind"], json!([gvk]));
    }
}

#[test]
fn every_stored_kind_can_be_patched_with_validation() {
    for kind in KINDS.iter().filter(|kind| kind.verbs.contains(&"patch")) {
        let document = v3(&discovery::path(kind.group, kind.version));
        let gvk = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
        let paths = document["paths"].as_object().expect("paths").values();
        let patch = paths
            .map(|path| &path["patch"])
            .find(|patch| patch["x-kubernetes-group-version-kind"] == gvk)
            .unwrap_or_else(|| panic!("{gvk} has no patch"));
        let parameters: Vec<&Value> =
            patch["parameters"].as_array().expect("parameters").iter().map(|parameter| &parameter["name"]).collect();
        assert_eq!(parameters, ["dryRun", "fieldManager", "fieldValidation", "force"]);
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    }
}

#[test]
fn custom_resources_list_the_media_types_that_they_have() {
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names,
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
        "status": {
            "acceptedNames": names,
            "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
        },
    });
    let mut catalog = api::custom::Catalog::default();
    catalog.apply("widgets.example.com", Some(&definition), 1);
    let openapi = OpenApi::new(catalog.kinds().served());
    let document: Value =
        serde_json::from_slice(&openapi.v3("apis/example.com/v1").expect("a document").plain()).expect("JSON");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    for path in ["", "/status"] {
        let patch = &document["paths"][format!("/apis/example.com/v1/namespaces/{{namespace}}/widgets/{{name}}{path}")]
            ["patch"];
        assert_eq!(
            keys(&patch["requestBody"]["content"]),
            ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
        );
        assert_eq!(keys(&patch["responses"]["200"]["content"]), ["application/json", "application/yaml"]);
    }
}

#[test]
fn service_ports_have_merge_keys() {
    let schemas = v3("api/v1")["components"]["schemas"].clone();
    let spec = &schemas["io.k8s.api.core.v1.ServiceSpec"];
    let ports = &spec["properties"]["ports"];
    assert_eq!(ports["x-kubernetes-list-type"], "map");
    assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["port", "protocol"]));
    assert_eq!(ports["x-kubernetes-patch-merge-key"], "port");
    assert_eq!(ports["x-kubernetes-patch-strategy"], "merge");
    assert_eq!(spec["properties"]["selector"]["x-kubernetes-map-type"], "atomic");
    let port = &schemas["io.k8s.api.core.v1.ServicePort"];
    assert_eq!(port["required"], json!(["port"]));
    assert_eq!(port["properties"]["protocol"]["default"], "TCP");
    assert_eq!(port["properties"]["port"]["default"], 0);
    let target = &port["properties"]["targetPort"];
    assert_eq!(target["allOf"][0]["$ref"], "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString");
    assert!(target["description"].as_str().is_some_and(|text| text.starts_with("Number or name of the port")));
    let volumes = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["volumes"];
    assert_eq!(volumes["x-kubernetes-patch-strategy"], "merge,retainKeys");
}

#[test]
fn kinds_carry_their_names_and_type() {
    let schemas = v3("api/v1")["components"]["schemas"].clone();
    let service = &schemas["io.k8s.api.core.v1.Service"];
    assert_eq!(
        service["x-kubernetes-group-version-kind"],
        json!([{ "group": "", "version": "v1", "kind": "Service" }])
    );
    assert_eq!(service["properties"]["kind"]["type"], "string");
    let list = &schemas["io.k8s.api.core.v1.ServiceList"];
    assert_eq!(list["x-kubernetes-group-version-kind"][0]["kind"], "ServiceList");
    assert_eq!(list["required"], json!(["items"]));
    let spec = &schemas["io.k8s.api.core.v1.ServiceSpec"];
    assert!(spec.get("x-kubernetes-group-version-kind").is_none() && spec["properties"].get("kind").is_none());
    let options = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    let slices = v3("apis/discovery.k8s.io/v1");
    let gvks = &slices["components"]["schemas"][options]["x-kubernetes-group-version-kind"];
    assert_eq!(gvks.as_array().map(Vec::len), Some(2));
}

#[test]
fn every_definition_and_field_is_described() {
    let document = v2();
    let mut missing = Vec::new();
    for (name, definition) in document["definitions"].as_object().expect("definitions") {
        if definition.get("description").is_none() {
            missing.push(name.clone());
        }
        for (field, value) in definition["properties"].as_object().into_iter().flatten() {
            if value.get("description").is_none() {
                missing.push(format!("{name} {field}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn version_two_has_no_defaults_and_no_alternatives() {
    let text = v2().to_string();
    assert!(!text.contains("\"allOf\"") && !text.contains("\"oneOf\"") && !text.contains("\"default\""));
    let definitions = v2()["definitions"].clone();
    let int_or_string = &definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"];
    assert_eq!((&int_or_string["type"], &int_or_string["format"]), (&json!("string"), &json!("int-or-string")));
}

#[test]
fn operations_have_names_of_their_own() {
    let document = v2();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for operation in item.as_object().expect("a path").values().filter(|value| value.is_object()) {
            let id = operation["operationId"].as_str().expect("a name");
            assert!(ids.insert(id.to_owned()), "{id} of {path} is a duplicate");
        }
    }
    for id in [
        "readCoreV1NamespacedService",
        "listCoreV1ServiceForAllNamespaces",
        "deleteCoreV1CollectionNamespacedService",
        "patchCoreV1NamespacedServiceStatus",
        "replaceCoreV1NamespaceFinalize",
        "connectCoreV1GetNamespacedServiceProxyWithPath",
        "createCoreV1NamespacedPodEviction",
        "watchDiscoveryV1EndpointSliceListForAllNamespaces",
        "createAuthorizationV1SubjectAccessReview",
    ] {
        assert!(ids.contains(id), "{id}");
    }
}

#[test]
fn only_served_verbs_have_operations() {
    let document = v3("api/v1");
    assert!(document["paths"]["/api/v1/namespaces"].get("delete").is_none(), "namespaces have no deletecollection");
    let review = v3("apis/authorization.k8s.io/v1");
    let paths: Vec<&String> = review["paths"].as_object().expect("paths").keys().collect();
    assert_eq!(paths, ["/apis/authorization.k8s.io/v1/subjectaccessreviews"]);
    let path = &document["paths"]["/api/v1/namespaces/{namespace}/services/{name}"];
    let answer = &path["delete"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(answer, "#/components/schemas/io.k8s.api.core.v1.Service");
}

#[test]
fn the_index_leads_to_the_documents() {
    let openapi = OpenApi::new(KINDS);
    let index: Value = serde_json::from_slice(&openapi.v3_index()).expect("JSON");
    let paths = index["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), discovery::group_versions(KINDS).len());
    for (path, entry) in paths {
        let document = openapi.v3(path).expect("a document");
        assert_eq!(entry["serverRelativeURL"], v3_location(path, &document.hash));
        assert_eq!(document.hash, hash(&document.plain()));
        assert!(document.gzip.len() * 2 < document.plain().len());
    }
    assert!(openapi.v3("api/v2").is_none());
}

#[test]
fn two_builds_are_equal() {
    let hashes = || {
        let openapi = OpenApi::new(KINDS);
        (openapi.v3_index(), openapi.v2_json().hash, openapi.v2_proto().gzip)
    };
    assert_eq!(hashes(), hashes());
}

#[test]
fn the_accept_header_chooses_the_form() {
    assert_eq!(v2_form(None), Some(Form::Json));
    assert_eq!(v2_form(Some("application/json")), Some(Form::Json));
    assert_eq!(v2_form(Some("*/*")), Some(Form::Json));
    assert_eq!(v2_form(Some(V2_PROTOBUF)), Some(Form::Protobuf));
    assert_eq!(v2_form(Some(V2_PROTOBUF_ASKED)), Some(Form::Protobuf));
    assert_eq!(
        v2_form(Some("application/json;q=0.5, application/com.github.proto-openapi.spec.v2@v1.0+protobuf")),
        Some(Form::Protobuf)
    );
    assert_eq!(v2_form(Some("text/html")), None);
    assert_eq!(v3_form(Some("application/com.github.proto-openapi.spec.v3@v1.0+protobuf")), None);
    assert_eq!(v3_form(Some("text/html, application/*;q=0.1")), Some(Form::Json));
}
