//! Resource quotas: admission of requests, and recalculation of usage.
//!
//! ```text
//! ResourceQuotas, old and new object ─▶ check_request ─▶ new status.used of each quota, or why it is forbidden
//! ResourceQuota, all objects         ─▶ recalculate   ─▶ its status
//! ```
//! Requests are checked against `status`, not `spec`: a quota whose usage has not been calculated yet forbids what it
//! limits. The new usage must be stored in the same transaction as the object.

pub mod evaluator;
pub mod scope;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use self::evaluator::{Evaluator, counts_until};
use crate::kind::Kind;
use crate::kinds::KINDS;
use crate::object;
use crate::quantity::Amount;
use crate::resources::ResourceList;
use crate::value::ValueExt as _;

/// A write of a namespaced object that passed validation.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The group of the kind.
    pub group: &'r str,
    /// The plural of the kind.
    pub plural: &'r str,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'r str,
    /// The stored object; `None` on create.
    pub old: Option<&'r Value>,
    /// The object to be stored.
    pub new: &'r Value,
    /// The time of the request.
    pub now: Timestamp,
}

/// The usage of one quota after a request.
#[derive(Clone, PartialEq, Debug)]
pub struct Charge {
    /// The index of the quota in the given list.
    pub quota: usize,
    /// Its new `status.used`.
    pub used: Value,
}

impl<'r> Request<'r> {
    /// The evaluator of the request; `None` if the request cannot increase usage.
    fn evaluator(&self) -> Option<Evaluator<'r>> {
        let evaluator = Evaluator::find(self.group, self.plural)?;
        let is_create = self.old.is_none();
        let handles = match (evaluator, self.subresource) {
            (Evaluator::Pods, "") => self.old.is_none_or(|old| evaluator.is_rescoped(old, self.new)),
            (Evaluator::Pods, "resize") => !is_create,
            (Evaluator::Services | Evaluator::Claims, "") => true,
            (Evaluator::Claims, "status") => self.old.is_some_and(|old| {
                evaluator.is_rescoped(old, self.new) || allocated_storage(old) != allocated_storage(self.new)
            }),
            (Evaluator::Count(..), "") => is_create,
            _ => false,
        };
        handles.then_some(evaluator)
    }

    /// Whether quotas must be checked for the request.
    #[must_use]
    pub fn concerns_quotas(&self) -> bool {
        self.evaluator().is_some() && !self.new.text("metadata.namespace").is_empty()
    }
}

/// The allocated storage of a claim, which is set while it is expanded.
fn allocated_storage(claim: &Value) -> Option<Amount> {
    claim.at("status.allocatedResources").get("storage").map(Amount::of)
}

/// Checks a request against the quotas of its namespace, and returns their usage after the request. Quotas whose usage
/// does not change are left out. With several exceeded quotas, the first in the list is reported.
///
/// # Errors
/// Why the request is forbidden.
pub fn check_request(quotas: &[Value], request: &Request<'_>) -> Result<Vec<Charge>, String> {
    let Some(evaluator) = request.evaluator().filter(|_| request.concerns_quotas() && !quotas.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut interested = Vec::new();
    for (index, quota) in quotas.iter().enumerate() {
        let status = Status::of(quota);
        if status.hard.0.keys().any(|name| evaluator.tracks(name))
            && evaluator.is_in_scope(quota.at("spec"), request.new)
        {
            status.check_constraints(evaluator, request.new)?;
            interested.push((index, status));
        }
    }
    let usage = evaluator.usage(request.new, request.now);
    let negative: Vec<&str> =
        usage.0.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
    }
    let before = request.old.map(|old| evaluator.usage(old, request.now));
    let mut charges = Vec::new();
    for (index, status) in interested {
        // Only an object that was in scope before has been charged to this quota.
        let counted = before.as_ref().filter(|_| {
            let spec = quotas.get(index).map(|quota| quota.at("spec"));
            request.old.zip(spec).is_some_and(|(old, spec)| evaluator.is_in_scope(spec, old))
        });
        let growth = counted.map_or_else(|| usage.clone(), |before| usage.growth_since(before));
        if let Some(used) = status.charge(&growth, request.subresource != "status")? {
            charges.push(Charge { quota: index, used: used.to_value() });
        }
    }
    Ok(charges)
}

/// The status of a quota.
struct Status<'q> {
    name: &'q str,
    hard: ResourceList,
    used: ResourceList,
}

