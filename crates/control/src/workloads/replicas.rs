//! ReplicaSet and ReplicationController: as many Pods as it says, no more and no fewer.
//!
//! In: the owner as it is stored, the Pods that are its own. Out: Pods that are missing, deletions of those that are too
//! many, adoptions and releases, and the counts in its status.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::value::ValueExt as _;
use api::view::metadata::controller_of;
use serde_json::Value;

use super::claim::{self, Claim};
use super::{Flavor, Held, availability, delete_pod, name_from, new_pod, order, slow_start};
use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::ownership;
use crate::objects::pod::Pod;
use crate::world::{Change, What};
use crate::write::Write;

/// How many Pods are made before the world is looked at again.
const MADE_AT_ONCE: usize = 500;
/// How many Pods are deleted in one transaction: each of them may be changed by its node meanwhile, and then none goes.
const DELETED_AT_ONCE: usize = 50;

/// ReplicaSets.
pub(crate) const SETS: Flavor =
    Flavor { table: "replicasets", kind: "ReplicaSet", api_version: "apps/v1", controller: "replicaset-controller" };

/// ReplicationControllers.
pub(crate) const CONTROLLERS: Flavor = Flavor {
    table: "controllers",
    kind: "ReplicationController",
    api_version: "v1",
    controller: "replication-controller",
};

/// The controller of ReplicaSets.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "replicaset",
    enabled: always,
    concerns: |view, change, wakes| concerns(&SETS, view, change, wakes),
    reconcile: |view, key| reconcile(&SETS, view, key),
    every: None,
};

/// The controller of ReplicationControllers.
pub(crate) const REPLICATION: Controller = Controller {
    name: "replicationcontroller",
    enabled: always,
    concerns: |view, change, wakes| concerns(&CONTROLLERS, view, change, wakes),
    reconcile: |view, key| reconcile(&CONTROLLERS, view, key),
    every: None,
};

fn concerns(flavor: &Flavor, view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Pod(_) => flavor.wake(view, change, wakes),
        _ if change.is_of(flavor.table) && !change.deleted => wakes.add(change.key()),
        _ => {}
    }
}

fn reconcile(flavor: &Flavor, view: &View<'_>, key: &str) -> Verdict {
    let Some(owner) = Held::read(view, flavor.table, key) else { return Verdict::settled() };
    let Some(selector) = owner.selector() else { return Verdict::settled() };
    let Claim { own, writes } = claim::pods(view, flavor, &owner, &selector, |_| true);
    let mut verdict = Verdict::write(writes);
    let active: Vec<&Arc<Pod>> = own.iter().copied().filter(|pod| pod.is_active()).collect();
    let wanted = usize::try_from(owner.object.int("spec.replicas")).unwrap_or_default();
    let excess = if owner.is_deleting() { Vec::new() } else { excess(view, &owner, &active, wanted) };
    let (status, wait) = status(flavor, view, &owner, &own, &excess);
    // Together: whoever reads the status must not count Pods that are on their way out because of it.
    let mut together: Vec<Write> = status.into_iter().collect();
    for pod in excess {
        if let Some(write) = delete_pod(view, pod) {
            let message = format!("Deleted pod: {}", pod.name());
            verdict.events.push(flavor.event(view, &owner.object, true, "SuccessfulDelete", &message));
            together.push(write);
        }
    }
    if !together.is_empty() {
        verdict.transactions.push(together);
    }
    if active.len() < wanted && !owner.is_deleting() {
        create(flavor, view, &owner, wanted - active.len(), &mut verdict);
    }
    verdict.again = wait;
    verdict
}

/// Makes Pods that are missing.
fn create(flavor: &Flavor, view: &View<'_>, owner: &Held, missing: usize, verdict: &mut Verdict) {
    let template = owner.object.at("spec.template");
    let base = format!("{}-", owner.name());
    let mut pods = Vec::new();
    for index in 0..missing.min(MADE_AT_ONCE) {
        let name = name_from(&base, (owner.uid(), view.store.revision(), index));
        let message = format!("Created pod: {name}");
        verdict.events.push(flavor.event(view, &owner.object, true, "SuccessfulCreate", &message));
        let mut pod = new_pod(template, owner.namespace(), &name, &flavor.reference(&owner.object));
        pod.put("metadata.generateName", base.as_str());
        pods.push(Write::create("pods", pod));
    }
    verdict.transactions.extend(slow_start(pods));
}

/// The Pods that are too many, as many of them as go at once.
fn excess<'a>(view: &View<'a>, owner: &Held, active: &[&'a Arc<Pod>], wanted: usize) -> Vec<&'a Arc<Pod>> {
    let count = active.len().saturating_sub(wanted).min(DELETED_AT_ONCE);
    if count == 0 {
        return Vec::new();
    }
    let mut excess = active.to_vec();
    order::sort(&mut excess, &related(view, owner, active), view.now.as_second());
    excess.truncate(count);
    excess
}

/// The Pods that do the same work: those of all ReplicaSets of the same Deployment.
fn related<'a>(view: &View<'a>, owner: &Held, own: &[&'a Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
    let Some(above) = controller_of(view.world.owners.of(&owner.entry.key)) else { return own.to_vec() };
    let sets = view.world.owners.dependents_of(&above.uid).filter(|one| one.key.table == owner.entry.key.table);
    let mut pods = Vec::new();
    for set in sets {
        let Some(entry) = view.store.get(set.key) else { continue };
        let uid = ownership(&entry.value).uid;
        let below = view.world.owners.dependents_of(&uid).filter(|one| one.key.table.as_str() == "pods");
        pods.extend(below.filter_map(|one| view.world.pods.get(&one.key.name)).filter(|pod| pod.is_active()));
    }
    pods
}

/// The status as it should be once the excess is deleted, if it is not, and when it will change without another reason.
fn status(
    flavor: &Flavor,
    view: &View<'_>,
    owner: &Held,
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
        // One without a node is gone at once.
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
        // The older kind does not tell how many are about to go; nothing is written where Go would write nothing.
        if field == "terminatingReplicas" && *flavor == CONTROLLERS {
            continue;
        }
        set(&mut new, field, count, matches!(field, "replicas" | "terminatingReplicas"));
    }
    set(&mut new, "observedGeneration", owner.object.int("metadata.generation"), false);
    let wait = wait.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    (owner.with_status(new), wait)
}

/// Sets a number of a status; nothing is no number there, unless it is kept.
fn set(object: &mut Value, field: &str, value: i64, keep: bool) {
    let path = format!("status.{field}");
    if value == 0 && !keep {
        object.drop_path(&path);
    } else {
        object.put(&path, value);
    }
}
