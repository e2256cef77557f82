//! The store of this process as a source: lists, changes, selectors, compacted history, slow listeners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::kind::Kind;
use api::kinds::{by_table, events_event, node, service};
use api::object;
use api::value::ValueExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use bytes::Bytes;
use client::watch::KnownKeys;
use store::{Embedded, Key, Options, Retention, Store, Table, Txn};

struct Fixture {
    store: Arc<Embedded>,
    _dir: TempDir,
}

impl Fixture {
    fn new(retention: Retention) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let index = |table: &str, value: &[u8]| {
            by_table(table).map(|kind| kind.facts(&object::decode_bare(value))).unwrap_or_default()
        };
        let store = Embedded::open(dir.path(), index, Options { retention, ..Options::default() }).expect("a store");
        Self { store: Arc::new(store), _dir: dir }
    }

    fn watch(&self, what: Selection) -> Watch {
        Local::new(self.store.clone()).watch(what)
    }

    async fn put(&self, kind: &'static Kind, object: &Value) {
        let txn = Txn::new().put(key(kind, object), object::encode(object), Arc::new(kind.facts(object)));
        self.store.commit(txn).await.expect("committed");
    }

    async fn delete(&self, kind: &'static Kind, object: &Value) {
        self.store.commit(Txn::new().delete(key(kind, object))).await.expect("committed");
    }
}

fn key(kind: &Kind, object: &Value) -> Key {
    let (namespace, name) = (object.text("metadata.namespace"), object.text("metadata.name"));
    let name = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
    Key::new(Table::named(kind.table), name)
}

fn thing(name: &str, label: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": label}}, "spec": {"type": "ClusterIP"}})
}

/// The next events in short form: type and key.
async fn heard(watching: &mut Watch, count: usize) -> Vec<String> {
    let mut out = Vec::new();
    for _ in 0..count {
        let event = tokio::time::timeout(Duration::from_secs(20), watching.next()).await.expect("an event in time");
        out.push(format!("{event:?}"));
    }
    out
}

#[tokio::test]
async fn a_watch_lists_first_and_then_sends_changes() {
    let fixture = Fixture::new(Retention::default());
    fixture.put(&service::KIND, &thing("a", "x")).await;
    let mut watching = fixture.watch(Selection::all(&service::KIND));
    assert_eq!(heard(&mut watching, 3).await, ["Init", "InitApply(default/a)", "InitDone"]);
    let watched = watching.status();
    assert!(watched.is_synced() && watched.health().lists == 1, "{watched:?}");
    fixture.put(&service::KIND, &thing("b", "x")).await;
    fixture.put(&service::KIND, &thing("a", "y")).await;
    fixture.delete(&service::KIND, &thing("b", "x")).await;
    assert_eq!(heard(&mut watching, 3).await, ["Apply(default/b)", "Apply(default/a)", "Delete(default/b)"]);
    assert!(watching.try_next().is_none());
    fixture.put(&node::KIND, &json!({"metadata": {"name": "n"}})).await;
    let mut nodes = fixture.watch(Selection::all(&node::KIND).named("n").expect("a name"));
    assert_eq!(heard(&mut nodes, 3).await, ["Init", "InitApply(n)", "InitDone"]);
}

#[tokio::test]
async fn values_are_shared_with_the_store() {
    let fixture = Fixture::new(Retention::default());
    fixture.put(&service::KIND, &thing("a", "x")).await;
    let mut watching = fixture.watch(Selection::all(&service::KIND));
    assert_eq!(watching.next().await, Event::Init);
    let Event::InitApply(object) = watching.next().await else { panic!("the object") };
    let entry = fixture.store.get(&key(&service::KIND, &thing("a", "x"))).expect("stored");
    assert!(std::ptr::eq(object.value.as_ptr(), entry.value.as_ptr()));
    assert_eq!((&*object.namespace, &*object.name), ("default", "a"));
}

#[tokio::test]
async fn entering_a_selection_is_an_addition_and_leaving_it_a_deletion() {
    let fixture = Fixture::new(Retention::default());
    fixture.put(&service::KIND, &thing("out", "other")).await;
    fixture.put(&service::KIND, &thing("in", "mine")).await;
    let what = Selection::all(&service::KIND).within("default").selected("app=mine", "").expect("a selector");
    assert_eq!(what.to_string(), "services in default labelled app=mine");
    let mut watching = fixture.watch(what);
    assert_eq!(heard(&mut watching, 3).await, ["Init", "InitApply(default/in)", "InitDone"]);
    fixture.put(&service::KIND, &thing("out", "mine")).await;
    fixture.put(&service::KIND, &thing("in", "other")).await;
    fixture.put(&service::KIND, &thing("in", "another")).await;
    fixture.delete(&service::KIND, &thing("in", "another")).await;
    fixture.delete(&service::KIND, &thing("out", "mine")).await;
    let mut elsewhere = thing("in", "mine");
    elsewhere.put("metadata.namespace", "elsewhere");
    fixture.put(&service::KIND, &elsewhere).await;
    fixture.put(&service::KIND, &thing("last", "mine")).await;
    let changes = heard(&mut watching, 4).await;
    assert_eq!(changes, ["Apply(default/out)", "Delete(default/in)", "Delete(default/out)", "Apply(default/last)"]);
}

