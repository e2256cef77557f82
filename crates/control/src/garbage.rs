//! Garbage collection: what is owned goes when its last owner has gone, or stays when its owner lets go of it (S02).
//!
//! In: the owner references and finalizers of every object. Out: deletions of objects that nobody owns any more, references
//! that lead nowhere taken off, and the two finalizers with which an owner waits for its dependents: `foregroundDeletion`
//! until they are gone, `orphan` until they have forgotten it. Each object is judged for itself, as it is stored now; the
//! world only tells whom else a change concerns. So nothing is deleted because of news that came late.

mod owner;
mod references;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use api::kind::Kind;
use api::options::Propagation;
use api::value::ValueExt as _;
use api::view::{OwnerReference, Ownership};
use api::{kinds, object};
use serde_json::Value;
use store::{Entry, Key, Table};

use self::references::Standing;
use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::ownership;
use crate::report::{self, Finding, Reference};
use crate::world::Change;
use crate::write::Write;

/// An owner with this finalizer goes after its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// An owner with this finalizer goes after its dependents have let go of it.
const ORPHAN: &str = "orphan";
/// Between the table and the rest of a key; no table has it in its name.
const SEPARATOR: char = '|';

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "garbagecollector", enabled: always, concerns, reconcile, every: None };

/// The key of an object here.
fn task(key: &Key) -> String {
    format!("{}{SEPARATOR}{}", key.table, key.name)
}

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    let metadata = &change.metadata;
    let before = change.previous.as_ref().filter(|before| !change.deleted && may_have_owners(before));
    let before = before.map(|before| ownership(&before.value).owner_references).unwrap_or_default();
    if change.deleted {
        wake_dependents(view, metadata, wakes);
        wake_waiting(change.key(), &metadata.owner_references, wakes);
        return;
    }
    if *metadata.owner_references != *before {
        // An owner may have waited for a reference that is no longer there.
        wake_waiting(change.key(), &before, wakes);
        if !metadata.owner_references.is_empty() {
            wakes.add(&task(&change.entry.key));
        }
    }
    if waits(metadata, FOREGROUND) || waits(metadata, ORPHAN) {
        wakes.add(&task(&change.entry.key));
        let waited = |before: &Arc<Entry>| waits(&ownership(&before.value), FOREGROUND);
        if waits(metadata, FOREGROUND) && !change.previous.as_ref().is_some_and(waited) {
            wake_dependents(view, metadata, wakes);
        }
    }
}

/// Whether an object is being deleted and has one of our finalizers.
fn waits(metadata: &Ownership, finalizer: &str) -> bool {
    metadata.is_deleting() && metadata.has_finalizer(finalizer)
}

/// Whether stored bytes are worth being read for owners. Nearly no object that changes often has some.
fn may_have_owners(entry: &Entry) -> bool {
    std::str::from_utf8(&entry.value).is_ok_and(|text| text.contains("\"ownerReferences\""))
}

fn wake_dependents(view: &View<'_>, owner: &Ownership, wakes: &mut Wakes<'_>) {
    for dependent in view.world.owners.dependents_of(&owner.uid) {
        wakes.add(&task(dependent.key));
    }
}

/// Wakes the owners that an object may have held up.
fn wake_waiting(dependent: &str, owners: &[OwnerReference], wakes: &mut Wakes<'_>) {
    for owner in owners.iter().filter(|owner| owner.block_owner_deletion) {
        if let Ok(key) = references::locate(owner, dependent) {
            wakes.add(&task(&key));
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let Some(item) = Item::find(view, key) else { return Verdict::settled() };
    if item.metadata.is_deleting() {
        owner::reconcile(view, &item)
    } else if item.metadata.owner_references.is_empty() {
        Verdict::settled()
    } else {
        item.judge(view)
    }
}

/// An object as it is stored now.
struct Item {
    kind: &'static Kind,
    entry: Arc<Entry>,
    metadata: Ownership,
}

impl Item {
    fn find(view: &View<'_>, key: &str) -> Option<Self> {
        let (table, name) = key.split_once(SEPARATOR)?;
        let kind = kinds::by_table(table)?;
        Self::read(view, &Key::new(Table::named(kind.table), name))
    }

    fn read(view: &View<'_>, key: &Key) -> Option<Self> {
        let kind = kinds::by_table(key.table.as_str())?;
        let entry = view.store.get(key)?;
        Some(Self { kind, metadata: ownership(&entry.value), entry })
    }

    /// Whether the object may stay, as far as its owners are concerned.
    fn judge(&self, view: &View<'_>) -> Verdict {
        let owners = &self.metadata.owner_references;
        let standing = |owner: &OwnerReference| references::standing(view, owner, &self.entry.key.name);
        let standings: Vec<Standing> = owners.iter().map(standing).collect();
        if let Some(index) = standings.iter().position(|standing| *standing == Standing::Misplaced) {
            return Verdict { events: vec![self.event(view, &owners[index])], ..Verdict::settled() };
        }
        if standings.contains(&Standing::Solid) {
            let is_solid = |uid: &str| {
                owners
                    .iter()
                    .zip(&standings)
                    .any(|(owner, standing)| *owner.uid == *uid && *standing == Standing::Solid)
            };
            return Verdict::write(self.without_references(&is_solid).into_iter().collect());
        }
        // A reference that was right once needs no search: whoever was changed since has had an owner, or a message.
        let misplaced = owners.iter().filter(|owner| {
            self.entry.created == self.entry.modified && references::is_elsewhere(view, owner, &self.entry.key.name)
        });
        let events = misplaced.map(|owner| self.event(view, owner)).collect();
        let propagation = self.propagation(view, standings.contains(&Standing::Waiting));
        Verdict { events, ..Verdict::write(vec![self.delete(propagation)]) }
    }

    /// How the object is to be deleted: an owner that waits for it waits for all below it.
    fn propagation(&self, view: &View<'_>, awaited: bool) -> Propagation {
        if awaited && view.world.owners.dependents_of(&self.metadata.uid).next().is_some() {
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

    /// The object without the references whose uid is not to be kept; nothing when all are.
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

    /// The object without a finalizer; when that was the last one it is gone.
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

    /// Says that a reference leads nowhere because of where the two objects are.
    fn event(&self, view: &View<'_>, owner: &OwnerReference) -> Write {
        let about = Reference::new(&self.entry.key.name, &self.metadata.uid);
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        let namespace = &about.namespace;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
             namespace {namespace:?}"
        );
        let finding = Finding {
            controller: "garbage-collector-controller",
            normal: false,
            reason: "OwnerRefInvalidNamespace",
            message: &message,
            now: &view.now_text(),
        };
        report::about(self.kind.kind, &self.kind.api_version(), &about, &finding)
    }
}
