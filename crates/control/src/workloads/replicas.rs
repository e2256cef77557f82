//! ReplicaSets and ReplicationControllers: keep the number of Pods at `spec.replicas`.
//!
//! In: the stored owner and its Pods. Out: new Pods, deletions of excess Pods, adoptions and releases, and status counts.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::value::ValueExt as _;
use api::view::metadata::controller_of;
use serde_json::Value;

use super::claim::{self, Claim};
use super::{StoredObject, WorkloadKind, availability, delete_pod, name_from, new_pod, order, slow_start};
use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::write::Write;

/// The most Pods created in one reconcile.
const MAX_CREATED: usize = 500;
/// The most Pods deleted in one transaction: a concurrent change of any of them is a conflict of all.
const MAX_DELETED: usize = 50;

/// ReplicaSets.
pub(crate) const SETS: WorkloadKind = WorkloadKind {
    table: "replicasets",
    kind: "ReplicaSet",
    api_version: "apps/v1",
    controller: "replicaset-controller",
};

/// ReplicationControllers.
pub(crate) const CONTROLLERS: WorkloadKind = WorkloadKind {
    table: "controllers",
    kind: "ReplicationController",
    api_version: "v1",
    controller: "replication-controller",
};

/// The controller of ReplicaSets.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "replicaset",
    enabled: always,
    affected_keys: |view, change, affected| affected_keys(&SETS, view, change, affected),
    reconcile: |view, key| reconcile(&SETS, view, key),
    resync_period: None,
};

/// The controller of ReplicationControllers.
pub(crate) const REPLICATION: Controller = Controller {
    name: "replicationcontroller",
    enabled: always,
    affected_keys: |view, change, affected| affected_keys(&CONTROLLERS, view, change, affected),
    reconcile: |view, key| reconcile(&CONTROLLERS, view, key),
    resync_period: None,
};

fn affected_keys(kind: &WorkloadKind, view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Pod(_) => kind.affected_keys(view, change, affected),
        _ if change.is_of(kind.table) && !change.deleted => affected.add(change.key()),
        _ => {}
    }
}

fn reconcile(kind: &WorkloadKind, view: &View<'_>, key: &str) -> Outcome {
    let Some(owner) = StoredObject::read(view, kind.table, key) else { return Outcome::done() };
    let Some(selector) = owner.selector() else { return Outcome::done() };
    let Claim { own, writes } = claim::pods(view, kind, &owner, &selector, |_| true);
    let mut outcome = Outcome::write(writes);
    let active: Vec<&Arc<Pod>> = own.iter().copied().filter(|pod| pod.is_active()).collect();
    let wanted = usize::try_from(owner.object.int("spec.replicas")).unwrap_or_default();
    let excess = if owner.is_deleting() { Vec::new() } else { excess(view, &owner, &active, wanted) };
    let (status, wait) = status(kind, view, &owner, &own, &excess);
    // In one transaction: the status must not count Pods that are deleted with it.
    let mut together: Vec<Write> = status.into_iter().collect();
    for pod in excess {
        if let Some(write) = delete_pod(view, pod) {
            let message = format!("Deleted pod: {}", pod.name());
            outcome.events.push(kind.event(view, &owner.object, true, "SuccessfulDelete", &message));
            together.push(write);
        }
    }
    if !together.is_empty() {
        outcome.transactions.push(together);
    }
    if active.len() < wanted && !owner.is_deleting() {
        create(kind, view, &owner, wanted - active.len(), &mut outcome);
    }
    outcome.requeue_after = wait;
    outcome
}

/// Creates missing Pods.
fn create(kind: &WorkloadKind, view: &View<'_>, owner: &StoredObject, missing: usize, outcome: &mut Outcome) {
    let template = owner.object.at("spec.template");
    let base = format!("{}-", owner.name());
    let mut pods = Vec::new();
    for index in 0..missing.min(MAX_CREATED) {
        let name = name_from(&base, (owner.uid(), view.store.revision(), index));
        let message = format!("Created pod: {name}");
        outcome.events.push(kind.event(view, &owner.object, true, "SuccessfulCreate", &message));
        let mut pod = new_pod(template, owner.namespace(), &name, &kind.reference(&owner.object));
        pod.put("metadata.generateName", base.as_str());
        pods.push(Write::create("pods", pod));
    }
    outcome.transactions.extend(slow_start(pods));
}

