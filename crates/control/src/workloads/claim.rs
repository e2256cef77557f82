//! Adoption and release: owners adopt matching orphans and release dependents that no longer match.
//!
//! In: an owner, and possible dependents. Out: its dependents, and the changes of owner references.

use std::sync::Arc;

use api::object;
use api::selector::Selector;
use api::value::ValueExt as _;
use api::view::metadata::controller_of;
use serde_json::Value;
use store::Entry;

use super::{StoredObject, WorkloadKind};
use crate::controller::View;
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::write::Write;

/// The dependents of an owner, and the writes.
pub(super) struct Claim<T> {
    /// The dependents after the writes.
    pub(super) own: Vec<T>,
    /// Adoptions and releases.
    pub(super) writes: Vec<Write>,
}

/// The Pods of an owner, terminated and terminating ones included. Only those that fit are adopted.
pub(super) fn pods<'a>(
    view: &View<'a>,
    kind: &WorkloadKind,
    owner: &StoredObject,
    selector: &Selector,
    fits: impl Fn(&Pod) -> bool,
) -> Claim<&'a Arc<Pod>> {
    let mut claim = Claim { own: Vec::new(), writes: Vec::new() };
    let pods = &view.cache.pods;
    for dependent in view.cache.owners.dependents_of(owner.uid()) {
        let Some(pod) = pods.get(&dependent.key.name).filter(|_| dependent.key.table.as_str() == "pods") else {
            continue;
        };
        if !is_controller(view, &pod.entry, owner.uid()) {
            continue;
        }
        if selector.matches(&pod.entry.facts, "", "") || !pod.is_active() || owner.is_deleting() {
            claim.own.push(pod);
        } else if let Some(write) = released(view, &pod.entry, owner.uid()) {
            claim.writes.push(write);
        }
    }
    if owner.is_deleting() {
        return claim;
    }
    for pod in pods.selected(owner.namespace(), owner.object.at("spec.selector"), selector) {
        let free = controller_of(view.cache.owners.of(&pod.entry.key)).is_none();
        if free
            && pod.is_active()
            && fits(pod)
            && let Some(write) = adopted(view, &pod.entry, kind.reference(&owner.object))
        {
            claim.own.push(pod);
            claim.writes.push(write);
        }
    }
    claim
}

/// The dependents of an owner in a table.
pub(super) fn objects(
    view: &View<'_>,
    kind: &WorkloadKind,
    owner: &StoredObject,
    table: &'static str,
    selector: &Selector,
) -> Claim<StoredObject> {
    let mut claim = Claim { own: Vec::new(), writes: Vec::new() };
    for dependent in view.cache.owners.dependents_of(owner.uid()).filter(|one| one.key.table.as_str() == table) {
        let Some(workload) = StoredObject::read(view, table, &dependent.key.name) else { continue };
        if !is_controller(view, &workload.entry, owner.uid()) {
            continue;
        }
        if owner.is_deleting() || workload.is_deleting() || selector.matches(&workload.entry.facts, "", "") {
            claim.own.push(workload);
        } else {
            claim.writes.extend(released(view, &workload.entry, owner.uid()));
        }
    }
    if owner.is_deleting() {
        return claim;
    }
    let prefix = format!("{}/", owner.namespace());
    let Ok(here) = view.store.range(store::Table::named(table), &prefix, None) else { return claim };
    for entry in here.entries {
        if !selector.matches(&entry.facts, "", "") {
            continue;
        }
        let metadata = ownership(&entry.value);
        if controller_of(&metadata.owner_references).is_none() && !metadata.is_deleting() {
            claim.writes.extend(adopted(view, &entry, kind.reference(&owner.object)));
        }
    }
    claim
}

/// Whether an owner is the controller of an object.
fn is_controller(view: &View<'_>, entry: &Entry, uid: &str) -> bool {
    controller_of(view.cache.owners.of(&entry.key)).is_some_and(|owner| *owner.uid == *uid)
}

/// Adopts an object, unless it is being deleted or has a controller.
fn adopted(view: &View<'_>, entry: &Entry, reference: Value) -> Option<Write> {
    change(view, entry, |owners| {
        let free = !owners.iter().any(|owner| owner.flag("controller") || owner.text("uid") == reference.text("uid"));
        if free {
            owners.push(reference);
        }
    })
}

/// Releases an object.
fn released(view: &View<'_>, entry: &Entry, uid: &str) -> Option<Write> {
    change(view, entry, |owners| owners.retain(|owner| owner.text("uid") != uid))
}

fn change(view: &View<'_>, entry: &Entry, edit: impl FnOnce(&mut Vec<Value>)) -> Option<Write> {
    let now = view.store.get(&entry.key)?;
    let mut object = object::decode_bare(&now.value);
    let before = object.items("metadata.ownerReferences").to_vec();
    let mut owners = before.clone();
    edit(&mut owners);
    if owners == before || object.has("metadata.deletionTimestamp") {
        return None;
    }
    if owners.is_empty() {
        object.drop_path("metadata.ownerReferences");
    } else {
        object.put("metadata.ownerReferences", owners);
    }
    Some(Write::Object { table: now.key.table.as_str(), object: Box::new(object), modified: now.modified })
}
