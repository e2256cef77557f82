//! Garbage collection (S02): deletes dependents without owners, or orphans them.
//!
//! In: owner references and finalizers of all objects. Out: deletions of objects whose owners are gone, removal of dangling references, and the two
//! finalizers of an owner that is being deleted: `foregroundDeletion` until its dependents are gone, `orphan` until they no longer refer to it. Each object
//! is checked against the store; the cache only determines which keys a change affects. So nothing is deleted because of a stale cache.

mod owner;
mod references;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::kind::Kind;
use api::object;
use api::options::Propagation;
use api::value::ValueExt as _;
use api::view::{OwnerReference, Ownership};
use serde_json::Value;
use store::{Entry, Key, Table};

use self::references::OwnerState;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::objects::ownership;
use crate::write::Write;

/// An owner with this finalizer is deleted after its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// An owner with this finalizer is deleted after its dependents are orphaned.
const ORPHAN: &str = "orphan";
/// Separates table and name in a queue key; not allowed in table names.
const SEPARATOR: char = '|';

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "garbagecollector", enabled: always, affected_keys, reconcile, resync_period: None };

/// The queue key of an object.
fn task(key: &Key) -> String {
    format!("{}{SEPARATOR}{}", key.table, key.name)
}

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let metadata = &change.metadata;
    let before = change.previous.as_ref().filter(|before| !change.deleted && may_have_owners(before));
    let before = before.map(|before| ownership(&before.value).owner_references).unwrap_or_default();
    if change.deleted {
        add_dependents(view, metadata, affected);
        add_waiting_owners(view, change.key(), &metadata.owner_references, affected);
        return;
    }
    if *metadata.owner_references != *before {
        // An owner may have waited for a removed reference.
        add_waiting_owners(view, change.key(), &before, affected);
        if !metadata.owner_references.is_empty() {
            affected.add(&task(&change.entry.key));
        }
    }
    if waits(metadata, FOREGROUND) || waits(metadata, ORPHAN) {
        affected.add(&task(&change.entry.key));
        let waited = |before: &Arc<Entry>| waits(&ownership(&before.value), FOREGROUND);
        if waits(metadata, FOREGROUND) && !change.previous.as_ref().is_some_and(waited) {
            add_dependents(view, metadata, affected);
        }
    }
}

/// Whether an object is being deleted and has this finalizer.
fn waits(metadata: &Ownership, finalizer: &str) -> bool {
    metadata.is_deleting() && metadata.has_finalizer(finalizer)
}

/// Whether stored bytes may contain owner references, without parsing.
fn may_have_owners(entry: &Entry) -> bool {
    std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains("\"ownerReferences\""))
}

fn add_dependents(view: &View<'_>, owner: &Ownership, affected: &mut AffectedKeys<'_>) {
    for dependent in view.cache.owners.dependents_of(&owner.uid) {
        affected.add(&task(dependent.key));
    }
}