impl<'q> Status<'q> {
    fn of(quota: &'q Value) -> Self {
        Self {
            name: quota.text("metadata.name"),
            hard: ResourceList::of(quota.at("status.hard")),
            used: ResourceList::of(quota.at("status.used")),
        }
    }

    /// Forbids objects that do not specify limited resources, and all objects while usage is unknown.
    fn check_constraints(&self, evaluator: Evaluator<'_>, object: &Value) -> Result<(), String> {
        let tracked: Vec<&str> = self.hard.0.keys().map(String::as_str).filter(|name| evaluator.tracks(name)).collect();
        if let Some(missing) = evaluator.missing(tracked.iter().copied(), object) {
            return Err(format!("failed quota: {}: {missing}", self.name));
        }
        if tracked.iter().any(|name| self.used.get(name).is_none()) {
            return Err(format!("status unknown for quota: {}, resources: {}", self.name, tracked.join(",")));
        }
        Ok(())
    }

    /// The usage after an increase; `None` if it does not change.
    fn charge(&self, growth: &ResourceList, is_limited: bool) -> Result<Option<ResourceList>, String> {
        let requested =
            growth.masked(|name| self.hard.get(name).is_some() && growth.get(name).is_some_and(|more| !more.is_zero()));
        let mut used = self.used.clone();
        used.add(&requested);
        let is_exceeded = |name: &str| {
            let amounts = used.get(name).zip(self.hard.get(name)).filter(|_| requested.get(name).is_some());
            amounts.is_some_and(|(used, hard)| used > hard)
        };
        if is_limited && requested.0.keys().any(|name| is_exceeded(name)) {
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                self.name,
                requested.masked(is_exceeded),
                self.used.masked(is_exceeded),
                self.hard.masked(is_exceeded),
            ));
        }
        Ok((used != self.used).then_some(used))
    }
}

/// The status of a quota, calculated from the objects of its namespace.
#[derive(Clone, PartialEq, Debug)]
pub struct Recalculated {
    /// `status.hard`: equals `spec.hard`.
    pub hard: ResourceList,
    /// `status.used`: the usage of all objects. Resources that no known kind uses keep their former value.
    pub used: ResourceList,
    /// When usage decreases without a write: the end of the grace period of the next Pod that is being deleted.
    pub until: Option<Timestamp>,
}

/// Calculates the status of a quota. `custom` are the stored kinds of definitions, each table once; `list` gives the stored form
/// of all objects of a kind in its namespace.
#[must_use]
pub fn recalculate(
    quota: &Value,
    now: Timestamp,
    custom: impl Iterator<Item = &'static Kind>,
    list: impl Fn(&'static Kind) -> Vec<Bytes>,
) -> Recalculated {
    let (spec, hard) = (quota.at("spec"), ResourceList::of(quota.at("spec.hard")));
    let mut measured = ResourceList::default();
    let mut until: Option<Timestamp> = None;
    for (kind, evaluator) in evaluators(custom) {
        let tracked = hard.0.keys().filter(|name| evaluator.tracks(name));
        let mut sum = ResourceList(tracked.map(|name| (name.clone(), Amount::ZERO)).collect());
        if sum.0.is_empty() {
            continue;
        }
        for stored in list(kind) {
            let object = if evaluator.depends_on_content() { object::decode_light(&stored) } else { Value::Null };
            if evaluator.is_in_scope(spec, &object) {
                sum.add(&evaluator.usage(&object, now));
                let end = counts_until(&object).filter(|end| evaluator == Evaluator::Pods && *end >= now);
                until = [until, end].into_iter().flatten().min();
            }
        }
        measured.add(&sum);
    }
    let mut used = ResourceList::of(quota.at("status.used"));
    used.0.extend(measured.0);
    Recalculated { used: used.masked(|name| hard.get(name).is_some()), hard, until }
}

/// The evaluators of all kinds. Of versions that share a table only one is counted.
fn evaluators(
    custom: impl Iterator<Item = &'static Kind>,
) -> impl Iterator<Item = (&'static Kind, Evaluator<'static>)> {
    let is_stored = |kind: &Kind| crate::kinds::by_table(kind.table).is_some_and(|stored| std::ptr::eq(stored, kind));
    let kinds = KINDS.iter().copied().filter(move |kind| is_stored(kind)).chain(custom);
    let kinds = kinds.filter(|kind| kind.namespaced);
    kinds.filter_map(|kind| Some((kind, Evaluator::find(kind.group, kind.plural)?)))
}
