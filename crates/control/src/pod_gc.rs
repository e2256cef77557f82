//! Pods that nobody will ever end: those of nodes that are gone, those that ended long ago, those that were deleted before
//! they had a node.
//!
//! In: Pods and Nodes. Out: deletions without any grace, because there is nobody who could use it. One key looks at
//! everything at once: it is woken when a Node goes, and now and then.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::object;
use api::value::ValueExt as _;

use crate::controller::{Controller, Verdict, View, WHOLE, Wakes, always};
use crate::objects::pod::Pod;
use crate::world::{Both, Change, What};
use crate::write::Write;

/// How often everything is looked at.
const EVERY: Duration = Duration::from_secs(20);
/// For how long a node must be gone before its Pods go: it may come back under the same name.
const QUARANTINE: Duration = Duration::from_secs(40);
/// How many Pods that ended are kept to be looked at.
const KEPT: usize = 12_500;
/// How many Pods go in one run, and how many of them in one transaction.
const AT_ONCE: usize = 1000;
const TOGETHER: usize = 100;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "podgc", enabled: always, concerns, reconcile, every: Some(EVERY) };

fn concerns(_: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Node(Both { new: None, .. }) => wakes.add_after(WHOLE, QUARANTINE),
        What::Pod(Both { new: Some(new), .. }) if new.deleting && new.node.is_empty() => wakes.add(WHOLE),
        _ => {}
    }
}

fn reconcile(view: &View<'_>, _key: &str) -> Verdict {
    let mut doomed: Vec<&Arc<Pod>> = orphans(view);
    doomed.extend(view.world.pods.iter().filter(|pod| pod.deleting && pod.node.is_empty()));
    let mut ended: Vec<&Arc<Pod>> = view.world.pods.iter().filter(|pod| pod.finished && !pod.deleting).collect();
    if ended.len() > KEPT {
        ended.sort_by_key(|pod| (pod.created, &pod.entry.key.name));
        doomed.extend(ended.drain(..ended.len() - KEPT));
    }
    doomed.sort_by(|a, b| a.entry.key.name.cmp(&b.entry.key.name));
    doomed.dedup_by(|a, b| a.uid == b.uid);
    let writes: Vec<Write> = doomed.into_iter().take(AT_ONCE).filter_map(|pod| end(view, pod)).collect();
    let more = writes.len() == AT_ONCE;
    Verdict {
        transactions: writes.chunks(TOGETHER).map(<[Write]>::to_vec).collect(),
        again: more.then_some(Duration::ZERO),
        ..Verdict::default()
    }
}

/// Pods of nodes that have been gone for a while. Nodes that never were while we looked are left alone: Pods may be written
/// by hand to describe what runs on machines that have no Node.
fn orphans<'a>(view: &View<'a>) -> Vec<&'a Arc<Pod>> {
    let is_gone = |name: &&str| {
        let since = view.world.nodes.gone_since(name);
        since.is_some_and(|since| view.instant.saturating_duration_since(since) >= QUARANTINE)
    };
    let gone = view.world.pods.nodes().filter(is_gone);
    gone.flat_map(|name| view.world.pods.on_node(name)).collect()
}

/// The end of a Pod, unless it is another one by now, or has been given to another node.
fn end(view: &View<'_>, pod: &Pod) -> Option<Write> {
    let entry = view.store.get(&pod.entry.key)?;
    let now = object::decode_light(&entry.value);
    let same = now.text("metadata.uid") == &*pod.uid && now.text("spec.nodeName") == &*pod.node;
    same.then(|| Write::End { key: entry.key.clone(), modified: entry.modified })
}
