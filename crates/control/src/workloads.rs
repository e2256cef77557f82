//! Workload controllers: ReplicaSets and ReplicationControllers, Deployments, StatefulSets, DaemonSets, Jobs.
//!
//! ```text
//! Deployment ──owns──▶ ReplicaSet ──owns──▶ Pod ◀──owns── StatefulSet, DaemonSet, Job
//! ```
//! This module has the shared parts: owners, affected keys, Pods from templates. Each reconcile returns the next step, whose change triggers the next
//! reconcile. No expectations are needed: a key is not reconciled before the cache contains its writes.

mod claim;
pub mod daemon;
pub mod deployment;
mod history;
pub mod job;
mod order;
pub mod replicas;
pub mod stateful;
#[cfg(test)]
mod testing;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use api::kinds;
use api::lifecycle;
use api::object;
use api::selector::{self, Selector};
use api::value::ValueExt as _;
use api::view::OwnerReference;
use api::view::metadata::controller_of;
use serde_json::{Value, json};
use store::{Entry, Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, View};
use crate::event::{self, EventDetails, Reference};
use crate::objects::pod::Pod;
use crate::objects::{ownership, split};
use crate::write::Write;

/// A kind of owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkloadKind {
    /// Its table in the store.
    pub(crate) table: &'static str,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Its group and version.
    pub(crate) api_version: &'static str,
    /// The source of Events.
    pub(crate) controller: &'static str,
}

/// A stored object, decoded completely.
pub(crate) struct StoredObject {
    /// The stored form.
    pub(crate) entry: Arc<Entry>,
    /// The object.
    pub(crate) object: Value,
}

impl StoredObject {
    /// Reads the stored object of a key.
    pub(crate) fn read(view: &View<'_>, table: &str, key: &str) -> Option<Self> {
        Some(Self::of(view.store.get(&Key::new(Table::named(table), key))?))
    }

    pub(crate) fn of(entry: Arc<Entry>) -> Self {
        Self { object: object::decode_bare(&entry.value), entry }
    }

    pub(crate) fn uid(&self) -> &str {
        self.object.text("metadata.uid")
    }

    pub(crate) fn name(&self) -> &str {
        self.object.text("metadata.name")
    }

    pub(crate) fn namespace(&self) -> &str {
        self.object.text("metadata.namespace")
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.object.has("metadata.deletionTimestamp")
    }

    /// Its selector; `None` when it is invalid or selects everything.
    pub(crate) fn selector(&self) -> Option<Selector> {
        let object = self.object.at("spec.selector");
        let plain = self.entry.key.table.as_str() == replicas::CONTROLLERS.table;
        let selector = if plain { Some(selector::from_map(object)) } else { selector::from_object(object) };
        selector.filter(|selector| !selector.is_everything())
    }

    /// A write of the object, if it changed.
    pub(crate) fn replaced(&self, new: Value) -> Option<Write> {
        let Entry { key, modified, .. } = &*self.entry;
        let table = key.table.as_str();
        (new != self.object).then(|| Write::Object { table, object: Box::new(new), modified: *modified })
    }

    /// A status update, if it changed.
    pub(crate) fn with_status(&self, new: Value) -> Option<Write> {
        let Entry { key, modified, .. } = &*self.entry;
        let (table, part) = (key.table.as_str(), "status");
        (new != self.object).then(|| Write::Subresource { table, part, object: Box::new(new), modified: *modified })
    }

    pub(crate) fn deleted(&self) -> Write {
        let Entry { key, modified, .. } = &*self.entry;
        Write::Delete { key: key.clone(), modified: *modified, propagation: None }
    }
}

