//! The status of a budget, from counts of its Pods. Pure: the clock and the cluster are arguments.

use api::disruption;
use api::portion::{Portion, Rounding};
use api::value::ValueExt as _;
use serde_json::{Map, Value, json};

use crate::objects::pod::{Pod, seconds};

/// How long, in seconds, a Pod may be listed as disrupted before it is deleted.
pub(super) const DELETION_TIMEOUT: i64 = 120;

/// What counts of a Pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted<'a> {
    pub(super) name: &'a str,
    pub(super) ready: bool,
    pub(super) deleting: bool,
}

impl<'a> Counted<'a> {
    pub(super) fn of(pod: &'a Pod) -> Self {
        Self { name: pod.name(), ready: pod.ready, deleting: pod.deleting }
    }
}

/// The counts of a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counts {
    pub(super) expected: i64,
    pub(super) desired: i64,
    pub(super) healthy: i64,
}

/// How many Pods a budget expects and how many of them must be healthy. `scale` is the number of replicas of the controllers of its Pods, where it is needed.
pub(super) fn required(
    spec: &Value,
    pods: usize,
    scale: impl FnOnce() -> Result<i64, String>,
) -> Result<(i64, i64), String> {
    let read = |field: &str| Portion::read(spec.at(field)).ok_or_else(|| format!("invalid value for {field}"));
    if spec.has("maxUnavailable") {
        let (unavailable, expected) = (read("maxUnavailable")?, scale()?);
        return Ok((expected, expected.saturating_sub(unavailable.of(expected, Rounding::Up)).max(0)));
    }
    if !spec.has("minAvailable") {
        return Ok((0, 0));
    }
    match read("minAvailable")? {
        Portion::Count(available) => Ok((i64::try_from(pods).unwrap_or(i64::MAX), available)),
        available @ Portion::Percent(_) => {
            let expected = scale()?;
            Ok((expected, available.of(expected, Rounding::Up)))
        }
    }
}

/// Pods whose eviction was granted.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Disrupted {
    /// Those whose deletion is still expected: names and times.
    pub(super) pods: Map<String, Value>,
    /// The indexes of those that should have been deleted by now.
    pub(super) overdue: Vec<usize>,
    /// In how many seconds the next one is overdue.
    pub(super) next_check: Option<u64>,
}

/// The disrupted Pods that are not being deleted yet; `old` are those in the status.
pub(super) fn disrupted(old: Option<&Map<String, Value>>, pods: &[Counted<'_>], now: i64) -> Disrupted {
    let mut out = Disrupted::default();
    let Some(old) = old else { return out };
    for (index, pod) in pods.iter().enumerate().filter(|(_, pod)| !pod.deleting) {
        let Some(time) = old.get(pod.name) else { continue };
        let left = seconds(time.as_str().unwrap_or_default()).saturating_add(DELETION_TIMEOUT).saturating_sub(now);
        let Ok(left) = u64::try_from(left) else {
            out.overdue.push(index);
            continue;
        };
        // A Pod is overdue once the time is over, not at its end.
        let check = left.saturating_add(1);
        out.next_check = Some(out.next_check.map_or(check, |before| before.min(check)));
        out.pods.insert(pod.name.to_owned(), time.clone());
    }
    out
}

/// The number of Pods that are ready and will stay.
pub(super) fn healthy(pods: &[Counted<'_>], disrupted: &Map<String, Value>) -> i64 {
    let stays = |pod: &&Counted<'_>| pod.ready && !pod.deleting && !disrupted.contains_key(pod.name);
    i64::try_from(pods.iter().filter(stays).count()).unwrap_or(i64::MAX)
}

/// A budget with its new status.
pub(super) fn updated(budget: &Value, counts: Counts, disrupted: Map<String, Value>, now: &str) -> Value {
    let Counts { expected, desired, healthy } = counts;
    // A budget without Pods allows nothing: its first Pods may appear before this controller sees them.
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    let int32 = |count: i64| count.min(i64::from(i32::MAX));
    let mut status = json!({
        "disruptionsAllowed": int32(allowed), "currentHealthy": int32(healthy), "desiredHealthy": int32(desired),
        "expectedPods": int32(expected),
    });
    let generation = budget.int("metadata.generation");
    if generation != 0 {
        status.put("observedGeneration", generation);
    }
    if !disrupted.is_empty() {
        status.put("disruptedPods", disrupted);
    }
    if budget.has("status.conditions") {
        status.put("conditions", budget.at("status.conditions").clone());
    }
    let mut new = budget.clone();
    new.put("status", status);
    disruption::set_allowed(&mut new, now);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_require_numbers_or_parts_of_their_pods() {
        let cases = [
            (json!({"minAvailable": 2}), 5, Ok((5, 2))),
            (json!({"minAvailable": "50%"}), 5, Ok((7, 4))),
            (json!({"minAvailable": "100%"}), 5, Ok((7, 7))),
            (json!({"maxUnavailable": 3}), 5, Ok((7, 4))),
            (json!({"maxUnavailable": "30%"}), 5, Ok((7, 4))),
            (json!({"maxUnavailable": 9}), 5, Ok((7, 0))),
            (json!({"maxUnavailable": "x"}), 5, Err("invalid value for maxUnavailable".to_owned())),
            (json!({}), 5, Ok((0, 0))),
        ];
        for (spec, pods, expected) in cases {
            assert_eq!(required(&spec, pods, || Ok(7)), expected, "{spec}");
        }
        let unknown = || Err("no scale".to_owned());
        assert_eq!(required(&json!({"minAvailable": 2}), 5, unknown), Ok((5, 2)));
        assert_eq!(required(&json!({"maxUnavailable": 2}), 5, unknown), Err("no scale".to_owned()));
    }

    #[test]
    fn disrupted_pods_expire() {
        let pod = |name, deleting| Counted { name, ready: true, deleting };
        let pods = [pod("new", false), pod("old", false), pod("going", true), pod("other", false)];
        let listed = json!({
            "new": "1970-01-01T00:01:00Z", "old": "1970-01-01T00:00:00Z", "going": "1970-01-01T00:01:00Z",
            "gone": "1970-01-01T00:01:00Z",
        });
        let found = disrupted(listed.as_object(), &pods, 121);
        assert_eq!((found.overdue.as_slice(), found.next_check), (&[1][..], Some(60)));
        assert_eq!(Value::Object(found.pods.clone()), json!({"new": "1970-01-01T00:01:00Z"}));
        assert_eq!(healthy(&pods, &found.pods), 2, "old and other");
        assert_eq!(disrupted(None, &pods, 121), Disrupted::default());
    }

    #[test]
    fn nothing_is_allowed_without_pods() {
        let budget = json!({"metadata": {"generation": 3}, "status": {"disruptionsAllowed": 5}});
        let cases = [((0, 0, 0), 0), ((3, 2, 3), 1), ((3, 2, 2), 0), ((3, 2, 1), 0), ((0, 0, 2), 0), ((5, 0, 5), 5)];
        for ((expected, desired, healthy), allowed) in cases {
            let new = updated(&budget, Counts { expected, desired, healthy }, Map::new(), "2026-01-01T00:00:00Z");
            assert_eq!(new.int("status.disruptionsAllowed"), allowed, "{expected} {desired} {healthy}");
            let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
            assert_eq!(new.items("status.conditions")[0].text("reason"), reason);
            assert_eq!(new.int("status.observedGeneration"), 3);
        }
    }
}