/// The excess Pods, limited per transaction.
fn excess<'a>(view: &View<'a>, owner: &StoredObject, active: &[&'a Arc<Pod>], wanted: usize) -> Vec<&'a Arc<Pod>> {
    let count = active.len().saturating_sub(wanted).min(MAX_DELETED);
    if count == 0 {
        return Vec::new();
    }
    let mut excess = active.to_vec();
    order::sort(&mut excess, &related(view, owner, active), view.now.as_second());
    excess.truncate(count);
    excess
}

/// The Pods of all ReplicaSets of the same Deployment.
fn related<'a>(view: &View<'a>, owner: &StoredObject, own: &[&'a Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let Some(above) = controller_of(view.cache.owners.of(&owner.entry.key)) else { return own.to_vec() };
    let sets = view.cache.owners.dependents_of(&above.uid).filter(|one| one.key.table == owner.entry.key.table);
    let mut pods = Vec::new();
    for set in sets {
        let Some(entry) = view.store.get(set.key) else { continue };
        let uid = ownership(&entry.value).uid;
        let below = view.cache.owners.dependents_of(&uid).filter(|one| one.key.table.as_str() == "pods");
        pods.extend(below.filter_map(|one| view.cache.pods.get(&one.key.name)).filter(|pod| pod.is_active()));
    }
    pods
}

/// The status after the deletion of excess Pods, if it changed, and when it changes by time.
fn status(
    kind: &WorkloadKind,
    view: &View<'_>,
    owner: &StoredObject,
    own: &[&Arc<Pod>],
    excess: &[&Arc<Pod>],
) -> (Option<Write>, Option<Duration>) {
    let min_ready = owner.object.int("spec.minReadySeconds");
    let labels = owner.object.map("spec.template.metadata.labels");
    let labelled = |pod: &Pod| {
        let has = |(key, value): (&String, &Value)| pod.entry.facts.label(key) == value.as_str();
        labels.into_iter().flatten().all(has)
    };
    let (mut counts, mut wait) = ([0_i64; 5], None::<i64>);
    for pod in own {
        let goes = excess.iter().any(|other| other.uid == pod.uid);
        // An unscheduled Pod is deleted immediately.
        if (pod.deleting || (goes && !pod.node.is_empty())) && !pod.finished {
            counts[4] += 1;
        }
        if goes || !pod.is_active() {
            continue;
        }
        counts[0] += 1;
        counts[1] += i64::from(labelled(pod));
        counts[2] += i64::from(pod.ready);
        match availability(pod, min_ready, view.now.as_second()) {
            Ok(()) => counts[3] += 1,
            Err(Some(left)) => wait = Some(wait.map_or(left, |before| before.min(left))),
            Err(None) => {}
        }
    }
    let mut new = owner.object.clone();
    let fields = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas"];
    for (field, count) in fields.into_iter().zip(counts) {
        // ReplicationControllers have no terminatingReplicas; zero values are omitted as in Go.
        if field == "terminatingReplicas" && *kind == CONTROLLERS {
            continue;
        }
        set(&mut new, field, count, matches!(field, "replicas" | "terminatingReplicas"));
    }
    set(&mut new, "observedGeneration", owner.object.int("metadata.generation"), false);
    let wait = wait.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    (owner.with_status(new), wait)
}

/// Sets a status count; 0 is omitted unless `keep`.
fn set(object: &mut Value, field: &str, value: i64, keep: bool) {
    let path = format!("status.{field}");
    if value == 0 && !keep {
        object.drop_path(&path);
    } else {
        object.put(&path, value);
    }
}