impl WorkloadKind {
    /// The controller owner reference to an owner.
    pub(crate) fn reference(&self, owner: &Value) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": self.kind, "name": owner.text("metadata.name"),
            "uid": owner.text("metadata.uid"), "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// An Event about an owner.
    pub(crate) fn event(&self, view: &View<'_>, owner: &Value, normal: bool, reason: &str, message: &str) -> Write {
        let (reference, now) = (Reference::to(owner), view.now_text());
        let finding = EventDetails { controller: self.controller, normal, reason, message, now: &now };
        event::new_event(self.kind, self.api_version, &reference, &finding)
    }

    pub(crate) fn is(&self, owner: &OwnerReference) -> bool {
        *owner.kind == *self.kind && *owner.api_version == *self.api_version
    }

    /// Adds the current, previous and possible owners of a dependent.
    pub(crate) fn affected_keys(&self, view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
        let (namespace, _) = split(change.key());
        let affected_keys = |owner: &OwnerReference, affected: &mut AffectedKeys<'_>| {
            if self.is(owner) {
                affected.add(&format!("{namespace}/{}", owner.name));
            }
        };
        if let Some(owner) = controller_of(&change.metadata.owner_references) {
            affected_keys(owner, affected);
            return;
        }
        // Rare: an orphan, or a dependent that was just released.
        if let Some(previous) = change.previous.as_ref().filter(|_| !change.deleted)
            && let Some(owner) = controller_of(&ownership(&previous.value).owner_references)
        {
            affected_keys(owner, affected);
        }
        if !change.deleted {
            for key in view.cache.workloads.selecting(namespace, self.table, &change.entry.facts) {
                affected.add(key);
            }
        }
    }
}

/// A Pod from a template, with defaults.
pub(crate) fn new_pod(template: &Value, namespace: &str, name: &str, owner: &Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "spec": template.at("spec"),
    });
    for field in ["labels", "annotations", "finalizers"] {
        let value = template.at("metadata").at(field);
        if !value.is_null() {
            pod.put(&format!("metadata.{field}"), value.clone());
        }
    }
    let rules = kinds::pod::KIND.rules;
    rules.default(&mut pod);
    rules.prepare_create(&mut pod);
    pod
}

/// A generated name. Deterministic for a seed; the seed contains the store revision, so that a taken name is not tried again.
pub(crate) fn name_from(base: &str, seed: (&str, u64, usize)) -> String {
    let mut round = 0_u32;
    lifecycle::generate_name(base, |below| {
        let mut hasher = DefaultHasher::new();
        (seed, round).hash(&mut hasher);
        round += 1;
        usize::try_from(hasher.finish() % below.max(1) as u64).unwrap_or_default()
    })
}

/// Deletes a Pod, unless it was replaced or is being deleted already.
pub(crate) fn delete_pod(view: &View<'_>, pod: &Pod) -> Option<Write> {
    let entry = view.store.get(&pod.entry.key)?;
    let now = ownership(&entry.value);
    let same = now.uid == pod.uid && !now.is_deleting();
    same.then(|| Write::Delete { key: entry.key.clone(), modified: entry.modified, propagation: None })
}

/// Whether a Pod is available (`minReadySeconds`); otherwise in how many seconds it will be.
pub(crate) fn availability(pod: &Pod, min_ready: i64, now: i64) -> Result<(), Option<i64>> {
    let Some(since) = pod.ready_for() else { return Err(None) };
    let left = since.saturating_add(min_ready) - now;
    if min_ready <= 0 || left <= 0 { Ok(()) } else { Err(Some(left)) }
}

/// Slow start: transactions of 1, 2, 4, … writes, so that a persistent failure is not repeated for all.
pub(crate) fn slow_start(mut writes: Vec<Write>) -> Vec<Vec<Write>> {
    let (mut batches, mut size) = (Vec::new(), 1);
    while !writes.is_empty() {
        let rest = writes.split_off(size.min(writes.len()));
        batches.push(std::mem::replace(&mut writes, rest));
        size *= 2;
    }
    batches
}

/// A condition of a status by its type.
pub(crate) fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status.items("conditions").iter().find(|condition| condition.text("type") == kind)
}
