//! How many Pods there should be: the sum of the replicas of the controllers of all Pods of a budget.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::crd;
use api::kind::{Kind, SCALE};
use api::object;
use api::value::ValueExt as _;
use api::view::OwnerReference;
use api::view::metadata::controller_of;
use store::{Entry, Key, Table};

use crate::cache::Change;
use crate::controller::View;
use crate::objects::ownership;
use crate::objects::pod::Pod;

/// The desired state of the controllers of Pods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Expected {
    /// The sum of their replicas.
    pub(super) replicas: i64,
    /// Whether every Pod has a controller.
    pub(super) is_managed: bool,
}

/// The replicas of the controllers of these Pods.
///
/// # Errors
/// When a controller does not exist or has no scale.
pub(super) fn expected(view: &View<'_>, pods: &[&Arc<Pod>]) -> Result<Expected, String> {
    let (mut scales, mut seen, mut is_managed) = (HashMap::new(), HashSet::new(), true);
    for pod in pods {
        let Some(owner) = controller_of(view.cache.owners.of(&pod.entry.key)) else {
            is_managed = false;
            continue;
        };
        if seen.insert(&*owner.uid) {
            let found = scale_of(view, pod.namespace(), owner)?;
            let (uid, replicas) = found.ok_or_else(|| format!("found no controllers for pod {:?}", pod.name()))?;
            scales.insert(uid, replicas);
        }
    }
    let replicas = scales.values().fold(0_i64, |sum, replicas| sum.saturating_add(*replicas));
    Ok(Expected { replicas, is_managed })
}

/// UID and replicas of a controller; those of its Deployment for a ReplicaSet that has one.
fn scale_of(view: &View<'_>, namespace: &str, owner: &OwnerReference) -> Result<Option<(Box<str>, i64)>, String> {
    if let Some(found) = deployment_of(view, namespace, owner) {
        return Ok(Some(found));
    }
    let version = &*owner.api_version;
    let (group, name) = version.split_once('/').unwrap_or(("", version));
    let kind = view.cache.kinds.kinds().find_kind(group, name, &owner.kind);
    let kind = kind.ok_or_else(|| format!("no matches for kind {:?} in version {version:?}", &*owner.kind))?;
    if !has_scale(kind) {
        return Err(format!("{} does not implement the scale subresource", kind.resource().plural_group()));
    }
    let Some(entry) = owner_entry(view, kind.table, namespace, owner) else { return Ok(None) };
    Ok(Some((owner.uid.clone(), replicas(kind, &entry)?)))
}

/// UID and replicas of the Deployment of a ReplicaSet.
fn deployment_of(view: &View<'_>, namespace: &str, owner: &OwnerReference) -> Option<(Box<str>, i64)> {
    if !is_of(owner, "ReplicaSet") {
        return None;
    }
    let set = ownership(&owner_entry(view, "replicasets", namespace, owner)?.value);
    let above = controller_of(&set.owner_references).filter(|above| is_of(above, "Deployment"))?;
    let deployment = owner_entry(view, "deployments", namespace, above)?;
    Some((above.uid.clone(), object::decode_light(&deployment.value).int("spec.replicas")))
}

fn is_of(owner: &OwnerReference, kind: &str) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    &*owner.kind == kind && matches!(group, "apps" | "extensions")
}

/// The object of an owner reference; `None` if it is gone, or another one has its name.
fn owner_entry(view: &View<'_>, table: &str, namespace: &str, owner: &OwnerReference) -> Option<Arc<Entry>> {
    let entry = view.store.get(&Key::new(Table::named(table), format!("{namespace}/{}", owner.name)))?;
    (ownership(&entry.value).uid == owner.uid).then_some(entry)
}

fn has_scale(kind: &Kind) -> bool {
    kind.subresource(SCALE).is_some()
}

fn replicas(kind: &Kind, entry: &Entry) -> Result<i64, String> {
    let object = object::decode(kind, &entry.value, entry.modified);
    let Some(definition) = kind.rules.definition() else { return Ok(object.int("spec.replicas")) };
    let paths = definition.scale.clone().unwrap_or_default();
    let scale = crd::scale::get(&paths, &object).map_err(|error| format!("Internal error occurred: {error}"))?;
    Ok(scale.int("spec.replicas"))
}

/// Whether a change may change the result for Pods that stay the same: a controller appeared, disappeared or was scaled.
pub(super) fn differs(view: &View<'_>, change: &Change) -> bool {
    let Some(kind) = view.cache.kinds.kinds().by_table(change.table.as_str()) else { return false };
    let Some(previous) = change.previous.as_ref().filter(|_| !change.deleted) else { return has_scale(kind) };
    has_scale(kind) && replicas(kind, previous) != replicas(kind, &change.entry)
}
