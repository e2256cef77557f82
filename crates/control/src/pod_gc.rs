//! Pod garbage collection: Pods of deleted nodes, terminated Pods beyond a limit, and Pods that were deleted before they were scheduled.
//!
//! In: Pods and Nodes. Out: deletions with grace period 0, because no agent would complete them. One queue key, reconciled after a Node deletion and
//! periodically.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use serde_json::json;
use store::Entry;

use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::objects::pod::Pod;
use crate::write::Write;

/// The resync period.
const RESYNC_PERIOD: Duration = Duration::from_secs(20);
/// How long a node must be deleted before its Pods are: it may be registered again.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How many terminated Pods are kept.
const MAX_TERMINATED: usize = 12_500;
/// The most deletions in one reconcile, and in one transaction.
const BATCH_SIZE: usize = 1000;
const TRANSACTION_SIZE: usize = 100;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "podgc", enabled: always, affected_keys, reconcile, resync_period: Some(RESYNC_PERIOD) };

fn affected_keys(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Node(Versions { new: None, .. }) => affected.add_after(SINGLETON_KEY, QUARANTINE),
        TypedChange::Pod(Versions { new: Some(new), .. }) if new.deleting && new.node.is_empty() => {
            affected.add(SINGLETON_KEY);
        }
        _ => {}
    }
}

fn reconcile(view: &View<'_>, _key: &str) -> Outcome {
    let mut doomed: Vec<&Arc<Pod>> = orphans(view);
    doomed.extend(view.cache.pods.iter().filter(|pod| pod.deleting && pod.node.is_empty()));
    let mut ended: Vec<&Arc<Pod>> = view.cache.pods.iter().filter(|pod| pod.finished && !pod.deleting).collect();
    if ended.len() > MAX_TERMINATED {
        ended.sort_by_key(|pod| (pod.created, &pod.entry.key.name));
        doomed.extend(ended.drain(..ended.len() - MAX_TERMINATED));
    }
    doomed.sort_by(|a, b| a.entry.key.name.cmp(&b.entry.key.name));
    doomed.dedup_by(|a, b| a.uid == b.uid);
    let writes: Vec<Write> = doomed.into_iter().take(BATCH_SIZE).filter_map(|pod| end(view, pod)).collect();
    let marked = writes.iter().any(|write| matches!(write, Write::Subresource { .. }));
    let more = writes.len() == BATCH_SIZE || marked;
    Outcome {
        transactions: writes.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec).collect(),
        requeue_after: more.then_some(Duration::ZERO),
        ..Outcome::default()
    }
}

/// Pods of deleted nodes. Nodes that this server never observed are ignored: Pods may describe workloads on machines without a Node.
fn orphans<'a>(view: &View<'a>) -> Vec<&'a Arc<Pod>> {
    let is_gone = |name: &&str| {
        let since = view.cache.nodes.deleted_since(name);
        since.is_some_and(|since| view.instant.saturating_duration_since(since) >= QUARANTINE)
    };
    let gone = view.cache.pods.nodes().filter(is_gone);
    gone.flat_map(|name| view.cache.pods.on_node(name)).collect()
}

/// The deletion of a Pod, unless it was replaced or bound to another node. One that a finalizer keeps fails first: the Job that counts it waits for that.
fn end(view: &View<'_>, pod: &Pod) -> Option<Write> {
    let entry = view.store.get(&pod.entry.key)?;
    let now = object::decode_light(&entry.value);
    let same = now.text("metadata.uid") == &*pod.uid && now.text("spec.nodeName") == &*pod.node;
    if same && !pod.finished && !now.items("metadata.finalizers").is_empty() {
        return Some(failed(view, &entry));
    }
    same.then(|| Write::DeleteNow { key: entry.key.clone(), modified: entry.modified })
}

/// A Pod that no agent will report on any more.
fn failed(view: &View<'_>, entry: &Entry) -> Write {
    let mut object = object::decode_bare(&entry.value);
    object.put("status.phase", "Failed");
    if !object.text("spec.nodeName").is_empty() {
        let mut conditions = object.items("status.conditions").to_vec();
        conditions.retain(|condition| condition.text("type") != "DisruptionTarget");
        conditions.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": view.now_text(),
        }));
        object.put("status.conditions", conditions);
    }
    Write::Subresource { table: "pods", part: "status", object: Box::new(object), modified: entry.modified }
}
