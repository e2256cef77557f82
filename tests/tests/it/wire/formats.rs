//! In which forms requests and answers come: protobuf, YAML, gzip, tables, metadata alone, and documents with an ETag.

use std::io::Read as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use testbed::Server;
use testbed::session::{SERVICES, text};
use testbed::wire::{Reply, Wire};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The recorded bodies that typed clients send: what they are, where they go, and the bytes.
fn recorded_bodies() -> Vec<(String, String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/api/protobuf.json");
    let cases: Value = serde_json::from_slice(&std::fs::read(path).expect("the recorded cases")).expect("JSON");
    let mut out = Vec::new();
    for case in cases["cases"].as_array().expect("cases") {
        let step = &case["steps"][0];
        let (path, body) = (text(step, "/path"), text(step, "/bodyBase64"));
        let reviewed = path.contains("authorization.k8s.io") || path.contains("authentication.k8s.io");
        if text(step, "/method") == "POST" && step["expect"]["status"] == json!(201) && !body.is_empty() && !reviewed {
            let path = path.replace("${ns}", "default");
            let path = path.split('?').next().unwrap_or_default().to_owned();
            out.push((text(case, "/id").to_owned(), path, STANDARD.decode(body).expect("base64")));
        }
    }
    out
}

#[test]
fn s01_a_typed_object_goes_in_and_out_as_protobuf_unharmed() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let bodies = recorded_bodies();
    assert!(bodies.len() >= 8, "{} recorded bodies", bodies.len());
    for (id, path, body) in bodies {
        let (send, accept) = (("Content-Type", PROTOBUF), ("Accept", PROTOBUF));
        let made = wire.ask("POST", &path, &[send, accept], &body);
        assert_eq!((made.code, made.header("content-type")), (201, Some(PROTOBUF)), "{id}: {}", made.text());
        assert!(made.body.starts_with(b"k8s\0"), "{id}");
        let list = wire.ask("GET", &path, &[], b"").success();
        let newest = |item: &&Value| text(item, "/metadata/resourceVersion").parse::<u64>().expect("a revision");
        let items = list["items"].as_array().expect("items");
        let shown = items.iter().max_by_key(newest).expect("what was made").clone();
        let one = format!("{path}/{}", text(&shown, "/metadata/name"));
        let before = wire.ask("GET", &one, &[], b"").success();

        // What a typed client reads, it may send back: nothing changes, not even the revision.
        let read = wire.ask("GET", &one, &[accept], b"");
        assert_eq!(read.body, made.body, "{id}: read as it was made");
        let again = wire.ask("PUT", &one, &[send, accept], &read.body);
        assert_eq!(again.code, 200, "{id}: {}", again.text());
        let after = wire.ask("GET", &one, &[], b"").success();
        assert_eq!(before, after, "{id}");
        let gone = wire.ask("DELETE", &format!("{one}?gracePeriodSeconds=0"), &[accept], b"");
        assert!(gone.code == 200 && gone.body.starts_with(b"k8s\0"), "{id}: {}", gone.text());
    }
}

#[test]
fn s01_refusals_come_in_the_form_that_was_asked_for() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let missing = format!("{SERVICES}/missing");
    let reply = wire.ask("GET", &missing, &[("Accept", PROTOBUF)], b"");
    assert_eq!((reply.code, reply.header("content-type")), (404, Some(PROTOBUF)));
    assert!(reply.body.starts_with(b"k8s\0") && reply.text().contains("services \"missing\" not found"));
    let reply = wire.ask("GET", &missing, &[("Accept", "application/yaml")], b"");
    assert_eq!((reply.code, reply.header("content-type")), (404, Some("application/yaml")));
    assert!(reply.text().contains("message: services \"missing\" not found"), "{}", reply.text());
    assert_eq!(wire.ask("GET", &missing, &[("Accept", "image/png")], b"").code, 406);
    assert_eq!(wire.ask("POST", SERVICES, &[("Content-Type", "text/html")], b"<p>").code, 415);
}

#[test]
fn s01_yaml_bodies_and_answers() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let body = b"apiVersion: v1\nkind: Service\nmetadata:\n  name: yaml\nspec:\n  ports:\n  - port: 80\n";
    let yaml = [("Content-Type", "application/yaml"), ("Accept", "application/yaml")];
    let reply = wire.ask("POST", SERVICES, &yaml, body);
    assert_eq!((reply.code, reply.header("content-type")), (201, Some("application/yaml")));
    assert!(reply.text().contains("\n  name: yaml\n") && reply.text().contains("targetPort: 80"), "{}", reply.text());
}

