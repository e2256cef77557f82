//! The controllers of allocation: Services, their addresses and ports, and the ranges these come from must agree.
//!
//! They look at everything at once, every few minutes and whenever something changes in a way that ordinary requests do not
//! change it. After any ordinary day, and after any crash, they find nothing to do.

pub mod repair;
pub mod service_cidrs;
pub mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use api::ip::parse_lenient;
use api::object;
use api::value::ValueExt as _;
use store::{Entry, Key, Store, Table};

use crate::controller::{Controller, Verdict, View, WHOLE, Wakes, always};
use crate::world::Change;
use crate::write::Write;
use snapshot::{Setting, Snapshot};

/// How often everything is looked at, whether or not something happened.
const PERIOD: Duration = Duration::from_secs(180);

/// Keeps the ranges of Services.
pub(crate) const SERVICE_CIDRS: Controller = Controller {
    name: "service-cidrs",
    enabled: always,
    concerns,
    reconcile: |view, _| whole(view, service_cidrs::reconcile),
    every: Some(PERIOD),
};

/// Keeps addresses and node ports.
pub(crate) const REPAIR: Controller = Controller {
    name: "allocation-repair",
    enabled: always,
    concerns,
    reconcile: |view, _| whole(view, repair::reconcile),
    every: Some(PERIOD),
};

/// Runs one of them on a snapshot.
fn whole(view: &View<'_>, reconcile: fn(&Snapshot, &Setting<'_>) -> Vec<Vec<Write>>) -> Verdict {
    let Ok(snapshot) = Snapshot::take(view.store) else {
        return Verdict { again: Some(Duration::from_secs(1)), ..Verdict::default() };
    };
    let now = view.now_text();
    let found = reconcile(&snapshot, &Setting { ranges: &view.settings.ranges, now: &now });
    let (events, transactions): (Vec<_>, Vec<_>) = found.into_iter().partition(|writes| is_event(writes));
    if !transactions.is_empty() {
        tracing::info!(transactions = transactions.len(), "allocations are being set right");
    }
    Verdict { transactions, events: events.into_iter().flatten().collect(), again: None }
}

fn is_event(writes: &[Write]) -> bool {
    matches!(writes, [Write::Object { table: "events", .. }])
}

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if !change.initial && is_suspicious(view.store, change) {
        wakes.add(WHOLE);
    }
}

/// Whether something changed in a way that ordinary requests do not change it.
fn is_suspicious(store: &dyn Store, change: &Change) -> bool {
    match change.table.as_str() {
        "ipaddresses" if change.deleted => {
            let held = parent_of(store, change).is_some_and(|entry| lists(&entry, change.key()));
            held || a_range_waits(store)
        }
        // Ordinary requests write the Service after its address: nothing more has to be decoded for them.
        "ipaddresses" => parent_of(store, change)
            .is_none_or(|entry| entry.modified < change.entry.modified && !lists(&entry, change.key())),
        "nodeports" => change.deleted && change.previous.as_ref().is_some_and(|entry| owner_lives(store, &entry.value)),
        "ranges" | "servicecidrs" => true,
        _ => false,
    }
}

/// The Service that an address says it belongs to.
fn parent_of(store: &dyn Store, change: &Change) -> Option<Arc<Entry>> {
    let address = object::decode_light(&change.entry.value);
    let parent = address.at("spec.parentRef");
    let name = format!("{}/{}", parent.text("namespace"), parent.text("name"));
    store.get(&Key { table: Table::named("services/specs"), name: name.into() })
}

/// Whether a Service has this address, however it spells it.
fn lists(service: &Entry, address: &str) -> bool {
    let service = object::decode_light(&service.value);
    let wanted = parse_lenient(address);
    service.texts("spec.clusterIPs").into_iter().any(|text| parse_lenient(text) == wanted)
}

/// Whether a deleted range waits for its last address to go.
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
