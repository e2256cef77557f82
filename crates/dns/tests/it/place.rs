//! A store with the fixture in it, and a server that follows it.

use std::sync::Arc;

use api::kind::Kind;
use api::kinds::{by_table, endpointslice, namespace, pod, service};
use api::object;
use dns::book::Book;
use dns::inputs::Inputs;
use dns::metrics::Metrics;
use dns::zone::Config;
use serde_json::Value;
use store::source::Local;
use store::{Embedded, Key, Options, Store as _, Table, Txn};

use crate::corpus::file;

/// A store, the watches on it, and what they know.
pub(crate) struct Place {
    store: Arc<Embedded>,
    pub(crate) book: Arc<Book>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) inputs: Inputs,
    _dir: tempfile::TempDir,
}

fn kind_of(name: &str) -> &'static Kind {
    match name {
        "Service" => &service::KIND,
        "EndpointSlice" => &endpointslice::KIND,
        "Namespace" => &namespace::KIND,
        "Pod" => &pod::KIND,
        other => panic!("kind {other}"),
    }
}

/// Applies a merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let target = target.as_object_mut().expect("an object");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl Place {
    /// With the whole fixture, and a book that knows it.
    pub(crate) async fn new(config: Config) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let index = |table: &str, value: &[u8]| {
            by_table(table).map(|kind| kind.facts(&object::decode_bare(value))).unwrap_or_default()
        };
        let store = Arc::new(Embedded::open(dir.path(), index, Options::default()).expect("a store"));
        let book = Book::new(config).expect("zones");
        let metrics = Metrics::new(&book.zones, "dns://:53");
        let source = Local::new(store.clone());
        for item in file("objects.json")["items"].as_array().expect("items") {
            put(&store, item["kind"].as_str().expect("a kind"), item).await;
        }
        let inputs = Inputs::start(&source, &book, &metrics).expect("selectors");
        let mut updates = book.updates();
        while !book.is_ready() {
            updates.changed().await.expect("the book is here");
        }
        Self { store, book, metrics, inputs, _dir: dir }
    }

    /// Makes one change of a dynamic case.
    pub(crate) async fn apply(&self, change: &Value) {
        let kind = change["kind"].as_str().expect("a kind");
        let key = key(kind, change["namespace"].as_str(), change["name"].as_str().expect("a name"));
        match change["op"].as_str().expect("an operation") {
            "create" | "replace" => put(&self.store, kind, &change["object"]).await,
            "patch" => {
                let entry = self.store.get(&key).expect("it is there");
                let mut object = object::decode_bare(&entry.value);
                merge(&mut object, &change["patch"]);
                put(&self.store, kind, &object).await;
            }
            "delete" => {
                self.store.commit(Txn::new().delete(key)).await.expect("committed");
            }
            other => panic!("operation {other}"),
        }
    }
}

fn key(kind: &str, namespace: Option<&str>, name: &str) -> Key {
    let name = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
    Key::new(Table::named(kind_of(kind).table), name)
}

async fn put(store: &Embedded, kind: &str, value: &Value) {
    let metadata = &value["metadata"];
    let key = key(kind, metadata["namespace"].as_str(), metadata["name"].as_str().expect("a name"));
    let facts = Arc::new(kind_of(kind).facts(value));
    store.commit(Txn::new().put(key, object::encode(value), facts)).await.expect("committed");
}
