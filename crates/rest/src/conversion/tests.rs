use std::sync::atomic::{AtomicUsize, Ordering};

use api::custom::Catalog;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use serde_json::json;
use store::{Key, Table};

use super::*;
use crate::webhooks::CallError;

/// Versions v1 (stored) and v2, whose field has another name.
fn definition() -> Value {
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"},
            "size": {"type": "string", "default": format!("of {name}")}}});
        json!({"name": name, "served": true, "storage": name == "v1",
               "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names, "versions": [version("v1", "old"), version("v2", "new")],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": "https://hooks.example.com/convert", "caBundle": "Cg=="}, "conversionReviewVersions": ["v1"]}},
        },
        "status": {
            "acceptedNames": names,
            "conditions": [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}],
        },
    })
}

/// Renames the field, and keeps the requests.
#[derive(Default)]
struct Renames {
    calls: Mutex<Vec<Value>>,
    /// How many calls run, and the most that ran at the same time.
    running: AtomicUsize,
    most: AtomicUsize,
    fails: bool,
}

impl Caller for Renames {
    fn post<'a>(
        &'a self,
        target: &'a Target,
        body: Bytes,
        within: Duration,
    ) -> BoxFuture<'a, Result<Bytes, CallError>> {
        assert_eq!((target.host().as_str(), within), ("hooks.example.com", TIMEOUT));
        assert!(target.authorities.is_empty(), "white space is no CA");
        async move {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(running, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            if self.fails {
                return Err(CallError::Exchange("EOF".to_owned()));
            }
            let review: Value = serde_json::from_slice(&body).expect("JSON");
            let request = review.at("request").clone();
            self.calls.lock().push(request.clone());
            let desired = request.text("desiredAPIVersion");
            let (from, to) = if desired == "example.com/v2" { ("old", "new") } else { ("new", "old") };
            let converted: Vec<Value> = request
                .items("objects")
                .iter()
                .cloned()
                .map(|mut object| {
                    object.put("apiVersion", desired);
                    let value = object["spec"].drop_path(from);
                    object["spec"].put(to, value);
                    object["spec"].put("unknown", true);
                    object
                })
                .collect();
            let response =
                json!({"uid": request.at("uid"), "result": {"status": "Success"}, "convertedObjects": converted});
            let kind = review.at("kind");
            Ok(json!({"kind": kind, "apiVersion": review.at("apiVersion"), "response": response}).to_string().into())
        }
        .boxed()
    }
}

struct Fixture {
    webhook: Arc<Renames>,
    converter: Converter,
    catalog: Catalog,
}

impl Fixture {
    fn new(fails: bool) -> Self {
        let webhook = Arc::new(Renames { fails, ..Renames::default() });
        let mut catalog = Catalog::default();
        catalog.apply("widgets.example.com", Some(&definition()), 5);
        Self { converter: Converter::new(webhook.clone()), webhook, catalog }
    }

    fn kind(&self, version: &str) -> &'static Kind {
        self.catalog.kinds().find("example.com", version, "widgets").expect("a kind")
    }

    /// How many objects each call had.
    fn calls(&self) -> Vec<usize> {
        self.webhook.calls.lock().iter().map(|request| request.items("objects").len()).collect()
    }
}

/// An object as it is stored, in a version.
fn entry(version: &str, name: &str, spec: &Value, modified: u64) -> Arc<Entry> {
    let object = json!({"apiVersion": format!("example.com/{version}"), "spec": spec,
        "metadata": {"name": name, "namespace": "n", "labels": {"app": name}}});
    let key = Key::new(Table::named("example.com/widgets"), format!("n/{name}"));
    let value = object::encode_versioned(&object);
    Arc::new(Entry { key, created: 6, modified, expires: None, value, facts: Arc::default() })
}

fn specs(entries: &[Arc<Entry>]) -> Vec<Value> {
    entries.iter().map(|entry| object::decode_bare(&entry.value)["spec"].clone()).collect()
}

#[tokio::test]
async fn a_list_is_converted_in_one_call_without_what_has_the_version_already() {
    let fixture = Fixture::new(false);
    let entries = vec![
        entry("v1", "a", &json!({"old": "1", "dropped": 1}), 7),
        entry("v2", "b", &json!({"new": "2"}), 8),
        entry("v1", "c", &json!({"old": "3"}), 9),
    ];
    let kind = fixture.kind("v2");
    let shown = fixture.converter.entries(kind, entries.clone()).await.expect("converted");
    // Defaults are those of the stored version; the one in the middle is shown as any stored object.
    assert_eq!(
        specs(&shown),
        [json!({"new": "1", "size": "of v1"}), json!({"new": "2"}), json!({"new": "3", "size": "of v1"})]
    );
    assert_eq!(fixture.calls(), [2]);
    assert_eq!(shown[0].facts.label("app"), Some("a"));
    assert!(!kind.reshapes(&shown[0].value, 7) && kind.reshapes(&shown[1].value, 8));
    let sent = fixture.webhook.calls.lock()[0].items("objects")[0].clone();
    assert_eq!((sent.text("kind"), sent.text("apiVersion")), ("Widget", "example.com/v1"));
    assert_eq!(sent["spec"], json!({"old": "1", "size": "of v1"}));
    let again = fixture.converter.entries(kind, shown.clone()).await.expect("converted");
    assert_eq!((again, fixture.calls()), (shown, vec![2]), "what was converted is not converted again");
    drop(fixture.converter.entries(kind, entries).await.expect("converted"));
    assert_eq!(fixture.calls(), [2], "unchanged objects are cached");
    drop(fixture.converter.entry(kind, entry("v1", "a", &json!({"old": "4"}), 12)).await.expect("converted"));
    assert_eq!(fixture.calls(), [2, 1], "changed ones are not");
}

