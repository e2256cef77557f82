//! DaemonSets: a Pod on each node that the template allows.
//!
//! ```text
//! claim ─▶ revision ─▶ snapshot: nodes and their Pods ─▶ policy: missing and excess Pods ─▶ rolling: Pods of old templates ─▶ status
//! ```
//! In: the set, its Pods, its revisions, all Nodes. Out: Pods to create and to delete, revisions, and the status. New Pods name their node in a required
//! affinity; the scheduler binds them.

mod eligible;
mod plan;
mod policy;
mod revision;
mod rolling;
mod snapshot;
mod status;
mod template;
#[cfg(test)]
mod tests;

use std::time::Duration;

use api::value::ValueExt as _;

use self::plan::Plan;
use self::revision::Revisions;
use self::snapshot::Snapshot;
use super::{StoredObject, WorkloadKind, claim, delete_pod, history, name_from, slow_start};
use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::node::Node;
use crate::objects::pod::{Phase, Pod};
use crate::write::Write;

/// The most Pods created, and the most deleted, in one reconcile.
const BURST: usize = 250;
/// The most Pods deleted in one transaction: a concurrent change of any of them is a conflict of all.
const TRANSACTION_SIZE: usize = 50;

/// DaemonSets.
pub(crate) const KIND: WorkloadKind =
    WorkloadKind { table: "daemonsets", kind: "DaemonSet", api_version: "apps/v1", controller: "daemonset-controller" };

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "daemonset", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Pod(_) => KIND.affected_keys(view, change, affected),
        // Of the initial list, the DaemonSets themselves are enough.
        TypedChange::Node(versions) if !change.initial && matters(versions) => {
            for key in view.cache.workloads.keys(KIND.table) {
                affected.add(key);
            }
        }
        _ if change.is_of(history::TABLE) => KIND.affected_keys(view, change, affected),
        _ if change.is_of(KIND.table) && !change.deleted => affected.add(change.key()),
        _ => {}
    }
}

/// Whether a field of a Node changed that decides where Pods run.
fn matters(versions: &Versions<Node>) -> bool {
    match (&versions.old, &versions.new) {
        (Some(old), Some(new)) => old.taints != new.taints || old.entry.facts.labels != new.entry.facts.labels,
        _ => true,
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(set) = StoredObject::read(view, KIND.table, key) else { return Outcome::done() };
    let Some(selector) = set.selector() else { return Outcome::done() };
    // The garbage collector may have deleted its revisions already, so the revision of its Pods cannot be determined.
    if set.is_deleting() {
        return Outcome::done();
    }
    let revisions = claim::objects(view, &KIND, &set, history::TABLE, &selector);
    if !revisions.writes.is_empty() {
        return Outcome::write(revisions.writes);
    }
    let pods = claim::pods(view, &KIND, &set, &selector, |_| true);
    if !pods.writes.is_empty() {
        return Outcome::write(pods.writes);
    }
    let revisions = Revisions::of(view, &set, revisions.own, &pods.own);
    let snapshot = Snapshot::of(view, &set, &revisions, &pods.own);
    let plan = policy::decide(&snapshot);
    outcome(view, &set, revisions, &snapshot, &plan)
}

/// The writes of a plan. Deletions come first: a refused creation ends the reconcile.
fn outcome(
    view: &View<'_>,
    set: &StoredObject,
    revisions: Revisions,
    snapshot: &Snapshot<'_>,
    plan: &Plan<'_>,
) -> Outcome {
    let status = status::of(set, snapshot, revisions.collisions);
    let mut outcome = Outcome::write(revisions.writes);
    outcome.transactions.extend(set.with_status(status).map(|write| vec![write]));
    let mut deleted = Vec::new();
    for (index, (node, pod)) in plan.ended.iter().chain(&plan.delete).take(BURST).enumerate() {
        let Some(write) = delete_pod(view, pod) else { continue };
        deleted.push(write);
        if index < plan.ended.len() {
            outcome.events.push(ended_event(view, set, node, pod));
        }
        let message = format!("Deleted pod: {}", pod.name());
        outcome.events.push(KIND.event(view, &set.object, true, "SuccessfulDelete", &message));
    }
    outcome.transactions.extend(deleted.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec));
    let mut created = Vec::new();
    let base = format!("{}-", set.name());
    for (index, node) in plan.create.iter().take(BURST).enumerate() {
        let name = name_from(&base, (set.uid(), view.store.revision(), index));
        let message = format!("Created pod: {name}");
        outcome.events.push(KIND.event(view, &set.object, true, "SuccessfulCreate", &message));
        let mut pod = template::new_daemon_pod(set, &revisions.hash, node, &name);
        pod.put("metadata.generateName", base.as_str());
        created.push(Write::create("pods", pod));
    }
    outcome.transactions.extend(slow_start(created));
    let ready = snapshot.wait.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    outcome.requeue_after = ready.into_iter().chain(plan.backoff).min();
    outcome
}

/// The Event about a Pod that has ended.
fn ended_event(view: &View<'_>, set: &StoredObject, node: &str, pod: &Pod) -> Write {
    let failed = pod.phase == Phase::Failed;
    let (reason, state, verb) =
        if failed { ("FailedDaemonPod", "failed", "kill") } else { ("SucceededDaemonPod", "succeeded", "delete") };
    let message = format!("Found {state} daemon pod {} on node {node}, will try to {verb} it", pod.entry.key.name);
    KIND.event(view, &set.object, !failed, reason, &message)
}
