//! Versions that a webhook converts: `spec.hostPort` of v1 is `spec.host` and `spec.port` of v2.

use std::net::TcpListener;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use testbed::Server;
use testbed::session::{Session, text};
use testbed::webhook::{Response, Webhook};

use super::{DEFINITIONS, define};

const V1: &str = "/apis/example.com/v1/namespaces/default/servers";
const V2: &str = "/apis/example.com/v2/namespaces/default/servers";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/servers.example.com";

/// How the webhook responds: what is done to a correct review.
type Edit = fn(&mut Value);
type Fault = Option<Edit>;

fn version(name: &str, fields: &Value) -> Value {
    let mut spec = json!({"replicas": {"type": "integer"}});
    for (field, schema) in fields.as_object().expect("fields") {
        spec[field] = schema.clone();
    }
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }});
    json!({
        "name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    })
}

fn definition(client_config: &Value) -> Value {
    let mut v2 = version("v2", &json!({"host": {"type": "string", "maxLength": 20}, "port": {"type": "integer"}}));
    v2["additionalPrinterColumns"] = json!([{"name": "Host", "type": "string", "jsonPath": ".spec.host"}]);
    v2["selectableFields"] = json!([{"jsonPath": ".spec.host"}]);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "servers.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "servers", "singular": "server", "kind": "Server"},
            "versions": [version("v1", &json!({"hostPort": {"type": "string"}})), v2],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": client_config, "conversionReviewVersions": ["v1"]}},
        },
    })
}

fn v1(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Server", "metadata": {"name": name}, "spec": {"hostPort": host_port}})
}

fn v2(name: &str, host: &str, port: u16) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Server", "metadata": {"name": name}, "spec": {"host": host, "port": port}})
}

/// Converts one object.
fn convert(mut object: Value, desired: &str) -> Value {
    let mut spec = object["spec"].as_object().cloned().unwrap_or_default();
    if desired == "example.com/v2" {
        if let Some(both) = spec.remove("hostPort") {
            let (host, port) = both.as_str().and_then(|both| both.split_once(':')).expect("host and port");
            spec.insert("host".to_owned(), host.into());
            spec.insert("port".to_owned(), port.parse::<u16>().expect("a port").into());
        }
    } else if let (Some(host), Some(port)) = (spec.remove("host"), spec.remove("port")) {
        spec.insert("hostPort".to_owned(), format!("{}:{port}", host.as_str().expect("a host")).into());
    }
    object["apiVersion"] = desired.into();
    object["spec"] = spec.into();
    object
}

/// A server with the definition, and a webhook with a fault that can be set.
struct Stage {
    server: Server,
    session: Session,
    webhook: Webhook,
    fault: Arc<Mutex<Fault>>,
}

impl Stage {
    fn new() -> Self {
        let fault = Arc::new(Mutex::new(None));
        let current: Arc<Mutex<Fault>> = fault.clone();
        let webhook = Webhook::respond(move |review| {
            let request = &review["request"];
            let desired = text(request, "/desiredAPIVersion");
            let objects = request["objects"].as_array().cloned().unwrap_or_default();
            let converted: Vec<Value> = objects.into_iter().map(|object| convert(object, desired)).collect();
            let mut answer = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted},
            });
            if let Some(fault) = *current.lock() {
                fault(&mut answer);
            }
            match answer.get("http").and_then(Value::as_str) {
                Some("redirect") => Response { status: "302 Found\r\nlocation: /elsewhere", body: String::new() },
                Some("large") => Response { status: "200 OK", body: " ".repeat(8 << 20) },
                Some("deep") => Response { status: "200 OK", body: "[".repeat(1 << 20) },
                Some(_) => Response { status: "503 Service Unavailable", body: String::new() },
                None => Response::ok(&answer),
            }
        });
        let server = Server::start();
        let mut session = server.session();
        define(&mut session, &definition(&webhook.client_config()));
        Self { server, session, webhook, fault }
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    /// How many objects each call had.
    fn calls(&self) -> Vec<usize> {
        self.webhook.requests().iter().map(|request| request["objects"].as_array().map_or(0, Vec::len)).collect()
    }
}

