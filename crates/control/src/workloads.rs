//! Controllers that keep Pods running: ReplicaSets and ReplicationControllers, Deployments above ReplicaSets, StatefulSets.
//!
//! ```text
//! Deployment ──owns──▶ ReplicaSet ──owns──▶ Pod ◀──owns── StatefulSet
//! ```
//! Here is what they share: how an owner is read and named, who is woken by what, how a Pod comes out of a template.
//! Each looks at what is there and answers with the next step; the step comes back as a change and wakes it again. No
//! expectations are kept: a key is not looked at before the world shows what was written for it.

mod claim;
pub mod deployment;
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

use crate::controller::{View, Wakes};
use crate::objects::pod::Pod;
use crate::objects::{ownership, split};
use crate::report::{self, Finding, Reference};
use crate::world::Change;
use crate::write::Write;

/// A kind of owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flavor {
    /// Its table in the store.
    pub(crate) table: &'static str,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Its group and version.
    pub(crate) api_version: &'static str,
    /// Who speaks in Events.
    pub(crate) controller: &'static str,
}

/// An object as it is stored, read whole.
pub(crate) struct Held {
    /// The stored form.
    pub(crate) entry: Arc<Entry>,
    /// The object.
    pub(crate) object: Value,
}

impl Held {
    /// The object of a key, as it is now.
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

    /// The labels of what belongs to it; none when they make no sense or select everything.
    pub(crate) fn selector(&self) -> Option<Selector> {
        let object = self.object.at("spec.selector");
        let plain = self.entry.key.table.as_str() == replicas::CONTROLLERS.table;
        let selector = if plain { Some(selector::from_map(object)) } else { selector::from_object(object) };
        selector.filter(|selector| !selector.is_everything())
    }

    /// The new form of it, if it is new.
    pub(crate) fn replaced(&self, new: Value) -> Option<Write> {
        let Entry { key, modified, .. } = &*self.entry;
        let table = key.table.as_str();
        (new != self.object).then(|| Write::Object { table, object: Box::new(new), modified: *modified })
    }

    /// The same with another status, if that is another one.
    pub(crate) fn with_status(&self, new: Value) -> Option<Write> {
        let Entry { key, modified, .. } = &*self.entry;
        let (table, part) = (key.table.as_str(), "status");
        (new != self.object).then(|| Write::Part { table, part, object: Box::new(new), modified: *modified })
    }

    pub(crate) fn deleted(&self) -> Write {
        let Entry { key, modified, .. } = &*self.entry;
        Write::Delete { key: key.clone(), modified: *modified, propagation: None }
    }
}

impl Flavor {
    /// The reference that makes something belong to an owner.
    pub(crate) fn reference(&self, owner: &Value) -> Value {
        json!({
            "apiVersion": self.api_version, "kind": self.kind, "name": owner.text("metadata.name"),
            "uid": owner.text("metadata.uid"), "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// An Event about an owner.
    pub(crate) fn event(&self, view: &View<'_>, owner: &Value, normal: bool, reason: &str, message: &str) -> Write {
        let (about, now) = (Reference::to(owner), view.now_text());
        let finding = Finding { controller: self.controller, normal, reason, message, now: &now };
        report::about(self.kind, self.api_version, &about, &finding)
    }

    fn is(&self, owner: &OwnerReference) -> bool {
        *owner.kind == *self.kind && *owner.api_version == *self.api_version
    }

    /// Wakes whom a dependent belongs to, belonged to, or could belong to.
    pub(crate) fn wake(&self, view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
        let (namespace, _) = split(change.key());
        let wake = |owner: &OwnerReference, wakes: &mut Wakes<'_>| {
            if self.is(owner) {
                wakes.add(&format!("{namespace}/{}", owner.name));
            }
        };
        if let Some(owner) = controller_of(&change.metadata.owner_references) {
            wake(owner, wakes);
            return;
        }
        // Nearly everything has an owner, so this is rare: an orphan, or one that was just let go.
        if let Some(previous) = change.previous.as_ref().filter(|_| !change.deleted)
            && let Some(owner) = controller_of(&ownership(&previous.value).owner_references)
        {
            wake(owner, wakes);
        }
        if !change.deleted {
            for key in view.world.workloads.selecting(namespace, self.table, &change.entry.facts) {
                wakes.add(key);
            }
        }
    }
}

/// A Pod of a template, as the server would complete it for a client.
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

/// A name that begins with `base`. The same seed gives the same name, so that equal worlds give equal answers; a seed has
/// the revision of the store in it, so that a name that was taken is not tried again.
pub(crate) fn name_from(base: &str, seed: (&str, u64, usize)) -> String {
    let mut round = 0_u32;
    lifecycle::generate_name(base, |below| {
        let mut hasher = DefaultHasher::new();
        (seed, round).hash(&mut hasher);
        round += 1;
        usize::try_from(hasher.finish() % below.max(1) as u64).unwrap_or_default()
    })
}

/// Deletes a Pod, unless it is another one by now or is being deleted already.
pub(crate) fn delete_pod(view: &View<'_>, pod: &Pod) -> Option<Write> {
    let entry = view.store.get(&pod.entry.key)?;
    let now = ownership(&entry.value);
    let same = now.uid == pod.uid && !now.is_deleting();
    same.then(|| Write::Delete { key: entry.key.clone(), modified: entry.modified, propagation: None })
}

/// Whether a Pod has been ready for long enough; if not yet, in how many seconds it will have been.
pub(crate) fn availability(pod: &Pod, min_ready: i64, now: i64) -> Result<(), Option<i64>> {
    let Some(since) = pod.ready_for() else { return Err(None) };
    let left = since.saturating_add(min_ready) - now;
    if min_ready <= 0 || left <= 0 { Ok(()) } else { Err(Some(left)) }
}

/// Growing transactions: first one, then two, four and so on, so that what cannot be written is not tried a thousand times.
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
