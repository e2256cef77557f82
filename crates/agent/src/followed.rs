//! ConfigMaps and Secrets that Pods of this machine have mounted, followed by name: one watch for each, however many Pods have it.
//!
//! In: the name of an object. Out: a word whenever it changes, for as long as somebody listens; the last to go ends the watch. Where the
//! server does not let us watch, there is never a word, and Pods look by themselves from time to time.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use api::kinds;
use client::watch::{Event, Selection, Source, Watch};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::environment::Kind;

/// Which object: its kind, its namespace, its name.
type Key = (Kind, String, String);

/// See the module.
pub struct Followed {
    source: Arc<dyn Source>,
    known: Mutex<BTreeMap<Key, Weak<Object>>>,
}

/// An object that is followed.
pub struct Object {
    changes: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl Object {
    /// Says how often it changed so far, each time it does.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

impl Followed {
    /// Nothing is followed yet.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self { source, known: Mutex::default() }
    }

    /// Follows an object until the answer is dropped; nothing when no object can have this name. To be called inside a tokio runtime.
    #[must_use]
    pub fn follow(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Object>> {
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
        task.spawn(tell(self.source.watch(what), sender));
        let object = Arc::new(Object { changes, _task: task });
        known.insert(key, Arc::downgrade(&object));
        Some(object)
    }
}

/// Counts changes. What is there at first is what Pods were made from; a list that comes later may bring anything.
async fn tell(mut watching: Watch, sender: watch::Sender<u64>) {
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
