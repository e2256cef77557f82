//! Admission by LimitRanges: default resources of containers, and limits of containers, Pods and volume claims.
//!
//! In: the LimitRanges of a namespace, sorted by name, and the object to be written. Out: the object with defaults
//! ([`fill_pod`], runs before the strategy and validation of the kind), or why it is forbidden ([`check`], runs after
//! them).

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use crate::quantity::Amount;
use crate::resources::ResourceList;
use crate::resources::pod::{self, Part};
use crate::value::ValueExt as _;

/// Limits of every container.
pub const CONTAINER: &str = "Container";
/// Limits of all containers of a Pod together.
pub const POD: &str = "Pod";
/// Limits of volume claims.
pub const CLAIM: &str = "PersistentVolumeClaim";
/// Amounts up to this are compared in thousandths, greater ones as integers.
pub(crate) const MAX_MILLI: i64 = i64::MAX / 1000;
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Whether LimitRanges apply to a write. `old` is the stored object, `None` on create. Objects that are being deleted
/// are exempt.
#[must_use]
pub fn concerns(group: &str, plural: &str, subresource: &str, old: Option<&Value>) -> bool {
    let is_ours = match (group, plural, subresource) {
        // After creation, the resources of a Pod change only through a resize.
        ("", "pods", "") => old.is_none(),
        ("", "pods", "resize") => old.is_some(),
        ("", "persistentvolumeclaims", "") => true,
        _ => false,
    };
    is_ours && !old.is_some_and(|old| old.has("metadata.deletionTimestamp"))
}

/// Sets default requests and limits of the containers of a Pod, and an annotation that lists them. As in Kubernetes,
/// a later LimitRange that sets something replaces the annotation of an earlier one.
pub fn fill_pod(limit_ranges: &[Value], pod: &mut Value) {
    for limit_range in limit_ranges {
        let mut filled = Vec::new();
        let limits = || limit_range.items("spec.limits").iter().filter(|limit| limit.text("type") == CONTAINER);
        for (list, what) in [("spec.containers", "container"), ("spec.initContainers", "init container")] {
            for container in pod.items_mut(list) {
                let name = container.text("name").to_owned();
                let mut fill = |part: Part, field: &str| {
                    let names = fill_container(container, part, limits().map(|limit| limit.at(field)));
                    if !names.is_empty() {
                        let part = part.field().trim_end_matches('s');
                        filled.push(format!("{} {part} for {what} {name}", names.join(", ")));
                    }
                };
                fill(Part::Requests, "defaultRequest");
                fill(Part::Limits, "default");
            }
        }
        if !filled.is_empty() {
            let mut annotations = pod.map("metadata.annotations").cloned().unwrap_or_default();
            annotations.insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", filled.join("; ")).into());
            pod.put("metadata.annotations", annotations);
        }
    }
}

/// Sets missing amounts and returns their names, sorted. If several limits have a default, the last one wins.
fn fill_container<'l>(container: &mut Value, part: Part, defaults: impl Iterator<Item = &'l Value>) -> Vec<String> {
    let defaults: Map<String, Value> =
        defaults.filter_map(Value::as_object).flatten().map(|(name, amount)| (name.clone(), amount.clone())).collect();
    let field = format!("resources.{}", part.field());
    let mut amounts = container.map(&field).cloned().unwrap_or_default();
    let mut missing: Vec<String> = defaults.keys().filter(|name| !amounts.contains_key(*name)).cloned().collect();
    missing.sort_unstable();
    if !missing.is_empty() {
        amounts.extend(defaults.into_iter().filter(|(name, _)| missing.contains(name)));
        container.put(&field, amounts);
    }
    missing
}

/// Checks a Pod or a volume claim, by its plural.
///
/// # Errors
/// Why the object is forbidden: all violations of the first LimitRange that is violated.
pub fn check(limit_ranges: &[Value], plural: &str, object: &Value) -> Result<(), String> {
    for limit_range in limit_ranges {
        let mut wrong = Vec::new();
        for limit in limit_range.items("spec.limits") {
            match (plural, limit.text("type")) {
                ("pods", CONTAINER) => check_containers(limit, object, &mut wrong),
                ("pods", POD) => check_pod(limit, object, &mut wrong),
                ("persistentvolumeclaims", CLAIM) => check_claim(limit, object, &mut wrong),
                _ => {}
            }
        }
        if !wrong.is_empty() {
            return Err(summary(wrong));
        }
    }
    Ok(())
}

/// `a`, or `[a, b]`, each once.
fn summary(wrong: Vec<String>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in wrong {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match lines.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", lines.join(", ")),
    }
}

fn check_containers(limit: &Value, pod: &Value, wrong: &mut Vec<String>) {
    for container in pod.items("spec.containers").iter().chain(pod.items("spec.initContainers")) {
        let given = Given {
            kind: CONTAINER,
            requests: pod::of(container, Part::Requests),
            limits: pod::of(container, Part::Limits),
        };
        given.check_all(limit, wrong);
    }
}