#[test]
fn s01_long_answers_are_compressed_for_those_who_ask() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let (all, maps) =
        ("/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps?labelSelector=long");
    for number in 0..3 {
        let metadata = json!({"name": format!("m{number}"), "labels": {"long": ""}});
        let body = json!({"metadata": metadata, "data": {"text": "0123456789".repeat(6000)}});
        assert_eq!(wire.ask("POST", all, &[JSON], body.to_string().as_bytes()).code, 201);
    }
    let gzip = [("Accept-Encoding", "gzip")];
    for path in [maps, "/openapi/v2", "/openapi/v3/api/v1"] {
        let plain = wire.ask("GET", path, &[], b"");
        assert!(plain.header("content-encoding").is_none() && plain.body.len() > 128 * 1024, "{path}");
        let packed = wire.ask("GET", path, &gzip, b"");
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert!(packed.body.len() < plain.body.len() / 2, "{path}");
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*packed.body).read_to_end(&mut unpacked).expect("gzip");
        assert!(unpacked == plain.body, "{path}");
    }
    assert!(wire.ask("GET", SERVICES, &gzip, b"").header("content-encoding").is_none(), "a short answer");
    // A watch is read event by event: it is never compressed.
    let watch = wire.ask("GET", &format!("{maps}&watch=true&timeoutSeconds=1"), &gzip, b"");
    assert!(watch.header("content-encoding").is_none() && watch.body.len() > 128 * 1024);
}

#[test]
fn s01_documents_that_a_client_has_are_not_sent_again() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    for (path, accept) in [
        ("/api", AGGREGATED),
        ("/apis", AGGREGATED),
        ("/openapi/v2", "application/json"),
        ("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
        ("/openapi/v3/api/v1", "application/json"),
        ("/openapi/v3/apis/discovery.k8s.io/v1", "application/json"),
    ] {
        let accept = ("Accept", accept);
        let first = wire.ask("GET", path, &[accept], b"");
        assert_eq!((first.code, first.header("vary")), (200, Some("Accept")), "{path}");
        let etag = first.header("etag").expect("an ETag").to_owned();
        assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() == 130, "{etag}");
        let second = wire.ask("GET", path, &[accept, ("If-None-Match", &etag)], b"");
        assert_eq!((second.code, second.header("etag")), (304, Some(etag.as_str())), "{path}");
        assert!(second.body.is_empty());
        let other = wire.ask("GET", path, &[accept, ("If-None-Match", "\"0\"")], b"");
        assert_eq!((other.code, other.body), (200, first.body), "{path}");
    }
}

#[test]
fn s01_openapi_documents_are_named_by_their_hash() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let index = wire.ask("GET", "/openapi/v3", &[], b"").success();
    let paths = index["paths"].as_object().expect("paths");
    for group in ["api/v1", "apis/discovery.k8s.io/v1", "apis/networking.k8s.io/v1", "apis/coordination.k8s.io/v1"] {
        let url = text(&paths[group], "/serverRelativeURL");
        let document = wire.ask("GET", url, &[], b"");
        assert!(document.header("cache-control").is_some_and(|value| value.contains("immutable")), "{group}");
        assert_eq!(document.success()["openapi"], "3.0.0", "{group}");
        let stale = wire.ask("GET", &format!("/openapi/v3/{group}?hash=00"), &[], b"");
        assert_eq!((stale.code, stale.header("location")), (301, Some(url)), "{group}");
    }
    assert_eq!(wire.ask("GET", "/openapi/v3/apis/none/v1", &[], b"").code, 404);
    assert_eq!(wire.ask("GET", "/openapi/v2", &[("Accept", "image/png")], b"").code, 406);
}

#[test]
fn s01_discovery_comes_whole_or_group_by_group() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let whole = wire.ask("GET", "/apis", &[("Accept", AGGREGATED)], b"");
    assert_eq!(whole.header("content-type"), Some(AGGREGATED));
    let whole = whole.success();
    let groups = wire.ask("GET", "/apis", &[], b"").success();
    assert_eq!((text(&whole, "/kind"), text(&groups, "/kind")), ("APIGroupDiscoveryList", "APIGroupList"));
    let names = |list: &Value, pointer: &str| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|item| text(item, pointer).to_owned()).collect()
    };
    assert_eq!(names(&whole["items"], "/metadata/name"), names(&groups["groups"], "/name"));
    for group in whole["items"].as_array().expect("groups") {
        let path = format!("/apis/{}/{}", text(group, "/metadata/name"), text(group, "/versions/0/version"));
        let resources = wire.ask("GET", &path, &[], b"").success();
        let mut plain = names(&resources["resources"], "/name");
        plain.retain(|name| !name.contains('/'));
        let mut found = names(&group["versions"][0]["resources"], "/resource");
        plain.sort();
        found.sort();
        assert_eq!(plain, found, "{path}");
    }
}