#[test]
fn selectors_are_checked_when_they_are_written() {
    assert!(Selection::all(&service::KIND).selected("a in", "").is_err());
    assert!(Selection::all(&service::KIND).selected("", "spec.nothing=1").is_err());
    assert!(Selection::all(&service::KIND).named("a,b").is_err());
}

#[tokio::test]
async fn a_kind_that_is_stored_in_another_form_is_shown_in_its_own() {
    let fixture = Fixture::new(Retention::default());
    let event = json!({"metadata": {"name": "e", "namespace": "default"}, "message": "m", "reason": "r", "type": "Normal",
        "involvedObject": {"kind": "Service", "name": "a"}});
    fixture.put(&events_event::KIND, &event).await;
    let mut watching = fixture.watch(Selection::all(&events_event::KIND));
    assert_eq!(watching.next().await, Event::Init);
    let Event::InitApply(object) = watching.next().await else { panic!("the object") };
    let shown = object::decode_bare(&object.value);
    assert_eq!((shown.text("note"), shown.text("regarding.name")), ("m", "a"), "{shown}");
    assert!(object.value.starts_with(b"{\"metadata\":{") && shown.get("kind").is_none(), "{shown}");
}

#[tokio::test]
async fn a_listener_that_is_too_slow_gets_a_new_list() {
    let retention = Retention { age: Duration::ZERO, min_events: 2, max_events: 2, max_bytes: 1 };
    let fixture = Fixture::new(retention);
    let mut watching = fixture.watch(Selection::all(&service::KIND));
    let watched = watching.status();
    let mut known = KnownKeys::default();
    let mut objects: BTreeMap<String, Value> = BTreeMap::new();
    // More changes than the queue and the history hold together, while the listener does not read.
    for round in 0..500 {
        let object = thing(&format!("s{}", round % 40), &format!("l{round}"));
        if round % 7 == 3 {
            fixture.delete(&service::KIND, &object).await;
        } else {
            fixture.put(&service::KIND, &object).await;
        }
    }
    fixture.put(&service::KIND, &thing("last", "x")).await;
    let mut whole = false;
    while !(whole && objects.contains_key("default/last")) {
        let event = tokio::time::timeout(Duration::from_secs(20), watching.next()).await.expect("it goes on");
        whole = !matches!(event, Event::Init | Event::InitApply(_));
        for gone in known.apply(&event) {
            objects.remove(&*gone);
        }
        match event {
            Event::InitApply(object) | Event::Apply(object) => {
                objects.insert(object.key(), object::decode_bare(&object.value));
            }
            Event::Delete(object) => {
                objects.remove(&object.key());
            }
            Event::Init | Event::InitDone => {}
        }
    }
    assert!(known.is_complete() && watched.is_synced(), "{watched:?}");
    let range = fixture.store.range(Table::named(service::KIND.table), "", None).expect("the present");
    let stored = range.entries.iter().map(|entry| (entry.key.name.to_string(), object::decode_bare(&entry.value)));
    assert_eq!(objects, stored.collect());
    let health = watched.health();
    assert!(health.lists > 1 && health.failures == health.lists - 1, "{health:?}");
}

#[tokio::test]
async fn a_watch_ends_with_its_listener() {
    let fixture = Fixture::new(Retention::default());
    let mut watching = fixture.watch(Selection::all(&service::KIND));
    heard(&mut watching, 2).await;
    let mut watched = watching.status();
    assert!(watched.is_synced(), "{watched:?}");
    drop(watching);
    let end = async { while watched.changed().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(20), end).await.expect("it ends");
}

#[test]
fn a_relist_reports_deleted_objects() {
    let object = |name: &str| Object { namespace: Box::default(), name: name.into(), value: Bytes::new() };
    let mut known = KnownKeys::default();
    let mut follow = |events: &[Event]| events.iter().flat_map(|event| known.apply(event)).collect::<Vec<_>>();
    let list = |names: &[&str]| {
        let items = names.iter().map(|name| Event::InitApply(object(name)));
        [Event::Init].into_iter().chain(items).collect::<Vec<_>>()
    };
    assert!(follow(&list(&["broken-off"])).is_empty());
    assert!(follow(&list(&["a", "b"])).is_empty());
    assert_eq!(follow(&[Event::InitDone]), ["broken-off".into()]);
    assert!(follow(&[Event::Apply(object("c")), Event::Delete(object("a"))]).is_empty());
    assert!(follow(&list(&["c", "d"])).is_empty());
    assert_eq!(follow(&[Event::InitDone]), ["b".into()]);
}