fn check_pod(limit: &Value, pod: &Value, wrong: &mut Vec<String>) {
    let sum = |part| pod::specified(pod, part, |name| matches!(name, "cpu" | "memory"));
    Given { kind: POD, requests: sum(Part::Requests), limits: sum(Part::Limits) }.check_all(limit, wrong);
}

fn check_claim(limit: &Value, claim: &Value, wrong: &mut Vec<String>) {
    let requests = pod::of(claim.at("spec"), Part::Requests);
    let given = Given { kind: CLAIM, requests, limits: ResourceList::default() };
    wrong.extend(ResourceList::of(limit.at("min")).0.iter().filter_map(|(name, min)| given.below(name, min)));
    wrong.extend(ResourceList::of(limit.at("max")).0.iter().filter_map(|(name, max)| given.request_above(name, max)));
}

/// The resources under check: of a container, a whole Pod, or a claim.
struct Given {
    kind: &'static str,
    requests: ResourceList,
    limits: ResourceList,
}

impl Given {
    fn check_all(&self, limit: &Value, wrong: &mut Vec<String>) {
        let list = |field: &str| ResourceList::of(limit.at(field)).0.into_iter();
        wrong.extend(list("min").filter_map(|(name, min)| self.below(&name, &min)));
        wrong.extend(list("max").filter_map(|(name, max)| self.above(&name, &max)));
        wrong.extend(list("maxLimitRequestRatio").filter_map(|(name, max)| self.ratio_above(&name, &max)));
    }

    fn amounts(&self, name: &str) -> (Option<&Amount>, Option<&Amount>) {
        (self.requests.get(name), self.limits.get(name))
    }

    fn below(&self, name: &str, min: &Amount) -> Option<String> {
        let (request, limit) = self.amounts(name);
        let (low_request, low_limit, low) = comparable(request, limit, min);
        let least = format!("minimum {name} usage per {} is {min}", self.kind);
        match (request, limit) {
            (None, _) => Some(format!("{least}.  No request is specified")),
            (Some(request), _) if low_request < low => Some(format!("{least}, but request is {request}")),
            (_, Some(limit)) if low_limit < low => Some(format!("{least}, but limit is {limit}")),
            _ => None,
        }
    }

    fn above(&self, name: &str, max: &Amount) -> Option<String> {
        let (request, limit) = self.amounts(name);
        let (high_request, high_limit, high) = comparable(request, limit, max);
        let most = format!("maximum {name} usage per {} is {max}", self.kind);
        match (request, limit) {
            (_, None) => Some(format!("{most}.  No limit is specified")),
            (_, Some(limit)) if high_limit > high => Some(format!("{most}, but limit is {limit}")),
            (Some(request), _) if high_request > high => Some(format!("{most}, but request is {request}")),
            _ => None,
        }
    }

    /// The maximum for claims: only requests count.
    fn request_above(&self, name: &str, max: &Amount) -> Option<String> {
        let request = self.requests.get(name);
        let (high_request, _, high) = comparable(request, None, max);
        let most = format!("maximum {name} usage per {} is {max}", self.kind);
        match request {
            None => Some(format!("{most}.  No request is specified")),
            Some(request) if high_request > high => Some(format!("{most}, but request is {request}")),
            Some(_) => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "the original divides floating-point numbers")]
    fn ratio_above(&self, name: &str, max: &Amount) -> Option<String> {
        let (request, limit) = self.amounts(name);
        let (request, limit, _) = comparable(request, limit, max);
        let most = format!("{name} max limit to request ratio per {} is {max}", self.kind);
        if request == 0 {
            return Some(format!("{most}, but no request is specified or request is 0"));
        }
        if limit == 0 {
            return Some(format!("{most}, but no limit is specified or limit is 0"));
        }
        let ratio = limit as f64 / request as f64;
        let is_above = if max.value() <= MAX_MILLI {
            ratio * 1000.0 > max.thousandths() as f64
        } else {
            ratio > max.value() as f64
        };
        is_above.then(|| format!("{most}, but provided ratio is {ratio:.6}"))
    }
}

/// Request, limit and bound as integers of one scale: thousandths, unless one of them is too large.
fn comparable(request: Option<&Amount>, limit: Option<&Amount>, bound: &Amount) -> (i64, i64, i64) {
    let amounts = [request.unwrap_or(&Amount::ZERO), limit.unwrap_or(&Amount::ZERO), bound];
    let is_fine = amounts.iter().all(|amount| amount.value() <= MAX_MILLI);
    let [request, limit, bound] = amounts.map(|amount| if is_fine { amount.thousandths() } else { amount.value() });
    (request, limit, bound)
}