/// A document without what protobuf does not tell from an absent field, and without its type, which is in the envelope.
fn without_defaults(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| *member != json!("") && *member != json!(false));
            members.values_mut().for_each(without_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(without_defaults),
        _ => {}
    }
}

#[test]
fn b08_discovery_in_protobuf_says_what_it_says_in_json() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let groups = wire.ask("GET", "/apis", &[], b"").success();
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in groups["groups"].as_array().expect("groups") {
        paths.push(format!("/apis/{}", text(group, "/name")));
        paths.push(format!("/apis/{}", text(group, "/preferredVersion/groupVersion")));
    }
    assert!(paths.iter().any(|path| path == "/apis/networking.k8s.io"), "{paths:?}");
    for path in paths {
        let reply = wire.ask("GET", &path, &[("Accept", PROTOBUF)], b"");
        assert_eq!((reply.code, reply.header("content-type")), (200, Some(PROTOBUF)), "{path}");
        let envelope = api::proto::decode_envelope(&reply.body).unwrap_or_else(|error| panic!("{path}: {error}"));
        let ty = api::schema::named(&format!("meta.{}", envelope.kind));
        let decoded = api::proto::decode(ty, envelope.raw).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut json = wire.ask("GET", &path, &[], b"").success();
        let name = |value: &mut Value, key: &str| {
            let name = value.as_object_mut().expect("an object").remove(key);
            name.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        assert_eq!(
            (name(&mut json, "kind"), name(&mut json, "apiVersion")),
            (envelope.kind, envelope.api_version),
            "{path}"
        );
        without_defaults(&mut json);
        assert_eq!(decoded, json, "{path}");
    }
    // It has no message.
    let root = wire.ask("GET", "/", &[("Accept", PROTOBUF)], b"");
    assert_eq!(root.header("content-type"), Some("application/json"));
    assert!(root.success()["paths"].as_array().is_some_and(|paths| paths.contains(&json!("/apis"))));
}

#[test]
fn s01_a_review_echoes_no_empty_fields() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let sent = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {
        "resourceAttributes": {"namespace": "default", "verb": "get", "group": "", "resource": "pods",
            "subresource": "log", "name": ""},
    }});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = wire.ask("POST", path, &[JSON], sent.to_string().as_bytes()).success();
    assert_eq!(
        review["spec"]["resourceAttributes"],
        json!({"namespace": "default", "verb": "get", "resource": "pods", "subresource": "log"})
    );
    assert_eq!(review["status"]["allowed"], true);
}

/// A list of Services in a form of its own.
fn listed_as(wire: &mut Wire, media: &str, form: &str, query: &str) -> Reply {
    wire.ask("GET", &format!("{SERVICES}{query}"), &[("Accept", &format!("{media};as={form};g=meta.k8s.io;v=v1"))], b"")
}

#[test]
fn s01_tables_and_metadata_alone() {
    let server = Server::start();
    let mut wire = Wire::admin(&server);
    let json = "application/json";
    let table = listed_as(&mut wire, json, "Table", "").success();
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().expect("columns").iter().map(|column| text(column, "/name")).collect();
    assert_eq!(columns, ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]);
    let row = &table["rows"][0];
    assert_eq!(
        (&row["cells"][0], &row["cells"][2], &row["cells"][4]),
        (&"kubernetes".into(), &"10.96.0.1".into(), &"443/TCP".into())
    );
    assert_eq!(text(row, "/object/kind"), "PartialObjectMetadata");
    let table = listed_as(&mut wire, json, "Table", "?includeObject=Object").success();
    assert_eq!(text(&table, "/rows/0/object/spec/clusterIP"), "10.96.0.1");
    assert_eq!(listed_as(&mut wire, json, "Table", "?includeObject=Half").code, 400);

    let metadata = listed_as(&mut wire, json, "PartialObjectMetadataList", "").success();
    assert_eq!(text(&metadata, "/kind"), "PartialObjectMetadataList");
    let item = &metadata["items"][0];
    assert_eq!((text(item, "/metadata/name"), item.get("spec")), ("kubernetes", None));
    let reply = listed_as(&mut wire, PROTOBUF, "PartialObjectMetadataList", "");
    assert!(
        reply.code == 200 && reply.body.starts_with(b"k8s\0") && reply.text().contains("PartialObjectMetadataList")
    );

    // On a watch the columns come with the first event only.
    let body = br#"{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}"#;
    assert_eq!(wire.ask("POST", SERVICES, &[JSON], body).code, 201);
    let watch = listed_as(&mut wire, json, "Table", "?watch=true&timeoutSeconds=1").text();
    let events: Vec<Value> = watch.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let with_columns: Vec<bool> = events
        .iter()
        .map(|event| event["object"]["columnDefinitions"].as_array().is_some_and(|all| !all.is_empty()))
        .collect();
    assert_eq!(with_columns, [true, false], "{watch}");
}
