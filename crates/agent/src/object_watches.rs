//! Watches of the ConfigMaps and Secrets that Pods of this node mount: one watch per object, shared by all Pods that mount it.
//!
//! In: the name of an object. Out: a notification whenever it changes; the watch ends with its last subscriber. Where watching is forbidden
//! there are no notifications, and Pods poll.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use api::kinds;
use client::watch::{Event, Selection, Source, Watch};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::environment::Kind;

/// Kind, namespace and name of an object.
type Key = (Kind, String, String);

/// The shared watches.
pub struct ObjectWatches {
    source: Arc<dyn Source>,
    known: Mutex<BTreeMap<Key, Weak<Object>>>,
}

/// A watched object.
pub struct Object {
    changes: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl Object {
    /// A counter that increments with each change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

impl ObjectWatches {
    /// No watches yet.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, known: Mutex::default() }
    }

    /// Watches an object until the result is dropped; `None` when the name is invalid. Call inside a tokio runtime.
    #[must_use]
    pub fn watch(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let key = (kind, namespace.to_owned(), name.to_owned());
        let mut known = self.known.lock();
        known.retain(|_, object| object.strong_count() > 0);
        if let Some(object) = known.get(&key).and_then(Weak::upgrade) {
            return Some(object);
        }
        let kind = match kind {
            Kind::ConfigMap => &kinds::configmap::KIND,
            Kind::Secret => &kinds::secret::KIND,
        };
        let what = Selection::all(kind).within(namespace).named(name).ok()?.optional();
        let (sender, changes) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(count_changes(self.source.watch(what), sender));
        let object = Arc::new(Object { changes, _task: task });
        known.insert(key, Arc::downgrade(&object));
        Some(object)
    }
}

/// Counts changes. The first list is what Pods were started with; a later list (resync) may contain any change.
async fn count_changes(mut watching: Watch, sender: watch::Sender<u64>) {
    let mut complete = false;
    loop {
        match watching.next().await {
            Event::Apply(_) | Event::Delete(_) => sender.send_modify(|count| *count += 1),
            Event::InitDone if complete => sender.send_modify(|count| *count += 1),
            Event::InitDone => complete = true,
            Event::Init | Event::InitApply(_) => {}
        }
    }
}
