//! Runs the controllers: at start, every three minutes, and at once when an allocation disappears that a Service still has.

use std::sync::Arc;
use std::time::Duration;

use api::ip::parse_lenient;
use api::object;
use api::value::ValueExt as _;
use jiff::Timestamp;
use store::allocation::Ranges;
use store::{Entry, Event, Key, Store, Table};
use tokio::sync::Notify;

use crate::snapshot::{Setting, Snapshot};
use crate::write::{Write, commit};
use crate::{repair, service_cidrs};

/// How often everything is looked at, whether or not something happened.
const PERIOD: Duration = Duration::from_secs(180);

/// A controller: objects in, groups of writes out.
pub type Reconcile = fn(&Snapshot, &Setting<'_>) -> Vec<Vec<Write>>;

/// The controllers of allocation, in the order they run. A new one is one file and one line here.
pub const CONTROLLERS: &[(&str, Reconcile)] =
    &[("service-cidrs", service_cidrs::reconcile), ("allocation-repair", repair::reconcile)];

/// Runs every controller once. What had to be set right is said: after an ordinary day, or a crash, that is nothing.
pub async fn run_once(store: &dyn Store, ranges: &Ranges) {
    let mut done = 0;
    let Ok(snapshot) = Snapshot::take(store) else { return };
    for (name, reconcile) in CONTROLLERS {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        for writes in reconcile(&snapshot, &Setting { ranges, now: &now }) {
            match commit(store, &writes).await {
                Ok(()) => done += writes.len(),
                // Something changed meanwhile, or the finding was reported before: the next run sees what is there then.
                Err(error) if error.is_conflict() => {}
                Err(error) => tracing::warn!(controller = name, %error, "a repair could not be written"),
            }
        }
    }
    if done > 0 {
        tracing::info!(writes = done, "allocations were set right");
    }
}

/// Runs the controllers for as long as the server lives.
pub async fn run(store: Arc<dyn Store>, ranges: Ranges) {
    let wake = Arc::new(Notify::new());
    for table in ["ipaddresses", "nodeports", "ranges", "servicecidrs"] {
        tokio::spawn(wake_on_loss(store.clone(), Table::named(table), wake.clone()));
    }
    loop {
        run_once(&*store, &ranges).await;
        tokio::select! {
            () = wake.notified() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
    }
}

/// Wakes the runner when a table changes in a way that ordinary requests do not change it.
async fn wake_on_loss(store: Arc<dyn Store>, table: Table, wake: Arc<Notify>) {
    loop {
        let Ok(mut watch) = store.watch(table, "", store.revision()) else { continue };
        while let Ok(events) = watch.next().await {
            if events.iter().any(|event| is_suspicious(&*store, table, event)) {
                wake.notify_one();
            }
        }
        // The history is shorter than our patience: look at everything and watch again from now.
        wake.notify_one();
    }
}

fn is_suspicious(store: &dyn Store, table: Table, event: &Event) -> bool {
    match table.as_str() {
        "ipaddresses" if event.deleted => {
            let held = parent_of(store, event).is_some_and(|entry| lists(&entry, &event.entry.key.name));
            held || a_range_waits(store)
        }
        // Ordinary requests write the Service after its address: nothing more has to be decoded for them.
        "ipaddresses" => parent_of(store, event)
            .is_none_or(|entry| entry.modified < event.revision && !lists(&entry, &event.entry.key.name)),
        "nodeports" => event.deleted && event.previous.as_ref().is_some_and(|entry| owner_lives(store, &entry.value)),
        _ => true,
    }
}

/// The Service that an address says it belongs to.
fn parent_of(store: &dyn Store, event: &Event) -> Option<Arc<Entry>> {
    let address = object::decode_light(&event.entry.value);
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
