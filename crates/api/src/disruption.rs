//! Evictions under PodDisruptionBudgets: whether a Pod may be deleted, and what remains of its budget.
//!
//! ```text
//! Pod, budgets ─▶ decide ─▶ delete, or delete unchanged, or charge ─▶ budget with one disruption less ─▶ delete
//! ```
//! The controller of budgets computes their status; an eviction uses up one of the disruptions that it allows, and lists the Pod in
//! `disruptedPods` until the controller has seen its deletion.

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

use crate::facts::Facts;
use crate::kinds::poddisruptionbudget::{ALWAYS_ALLOW, KIND};
use crate::selector::{self, Selector};
use crate::status::{Resource, Status};
use crate::value::ValueExt as _;

/// The condition of a budget: whether a Pod may be evicted.
pub const ALLOWED: &str = "DisruptionAllowed";
/// The reason of [`ALLOWED`] when the controller could not compute the status.
pub const SYNC_FAILED: &str = "SyncFailed";
/// The condition of a Pod that is about to be deleted because of a disruption.
pub const TARGET: &str = "DisruptionTarget";

/// The cause in the details of a refused eviction.
const CAUSE: &str = "DisruptionBudget";
const SEVERAL_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// The most evictions that the controller has not seen yet.
const MAX_DISRUPTED: usize = 2000;
/// After how many seconds a client tries again while the status of a budget is outdated.
const RETRY_SECONDS: u32 = 10;

/// How a Pod may be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision<'a> {
    /// It is deleted.
    Delete,
    /// It is deleted unless it has changed: it may have become ready, and count for a budget. If this budget is named and the Pod has
    /// changed, the client tries again later.
    DeleteUnchanged(Option<&'a str>),
    /// It is deleted after this budget was [charged](charge).
    Charge(&'a str),
}

/// Decides on the eviction of a Pod; `budgets` are those that select it.
///
/// # Errors
/// 500 when several budgets select it.
pub fn decide<'a>(pod: &Value, budgets: &'a [Value]) -> Result<Decision<'a>, Status> {
    match pod.text("status.phase") {
        "Succeeded" | "Failed" => return Ok(Decision::Delete),
        _ if pod.has("metadata.deletionTimestamp") => return Ok(Decision::Delete),
        "Pending" => return Ok(Decision::DeleteUnchanged(None)),
        _ => {}
    }
    match budgets {
        [] => Ok(Decision::Delete),
        [budget] => {
            let name = budget.text("metadata.name");
            let is_free = !is_ready(pod) && allows_unhealthy(budget);
            Ok(if is_free { Decision::DeleteUnchanged(Some(name)) } else { Decision::Charge(name) })
        }
        // kube-apiserver sends this Status with the HTTP status 201, which only its own clients take for a failure.
        _ => Err(Status::raw(SEVERAL_BUDGETS)),
    }
}

/// Whether a budget lets Pods go that are not ready: they are none of the healthy ones that it protects.
fn allows_unhealthy(budget: &Value) -> bool {
    let (healthy, desired) = (budget.int("status.currentHealthy"), budget.int("status.desiredHealthy"));
    budget.text("spec.unhealthyPodEvictionPolicy") == ALWAYS_ALLOW || (healthy >= desired && desired > 0)
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod.items("status.conditions").iter();
    conditions.any(|condition| condition.text("type") == "Ready" && condition.text("status") == "True")
}

/// The selector of a budget; `None` if it selects no Pods.
#[must_use]
pub fn selector_of(budget: &Value) -> Option<Selector> {
    let selector = budget.at("spec.selector");
    if selector.is_null() { None } else { selector::from_object(selector) }
}

/// Whether a budget is for a Pod with these labels.
#[must_use]
pub fn selects(budget: &Value, pod: &Facts) -> bool {
    selector_of(budget).is_some_and(|selector| selector.matches(pod, "", ""))
}

