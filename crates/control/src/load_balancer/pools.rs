//! How much of each pool is in use: `status` of IPPools. Changes are gathered for a while, since every address given out changes a number.

use std::time::Duration;

use api::object;
use api::value::ValueExt as _;
use store::{Key, Table};

use super::POOLS;
use crate::controller::{Verdict, View};
use crate::write::Write;

/// How long changes are gathered.
pub(super) const SOON: Duration = Duration::from_millis(500);
/// What the keys of pools begin with; no name of a namespace has a colon.
const PREFIX: &str = "pool:";

/// The key of a pool.
pub(super) fn key(pool: &str) -> String {
    format!("{PREFIX}{pool}")
}

/// The pool of a key, if it is one of a pool.
pub(super) fn name(key: &str) -> Option<&str> {
    key.strip_prefix(PREFIX)
}

/// Says how much of a pool is in use.
pub(super) fn reconcile(view: &View<'_>, name: &str) -> Verdict {
    let balancers = &view.world.load_balancers;
    let (Some(pool), Some(entry)) =
        (balancers.pool(name), view.store.get(&Key { table: Table::named(POOLS), name: name.into() }))
    else {
        return Verdict::settled();
    };
    let assigned = balancers.claims().filter(|claim| pool.contains(claim.address)).count();
    let (assigned, capacity) = (i64::try_from(assigned).unwrap_or(i64::MAX), pool.capacity().to_string());
    let mut object = object::decode_bare(&entry.value);
    if object.int("status.assigned") == assigned && object.text("status.capacity") == capacity {
        return Verdict::settled();
    }
    object.put("status.assigned", assigned);
    object.put("status.capacity", capacity);
    Verdict::write(vec![Write::Part {
        table: POOLS,
        part: "status",
        object: Box::new(object),
        modified: entry.modified,
    }])
}
