//! Allocates Pod CIDRs to Nodes from `--cluster-cidr`.
//!
//! In: the stored Nodes. Out: `spec.podCIDR` and `spec.podCIDRs` of Nodes without, and Events when the CIDRs are exhausted or overlap.
//!
//! No CIDR is allocated twice: there is one queue key, so reconciles are serialized, and they read the store, which contains all previous writes. A write of
//! a previous leader that is still in flight conflicts, because Nodes are processed in order of creation, so both start with the same Node. A conflict
//! ends the reconcile.

mod pool;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::{Arc, Once};
use std::time::Duration;

use api::ip::parse_lenient;
use api::object;
use api::value::ValueExt as _;
use api::view::Ownership;
use ipnet::IpNet;
use store::{Entry, Table};

use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View};
use crate::event::{self, EventDetails, Reference};
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::settings::Settings;
use crate::write::{Write, object_key};
use pool::{Pool, PoolError};

const TABLE: &str = "minions";
/// The most Nodes in one transaction.
const TRANSACTION_SIZE: usize = 100;
/// The most Events per reconcile; the rest follows after [`MORE_EVENTS`].
const MAX_EVENTS: usize = 100;
const MORE_EVENTS: Duration = Duration::from_secs(1);

/// The controller.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "node-cidrs",
    enabled: |settings| !settings.cluster_cidrs.is_empty(),
    affected_keys,
    reconcile,
    resync_period: None,
};

/// Only changes of Pod CIDRs matter; Nodes change often otherwise.
fn affected_keys(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if let TypedChange::Node(both) = &change.typed {
        let (old, new) = (both.old.as_deref(), both.new.as_deref());
        if old.map(|node| &node.pod_cidrs) != new.map(|node| &node.pod_cidrs) {
            affected.add(SINGLETON_KEY);
        }
    }
}

fn reconcile(view: &View<'_>, _key: &str) -> Outcome {
    let pools = match pools(view.settings) {
        Ok(pools) => pools,
        Err(why) => {
            // Flags do not change: log once.
            static WARN_ONCE: Once = Once::new();
            WARN_ONCE.call_once(|| tracing::error!("Nodes get no pod CIDRs: {why}"));
            return Outcome::done();
        }
    };
    let Ok(stored) = view.store.range(Table::named(TABLE), "", None) else {
        return Outcome { requeue_after: Some(Duration::from_secs(1)), ..Outcome::default() };
    };
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for entry in &stored.entries {
        match &*known(view, entry).pod_cidrs {
            [] => waiting.push(entry),
            cidrs => held.extend(cidrs.iter().filter_map(|text| parse(text)).map(|net| (net, entry))),
        }
    }
    waiting.sort_by_key(|entry| entry.created);
    let (writes, unserved) = allocate(view.settings, &pools, &held, waiting);
    let mut events: Vec<Write> = overlaps(held).iter().map(|overlap| overlapping(view, overlap)).collect();
    events.extend(unserved.iter().map(|unserved| unavailable(view, unserved)));
    // Existing Events are not repeated.
    events.retain(|event| is_news(view, event));
    let requeue_after = (events.len() > MAX_EVENTS).then_some(MORE_EVENTS);
    events.truncate(MAX_EVENTS);
    let transactions = writes.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec).collect();
    Outcome { transactions, events, requeue_after, ..Outcome::done() }
}

/// The CIDRs of the flags, at most one per family.
fn pools(settings: &Settings) -> Result<Vec<Pool>, PoolError> {
    let mut families = HashSet::new();
    let one_of_each = settings.cluster_cidrs.iter().all(|range| families.insert(range.addr().is_ipv4()));
    if !one_of_each {
        return Err(PoolError::TwoOfOneFamily);
    }
    settings.cluster_cidrs.iter().map(|range| Pool::new(*range, settings.node_masks)).collect()
}

/// A stored Node, from the cache if it has the same revision.
fn known(view: &View<'_>, entry: &Arc<Entry>) -> Arc<Node> {
    let known = view.cache.nodes.get(&entry.key.name).filter(|node| node.entry.modified == entry.modified);
    known.cloned().unwrap_or_else(|| Arc::new(Node::read(entry)))
}

fn parse(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    Some(IpNet::new(parse_lenient(address)?, prefix.parse().ok()?).ok()?.trunc())
}