/// A budget after one more disruption, by the eviction of this Pod.
///
/// # Errors
/// 429 when the budget allows none at the moment, 403 when its status makes no sense.
pub fn charge(budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
    let (name, status) = (budget.text("metadata.name"), budget.at("status"));
    let allowed = status.int("disruptionsAllowed");
    if status.int("observedGeneration") < budget.int("metadata.generation") {
        return Err(outdated(name));
    }
    if allowed < 0 {
        return Err(forbidden(name, "pdb disruptions allowed is negative"));
    }
    if status.map("disruptedPods").map_or(0, serde_json::Map::len) > MAX_DISRUPTED {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(forbidden(name, why));
    }
    if allowed == 0 {
        let mut refused = Status::too_many_requests(VIOLATION);
        // Without a time, so that clients choose when to try again.
        refused.details = None;
        return Err(refused.with_cause(CAUSE, &exhausted(name, status), ""));
    }
    let mut charged = budget.clone();
    charged.put("status.disruptionsAllowed", allowed - 1);
    if allowed == 1 {
        set_allowed(&mut charged, now);
    }
    let mut disrupted = status.map("disruptedPods").cloned().unwrap_or_default();
    disrupted.insert(pod.to_owned(), now.into());
    charged.put("status.disruptedPods", disrupted);
    Ok(charged)
}

/// 429 while the status of a budget is not that of its spec, or of its Pods.
#[must_use]
pub fn outdated(budget: &str) -> Status {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    Status::too_many_requests(VIOLATION).retry_after(RETRY_SECONDS).with_cause(CAUSE, &why, "")
}

fn forbidden(budget: &str, why: &str) -> Status {
    // The resource is in the singular in kube-apiserver.
    Status::forbidden(Resource { plural: KIND.singular, ..KIND.resource() }, budget, why)
}

/// Why a budget allows no disruption.
fn exhausted(name: &str, status: &Value) -> String {
    let (healthy, desired) = (status.int("currentHealthy"), status.int("desiredHealthy"));
    let condition = find_allowed(status).filter(|condition| condition.text("status") == "False");
    let said = condition.map(|condition| (condition.text("reason"), condition.text("message")));
    match said.filter(|(_, message)| !message.is_empty()) {
        // Counts mean nothing while they cannot be computed.
        Some((SYNC_FAILED, message)) => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        ),
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some((reason, message)) => {
            format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
        }
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

/// The condition [`ALLOWED`] in a status.
fn find_allowed(status: &Value) -> Option<&Value> {
    status.items("conditions").iter().find(|condition| condition.text("type") == ALLOWED)
}

/// Sets the condition [`ALLOWED`] of a budget by its `disruptionsAllowed`.
pub fn set_allowed(budget: &mut Value, now: &str) {
    let (status, reason) = if budget.int("status.disruptionsAllowed") > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    set_condition(budget, status, reason, "", now);
}

/// Marks a budget whose status could not be computed: it allows no disruption.
pub fn set_failed(budget: &mut Value, why: &str, now: &str) {
    budget.put("status.disruptionsAllowed", 0);
    set_condition(budget, "False", SYNC_FAILED, why, now);
}

fn set_condition(budget: &mut Value, status: &str, reason: &str, message: &str, now: &str) {
    let generation = budget.int("status.observedGeneration");
    let old = find_allowed(budget.at("status"));
    let since = old.filter(|old| old.text("status") == status).map_or(now, |old| old.text("lastTransitionTime"));
    let mut new = json!({
        "type": ALLOWED, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    if generation != 0 {
        new.put("observedGeneration", generation);
    }
    let mut conditions = budget.items("status.conditions").to_vec();
    match conditions.iter_mut().find(|condition| condition.text("type") == ALLOWED) {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
    budget.put("status.conditions", conditions);
}

/// Sets the condition [`TARGET`] of a Pod; `reason` is `None` when it is not a target any longer.
pub fn set_target(pod: &mut Value, reason: Option<(&str, &str)>, now: &str) {
    let status = if reason.is_some() { "True" } else { "False" };
    let mut conditions = pod.items("status.conditions").to_vec();
    let place = conditions.iter().position(|condition| condition.text("type") == TARGET);
    let old = place.and_then(|place| conditions.get(place)).filter(|old| old.text("status") == status);
    let since = old.map_or(now, |old| old.text("lastTransitionTime"));
    let mut new = json!({"type": TARGET, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
    if let Some((reason, message)) = reason {
        new.put("reason", reason);
        new.put("message", message);
    }
    match place.and_then(|place| conditions.get_mut(place)) {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
    pod.put("status.conditions", conditions);
}
