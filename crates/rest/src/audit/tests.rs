//! Requests from their headers to the lines in the log.

use std::net::IpAddr;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::*;
use crate::auth::User;
use crate::authz::Decision;
use crate::query;
use crate::reply::Reply;
use crate::request::RequestInfo;
use crate::route::{self, Route};

/// A log in memory that can be made to fail.
#[derive(Clone, Default)]
struct Memory(Arc<(Mutex<Log>, Condvar)>);

#[derive(Default)]
struct Log {
    accepted: Vec<u8>,
    text: Vec<u8>,
    is_full: bool,
    failures: usize,
}

impl Memory {
    fn full(&self, is_full: bool) {
        self.0.0.lock().is_full = is_full;
    }

    /// Blocks until a write has failed.
    fn wait_for_failure(&self) {
        let mut log = self.0.0.lock();
        self.0.1.wait_while(&mut log, |log| log.failures == 0);
    }

    fn events(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.0.lock().text.clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Output for Memory {
    fn has_room(&self, _: usize) -> bool {
        true
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.0.lock().accepted.extend_from_slice(line);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut log = self.0.0.lock();
        if log.is_full {
            log.failures += 1;
            self.0.1.notify_all();
            return Err(io::ErrorKind::StorageFull.into());
        }
        let accepted = std::mem::take(&mut log.accepted);
        log.text.extend(accepted);
        Ok(())
    }
}

/// A log with a policy of these rules.
fn log(rules: &str, mode: Mode, limits: Limits) -> (Arc<Audit>, Memory) {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    let (policy, _) = Policy::parse(text.as_bytes()).unwrap();
    let memory = Memory::default();
    (Arc::new(Audit::start(policy, memory.clone(), mode, limits).unwrap()), memory)
}

fn usual(rules: &str) -> (Arc<Audit>, Memory) {
    log(rules, Mode::Blocking, LIMITS)
}

fn request(method: &str, uri: &str) -> request::Parts {
    let request = http::Request::builder().method(method).uri(uri);
    let request = request.header("audit-id", "id-1").header("user-agent", "curl/8").header("x-real-ip", "1.2.3.4");
    request.body(()).unwrap().into_parts().0
}

fn recorder<'a>(audit: &'a Arc<Audit>, parts: &'a request::Parts) -> Recorder<'a> {
    Recorder::new(Some(audit), parts, IpAddr::from([10, 0, 0, 9]), Timestamp::now())
}

/// Begins as alice.
async fn begin(recorder: &Recorder<'_>, parts: &request::Parts) -> Result<(), Reply> {
    let alice = User { name: "alice".into(), groups: vec!["dev".into()], ..User::default() };
    recorder.begin(&info(parts), Some(&Arc::new(alice))).await
}

fn info(parts: &request::Parts) -> RequestInfo<'_> {
    RequestInfo::of(&parts.method, parts.uri.path(), &query::parse(parts.uri.query().unwrap_or_default()))
}

fn body(recorder: &Recorder<'_>, parts: &request::Parts, verb: &str, body: &Value) {
    let Route::Resource(target) = route::parse(parts.uri.path(), api::custom::Kinds::fixed()) else {
        panic!("a resource")
    };
    recorder.body(&target, verb, &Bytes::from(body.to_string()));
}

/// `STAGE CODE` of each event.
fn stages(events: &[Value]) -> Vec<String> {
    let code = |event: &Value| event["responseStatus"]["code"].to_string();
    events.iter().map(|event| format!("{} {}", event["stage"].as_str().unwrap(), code(event))).collect()
}

#[tokio::test]
async fn a_write_is_received_and_completed() {
    let (audit, memory) = usual("rules: [{level: Metadata}]");
    let parts = request("POST", "/api/v1/namespaces/a/secrets?dryRun=All");
    let recorder = recorder(&audit, &parts);
    assert!(begin(&recorder, &parts).await.is_ok());
    recorder.decided(&Decision { allowed: true, reason: "because".into() });
    recorder.annotate("x/y", "first");
    recorder.annotate("x/y", "second");
    body(&recorder, &parts, "create", &json!({"metadata": {"name": "s"}, "data": {"password": "aHVudGVyMg=="}}));
    let reply = recorder.responded(Reply::bytes(
        201,
        "application/json",
        r#"{"kind":"Secret","data":{"password":"aHVudGVyMg=="}}"#,
    ));
    assert_eq!(reply.code, 201);
    drop(recorder);
    audit.close().await;
    let events = memory.events();
    assert_eq!(stages(&events), ["RequestReceived null", "ResponseComplete 201"]);
    let received = &events[0];
    assert_eq!(received["objectRef"], json!({"resource": "secrets", "namespace": "a", "apiVersion": "v1"}));
    assert_eq!(received["stageTimestamp"], received["requestReceivedTimestamp"]);
    assert_eq!(received.get("annotations"), None);
    let complete = &events[1];
    assert_eq!(complete["auditID"], "id-1");
    assert_eq!(complete["verb"], "create");
    assert_eq!(complete["user"], json!({"username": "alice", "groups": ["dev"]}));
    assert_eq!(complete["sourceIPs"], json!(["1.2.3.4", "10.0.0.9"]));
    assert_eq!(complete["userAgent"], "curl/8");
    assert_eq!(complete["requestURI"], "/api/v1/namespaces/a/secrets?dryRun=All");
    assert_eq!(
        complete["objectRef"],
        json!({"resource": "secrets", "namespace": "a", "name": "s", "apiVersion": "v1"})
    );
    assert_eq!(complete["responseStatus"], json!({"metadata": {}, "code": 201}));
    let annotations =
        json!({"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": "because", "x/y": "first"});
    assert_eq!(complete["annotations"], annotations);
    assert!(
        events.iter().all(|event| !event.to_string().contains("aHVudGVyMg")),
        "values of Secrets are not in metadata"
    );
}

#[tokio::test]
async fn levels_add_the_objects() {
    for (level, has_request, has_response) in [("Request", true, false), ("RequestResponse", true, true)] {
        let (audit, memory) = usual(&format!("omitStages: [RequestReceived]\nrules: [{{level: {level}}}]"));
        let parts = request("PUT", "/api/v1/namespaces/a/secrets/s");
        let recorder = recorder(&audit, &parts);
        assert!(begin(&recorder, &parts).await.is_ok());
        body(
            &recorder,
            &parts,
            "update",
            &json!({"metadata": {"name": "s", "resourceVersion": "7"}, "data": {"k": "dg=="}}),
        );
        recorder.responded(Reply::bytes(200, "application/json", r#"{"kind":"Secret","data":{"k":"dg=="}}"#));
        drop(recorder);
        audit.close().await;
        let events = memory.events();
        assert_eq!(stages(&events), ["ResponseComplete 200"], "{level}");
        assert_eq!(events[0]["requestObject"]["data"] == json!({"k": "dg=="}), has_request, "{level}");
        assert_eq!(events[0]["responseObject"]["data"] == json!({"k": "dg=="}), has_response, "{level}");
        assert_eq!(events[0]["objectRef"]["resourceVersion"], "7");
    }
}

#[tokio::test]
async fn a_watch_is_complete_when_its_stream_is_gone() {
    let (audit, memory) = usual("rules: [{level: Metadata, omitStages: [RequestReceived]}]");
    let parts = request("GET", "/api/v1/pods?watch=true");
    let recorder = recorder(&audit, &parts);
    assert!(begin(&recorder, &parts).await.is_ok());
    let events = stream::iter(["one", "two"]).map(|text| Bytes::from_static(text.as_bytes())).boxed();
    let reply = recorder.responded(Reply::stream("application/json", events));
    let trail = recorder.trail();
    drop(recorder);
    assert_eq!(reply.body.collect().await.unwrap().to_bytes(), "onetwo");
    assert!(trail.is_some_and(|trail| Arc::strong_count(&trail) == 1), "the body has let go of it");
    audit.close().await;
    assert_eq!(stages(&memory.events()), ["ResponseStarted 200", "ResponseComplete 200"]);
}

#[tokio::test]
async fn requests_without_a_user_are_recorded_once() {
    let (audit, memory) = usual("rules: [{level: None, users: [alice]}, {level: Metadata}]");
    let parts = request("GET", "/api/v1/pods");
    let recorder = recorder(&audit, &parts);
    assert!(recorder.begin(&info(&parts), None).await.is_ok());
    let status = r#"{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
    recorder.responded(Reply::bytes(401, "application/json", status));
    drop(recorder);
    audit.close().await;
    let events = memory.events();
    assert_eq!(stages(&events), ["ResponseStarted 401"]);
    assert_eq!(events[0]["user"], json!({}));
    assert_eq!(events[0]["responseStatus"]["message"], "Unauthorized");
}

#[tokio::test]
async fn a_client_that_leaves_early_is_recorded() {
    let (audit, memory) = usual("rules: [{level: Metadata, omitStages: [RequestReceived]}]");
    for path in ["/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/pods/p/log"] {
        let parts = request("GET", path);
        let recorder = recorder(&audit, &parts);
        assert!(begin(&recorder, &parts).await.is_ok());
    }
    audit.close().await;
    let events = memory.events();
    assert_eq!(stages(&events), ["ResponseComplete 200", "ResponseStarted 200", "ResponseComplete 200"]);
    let status = json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
    assert_eq!(events[0]["responseStatus"], status);
}

#[tokio::test]
async fn a_panic_is_recorded_and_answered() {
    let (audit, memory) = usual("rules: [{level: Metadata, omitStages: [RequestReceived]}]");
    let parts = request("GET", "/api/v1/pods");
    let recorder = recorder(&audit, &parts);
    assert!(begin(&recorder, &parts).await.is_ok());
    let reply = recorder.panicked(&"index out of bounds".to_owned());
    assert_eq!(reply.code, 500);
    drop(recorder);
    audit.close().await;
    let events = memory.events();
    assert_eq!(stages(&events), ["Panic 500"]);
    assert_eq!(events[0]["responseStatus"]["message"], "APIServer panic'd: index out of bounds");
    assert_eq!(events[0]["responseStatus"]["reason"], "InternalError");
}

#[tokio::test]
async fn the_impersonated_user_is_beside_the_user() {
    let (audit, memory) = usual("rules: [{level: Metadata, users: [alice], omitStages: [RequestReceived]}]");
    let parts = request("GET", "/api/v1/pods");
    let recorder = recorder(&audit, &parts);
    assert!(begin(&recorder, &parts).await.is_ok());
    let bob = User { name: "bob".into(), ..User::default() };
    recorder.impersonates(&Arc::new(bob), Some("user-info"));
    recorder.responded(Reply::bytes(200, "application/json", "{}"));
    drop(recorder);
    audit.close().await;
    let event = &memory.events()[0];
    assert_eq!(
        (&event["user"]["username"], &event["impersonatedUser"]),
        (&json!("alice"), &json!({"username": "bob"}))
    );
    assert_eq!(event["authenticationMetadata"], json!({"impersonationConstraint": "impersonate:user-info"}));
}

#[tokio::test]
async fn what_no_rule_matches_is_not_recorded() {
    let (audit, memory) = usual("rules: [{level: Metadata, verbs: [create]}]");
    let parts = request("GET", "/api/v1/pods");
    let recorder = recorder(&audit, &parts);
    assert!(begin(&recorder, &parts).await.is_ok());
    assert!(recorder.trail().is_none());
    recorder.responded(Reply::bytes(200, "application/json", "{}"));
    drop(recorder);
    audit.close().await;
    assert!(memory.events().is_empty());
}

/// Room for one event.
const ONE: Limits = Limits { events: 1, bytes: usize::MAX };

#[tokio::test]
async fn blocking_waits_for_room_and_loses_nothing() {
    let (audit, memory) = log("rules: [{level: Metadata}]", Mode::Blocking, ONE);
    memory.full(true);
    let parts = request("GET", "/api/v1/pods");
    let (first, second) = (recorder(&audit, &parts), recorder(&audit, &parts));
    assert!(begin(&first, &parts).await.is_ok());
    assert!(begin(&second, &parts).now_or_never().is_none(), "there is no room");
    first.responded(Reply::bytes(200, "application/json", "{}"));
    drop(first);
    memory.wait_for_failure();
    memory.full(false);
    assert!(begin(&second, &parts).await.is_ok());
    second.responded(Reply::bytes(404, "application/json", "{}"));
    drop(second);
    audit.close().await;
    let events = memory.events();
    assert_eq!(
        stages(&events),
        ["RequestReceived null", "ResponseComplete 200", "RequestReceived null", "ResponseComplete 404"]
    );
}

#[tokio::test(start_paused = true)]
async fn blocking_refuses_when_there_is_no_room_in_time() {
    let (audit, memory) = log("rules: [{level: Metadata}]", Mode::Blocking, ONE);
    memory.full(true);
    let parts = request("GET", "/api/v1/pods?a=1&b=2");
    let (first, second) = (recorder(&audit, &parts), recorder(&audit, &parts));
    assert!(begin(&first, &parts).await.is_ok());
    let Err(reply) = begin(&second, &parts).await else { panic!("refused") };
    assert_eq!((reply.code, second.trail().is_none()), (500, true));
    let text = reply.body.collect().await.unwrap().to_bytes();
    assert_eq!(text, "Internal Server Error: \"/api/v1/pods?a=1&amp;b=2\": failed to store audit event\n");
    memory.full(false);
}

#[tokio::test]
async fn batch_drops_when_there_is_no_room() {
    let (audit, memory) = log("rules: [{level: Metadata}]", Mode::Batch, ONE);
    memory.full(true);
    let parts = request("GET", "/api/v1/pods");
    for _ in 0..3 {
        let recorder = recorder(&audit, &parts);
        assert!(begin(&recorder, &parts).await.is_ok());
    }
    memory.full(false);
    audit.close().await;
    assert_eq!(stages(&memory.events()), ["RequestReceived null"]);
    let mut registry = prometheus_client::registry::Registry::default();
    audit.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("apiserver_audit_error_total{plugin=\"buffered\"} 5"), "{text}");
    assert!(text.contains("apiserver_audit_event_total 6"), "{text}");
}

#[tokio::test]
async fn strict_handles_nothing_that_is_not_written() {
    let (audit, memory) = log("rules: [{level: Metadata}]", Mode::BlockingStrict, LIMITS);
    let parts = request("GET", "/api/v1/pods");
    let first = recorder(&audit, &parts);
    assert!(begin(&first, &parts).await.is_ok());
    assert_eq!(stages(&memory.events()), ["RequestReceived null"], "it is written before the request is handled");
    drop(first);
    memory.full(true);
    let second = recorder(&audit, &parts);
    assert_eq!(begin(&second, &parts).await.err().map(|reply| reply.code), Some(500));
    let watch = request("GET", "/api/v1/pods?watch=true");
    let third = recorder(&audit, &watch);
    let Err(refused) = begin(&third, &watch).await else { panic!("refused while the log fails") };
    assert_eq!(third.responded(refused).code, 500);
    drop((second, third));
    memory.full(false);
    audit.close().await;
    let events = memory.events();
    let later = events.iter().filter(|event| event["stage"] != "RequestReceived");
    assert_eq!(later.count(), 1, "what was refused has no response on record: {events:?}");
}

#[tokio::test]
async fn a_log_that_fails_does_not_keep_the_server_from_ending() {
    let (audit, memory) = usual("rules: [{level: Metadata}]");
    memory.full(true);
    let parts = request("GET", "/api/v1/pods");
    assert!(begin(&recorder(&audit, &parts), &parts).await.is_ok());
    audit.close().await;
    assert!(memory.events().is_empty());
    assert!(*audit.ended.borrow(), "the writer has given up");
    let late = recorder(&audit, &parts);
    assert!(begin(&late, &parts).await.is_ok(), "events after the end are dropped");
}

#[tokio::test]
async fn a_log_in_a_file() {
    let scratch = crate::pki::scratch::Scratch::new();
    let path = scratch.path().join("audit.log");
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";
    let (policy, _) = Policy::parse(text.as_bytes()).unwrap();
    let options =
        LogOptions { path: Some(path.clone()), max_size: 1, max_backups: 1, max_age_days: 1, compress: false };
    let audit = Arc::new(Audit::open(policy, &options, Mode::default()).unwrap());
    let parts = request("GET", "/api/v1/pods");
    for _ in 0..600 {
        assert!(begin(&recorder(&audit, &parts), &parts).await.is_ok());
    }
    audit.close().await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 1200);
}

#[test]
fn modes_by_name() {
    assert_eq!("batch".parse(), Ok(Mode::Batch));
    assert_eq!("blocking".parse(), Ok(Mode::default()));
    assert_eq!("blocking-strict".parse(), Ok(Mode::BlockingStrict));
    assert!("strict".parse::<Mode>().is_err());
}