#[test]
fn b07_a_webhook_converts_objects_between_versions() {
    let mut stage = Stage::new();
    let Stage { server, session, .. } = &mut stage;
    let created = session.post(V1, &v1("a", "one:80")).success();
    assert_eq!(created["spec"], json!({"hostPort": "one:80"}));
    let read = session.get(&format!("{V2}/a")).success();
    assert_eq!((text(&read, "/apiVersion"), &read["spec"]), ("example.com/v2", &json!({"host": "one", "port": 80})));
    assert_eq!(read["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(read["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let created = session.post(V2, &v2("b", "two", 81)).success();
    assert_eq!(created["spec"], json!({"host": "two", "port": 81}));
    assert_eq!(session.get(&format!("{V1}/b")).success()["spec"], json!({"hostPort": "two:81"}));
    let refused = session.post(V2, &v2("c", &"x".repeat(21), 1)).refused(422);
    assert!(refused.contains("spec.host: Too long"), "{refused}");
    // Writes in the version that is not stored.
    let patched = session.merge(&format!("{V2}/a"), &json!({"spec": {"port": 90}})).success();
    assert_eq!(patched["spec"], json!({"host": "one", "port": 90}));
    assert_eq!(session.get(&format!("{V1}/a")).success()["spec"]["hostPort"], "one:90");
    let mut stale = read;
    stale["spec"]["port"] = 91.into();
    drop(session.put(&format!("{V2}/a"), &stale).refused(409));
    drop(session.merge(&format!("{V2}/a/scale"), &json!({"spec": {"replicas": 3}})).success());
    drop(session.merge(&format!("{V2}/a/status"), &json!({"status": {"replicas": 2}})).success());
    let read = session.get(&format!("{V1}/a")).success();
    assert_eq!((&read["spec"]["replicas"], &read["status"]["replicas"]), (&json!(3), &json!(2)));
    assert_eq!(session.get(&format!("{V2}/a/scale")).success()["status"]["replicas"], 2);
    let applied = v2("a", "three", 92).to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    drop(server.kubectl_with(&apply, &applied).success());
    assert_eq!(session.get(&format!("{V1}/a")).success()["spec"]["hostPort"], "three:92");
    let kubectl = |line: &str| server.kubectl(line).success();
    let table = kubectl("get servers.v2.example.com");
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (&words[0][..], &words[1][..], &words[2][..]),
        (&["NAME", "HOST"][..], &["a", "three"][..], &["b", "two"][..])
    );
    assert_eq!(session.names(&format!("{V2}?fieldSelector=spec.host%3Dtwo")), ["b"]);
    drop(session.delete(&format!("{V2}?fieldSelector=spec.host%3Dtwo")).success());
    assert_eq!(session.names(V1), ["a"]);
    drop(session.delete(&format!("{V2}/a")).success());
    assert_eq!(session.names(V2), Vec::<String>::new());
}

#[test]
fn b07_a_list_is_converted_by_one_call_and_a_watch_in_order() {
    let mut stage = Stage::new();
    for index in 0..20 {
        drop(stage.session.post(V1, &v1(&format!("s{index:02}"), &format!("h{index}:1"))).success());
    }
    let items = stage.session.items(V2);
    let hosts: Vec<&str> = items.iter().map(|item| text(item, "/spec/host")).collect();
    let expected: Vec<String> = (0..20).map(|index| format!("h{index}")).collect();
    assert_eq!((hosts.len(), hosts.iter().zip(&expected).all(|(host, wanted)| host == wanted)), (20, true));
    assert_eq!(stage.calls(), [20]);
    drop(stage.session.items(V2));
    assert_eq!(stage.calls(), [20], "unchanged objects are not converted again");
    let partial = stage.server.kubectl("get servers.v2.example.com -o name").success();
    assert_eq!(partial.lines().count(), 20);
    let mut writer = stage.server.session();
    {
        let mut watch = stage.session.watch(V2, "");
        for host in &expected {
            let (kind, object) = watch.event().expect("an event");
            assert_eq!((kind.as_str(), text(&object, "/spec/host")), ("ADDED", host.as_str()));
        }
        for index in 0..5 {
            drop(writer.merge(&format!("{V1}/s00"), &json!({"spec": {"hostPort": format!("x{index}:1")}})).success());
        }
        drop(writer.delete(&format!("{V1}/s00")).success());
        for index in 0..5 {
            let (kind, object) = watch.event().expect("an event");
            assert_eq!((kind, text(&object, "/spec/host")), ("MODIFIED".to_owned(), format!("x{index}").as_str()));
            assert_eq!(text(&object, "/apiVersion"), "example.com/v2");
        }
        let (kind, object) = watch.event().expect("an event");
        assert_eq!((kind.as_str(), text(&object, "/spec/host")), ("DELETED", "x4"));
    }
    stage.set(Some(|answer| answer["response"]["result"] = json!({"status": "Failure", "message": "not today"})));
    let now = text(&stage.session.get(V1).success(), "/metadata/resourceVersion").to_owned();
    let mut watch = stage.session.watch(V2, &format!("&resourceVersion={now}"));
    drop(writer.post(V1, &v1("late", "h:1")).success());
    let (kind, status) = watch.event().expect("an event");
    assert_eq!((kind.as_str(), text(&status, "/kind"), &status["code"]), ("ERROR", "Status", &json!(500)));
    assert_eq!(text(&status, "/message"), "conversion webhook for example.com/v1, Kind=Server failed: not today");
    assert_eq!(watch.event(), None, "the watch has ended");
}

#[test]
fn b07_objects_keep_the_version_in_which_they_were_stored() {
    let mut stage = Stage::new();
    let Stage { session, .. } = &mut stage;
    drop(session.post(V1, &v1("old", "one:80")).success());
    let mut definition = session.get(DEFINITION).success();
    definition["spec"]["versions"][0]["storage"] = false.into();
    definition["spec"]["versions"][1]["storage"] = true.into();
    drop(session.put(DEFINITION, &definition).success());
    drop(session.post(V2, &v2("new", "two", 81)).success());
    let spec = |session: &mut Session, url: String| session.get(&url).success()["spec"].clone();
    for (version, expected) in [
        (V1, [json!({"hostPort": "two:81"}), json!({"hostPort": "one:80"})]),
        (V2, [json!({"host": "two", "port": 81}), json!({"host": "one", "port": 80})]),
    ] {
        let items = session.items(version);
        assert_eq!([items[0]["spec"].clone(), items[1]["spec"].clone()], expected);
    }
    // A write stores the object in the new version, also when nothing else changes.
    let before = session.get(&format!("{V2}/old")).success();
    let after = session.merge(&format!("{V2}/old"), &json!({})).success();
    assert_ne!(before["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    let again = session.merge(&format!("{V2}/old"), &json!({})).success();
    assert_eq!(again["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    // Without a webhook, fields that the other version does not have are not shown.
    drop(session.merge(DEFINITION, &json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}})).success());
    assert_eq!(spec(session, format!("{V2}/old")), json!({"host": "one", "port": 80}));
    assert_eq!(spec(session, format!("{V1}/old")), json!({}));
}

#[test]
fn b07_namespaces_and_definitions_are_deleted_while_the_webhook_is_down() {
    let mut stage = Stage::new();
    let Stage { session, .. } = &mut stage;
    drop(session.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).success());
    for path in [V1.to_owned(), V1.replace("default", "team")] {
        drop(session.post(&path, &v1("a", "one:80")).success());
    }
    // Nothing listens there any more.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|all| all.local_addr()).expect("a port").port();
    let config = json!({"url": format!("https://127.0.0.1:{port}/convert")});
    let webhook = json!({"clientConfig": config, "conversionReviewVersions": ["v1", "v1beta1"]});
    let mut definition = session.get(DEFINITION).success();
    definition["spec"]["conversion"]["webhook"] = webhook;
    drop(session.put(DEFINITION, &definition).success());
    for path in [format!("{V2}/a"), V2.to_owned()] {
        let message = session.get(&path).refused(500);
        let start = "conversion webhook for example.com/v1, Kind=Server failed: Post ";
        assert!(message.starts_with(start) && message.ends_with("connect: connection refused"), "{message}");
    }
    drop(session.post(V2, &v2("b", "two", 81)).refused(500));
    drop(session.delete(&format!("{V2}/a")).refused(500));
    assert_eq!(session.names(V1), ["a"], "the stored version needs no webhook");
    let gone = |kind: &str, _: &Value| kind == "DELETED";
    let now = text(&session.get(V1).success(), "/metadata/resourceVersion").to_owned();
    drop(session.delete("/api/v1/namespaces/team").success());
    let query = format!("&fieldSelector=metadata.name=team&resourceVersion={now}");
    session.watch("/api/v1/namespaces", &query).until(gone);
    drop(session.delete(DEFINITION).success());
    let query = format!("&fieldSelector=metadata.name=servers.example.com&resourceVersion={now}");
    session.watch(DEFINITIONS, &query).until(gone);
    assert!(!session.names(DEFINITIONS).contains(&"servers.example.com".to_owned()));
}

#[test]
fn b07_wrong_responses_of_a_conversion_webhook_are_refused() {
    let mut stage = Stage::new();
    drop(stage.session.post(V1, &v1("a", "one:80")).success());
    let of = "conversion webhook for example.com/v1, Kind=Server ";
    let cases: [(Edit, &str); 13] = [
        (|answer| answer["http"] = "down".into(), "failed: the server is currently unable to handle the request"),
        (|answer| answer["http"] = "redirect".into(), "failed: the server responded with the status code 302"),
        (|answer| answer["http"] = "large".into(), "failed: Post \"https://127.0.0.1:"),
        (|answer| answer["http"] = "deep".into(), "failed: couldn't get version/kind; json parse error: "),
        (|answer| *answer = json!([]), "failed: "),
        (|answer| answer["response"]["uid"] = "other".into(), "failed: expected response.uid="),
        (|answer| answer["response"]["result"] = json!({"status": "Failure", "message": "no"}), "failed: no"),
        (|answer| answer["response"]["convertedObjects"] = json!([]), "returned 0 objects, expected 1"),
        (
            |answer| answer["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v1".into(),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v1)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["kind"] = "Other".into(),
            "returned invalid object at index 0: invalid kind (expected Server, received Other)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
            "returned invalid object: must have the same name: a != b",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["uid"] = "b".into(),
            "returned invalid object: must have the same UID: ",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"-": "x"}),
            "returned invalid metadata: metadata.labels: Invalid value: \"-\": ",
        ),
    ];
    for (fault, expected) in cases {
        stage.set(Some(fault));
        let message = stage.session.get(&format!("{V2}/a")).refused(500);
        assert!(message.starts_with(&format!("{of}{expected}")), "{expected}: {message}");
        assert!(message.len() < 3000, "{}", message.len());
    }
    // Of the metadata, only labels and annotations are taken over.
    stage.set(Some(|answer| {
        let metadata = &mut answer["response"]["convertedObjects"][0]["metadata"];
        metadata["labels"] = json!({"from": "webhook"});
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
        metadata["finalizers"] = json!(["example.com/never"]);
    }));
    let read = stage.session.get(&format!("{V2}/a")).success();
    assert_eq!(read["metadata"]["labels"], json!({"from": "webhook"}));
    assert_eq!((read["metadata"].get("ownerReferences"), read["metadata"].get("finalizers")), (None, None));
    assert_eq!(stage.session.names(&format!("{V2}?labelSelector=from%3Dwebhook")), ["a"]);
    assert_eq!(stage.session.names(&format!("{V1}?labelSelector=from%3Dwebhook")), Vec::<String>::new());
}
