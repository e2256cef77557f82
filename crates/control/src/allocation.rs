//! Consistency of allocations: Services, their cluster IPs and node ports, and ServiceCIDRs.
//!
//! The controllers check everything at once, periodically and after changes that regular requests do not make. Since allocations are transactional,
//! they normally find nothing to do, even after a crash.

pub mod repair;
pub mod service_cidrs;
pub mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use api::ip::parse_lenient;
use api::object;
use api::value::ValueExt as _;
use store::{Entry, Key, Store, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::write::Write;
use snapshot::{Setting, Snapshot};

/// The resync period.
const PERIOD: Duration = Duration::from_secs(180);

/// Reconciles ServiceCIDRs.
pub(crate) const SERVICE_CIDRS: Controller = Controller {
    name: "service-cidrs",
    enabled: always,
    affected_keys,
    reconcile: |view, _| whole(view, service_cidrs::reconcile),
    resync_period: Some(PERIOD),
};

/// Repairs addresses and node ports.
pub(crate) const REPAIR: Controller = Controller {
    name: "allocation-repair",
    enabled: always,
    affected_keys,
    reconcile: |view, _| whole(view, repair::reconcile),
    resync_period: Some(PERIOD),
};

/// Runs a reconcile function on a snapshot.
fn whole(view: &View<'_>, reconcile: fn(&Snapshot, &Setting<'_>) -> Vec<Vec<Write>>) -> Outcome {
    let Ok(snapshot) = Snapshot::take(view.store) else {
        return Outcome { requeue_after: Some(Duration::from_secs(1)), ..Outcome::default() };
    };
    let now = view.now_text();
    let found = reconcile(&snapshot, &Setting { ranges: &view.settings.ranges, now: &now });
    let (events, transactions): (Vec<_>, Vec<_>) = found.into_iter().partition(|writes| is_event(writes));
    if !transactions.is_empty() {
        tracing::info!(transactions = transactions.len(), "repairing allocations");
    }
    Outcome { transactions, events: events.into_iter().flatten().collect(), ..Outcome::done() }
}

fn is_event(writes: &[Write]) -> bool {
    matches!(writes, [Write::Object { table: "events", .. }])
}

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if !change.initial && is_suspicious(view.store, change) {
        affected.add(SINGLETON_KEY);
    }
}

/// Whether a change cannot come from a regular request.
fn is_suspicious(store: &dyn Store, change: &Change) -> bool {
    match change.table.as_str() {
        "ipaddresses" if change.deleted => {
            let held = parent_of(store, change).is_some_and(|entry| lists(&entry, change.key()));
            held || a_range_waits(store)
        }
        // Regular requests write the Service after its address, so the revision is enough.
        "ipaddresses" => parent_of(store, change)
            .is_none_or(|entry| entry.modified < change.entry.modified && !lists(&entry, change.key())),
        "nodeports" => change.deleted && change.previous.as_ref().is_some_and(|entry| owner_lives(store, &entry.value)),
        "ranges" | "servicecidrs" => true,
        _ => false,
    }
}

/// The Service that an IPAddress refers to.
fn parent_of(store: &dyn Store, change: &Change) -> Option<Arc<Entry>> {
    let address = object::decode_light(&change.entry.value);
    let parent = address.at("spec.parentRef");
    let name = format!("{}/{}", parent.text("namespace"), parent.text("name"));
    store.get(&Key { table: Table::named("services/specs"), name: name.into() })
}

/// Whether a Service has this address, in any notation.
fn lists(service: &Entry, address: &str) -> bool {
    let service = object::decode_light(&service.value);
    let wanted = parse_lenient(address);
    service.texts("spec.clusterIPs").into_iter().any(|text| parse_lenient(text) == wanted)
}

/// Whether a ServiceCIDR is being deleted.
fn a_range_waits(store: &dyn Store) -> bool {
    let ranges = store.range(Table::named("servicecidrs"), "", None);
    ranges.is_ok_and(|found| {
        found.entries.iter().any(|entry| object::decode_light(&entry.value).has("metadata.deletionTimestamp"))
    })
}

fn owner_lives(store: &dyn Store, value: &[u8]) -> bool {
    let Some(owner) = store::allocation::port_owner(value) else { return true };
    store.get(&Key { table: Table::named("services/specs"), name: owner.into() }).is_some()
}