/// Earlier releases stored objects without their version.
#[tokio::test]
async fn an_object_without_a_version_has_the_first_one() {
    let mut fixture = Fixture::new(false);
    let mut switched = definition();
    switched["status"]["storedVersions"] = json!(["v1", "v2"]);
    for index in 0_usize..2 {
        switched["spec"]["versions"][index]["storage"] = (index == 1).into();
    }
    fixture.catalog.apply("widgets.example.com", Some(&switched), 6);
    let mut stored = Entry::clone(&entry("v1", "a", &json!({"old": "1"}), 7));
    stored.value = object::encode(&object::decode_bare(&stored.value));
    let shown = fixture.converter.entry(fixture.kind("v2"), Arc::new(stored.clone())).await.expect("converted");
    assert_eq!(specs(&[shown]), [json!({"new": "1", "size": "of v1"})]);
    let shown = fixture.converter.entry(fixture.kind("v1"), Arc::new(stored)).await.expect("as it is");
    assert_eq!((specs(&[shown]), fixture.calls()), (vec![json!({"old": "1"})], vec![1]));
}

#[tokio::test]
async fn nothing_is_called_for_the_stored_version_and_for_other_kinds() {
    let fixture = Fixture::new(true);
    let stored = entry("v1", "a", &json!({"old": "1"}), 7);
    assert_eq!(fixture.converter.entry(fixture.kind("v1"), stored.clone()).await.expect("as it is"), stored);
    let config_map = &api::kinds::configmap::KIND;
    assert!(!applies(config_map) && applies(fixture.kind("v1")));
    assert_eq!(fixture.converter.entry(config_map, stored.clone()).await.expect("as it is"), stored);
    let object =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"old": "1"}});
    assert_eq!(fixture.converter.to_storage(fixture.kind("v1"), &object).await.expect("as it is"), object);
}

#[tokio::test]
async fn objects_are_stored_in_the_storage_version() {
    let fixture = Fixture::new(false);
    let kind = fixture.kind("v2");
    let object = json!({"metadata": {"name": "a", "namespace": "n", "resourceVersion": "7"}, "spec": {"new": "1"}});
    let stored = fixture.converter.to_storage(kind, &object).await.expect("converted");
    assert_eq!(stored.text("apiVersion"), "example.com/v1");
    assert_eq!((&stored["spec"], stored.has("metadata.resourceVersion")), (&json!({"old": "1"}), false));
    let written = Entry { value: kind.encode(&stored), ..Entry::clone(&entry("v1", "a", &json!({}), 7)) };
    let shown = fixture.converter.written(kind, written).await.expect("converted");
    assert_eq!(object::decode_bare(&shown.value)["spec"]["new"], "1");
}

#[tokio::test]
async fn a_failure_is_an_error_with_the_message_of_the_original() {
    let fixture = Fixture::new(true);
    let failed =
        fixture.converter.entry(fixture.kind("v2"), entry("v1", "a", &json!({}), 7)).await.expect_err("refused");
    assert_eq!((failed.code, failed.reason), (500, None));
    assert_eq!(failed.message, "conversion webhook for example.com/v1, Kind=Widget failed: EOF");
    let object = json!({"metadata": {"name": "a"}});
    let failed = fixture.converter.to_storage(fixture.kind("v2"), &object).await.expect_err("refused");
    assert_eq!(failed.message, "conversion webhook for example.com/v2, Kind=Widget failed: EOF");
    let gone = fixture.converter.entry(fixture.kind("v2"), entry("v0", "a", &json!({}), 7)).await.expect_err("refused");
    assert_eq!(gone.message, "request to convert CR from an invalid group/version: example.com/v0");
}

#[tokio::test]
async fn large_lists_are_converted_in_several_calls() {
    let fixture = Fixture::new(false);
    let large = "x".repeat(BATCH / 3);
    let entries = (0..7).map(|index| entry("v1", &format!("w{index}"), &json!({"old": large}), 7 + index)).collect();
    let shown = fixture.converter.entries(fixture.kind("v2"), entries).await.expect("converted");
    assert_eq!(fixture.calls(), [2, 2, 2, 1]);
    assert!(specs(&shown).iter().all(|spec| spec.text("new").len() == BATCH / 3));
}

#[tokio::test]
async fn calls_at_the_same_time_are_limited() {
    let fixture = Fixture::new(false);
    let kind = fixture.kind("v2");
    let many =
        (0..50).map(|index| fixture.converter.entry(kind, entry("v1", &format!("w{index}"), &json!({}), 7 + index)));
    assert!(join_all(many).await.iter().all(Result::is_ok));
    assert_eq!(fixture.webhook.most.load(Ordering::SeqCst), MAX_CALLS);
    let same = (0..50).map(|_| fixture.converter.entry(kind, entry("v1", "same", &json!({}), 99)));
    assert!(join_all(same).await.iter().all(Result::is_ok));
    assert!(fixture.calls().len() <= 50 + MAX_CALLS, "the others find what was converted while they waited");
}

#[test]
fn batches_are_limited_by_size() {
    let sizes = [BATCH - 10, 10, 1, 2 * BATCH, 5];
    assert_eq!(batches(&[0, 1, 2, 3, 4], |index| sizes[index]), [vec![0, 1], vec![2], vec![3], vec![4]]);
    assert_eq!(batches(&[], |_| 0), Vec::<Vec<usize>>::new());
}
