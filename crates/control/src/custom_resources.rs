//! CustomResourceDefinitions (B07): accepts their names, establishes them, and deletes the objects of a deleted definition before it.
//!
//! In: definitions, and the objects of those that are being deleted. Out: their status; deletions in batches; finally the removal of the
//! finalizer. What a definition means is decided in [`api::crd`].

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::crd::delete::{self, Progress};
use api::crd::names;
use api::custom::resource_of_table;
use api::kinds::customresourcedefinition::KIND;
use api::object;
use api::options::Propagation;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::ownership;
use crate::write::Write;

/// The most deletions in one transaction.
const TRANSACTION_SIZE: usize = 250;
/// The most deletions in one reconcile.
const BATCH_SIZE: usize = 2000;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "customresourcedefinition", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(KIND.table) {
        affected.add(change.key());
        // Names that a definition gives up may be free for others of its group.
        let group = change.key().split_once('.').map_or("", |(_, group)| group);
        let others =
            view.store.range(Table::named(KIND.table), "", None).map(|range| range.entries).unwrap_or_default();
        let is_neighbor = |name: &str| name != change.key() && name.split_once('.').is_some_and(|(_, of)| of == group);
        others.iter().filter(|other| is_neighbor(&other.key.name)).for_each(|other| affected.add(&other.key.name));
    } else if let Some((group, plural)) = resource_of_table(change.table.as_str()) {
        let name = format!("{plural}.{group}");
        if view.cache.kinds.kinds().by_table(change.table.as_str()).is_some_and(is_terminating) {
            affected.add(&name);
        }
    }
}

fn is_terminating(kind: &'static api::kind::Kind) -> bool {
    kind.rules.definition().is_some_and(|definition| definition.is_terminating)
}

fn reconcile(view: &View<'_>, name: &str) -> Outcome {
    let Some(entry) = view.store.get(&Key::new(Table::named(KIND.table), name)) else { return Outcome::done() };
    let definition = object::decode(&KIND, &entry.value, entry.modified);
    if delete::is_due(&definition) {
        return delete_objects(view, &entry, &definition);
    }
    let others = view.store.range(Table::named(KIND.table), "", None).map(|range| range.entries).unwrap_or_default();
    let group = definition.text("spec.group");
    let others: Vec<Value> = others
        .iter()
        .filter(|other| other.key.name.split_once('.').is_some_and(|(_, of)| of == group))
        .map(|other| object::decode_light(&other.value))
        .collect();
    let others: Vec<&Value> = others.iter().collect();
    let Some(status) = names::status(&definition, &others, view.now) else { return Outcome::done() };
    let mut new = definition;
    new.put("status", status);
    Outcome::write(vec![write("status", new, entry.modified)])
}

/// Deletes the objects of a definition, and releases it when none are left.
fn delete_objects(view: &View<'_>, entry: &Entry, definition: &Value) -> Outcome {
    let table = Table::named(&format!("{}/{}", definition.text("spec.group"), definition.text("spec.names.plural")));
    let objects = view.store.range(table, "", None).map(|range| range.entries).unwrap_or_default();
    let is_unmarked = |object: &&Arc<Entry>| !ownership(&object.value).is_deleting();
    let deletions: Vec<Write> = objects.iter().filter(is_unmarked).take(BATCH_SIZE).map(delete_object).collect();
    let progress =
        if deletions.is_empty() && objects.is_empty() { delete::outcome(definition, 0) } else { Progress::InProgress };
    let advanced = delete::advance(definition, &progress, view.now);
    let mut transactions: Vec<Vec<Write>> = Vec::new();
    if let Some(new) = advanced {
        let is_released = new.at("metadata.finalizers") != definition.at("metadata.finalizers");
        let part = if is_released { "" } else { "status" };
        transactions.push(vec![write(part, new, entry.modified)]);
    }
    transactions.extend(deletions.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec));
    let requeue_after = (!deletions.is_empty()).then_some(Duration::ZERO);
    Outcome { transactions, requeue_after, ..Outcome::done() }
}

fn write(part: &'static str, object: Value, modified: u64) -> Write {
    let object = Box::new(object);
    match part {
        "" => Write::Object { table: KIND.table, object, modified },
        part => Write::Subresource { table: KIND.table, part, object, modified },
    }
}

fn delete_object(entry: &Arc<Entry>) -> Write {
    let Entry { key, modified, .. } = &**entry;
    Write::Delete { key: key.clone(), modified: *modified, propagation: Some(Propagation::Background) }
}
