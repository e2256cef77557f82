//! ResourceQuota status: `status.hard` equals `spec.hard`, `status.used` is the usage of all objects of the namespace.
//!
//! In: ResourceQuotas, and objects of every kind that quotas count. Out: the status of a quota, fully recalculated.
//! Admission charges quotas in the transaction that creates an object, so the controller mainly follows deletions,
//! decreases, and new or changed quotas. A recalculation cannot lose a concurrent charge: the quota is read before the
//! objects, and written only if its revision is still the same.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::kind::Kind;
use api::kinds::{customresourcedefinition, resourcequota};
use api::object;
use api::quota::evaluator::Evaluator;
use api::quota::{self, Recalculated};
use api::resources::ResourceList;
use api::value::ValueExt as _;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Entry, Key, Table};

use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::split;
use crate::write::Write;

/// Delay after a deletion or decrease, so that many together lead to one recalculation.
const REPLENISH_DELAY: Duration = Duration::from_millis(100);
/// Delay after a creation. Admission has charged it already, unless the quota had no status yet.
const AUDIT_DELAY: Duration = Duration::from_secs(2);
/// Added to the end of a grace period, which is inclusive.
const AFTER_END: Duration = Duration::from_millis(10);

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "resourcequota", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(resourcequota::KIND.table)
        && let Some(delay) = quota_delay(change)
    {
        affected.add_after(change.key(), delay);
    }
    // At start, every quota is recalculated because of its own initial change.
    if change.initial {
        return;
    }
    if change.is_of(customresourcedefinition::KIND.table) {
        definition_changed(view, change, affected);
    } else {
        objects_changed(view, change, affected);
    }
}

/// The delay after a change of a quota; `None` if it was deleted. A change of the status alone is usually a charge.
fn quota_delay(change: &Change) -> Option<Duration> {
    let hard = |stored: &[u8]| object::decode_light(stored).at("spec.hard").clone();
    let is_same = |previous: &Entry| hard(&previous.value) == hard(&change.entry.value);
    match &change.previous {
        _ if change.deleted => None,
        Some(previous) if is_same(previous) => Some(AUDIT_DELAY),
        _ => Some(Duration::ZERO),
    }
}

/// Queues the quotas of all namespaces that count the objects of a definition: before it existed, their usage was unknown.
fn definition_changed(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let Some((plural, group)) = change.key().split_once('.').filter(|_| !change.deleted) else { return };
    let Some(evaluator) = Evaluator::find(group, plural) else { return };
    queue_quotas(&quotas(view, ""), evaluator, Duration::ZERO, affected);
}

/// Queues the quotas that count an object.
fn objects_changed(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let kind = view.cache.kinds.kinds().by_table(change.table.as_str());
    let Some(kind) = kind.filter(|kind| kind.namespaced) else { return };
    let Some(evaluator) = Evaluator::find(kind.group, kind.plural) else { return };
    let (namespace, _) = split(change.key());
    let quotas = quotas(view, &format!("{namespace}/"));
    if quotas.is_empty() {
        return;
    }
    let Some(delay) = object_delay(change, evaluator, view.now) else { return };
    queue_quotas(&quotas, evaluator, delay, affected);
}

/// The quotas whose keys have a prefix.
fn quotas(view: &View<'_>, prefix: &str) -> Vec<Arc<Entry>> {
    let range = view.store.range(Table::named(resourcequota::KIND.table), prefix, None);
    range.map(|range| range.entries).unwrap_or_default()
}

/// Queues those of the quotas that count objects of a kind.
fn queue_quotas(quotas: &[Arc<Entry>], evaluator: Evaluator<'_>, delay: Duration, affected: &mut AffectedKeys<'_>) {
    for entry in quotas {
        let quota = object::decode_light(&entry.value);
        if quota.map("spec.hard").into_iter().flatten().any(|(name, _)| evaluator.tracks(name)) {
            affected.add_after(&entry.key.name, delay);
        }
    }
}

/// The delay after a change of an object; `None` if its usage is the same.
fn object_delay(change: &Change, evaluator: Evaluator<'_>, now: Timestamp) -> Option<Duration> {
    let Some(previous) = change.previous.as_ref().filter(|_| !change.deleted) else {
        return Some(if change.deleted { REPLENISH_DELAY } else { AUDIT_DELAY });
    };
    if !evaluator.depends_on_content() {
        return None;
    }
    let [old, new] = [previous, &change.entry].map(|entry| object::decode_light(&entry.value));
    let is_same = evaluator.usage(&old, now) == evaluator.usage(&new, now)
        && quota::evaluator::counts_until(&old) == quota::evaluator::counts_until(&new)
        && !evaluator.is_rescoped(&old, &new);
    (!is_same).then_some(REPLENISH_DELAY)
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let table = resourcequota::KIND.table;
    let Some(entry) = view.store.get(&Key::new(Table::named(table), key)) else { return Outcome::done() };
    let mut quota = object::decode_bare(&entry.value);
    let (namespace, _) = split(key);
    let custom = view.cache.kinds.kinds().custom_tables();
    let Recalculated { hard, used, until } =
        quota::recalculate(&quota, view.now, custom, |kind| stored_objects(view, kind, namespace));
    let requeue_after = until.map(|end| time_left(end, view.now) + AFTER_END);
    if is_shown(&quota, &hard, &used) {
        return Outcome { requeue_after, ..Outcome::done() };
    }
    quota.put("status", json!({"hard": hard.to_value(), "used": used.to_value()}));
    let write = Write::Subresource { table, part: "status", object: Box::new(quota), modified: entry.modified };
    Outcome { requeue_after, ..Outcome::write(vec![write]) }
}

fn stored_objects(view: &View<'_>, kind: &Kind, namespace: &str) -> Vec<Bytes> {
    let range = view.store.range(Table::named(kind.table), &format!("{namespace}/"), None);
    range.into_iter().flat_map(|range| range.entries).map(|entry| entry.value.clone()).collect()
}

fn is_shown(quota: &Value, hard: &ResourceList, used: &ResourceList) -> bool {
    ResourceList::of(quota.at("status.hard")) == *hard && ResourceList::of(quota.at("status.used")) == *used
}

fn time_left(end: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(now)).unwrap_or_default()
}
