//! The store of this process as a source: one range, then its watch from that revision on.
//!
//! Values are handed on as they are stored, shared and not copied. Selectors ask the facts that stand beside each value: an
//! object that enters the selection is applied, one that leaves it is deleted, as the API would say it. A listener so slow that
//! the history it has not read was forgotten gets a new list.

use std::sync::Arc;

use api::kind::Kind;
use api::object;
use tokio::time::Instant;

use super::{Event, Feeder, Object, Source, Watching, What};
use crate::{Compacted, Entry, Store, Table};

/// See the module.
#[derive(Clone)]
pub struct Local {
    store: Arc<dyn Store>,
}

impl Local {
    /// A source over a store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

impl Source for Local {
    fn watch(&self, what: What) -> Watching {
        let store = self.store.clone();
        Watching::run(&what.clone(), |feeder| async move {
            // A list that could not be read is read again; the present is always known.
            while let Some(Compacted { asked, oldest }) = follow(&*store, &what, &feeder).await {
                let why = format!("revision {asked} was forgotten before it was read, the oldest is {oldest}");
                feeder.lost(Instant::now(), &why);
            }
        })
    }
}

/// Lists and follows until the history is gone; `None` when nobody listens.
async fn follow(store: &dyn Store, what: &What, out: &Feeder) -> Option<Compacted> {
    let table = Table::named(what.kind.table);
    let prefix = if what.namespace().is_empty() { String::new() } else { format!("{}/", what.namespace()) };
    let range = match store.range(table, &prefix, None) {
        Ok(range) => range,
        Err(compacted) => return Some(compacted),
    };
    // Begun before the list is handed on, which may take long: what happens meanwhile is kept as history.
    let started = store.watch(table, &prefix, range.revision);
    if !out.send(Event::Init).await {
        return None;
    }
    for entry in range.entries.iter().filter(|entry| selects(what, entry)) {
        if !out.send(Event::InitApply(shown(what.kind, entry))).await {
            return None;
        }
    }
    drop(range);
    if !out.send(Event::InitDone).await {
        return None;
    }
    let mut watch = match started {
        Ok(watch) => watch,
        Err(compacted) => return Some(compacted),
    };
    loop {
        let events = match watch.next().await {
            Ok(events) => events,
            Err(compacted) => return Some(compacted),
        };
        for event in events.iter().filter_map(|event| seen(what, event)) {
            if !out.send(event).await {
                return None;
            }
        }
    }
}

/// What a change is to a listener with a selector.
fn seen(what: &What, event: &crate::Event) -> Option<Event> {
    let object = || shown(what.kind, &event.entry);
    if !event.deleted && selects(what, &event.entry) {
        return Some(Event::Apply(object()));
    }
    let before = event.previous.as_deref().filter(|entry| selects(what, entry))?;
    Some(Event::Delete(shown(what.kind, before)))
}

fn selects(what: &What, entry: &Entry) -> bool {
    let (namespace, name) = split(entry);
    what.selector().matches(&entry.facts, namespace, name)
}

fn split(entry: &Entry) -> (&str, &str) {
    entry.key.name.split_once('/').unwrap_or(("", &entry.key.name))
}

/// A stored object as this kind shows it. Two kinds may share a table; the one that is stored as it is shown is not decoded.
fn shown(kind: &Kind, entry: &Entry) -> Object {
    let (namespace, name) = split(entry);
    let value = if kind.rules.converts() {
        object::encode(&kind.rules.stored_to_shown(object::decode(kind, &entry.value, entry.modified)))
    } else {
        entry.value.clone()
    };
    Object { namespace: namespace.into(), name: name.into(), value }
}
