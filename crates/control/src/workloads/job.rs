//! Jobs: Pods that run to completion.
//!
//! ```text
//! claim ─▶ plan (pure): ending? Pods to delete, to create, to count ─▶ one transaction: status, finalizers, deletions ─▶ new Pods
//! ```
//! In: the Job and its Pods. A Pod has a finalizer until the status counts it. The finalizer is removed in the transaction that writes the count, so that no
//! crash loses a finished Pod or counts it twice; `status.uncountedTerminatedPods`, which other controllers need for that, is honoured and stays empty.

mod account;
mod backoff;
mod failure_policy;
mod orphans;
mod plan;
mod pods;
mod spec;
mod status;
#[cfg(test)]
mod tests;
mod ttl;

use std::sync::Arc;

use api::kinds::job::{self, TRACKING_FINALIZER};
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;

pub(crate) use self::orphans::ORPHANS;
use self::plan::Plan;
pub(crate) use self::ttl::TTL;
use super::claim::{self, Claim};
use super::{StoredObject, WorkloadKind, slow_start};
use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::pod::Pod;
use crate::write::{Write, drop_finalizer};

/// Jobs.
pub(crate) const KIND: WorkloadKind =
    WorkloadKind { table: "jobs", kind: "Job", api_version: "batch/v1", controller: "job-controller" };

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "job", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Pod(_) => KIND.affected_keys(view, change, affected),
        _ if change.is_of(KIND.table) && !change.deleted => affected.add(change.key()),
        _ => {}
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(owner) = StoredObject::read(view, KIND.table, key) else { return Outcome::done() };
    if is_external(&owner.object) || job::is_finished(&owner.object) {
        return Outcome::done();
    }
    let Some(selector) = owner.selector() else { return Outcome::done() };
    let Claim { own, writes } = claim::pods(view, &KIND, &owner, &selector, |_| true);
    if !writes.is_empty() {
        return Outcome::write(writes.into_iter().map(|write| tracking(write, owner.uid())).collect());
    }
    let plan = plan::plan(&owner.object, &own, view.now);
    carry_out(view, &owner, plan)
}

/// Whether another controller manages a Job.
fn is_external(owner: &Value) -> bool {
    owner.at("spec.managedBy").as_str().is_some_and(|manager| manager != job::CONTROLLER)
}

/// An adopted Pod gets the finalizer, a released one loses it.
fn tracking(mut write: Write, uid: &str) -> Write {
    if let Write::Object { object, .. } = &mut write {
        let adopted = object.items("metadata.ownerReferences").iter().any(|owner| owner.text("uid") == uid);
        drop_finalizer(object, TRACKING_FINALIZER);
        if adopted {
            pods::add_finalizer(object);
        }
    }
    write
}

fn carry_out(view: &View<'_>, owner: &StoredObject, plan: Plan<'_>) -> Outcome {
    let Plan { status, released, deleted, created, events, requeue_after } = plan;
    let mut new = owner.object.clone();
    new.put("status", status);
    let mut together: Vec<Write> = owner.with_status(new).into_iter().collect();
    together.extend(released.into_iter().filter_map(release));
    let event = |normal: bool, reason: &str, message: &str| KIND.event(view, &owner.object, normal, reason, message);
    let mut outcome = Outcome { requeue_after, ..Outcome::default() };
    outcome.events.extend(events.iter().map(|one| event(one.normal, &one.reason, &one.message)));
    for pod in deleted {
        outcome.events.push(event(true, "SuccessfulDelete", &format!("Deleted pod: {}", pod.name())));
        let (key, modified) = (pod.entry.key.clone(), pod.entry.modified);
        together.push(Write::DeleteReleased { key, modified, finalizer: TRACKING_FINALIZER });
    }
    if !together.is_empty() {
        outcome.transactions.push(together);
    }
    let mut new_pods = Vec::new();
    for (number, one) in created.iter().enumerate() {
        let pod = pods::new(owner, one, (view.store.revision(), number));
        outcome.events.push(event(true, "SuccessfulCreate", &format!("Created pod: {}", pod.text("metadata.name"))));
        new_pods.push(Write::create("pods", pod));
    }
    outcome.transactions.extend(slow_start(new_pods));
    outcome
}

/// Removes the finalizer of the Pod as the plan saw it: if it changed since, the transaction is a conflict.
fn release(pod: &Arc<Pod>) -> Option<Write> {
    let mut object = object::decode_bare(&pod.entry.value);
    let had = drop_finalizer(&mut object, TRACKING_FINALIZER);
    had.then(|| Write::Object { table: "pods", object: Box::new(object), modified: pod.entry.modified })
}
