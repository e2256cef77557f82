//! The fixture as a watch source, and a server that follows it.

use std::sync::Arc;

use api::kind::Kind;
use api::kinds::{endpointslice, namespace, pod, service};
use client::memory::Memory;
use dns::informers::Informers;
use dns::metrics::Metrics;
use dns::snapshot::ZoneSnapshot;
use dns::zone::Config;
use serde_json::Value;

use crate::corpus::file;

/// Objects and their watches.
pub(crate) struct Fixture {
    objects: Memory,
    pub(crate) snapshot: Arc<ZoneSnapshot>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) informers: Informers,
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

/// Applies a JSON merge patch.
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

impl Fixture {
    /// With the complete fixture and a ready snapshot.
    pub(crate) async fn new(config: Config) -> Self {
        let snapshot = ZoneSnapshot::new(config).expect("zones");
        let metrics = Metrics::new(&snapshot.zones, "dns://:53");
        let objects = Memory::default();
        for item in file("objects.json")["items"].as_array().expect("items") {
            objects.put(kind_of(item["kind"].as_str().expect("a kind")), item.clone());
        }
        let informers = Informers::start(&objects, &snapshot, &metrics).expect("selectors");
        let mut updates = snapshot.updates();
        while !snapshot.is_ready() {
            updates.changed().await.expect("the snapshot is here");
        }
        Self { objects, snapshot, metrics, informers }
    }

    /// Applies one change of a dynamic case.
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
