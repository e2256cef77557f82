//! Garbage collection of announcer Leases: those of deleted nodes and of unused addresses.
//!
//! In: Leases of announcers, Nodes, Services. Out: deletions. Announcers release their Leases when they stop; this is for those that crashed. While a node's
//! Lease is valid no other node may announce its addresses, so a missing Node is not enough: a Lease is deleted only after it was not renewed for
//! [`LEASE_EXPIRY`], many times its duration, and only in the observed revision. Queue keys contain the revision, so a renewed Lease has another key.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::Duration;

use api::announcer::{self, LIFE};
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::load_balancer::Request;
use crate::write::Write;

/// How long a Lease must be unchanged before it is deleted.
const LEASE_EXPIRY: Duration = Duration::from_secs(10);
/// Separates name and revision in a queue key; not allowed in names.
const SEPARATOR: char = '@';
/// The table of Leases.
const LEASES: &str = "leases";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "announcer-leases", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Node(Versions { old: Some(old), new: None }) => {
            add_key(view, &announcer::Key::Node(old.name().into()), affected);
        }
        TypedChange::Service(_) => {
            let before = change.previous.as_ref().and_then(Request::read);
            let lost = before.into_iter().flat_map(|request| request.shown).filter(|ip| !is_wanted(view, *ip));
            lost.for_each(|ip| add_key(view, &announcer::Key::Address(ip), affected));
        }
        TypedChange::Other if change.is_of(LEASES) && !change.deleted => match of(change.key()) {
            // Existing nodes renew their Leases several times a second: ignore these.
            Some(announcer::Key::Node(node)) if view.cache.nodes.get(&node).is_some() => {}
            Some(_) => add(&change.entry, affected),
            None => {}
        },
        _ => {}
    }
}

/// The announcer Lease of a key.
fn of(key: &str) -> Option<announcer::Key> {
    announcer::Key::named(key.strip_prefix(announcer::NAMESPACE)?.strip_prefix('/')?)
}

fn add_key(view: &View<'_>, key: &announcer::Key, affected: &mut AffectedKeys<'_>) {
    if let Some(entry) = stored(view, key) {
        add(&entry, affected);
    }
}

fn add(entry: &Entry, affected: &mut AffectedKeys<'_>) {
    affected.add_after(&format!("{}{SEPARATOR}{}", entry.key.name, entry.modified), LEASE_EXPIRY);
}

fn stored(view: &View<'_>, key: &announcer::Key) -> Option<std::sync::Arc<Entry>> {
    view.store.get(&Key::new(Table::named(LEASES), format!("{}/{}", announcer::NAMESPACE, key.name())))
}

/// Whether a Service shows an address.
fn is_wanted(view: &View<'_>, ip: IpAddr) -> bool {
    view.cache.load_balancers.requests().any(|request| request.shown.contains(&ip))
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some((name, version)) = key.split_once(SEPARATOR) else { return Outcome::done() };
    let entry = view.store.get(&Key::new(Table::named(LEASES), name));
    let Some(entry) = entry.filter(|entry| entry.modified.to_string() == version) else { return Outcome::done() };
    match of(name) {
        Some(announcer::Key::Node(node)) if view.cache.nodes.get(&node).is_none() => {}
        Some(announcer::Key::Address(ip)) if !is_wanted(view, ip) => {
            // A running announcer releases it by itself; retry in case it is not running.
            if may_answer(view, &object::decode_light(&entry.value)) {
                return Outcome { requeue_after: Some(LEASE_EXPIRY), ..Outcome::done() };
            }
        }
        _ => return Outcome::done(),
    }
    tracing::info!(lease = name, "deleting unused announcer Lease");
    Outcome::write(vec![Write::delete(&entry)])
}

/// Whether the holder of an address may still be running, by the incarnation in its own Lease.
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
