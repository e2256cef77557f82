//! PodDisruptionBudgets: how many Pods of each may be evicted now. Evictions use the disruptions up ([`api::disruption`]).
//!
//! ```text
//! spec, Pods, scale of their controllers ─▶ expected, desired and healthy Pods ─▶ disruptionsAllowed
//! ```
//! In: budgets, Pods and what owns them. Out: the status of a budget, fully recalculated. The write names the revision of the budget that it replaces,
//! so no eviction that happens meanwhile is lost: a Pod that was evicted is in `disruptedPods`, and does not count as healthy even while the cache
//! still shows it as ready.

mod scale;
mod stale;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::disruption;
use api::kinds::poddisruptionbudget::KIND;
use api::value::ValueExt as _;
use serde_json::Value;

use self::status::{Counted, Counts};
use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::event::{self, EventDetails, Reference};
use crate::objects::pod::Pod;
use crate::objects::split;
use crate::workloads::StoredObject;
use crate::write::Write;

pub(crate) use stale::STALE_TARGETS;

/// The component of Events.
const COMPONENT: &str = "controllermanager";

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "disruption", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let budgets = &view.cache.budgets;
    match &change.typed {
        TypedChange::Pod(Versions { old, new }) => {
            for pod in [old, new].into_iter().flatten() {
                budgets.selecting(pod.namespace(), &pod.entry.facts).for_each(|key| affected.add(key));
            }
        }
        _ if change.is_of(KIND.table) && !change.deleted => affected.add(change.key()),
        // At start, every budget is recalculated because of its own initial change.
        _ if change.initial => {}
        _ => {
            let (namespace, _) = split(change.key());
            if budgets.keys(namespace).next().is_some() && scale::differs(view, change) {
                budgets.keys(namespace).for_each(|key| affected.add(key));
            }
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(budget) = StoredObject::read(view, KIND.table, key) else { return Outcome::done() };
    let pods = selected(view, &budget);
    let mut outcome = Outcome::done();
    if pods.is_empty() {
        outcome.events.push(budget_event(view, &budget, true, "NoPods", "No matching pods found"));
    }
    let now = view.now_text();
    let mut is_managed = true;
    let required = status::required(budget.object.at("spec"), pods.len(), || {
        let expected = scale::expected(view, &pods)?;
        is_managed = expected.is_managed;
        Ok(expected.replicas)
    });
    let (expected, desired) = match required {
        Ok(required) => required,
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            outcome.events.push(budget_event(view, &budget, false, "CalculateExpectedPodCountFailed", &message));
            let mut failed = budget.object.clone();
            disruption::set_failed(&mut failed, &why, &now);
            outcome.transactions.extend(budget.with_status(failed).map(|write| vec![write]));
            return outcome;
        }
    };
    if !is_managed {
        let message = unmanaged(budget.object.at("spec.selector"));
        outcome.events.push(budget_event(view, &budget, false, "UnmanagedPods", &message));
    }
    let counted: Vec<Counted<'_>> = pods.iter().map(|pod| Counted::of(pod)).collect();
    let disrupted = status::disrupted(budget.object.map("status.disruptedPods"), &counted, view.now.as_second());
    outcome.events.extend(disrupted.overdue.iter().map(|index| not_deleted(view, &budget, pods[*index])));
    outcome.requeue_after = disrupted.next_check.map(Duration::from_secs);
    let counts = Counts { expected, desired, healthy: status::healthy(&counted, &disrupted.pods) };
    let new = status::updated(&budget.object, counts, disrupted.pods, &now);
    outcome.transactions.extend(budget.with_status(new).map(|write| vec![write]));
    outcome
}

/// The Pods of a budget.
fn selected<'a>(view: &View<'a>, budget: &StoredObject) -> Vec<&'a Arc<Pod>> {
    let Some(selector) = disruption::selector_of(&budget.object) else { return Vec::new() };
    view.cache.pods.selected(budget.namespace(), budget.object.at("spec.selector"), &selector)
}

fn budget_event(view: &View<'_>, budget: &StoredObject, normal: bool, reason: &str, message: &str) -> Write {
    let now = view.now_text();
    let details = EventDetails { controller: COMPONENT, normal, reason, message, now: &now };
    event::new_event(KIND.kind, &KIND.api_version(), &Reference::to(&budget.object), &details)
}

fn not_deleted(view: &View<'_>, budget: &StoredObject, pod: &Pod) -> Write {
    let now = view.now_text();
    let message = format!("Pod was expected by PDB {} to be deleted but it wasn't", budget.entry.key.name);
    let details =
        EventDetails { controller: COMPONENT, normal: false, reason: "NotDeleted", message: &message, now: &now };
    event::new_event("Pod", "v1", &Reference::new(&pod.entry.key.name, &pod.uid), &details)
}

/// The message about Pods without a controller.
fn unmanaged(selector: &Value) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be \
         calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the \
         PDB to an integer value.",
        go_selector(selector)
    )
}

/// A LabelSelector as Go prints it.
fn go_selector(selector: &Value) -> String {
    let labels = selector.map("matchLabels").into_iter().flatten();
    let mut labels: Vec<String> =
        labels.map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    labels.sort_unstable();
    let expressions = selector.items("matchExpressions").iter().map(|one| {
        let (key, operator, values) = (one.text("key"), one.text("operator"), one.texts("values").join(" "));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.collect::<String>()
    )
}