/// Adds the owners whose deletion an object may have blocked.
fn add_waiting_owners(view: &View<'_>, dependent: &str, owners: &[OwnerReference], affected: &mut AffectedKeys<'_>) {
    for owner in owners.iter().filter(|owner| owner.block_owner_deletion) {
        if let Ok(key) = references::locate(view, owner, dependent) {
            affected.add(&task(&key));
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(item) = Item::find(view, key) else { return Outcome::done() };
    if item.metadata.is_deleting() {
        owner::reconcile(view, &item)
    } else if item.metadata.owner_references.is_empty() {
        Outcome::done()
    } else {
        item.reconcile(view)
    }
}

/// A stored object.
struct Item {
    kind: &'static Kind,
    entry: Arc<Entry>,
    metadata: Ownership,
}

impl Item {
    fn find(view: &View<'_>, key: &str) -> Option<Self> {
        let (table, name) = key.split_once(SEPARATOR)?;
        let kind = view.cache.kinds.kinds().by_table(table)?;
        Self::read(view, &Key::new(Table::named(kind.table), name))
    }

    fn read(view: &View<'_>, key: &Key) -> Option<Self> {
        let kind = view.cache.kinds.kinds().by_table(key.table.as_str())?;
        let entry = view.store.get(key)?;
        Some(Self { kind, metadata: ownership(&entry.value), entry })
    }

    /// Decides by the owners whether the object is kept or deleted.
    fn reconcile(&self, view: &View<'_>) -> Outcome {
        let owners = &self.metadata.owner_references;
        let owner_state = |owner: &OwnerReference| references::owner_state(view, owner, &self.entry.key.name);
        let owner_states: Vec<OwnerState> = owners.iter().map(owner_state).collect();
        if let Some(index) = owner_states.iter().position(|owner_state| *owner_state == OwnerState::Misplaced) {
            return Outcome { events: vec![self.event(view, &owners[index])], ..Outcome::done() };
        }
        if owner_states.contains(&OwnerState::Solid) {
            let is_solid = |uid: &str| {
                owners
                    .iter()
                    .zip(&owner_states)
                    .any(|(owner, owner_state)| *owner.uid == *uid && *owner_state == OwnerState::Solid)
            };
            return Outcome::write(self.without_references(&is_solid).into_iter().collect());
        }
        // Only for a new object: one that was changed since its creation had an owner, or an Event already.
        let misplaced = owners.iter().filter(|owner| {
            self.entry.created == self.entry.modified && references::is_elsewhere(view, owner, &self.entry.key.name)
        });
        let events = misplaced.map(|owner| self.event(view, owner)).collect();
        let propagation = self.propagation(view, owner_states.contains(&OwnerState::Waiting));
        Outcome { events, ..Outcome::write(vec![self.delete(propagation)]) }
    }

    /// The propagation policy: foreground deletion of an owner includes all descendants.
    fn propagation(&self, view: &View<'_>, awaited: bool) -> Propagation {
        if awaited && view.cache.owners.dependents_of(&self.metadata.uid).next().is_some() {
            Propagation::Foreground
        } else if self.metadata.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if self.metadata.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    }

    fn delete(&self, propagation: Propagation) -> Write {
        let Entry { key, modified, .. } = &*self.entry;
        Write::Delete { key: key.clone(), modified: *modified, propagation: Some(propagation) }
    }

    /// The object without the references that `keep` rejects; `None` when all are kept.
    fn without_references(&self, keep: &dyn Fn(&str) -> bool) -> Option<Write> {
        if self.metadata.owner_references.iter().all(|owner| keep(&owner.uid)) {
            return None;
        }
        let kept = |object: &Value| -> Vec<Value> {
            let references = object.items("metadata.ownerReferences").iter();
            references.filter(|reference| keep(reference.text("uid"))).cloned().collect()
        };
        Some(self.with_list("metadata.ownerReferences", kept))
    }

    /// The object without a finalizer; without its last one it is deleted.
    fn without_finalizer(&self, finalizer: &str) -> Write {
        let kept = |object: &Value| -> Vec<Value> {
            let finalizers = object.items("metadata.finalizers").iter();
            finalizers.filter(|have| have.as_str() != Some(finalizer)).cloned().collect()
        };
        self.with_list("metadata.finalizers", kept)
    }

    fn with_list(&self, path: &str, list: impl FnOnce(&Value) -> Vec<Value>) -> Write {
        let mut object = object::decode_bare(&self.entry.value);
        let list = list(&object);
        if list.is_empty() {
            object.drop_path(path);
        } else {
            object.put(path, list);
        }
        Write::Object { table: self.kind.table, object: Box::new(object), modified: self.entry.modified }
    }

    /// An Event about an owner reference to another namespace.
    fn event(&self, view: &View<'_>, owner: &OwnerReference) -> Write {
        let reference = Reference::new(&self.entry.key.name, &self.metadata.uid);
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        let namespace = &reference.namespace;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
             namespace {namespace:?}"
        );
        let finding = EventDetails {
            controller: "garbage-collector-controller",
            normal: false,
            reason: "OwnerRefInvalidNamespace",
            message: &message,
            now: &view.now_text(),
        };
        event::new_event(self.kind.kind, &self.kind.api_version(), &reference, &finding)
    }
}
