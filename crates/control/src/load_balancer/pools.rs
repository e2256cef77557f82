//! The status of IPPools: assigned addresses and capacity. Updates are delayed, because every assignment changes the count.

use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use store::{Key, Table};

use super::POOLS;
use crate::controller::{Outcome, View};
use crate::write::Write;

/// The delay of status updates.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(500);
/// The prefix of queue keys of pools; namespace names contain no colon.
const PREFIX: &str = "pool:";

/// The key of a pool.
pub(super) fn key(pool: &str) -> String {
    format!("{PREFIX}{pool}")
}

/// The pool of a queue key, if it is one.
pub(super) fn name(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)
}

/// Updates the status of a pool.
pub(super) fn reconcile(view: &View<'_>, name: &str) -> Outcome {
    let balancers = &view.cache.load_balancers;
    let (Some(pool), Some(entry)) =
        (balancers.pool(name), view.store.get(&Key { table: Table::named(POOLS), name: name.into() }))
    else {
        return Outcome::done();
    };
    let assigned = balancers.claims().filter(|claim| pool.contains(claim.address)).count();
    let (assigned, capacity) = (i64::try_from(assigned).unwrap_or(i64::MAX), pool.capacity().to_string());
    let mut object = object::decode_bare(&entry.value);
    if object.int("status.assigned") == assigned && object.text("status.capacity") == capacity {
        return Outcome::done();
    }
    object.put("status.assigned", assigned);
    object.put("status.capacity", capacity);
    Outcome::write(vec![Write::Subresource {
        table: POOLS,
        part: "status",
        object: Box::new(object),
        modified: entry.modified,
    }])
}