/// A Node without a CIDR, and the exhausted pool.
struct Unserved<'a> {
    entry: &'a Arc<Entry>,
    metadata: Ownership,
    pool: &'a Pool,
}

/// Allocates a CIDR of every pool to each waiting Node until a pool is exhausted. Service CIDRs are excluded.
fn allocate<'a>(
    settings: &Settings,
    pools: &'a [Pool],
    held: &[(IpNet, &Arc<Entry>)],
    waiting: Vec<&'a Arc<Entry>>,
) -> (Vec<Write>, Vec<Unserved<'a>>) {
    let taken = || held.iter().map(|(net, _)| *net).chain(settings.ranges.addresses.iter().copied());
    let mut free: Vec<_> = pools.iter().map(|pool| (pool.free(taken()), pool)).collect();
    let (mut writes, mut unserved, mut used_up) = (Vec::new(), Vec::new(), None);
    for entry in waiting {
        let metadata = ownership(&entry.value);
        if metadata.is_deleting() {
            continue;
        }
        let pieces = match used_up {
            Some(pool) => Err(pool),
            None => free.iter_mut().map(|(free, pool)| free.next().ok_or(*pool)).collect::<Result<Vec<IpNet>, _>>(),
        };
        match pieces {
            Ok(pieces) => writes.push(assign(entry, &pieces)),
            Err(pool) => {
                used_up = Some(pool);
                unserved.push(Unserved { entry, metadata, pool });
            }
        }
    }
    (writes, unserved)
}

fn assign(entry: &Entry, pieces: &[IpNet]) -> Write {
    let texts: Vec<String> = pieces.iter().map(ToString::to_string).collect();
    let mut node = object::decode_bare(&entry.value);
    node.put("spec.podCIDR", texts.first().cloned());
    node.put("spec.podCIDRs", texts);
    Write::Object { table: TABLE, object: Box::new(node), modified: entry.modified }
}

/// Overlapping CIDRs of two Nodes.
struct Overlap<'a> {
    younger: (IpNet, &'a Arc<Entry>),
    older: (IpNet, &'a Arc<Entry>),
}

/// CIDRs are disjoint or nested. Sorted by start and size, each can only be inside the last outermost one.
fn overlaps<'a>(mut held: Vec<(IpNet, &'a Arc<Entry>)>) -> Vec<Overlap<'a>> {
    held.sort_by_key(|(net, entry)| (*net, entry.created));
    let mut found = Vec::new();
    let mut outer: Option<(IpNet, &'a Arc<Entry>)> = None;
    for here in held {
        match outer {
            Some(outer) if outer.0.contains(&here.0) => {
                let mut both = [outer, here];
                both.sort_by_key(|(_, entry)| Reverse(entry.created));
                let [younger, older] = both;
                found.push(Overlap { younger, older });
            }
            _ => outer = Some(here),
        }
    }
    found
}

fn overlapping(view: &View<'_>, Overlap { younger, older }: &Overlap<'_>) -> Write {
    let message = format!(
        "The pod CIDR {} of Node {} overlaps {} of Node {}: their Pods may get the same addresses",
        younger.0, younger.1.key.name, older.0, older.1.key.name
    );
    node_event(view, younger.1, &ownership(&younger.1.value), "CIDRConflict", &message)
}

fn unavailable(view: &View<'_>, Unserved { entry, metadata, pool }: &Unserved<'_>) -> Write {
    let message = format!(
        "No pod CIDR is left for Node {} in --cluster-cidr {pool}; it gets one when another Node is deleted",
        entry.key.name,
    );
    node_event(view, entry, metadata, "CIDRNotAvailable", &message)
}

fn node_event(view: &View<'_>, entry: &Entry, metadata: &Ownership, reason: &str, message: &str) -> Write {
    let now = view.now_text();
    let finding = EventDetails { controller: "cidrAllocator", normal: false, reason, message, now: &now };
    event::new_event("Node", "v1", &Reference::new(&entry.key.name, &metadata.uid), &finding)
}

fn is_news(view: &View<'_>, event: &Write) -> bool {
    match event {
        Write::Object { table, object, .. } => view.store.get(&object_key(table, object)).is_none(),
        Write::Raw { .. }
        | Write::Subresource { .. }
        | Write::Delete { .. }
        | Write::DeleteNow { .. }
        | Write::DeleteReleased { .. } => true,
    }
}
