//! Objects in memory as a source of watches, for tests and tools that have no API server.
//!
//! Every watch gets a consistent list and then every change, in order, through its selection.

use std::collections::BTreeMap;

use api::kind::Kind;
use api::object;
use api::value::ValueExt as _;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::watch::{Event, Object, Selection, Source, Watch, WatchSender};

/// Table, namespace and name.
type Key = (&'static str, String, String);

/// See the module.
#[derive(Default)]
pub struct Memory(Mutex<State>);

#[derive(Default)]
struct State {
    objects: BTreeMap<Key, Value>,
    watches: Vec<mpsc::UnboundedSender<Change>>,
}

/// An object before and after a change.
#[derive(Clone)]
struct Change {
    key: Key,
    before: Option<Value>,
    after: Option<Value>,
}

impl Memory {
    /// Creates or replaces an object.
    pub fn put(&self, kind: &'static Kind, object: Value) {
        let key = (kind.table, object.text("metadata.namespace").to_owned(), object.text("metadata.name").to_owned());
        self.0.lock().change(key, Some(object));
    }

    /// Deletes an object, if it exists.
    pub fn delete(&self, kind: &'static Kind, namespace: &str, name: &str) {
        self.0.lock().change((kind.table, namespace.to_owned(), name.to_owned()), None);
    }

    /// Reads an object.
    #[must_use]
    pub fn get(&self, kind: &'static Kind, namespace: &str, name: &str) -> Option<Value> {
        self.0.lock().objects.get(&(kind.table, namespace.to_owned(), name.to_owned())).cloned()
    }
}

impl State {
    fn change(&mut self, key: Key, after: Option<Value>) {
        let before = match &after {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(&key),
        };
        let change = Change { key, before, after };
        self.watches.retain(|watch| watch.send(change.clone()).is_ok());
    }
}

impl Source for Memory {
    fn watch(&self, selection: Selection) -> Watch {
        let (sender, changes) = mpsc::unbounded_channel();
        let mut state = self.0.lock();
        let list: Vec<(Key, Value)> = state.objects.iter().map(|(key, object)| (key.clone(), object.clone())).collect();
        state.watches.push(sender);
        drop(state);
        Watch::run(&selection.clone(), |out| run(selection, list, changes, out))
    }
}

async fn run(
    selection: Selection,
    list: Vec<(Key, Value)>,
    mut changes: mpsc::UnboundedReceiver<Change>,
    out: WatchSender,
) {
    let initial = list.iter().filter_map(|(key, object)| selected(&selection, key, object)).map(Event::InitApply);
    for event in [Event::Init].into_iter().chain(initial).chain([Event::InitDone]) {
        if !out.send(event).await {
            return;
        }
    }
    while let Some(Change { key, before, after }) = changes.recv().await {
        let find = |object: Option<Value>| object.and_then(|object| selected(&selection, &key, &object));
        let event = find(after).map(Event::Apply).or_else(|| find(before).map(Event::Delete));
        if let Some(event) = event
            && !out.send(event).await
        {
            return;
        }
    }
}

/// The object in stored form, if the selection contains it.
fn selected(selection: &Selection, (table, namespace, name): &Key, object: &Value) -> Option<Object> {
    let within = selection.namespace().is_empty() || selection.namespace() == namespace;
    let matches = *table == selection.kind.table
        && within
        && selection.selector().matches(&selection.kind.facts(object), namespace, name);
    matches.then(|| Object {
        namespace: namespace.as_str().into(),
        name: name.as_str().into(),
        value: object::encode(object),
    })
}

#[cfg(test)]
mod tests {
    use api::kinds::service;
    use serde_json::json;

    use super::*;

    fn web(label: &str) -> Value {
        json!({"metadata": {"name": "web", "namespace": "a", "labels": {"tier": label}}})
    }

    #[tokio::test]
    async fn an_object_that_leaves_the_selection_is_deleted() {
        let memory = Memory::default();
        memory.put(&service::KIND, web("front"));
        let selection = Selection::all(&service::KIND).within("a").selected("tier=front", "").expect("a selector");
        let mut watch = memory.watch(selection);
        memory.put(&service::KIND, web("back"));
        memory.put(&service::KIND, web("front"));
        memory.delete(&service::KIND, "a", "web");
        let mut events = Vec::new();
        for _ in 0..6 {
            events.push(format!("{:?}", watch.next().await));
        }
        let wanted = ["Init", "InitApply(a/web)", "InitDone", "Delete(a/web)", "Apply(a/web)", "Delete(a/web)"];
        assert_eq!(events, wanted);
        assert_eq!(memory.get(&service::KIND, "a", "web"), None);
    }
}
