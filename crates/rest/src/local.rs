//! Watches within the process of the API server: the range of a table, then its changes from that revision on.
//!
//! Values are shared with the store, not copied. Selectors are evaluated on the facts beside each value: an object that enters the
//! selection is an `Apply`, one that leaves it a `Delete`, as over HTTP. A consumer that is slower than the compaction gets a relist.

use std::sync::Arc;

use api::kind::Kind;
use api::object;
use client::watch::{Event, Object, Selection, Source, Watch, WatchSender};
use store::{Compacted, Entry, Store, Table};
use tokio::time::Instant;

#[cfg(test)]
mod tests;

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
    fn watch(&self, what: Selection) -> Watch {
        let store = self.store.clone();
        Watch::run(&what.clone(), |sender| async move {
            // A list that failed is repeated; the current state is always available.
            while let Some(Compacted { requested, oldest }) = follow(&*store, &what, &sender).await {
                let reason = format!("revision {requested} was compacted before it was read, the oldest is {oldest}");
                sender.failed(Instant::now(), &reason);
            }
        })
    }
}

/// Lists and watches until history is compacted; `None` when the receiver was dropped.
async fn follow(store: &dyn Store, what: &Selection, out: &WatchSender) -> Option<Compacted> {
    let table = Table::named(what.kind.table);
    let prefix = if what.namespace().is_empty() { String::new() } else { format!("{}/", what.namespace()) };
    let range = match store.range(table, &prefix, None) {
        Ok(range) => range,
        Err(compacted) => return Some(compacted),
    };
    // Started before the list is sent, which may take long: changes meanwhile are in the history.
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

/// The event for a watch with a selector.
fn seen(what: &Selection, event: &store::Event) -> Option<Event> {
    let object = || shown(what.kind, &event.entry);
    if !event.deleted && selects(what, &event.entry) {
        return Some(Event::Apply(object()));
    }
    let before = event.previous.as_deref().filter(|entry| selects(what, entry))?;
    Some(Event::Delete(shown(what.kind, before)))
}

fn selects(what: &Selection, entry: &Entry) -> bool {
    let (namespace, name) = split(entry);
    what.selector().matches(&entry.facts, namespace, name)
}

fn split(entry: &Entry) -> (&str, &str) {
    entry.key.name.split_once('/').unwrap_or(("", &entry.key.name))
}

/// A stored object as this kind shows it. Two kinds may share a table; the one that is stored as shown is not decoded.
fn shown(kind: &Kind, entry: &Entry) -> Object {
    let (namespace, name) = split(entry);
    let value = if kind.reshapes(&entry.value, entry.modified) {
        object::encode(&kind.rules.stored_to_shown(object::decode(kind, &entry.value, entry.modified)))
    } else {
        entry.value.clone()
    };
    Object { namespace: namespace.into(), name: name.into(), value }
}
