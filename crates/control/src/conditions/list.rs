//! Merges findings into the list of conditions.
//!
//! In: the stored list, the findings, the time. Out: the new list, or `None` without a change. Existing conditions keep their position, because two
//! writers with different orders would never converge.

use std::borrow::Cow;

use api::value::ValueExt as _;
use diagnose::Stage;
use diagnose::words::{LONGEST, shorten};
use serde_json::{Value, json};

/// A condition to set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// Whether the condition is true.
    pub(crate) holds: bool,
    /// The reason, in CamelCase.
    pub(crate) reason: Cow<'static, str>,
    /// The message.
    pub(crate) message: String,
}

impl Finding {
    /// A true condition.
    pub(crate) fn good(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: true, reason: reason.into(), message: message.into() }
    }

    /// A false condition.
    pub(crate) fn bad(reason: &'static str, message: impl Into<String>) -> Self {
        Self { holds: false, reason: reason.into(), message: message.into() }
    }
}

impl From<Stage> for Finding {
    fn from(stage: Stage) -> Self {
        match stage {
            Ok(healthy) => Self::good(healthy.reason, healthy.message),
            Err(finding) => Self { holds: false, reason: finding.code, message: finding.message },
        }
    }
}

/// Merges conditions by type into a list. `None` keeps a condition.
pub(crate) fn merge(stored: &[Value], found: Vec<(&str, Option<Finding>)>, now: &str) -> Option<Vec<Value>> {
    let mut list = stored.to_vec();
    for (kind, finding) in found {
        let Some(Finding { holds, reason, message }) = finding else { continue };
        let (status, message) = (if holds { "True" } else { "False" }, shorten(message, LONGEST));
        let place = list.iter().position(|condition| condition.text("type") == kind);
        let old = place.map_or(&Value::Null, |place| &list[place]);
        let same_status = old.text("status") == status && old.has("lastTransitionTime");
        if same_status && old.text("reason") == reason && old.text("message") == message {
            continue;
        }
        let since = if same_status { old.text("lastTransitionTime") } else { now };
        let new = json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
        });
        match place {
            Some(place) => list[place] = new,
            None => list.push(new),
        }
    }
    (list != stored).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-05-05T05:05:05Z";
    const EARLIER: &str = "2026-01-01T00:00:00Z";

    fn condition(kind: &str, status: &str, message: &str, since: &str) -> Value {
        json!({"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": since})
    }

    fn found(holds: bool, message: &str) -> Vec<(&'static str, Option<Finding>)> {
        vec![("A", Some(Finding { holds, reason: "R".into(), message: message.to_owned() }))]
    }

    #[test]
    fn unchanged_conditions_are_not_written() {
        let stored = [condition("A", "True", "m", EARLIER)];
        assert_eq!(merge(&stored, found(true, "m"), NOW), None);
        assert_eq!(merge(&stored, vec![("A", None), ("B", None)], NOW), None, "nothing was found");
    }

    #[test]
    fn the_transition_time_changes_with_the_status() {
        let stored = [condition("A", "False", "m", EARLIER)];
        let merged = merge(&stored, found(false, "other"), NOW).expect("another message");
        assert_eq!(merged, [condition("A", "False", "other", EARLIER)]);
        let merged = merge(&stored, found(true, "m"), NOW).expect("another status");
        assert_eq!(merged, [condition("A", "True", "m", NOW)]);
        let untimed = [json!({"type": "A", "status": "True", "reason": "R", "message": "m"})];
        assert_eq!(merge(&untimed, found(true, "m"), NOW), Some(vec![condition("A", "True", "m", NOW)]));
    }

    #[test]
    fn foreign_conditions_are_kept_in_place() {
        let foreign = json!({"type": "example.com/Warm", "status": "Unknown", "observedGeneration": 7});
        let stored = [foreign.clone(), condition("A", "True", "m", EARLIER)];
        let merged = merge(&stored, found(false, "m"), NOW).expect("a change");
        assert_eq!(merged, [foreign.clone(), condition("A", "False", "m", NOW)]);
        let merged = merge(std::slice::from_ref(&foreign), found(true, "m"), NOW).expect("a new one");
        assert_eq!(merged, [foreign, condition("A", "True", "m", NOW)]);
    }

    #[test]
    fn messages_are_truncated() {
        let merged = merge(&[], found(true, &"x".repeat(40_000)), NOW).expect("a new one");
        assert_eq!(merged[0].text("message").len(), LONGEST);
        assert_eq!(merge(&merged, found(true, &"x".repeat(40_000)), NOW), None);
    }
}
