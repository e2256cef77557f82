//! The pool of the command line as an object: announcers on other machines know pools, not flags of the server.
//!
//! In: `--load-balancer-pool`. Out: the IPPool `command-line`, made, kept as the flag says, and removed when the flag is gone. Until it is
//! stored, and while somebody has changed it, addresses are given out as the flag says.

use std::time::Duration;

use api::object;
use api::pool::{Pool, Range, merged};
use api::value::ValueExt as _;
use serde_json::{Value, json};
use store::{Key, Table};

use super::POOLS;
use crate::controller::{Controller, Verdict, View, WHOLE, Wakes, always};
use crate::world::Change;
use crate::write::Write;

/// Its name.
pub(super) const NAME: &str = "command-line";
/// The label that says that it is ours.
const FROM: &str = "waypost.dev/from";
/// How often it is looked at without a reason.
const PERIOD: Duration = Duration::from_secs(300);

/// The controller that keeps it.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "load-balancer-pool",
    enabled: always,
    concerns,
    reconcile: |view, _| reconcile(view),
    every: Some(PERIOD),
};

fn concerns(_: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if !change.initial && change.is_of(POOLS) && change.key() == NAME {
        wakes.add(WHOLE);
    }
}

/// The pool, as the flag says.
pub(super) fn pool(view: &View<'_>) -> Option<Pool> {
    let ranges = merged(&view.settings.load_balancer.ranges);
    (!ranges.is_empty()).then(|| Pool::of_ranges(NAME, ranges))
}

/// Makes the object what the flag says.
fn reconcile(view: &View<'_>) -> Verdict {
    let setting = &view.settings.load_balancer;
    let wanted: Vec<String> = merged(&setting.ranges).iter().filter(|_| setting.on).map(Range::to_string).collect();
    let stored = view.store.get(&Key { table: Table::named(POOLS), name: NAME.into() });
    let write = match stored {
        None if wanted.is_empty() => return Verdict::settled(),
        None => Write::create(POOLS, new(&wanted)),
        Some(entry) => {
            let mut object = object::decode_bare(&entry.value);
            if object.at("metadata.labels").get(FROM).and_then(Value::as_str) != Some(NAME) {
                // Somebody made a pool of this name; it is theirs.
                return Verdict::settled();
            }
            if wanted.is_empty() {
                Write::delete(&entry)
            } else if object.at("spec") == new(&wanted).at("spec") {
                return Verdict::settled();
            } else {
                object.put("spec", new(&wanted).at("spec").clone());
                Write::Object { table: POOLS, object: Box::new(object), modified: entry.modified }
            }
        }
    };
    Verdict::write(vec![write])
}

fn new(addresses: &[String]) -> Value {
    json!({
        "metadata": {"name": NAME, "labels": {FROM: NAME}},
        "spec": {"addresses": addresses, "autoAssign": true, "announce": ["l2", "bgp"]},
        "status": {},
    })
}
