//! Status of ValidatingAdmissionPolicies: warnings about their expressions, checked with the types of the kinds they match.
//!
//! In: policies. Out: `status.observedGeneration` and `status.typeChecking` of each generation, once.

use api::dynamic_admission::type_check;
use api::kinds::admissionregistration::policy;
use api::object;
use api::value::ValueExt as _;
use serde_json::json;
use store::{Key, Table};

use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::world::Change;
use crate::write::Write;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "validatingadmissionpolicy-status", enabled: always, concerns, reconcile, every: None };

fn concerns(_view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if change.is_of(policy::KIND.table) && !change.deleted {
        wakes.add(change.key());
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Verdict {
    let table = policy::KIND.table;
    let Some(entry) = view.store.get(&Key::new(Table::named(table), key)) else { return Verdict::settled() };
    let mut object = object::decode_bare(&entry.value);
    let generation = object.int("metadata.generation");
    if generation <= object.int("status.observedGeneration") {
        return Verdict::settled();
    }
    let warnings = type_check::warnings(&object);
    object.put("status.observedGeneration", generation);
    object.put(
        "status.typeChecking",
        match warnings.is_empty() {
            true => json!({}),
            false => json!({"expressionWarnings": warnings}),
        },
    );
    Verdict::write(vec![Write::Part { table, part: "status", object: Box::new(object), modified: entry.modified }])
}
