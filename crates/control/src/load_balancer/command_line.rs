//! The pool of the command line as an IPPool object, for announcers on other nodes.
//!
//! In: `--load-balancer-pool`. Out: the IPPool `command-line`, created, kept in sync with the flag, and removed with it. The flag is authoritative, also
//! before the object is stored or while it differs.

use std::time::Duration;

use api::object;
use api::pool::{Pool, Range, merged};
use api::value::ValueExt as _;
use serde_json::{Value, json};
use store::{Key, Table};

use super::POOLS;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, SINGLETON_KEY, View, always};
use crate::write::Write;

/// Its name.
pub(super) const NAME: &str = "command-line";
/// The label of the object.
const FROM: &str = "waypost.dev/from";
/// The resync period.
const PERIOD: Duration = Duration::from_secs(300);

/// The controller of this object.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "load-balancer-pool",
    enabled: always,
    affected_keys,
    reconcile: |view, _| reconcile(view),
    resync_period: Some(PERIOD),
};

fn affected_keys(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if !change.initial && change.is_of(POOLS) && change.key() == NAME {
        affected.add(SINGLETON_KEY);
    }
}

/// The pool of the flag.
pub(super) fn pool(view: &View<'_>) -> Option<Pool> {
    let ranges = merged(&view.settings.load_balancer.ranges);
    (!ranges.is_empty()).then(|| Pool::of_ranges(NAME, ranges))
}

/// Syncs the object with the flag.
fn reconcile(view: &View<'_>) -> Outcome {
    let setting = &view.settings.load_balancer;
    let wanted: Vec<String> =
        merged(&setting.ranges).iter().filter(|_| setting.enabled).map(Range::to_string).collect();
    let stored = view.store.get(&Key { table: Table::named(POOLS), name: NAME.into() });
    let write = match stored {
        None if wanted.is_empty() => return Outcome::done(),
        None => Write::create(POOLS, new(&wanted)),
        Some(entry) => {
            let mut object = object::decode_bare(&entry.value);
            if object.at("metadata.labels").get(FROM).and_then(Value::as_str) != Some(NAME) {
                // A user created a pool with this name: leave it.
                return Outcome::done();
            }
            if wanted.is_empty() {
                Write::delete(&entry)
            } else if object.at("spec") == new(&wanted).at("spec") {
                return Outcome::done();
            } else {
                object.put("spec", new(&wanted).at("spec").clone());
                Write::Object { table: POOLS, object: Box::new(object), modified: entry.modified }
            }
        }
    };
    Outcome::write(vec![write])
}

fn new(addresses: &[String]) -> Value {
    json!({
        "metadata": {"name": NAME, "labels": {FROM: NAME}},
        "spec": {"addresses": addresses, "autoAssign": true, "announce": ["l2", "bgp"]},
        "status": {},
    })
}
