//! Status of ValidatingAdmissionPolicies: warnings about their expressions, checked with the types of the kinds they match.
//!
//! In: policies. Out: `status.observedGeneration` and `status.typeChecking` of each generation, once.

use api::dynamic_admission::type_check;
use api::kinds::admissionregistration::policy;
use api::object;
use api::value::ValueExt as _;
use serde_json::json;
use store::{Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::write::Write;

/// The controller.
pub(crate) const CONTROLLER: Controller = Controller {
    name: "validatingadmissionpolicy-status",
    enabled: always,
    affected_keys,
    reconcile,
    resync_period: None,
};

fn affected_keys(_view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(policy::KIND.table) && !change.deleted {
        affected.add(change.key());
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let table = policy::KIND.table;
    let Some(entry) = view.store.get(&Key::new(Table::named(table), key)) else { return Outcome::done() };
    let mut object = object::decode_bare(&entry.value);
    let generation = object.int("metadata.generation");
    if generation <= object.int("status.observedGeneration") {
        return Outcome::done();
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
    Outcome::write(vec![Write::Subresource {
        table,
        part: "status",
        object: Box::new(object),
        modified: entry.modified,
    }])
}
