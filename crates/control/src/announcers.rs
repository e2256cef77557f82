//! What announcers leave behind: Leases of nodes that are gone, and of addresses that nobody has any more, go.
//!
//! In: Leases of announcers, Nodes, Services. Out: deletions. Announcers give back what they have when they end; this is for those that
//! could not. The Lease of a node is proof that it may answer for addresses, and while it may nobody else must, so it is no garbage by
//! having lost its owner: it goes only after it was not renewed for [`SILENT`], many times longer than it is good, in exactly the version that
//! was looked at first. Therefore keys name the version: a Lease that was renewed meanwhile has another key.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use api::announcer::{self, LIFE};
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::load_balancer::Request;
use crate::world::{Both, Change, What};
use crate::write::Write;

/// How long a Lease must have been as it is.
const SILENT: Duration = Duration::from_secs(10);
/// Between the name of a Lease and its version; no name has it.
const SEPARATOR: char = '@';
/// The table of Leases.
const LEASES: &str = "leases";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "announcer-leases", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    match &change.what {
        What::Node(Both { old: Some(old), new: None }) => {
            wake(view, &announcer::Key::Node(old.name().into()), wakes);
        }
        What::Service(_) => {
            let before = change.previous.as_ref().and_then(Request::read);
            let lost = before.into_iter().flat_map(|request| request.shown).filter(|ip| !is_wanted(view, *ip));
            lost.for_each(|ip| wake(view, &announcer::Key::Address(ip), wakes));
        }
        What::Other if change.is_of(LEASES) && !change.deleted => match of(change.key()) {
            // Nodes that are there renew theirs several times a second; that wakes nobody.
            Some(announcer::Key::Node(node)) if view.world.nodes.get(&node).is_some() => {}
            Some(_) => add(&change.entry, wakes),
            None => {}
        },
        _ => {}
    }
}

/// Which Lease of ours has this key.
fn of(key: &str) -> Option<announcer::Key> {
    announcer::Key::named(key.strip_prefix(announcer::NAMESPACE)?.strip_prefix('/')?)
}

fn wake(view: &View<'_>, key: &announcer::Key, wakes: &mut Wakes<'_>) {
    if let Some(entry) = stored(view, key) {
        add(&entry, wakes);
    }
}

fn add(entry: &Entry, wakes: &mut Wakes<'_>) {
    wakes.add_after(&format!("{}{SEPARATOR}{}", entry.key.name, entry.modified), SILENT);
}

fn stored(view: &View<'_>, key: &announcer::Key) -> Option<std::sync::Arc<Entry>> {
    view.store.get(&Key::new(Table::named(LEASES), format!("{}/{}", announcer::NAMESPACE, key.name())))
}

/// Whether a Service shows an address.
fn is_wanted(view: &View<'_>, ip: IpAddr) -> bool {
    view.world.load_balancers.requests().any(|request| request.shown.contains(&ip))
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let Some((name, version)) = key.split_once(SEPARATOR) else { return Verdict::settled() };
    let entry = view.store.get(&Key::new(Table::named(LEASES), name));
    let Some(entry) = entry.filter(|entry| entry.modified.to_string() == version) else { return Verdict::settled() };
    match of(name) {
        Some(announcer::Key::Node(node)) if view.world.nodes.get(&node).is_none() => {}
        Some(announcer::Key::Address(ip)) if !is_wanted(view, ip) => {
            // Who lives gives it back by itself; who does not is known to be gone a little later.
            if may_answer(view, &object::decode_light(&entry.value)) {
                return Verdict { again: Some(SILENT), ..Verdict::settled() };
            }
        }
        _ => return Verdict::settled(),
    }
    tracing::info!(lease = name, "a Lease of an announcer is removed: nobody needs it any more");
    Verdict::write(vec![Write::delete(&entry)])
}

/// Whether the node that has an address still is in the life in which it got it, as far as its own Lease says.
fn may_answer(view: &View<'_>, lease: &Value) -> bool {
    let holder = lease.text("spec.holderIdentity");
    let own = stored(view, &announcer::Key::Node(holder.into())).filter(|_| !holder.is_empty());
    own.is_some_and(|own| {
        let own = object::decode_light(&own.value);
        own.text("spec.holderIdentity") == holder && life(&own) == life(lease)
    })
}

fn life(lease: &Value) -> &str {
    lease.at("metadata.annotations").get(LIFE).and_then(Value::as_str).unwrap_or_default()
}
