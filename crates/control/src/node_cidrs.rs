//! Addresses for the Pods of each Node: a piece of every range of `--cluster-cidr`.
//!
//! In: the Nodes as they are stored. Out: `spec.podCIDR` and `spec.podCIDRs` of those that have none, and Events where there
//! is nothing left to give, or where Nodes brought addresses that overlap.
//!
//! No piece is given twice. There is one key, so this server gives out pieces one run after the other, and it reads the
//! store, which shows its last run. Should a write of an earlier leader still be under way, it collides: Nodes are served in
//! the order in which they were made, so two runs that know nothing of each other both begin with the same Node, and only
//! one of them can write it. What a transaction refuses ends its run.

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

use crate::controller::{Controller, Verdict, View, WHOLE, Wakes};
use crate::objects::node::Node;
use crate::objects::ownership;
use crate::report::{self, Finding, Reference};
use crate::settings::Settings;
use crate::world::{Change, What};
use crate::write::{Write, object_key};
use pool::Pool;

const TABLE: &str = "minions";
/// How many Nodes are written in one transaction.
const AT_ONCE: usize = 100;
/// How many Events one run sends; the rest follow after [`MORE_EVENTS`].
const MAX_EVENTS: usize = 100;
const MORE_EVENTS: Duration = Duration::from_secs(1);

/// The controller.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "node-cidrs",
    enabled: |settings| !settings.cluster_cidrs.is_empty(),
    concerns,
    reconcile,
    every: None,
};

/// Only what gives or frees addresses matters; Nodes change all the time otherwise.
fn concerns(_: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if let What::Node(both) = &change.what {
        let (old, new) = (both.old.as_deref(), both.new.as_deref());
        if old.map(|node| &node.pod_cidrs) != new.map(|node| &node.pod_cidrs) {
            wakes.add(WHOLE);
        }
    }
}

fn reconcile(view: &View<'_>, _key: &str) -> Verdict {
    let pools = match pools(view.settings) {
        Ok(pools) => pools,
        Err(why) => {
            // What the command line says does not change while the process lives.
            static SAID: Once = Once::new();
            SAID.call_once(|| tracing::error!("Nodes get no pod CIDRs: {why}"));
            return Verdict::settled();
        }
    };
    let Ok(stored) = view.store.range(Table::named(TABLE), "", None) else {
        return Verdict { again: Some(Duration::from_secs(1)), ..Verdict::default() };
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
    // What was said already is not said again, which keeps a long shortage cheap.
    events.retain(|event| is_news(view, event));
    let again = (events.len() > MAX_EVENTS).then_some(MORE_EVENTS);
    events.truncate(MAX_EVENTS);
    Verdict { transactions: writes.chunks(AT_ONCE).map(<[Write]>::to_vec).collect(), events, again }
}

/// The ranges of the command line: one of each family at most, because that is what a Node may have.
fn pools(settings: &Settings) -> Result<Vec<Pool>, String> {
    let mut families = HashSet::new();
    let one_of_each = settings.cluster_cidrs.iter().all(|range| families.insert(range.addr().is_ipv4()));
    if !one_of_each {
        return Err("--cluster-cidr has two ranges of one family".to_owned());
    }
    settings.cluster_cidrs.iter().map(|range| Pool::new(*range, settings.node_masks)).collect()
}

/// A stored Node, from the world if that has this very state.
fn known(view: &View<'_>, entry: &Arc<Entry>) -> Arc<Node> {
    let known = view.world.nodes.get(&entry.key.name).filter(|node| node.entry.modified == entry.modified);
    known.cloned().unwrap_or_else(|| Arc::new(Node::read(entry)))
}

fn parse(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    Some(IpNet::new(parse_lenient(address)?, prefix.parse().ok()?).ok()?.trunc())
}

/// A Node for which nothing was left, and what it was that was used up.
struct Unserved<'a> {
    entry: &'a Arc<Entry>,
    metadata: Ownership,
    pool: &'a Pool,
}

/// Gives each waiting Node a piece of every pool, until one is used up. Addresses of Services are no one's.
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
            Ok(pieces) => writes.push(give(entry, &pieces)),
            Err(pool) => {
                used_up = Some(pool);
                unserved.push(Unserved { entry, metadata, pool });
            }
        }
    }
    (writes, unserved)
}

fn give(entry: &Entry, pieces: &[IpNet]) -> Write {
    let texts: Vec<String> = pieces.iter().map(ToString::to_string).collect();
    let mut node = object::decode_bare(&entry.value);
    node.put("spec.podCIDR", texts.first().cloned());
    node.put("spec.podCIDRs", texts);
    Write::Object { table: TABLE, object: Box::new(node), modified: entry.modified }
}

/// Addresses that two Nodes have: those of the younger one, and those of the older.
struct Overlap<'a> {
    younger: (IpNet, &'a Arc<Entry>),
    older: (IpNet, &'a Arc<Entry>),
}

/// Two ranges are apart, or one contains the other. In order of their beginnings, the larger first, each can only lie in
/// the last one that lies in no other.
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
    tell(view, younger.1, &ownership(&younger.1.value), "CIDRConflict", &message)
}

fn unavailable(view: &View<'_>, Unserved { entry, metadata, pool }: &Unserved<'_>) -> Write {
    let message = format!(
        "No pod CIDR is left for Node {} in --cluster-cidr {pool}; it gets one when another Node is deleted",
        entry.key.name,
    );
    tell(view, entry, metadata, "CIDRNotAvailable", &message)
}

fn tell(view: &View<'_>, entry: &Entry, metadata: &Ownership, reason: &str, message: &str) -> Write {
    let now = view.now_text();
    let finding = Finding { controller: "cidrAllocator", normal: false, reason, message, now: &now };
    report::about("Node", "v1", &Reference::new(&entry.key.name, &metadata.uid), &finding)
}

fn is_news(view: &View<'_>, event: &Write) -> bool {
    match event {
        Write::Object { table, object, .. } => view.store.get(&object_key(table, object)).is_none(),
        Write::Raw { .. } | Write::Part { .. } | Write::Delete { .. } | Write::End { .. } => true,
    }
}
