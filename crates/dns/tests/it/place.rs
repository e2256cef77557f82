//! The fixture as a source of watches, and a server that follows it.

use std::sync::Arc;

use api::kind::Kind;
use api::kinds::{endpointslice, namespace, pod, service};
use client::memory::Memory;
use dns::book::Book;
use dns::inputs::Inputs;
use dns::metrics::Metrics;
use dns::zone::Config;
use serde_json::Value;

use crate::corpus::file;

/// The objects, the watches on them, and what they know.
pub(crate) struct Place {
    objects: Memory,
    pub(crate) book: Arc<Book>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) inputs: Inputs,
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
        let book = Book::new(config).expect("zones");
        let metrics = Metrics::new(&book.zones, "dns://:53");
        let objects = Memory::default();
        for item in file("objects.json")["items"].as_array().expect("items") {
            objects.put(kind_of(item["kind"].as_str().expect("a kind")), item.clone());
        }
        let inputs = Inputs::start(&objects, &book, &metrics).expect("selectors");
        let mut updates = book.updates();
        while !book.is_ready() {
            updates.changed().await.expect("the book is here");
        }
        Self { objects, book, metrics, inputs }
    }

    /// Makes one change of a dynamic case.
    pub(crate) fn apply(&self, change: &Value) {
        let kind = kind_of(change["kind"].as_str().expect("a kind"));
        let (namespace, name) = (change["namespace"].as_str().unwrap_or_default(), change["name"].as_str());
        let name = name.expect("a name");
        match change["op"].as_str().expect("an operation") {
            "create" | "replace" => self.objects.put(kind, change["object"].clone()),
            "patch" => {
                let mut object = self.objects.get(kind, namespace, name).expect("it is there");
                merge(&mut object, &change["patch"]);
                self.objects.put(kind, object);
            }
            "delete" => self.objects.delete(kind, namespace, name),
            other => panic!("operation {other}"),
        }
    }
}
