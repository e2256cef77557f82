//! Conditions of a namespace that is being deleted, as in Kubernetes.
//!
//! Three of them are about failures that cannot happen here; they exist for compatibility.

use std::collections::BTreeMap;

use api::kind::Kind;
use api::value::ValueExt as _;
use serde_json::{Value, json};

/// The conditions without problems: type, reason, message.
const NO_PROBLEMS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    (CONTENT, "ContentRemoved", "All content successfully removed"),
    (FINALIZERS, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];
const CONTENT: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// Objects that are being deleted and still exist.
#[derive(Debug, Default)]
pub(super) struct RemainingContent {
    /// Counts by `plural.group`.
    resources: BTreeMap<String, usize>,
    /// Counts by finalizer.
    finalizers: BTreeMap<Box<str>, usize>,
}

impl RemainingContent {
    /// Adds an object with its finalizers.
    pub(super) fn add(&mut self, kind: &Kind, finalizers: &[Box<str>]) {
        *self.resources.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
        for finalizer in finalizers {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Sets the conditions of a namespace; unchanged ones keep their transition time.
    pub(super) fn write_conditions(&self, namespace: &mut Value, now: &str) {
        let mut conditions = namespace.items("status.conditions").to_vec();
        for (condition, reason, message) in NO_PROBLEMS {
            let wanted = match self.trouble(condition) {
                Some((reason, message)) => ("True", reason, message),
                None => ("False", reason, message.to_owned()),
            };
            set(&mut conditions, condition, wanted, now);
        }
        namespace.put("status.conditions", conditions);
    }

    /// Reason and message of a condition with a problem.
    fn trouble(&self, condition: &str) -> Option<(&'static str, String)> {
        match condition {
            CONTENT if !self.resources.is_empty() => {
                let each =
                    self.resources.iter().map(|(resource, count)| format!("{resource} has {count} resource instances"));
                Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", joined(each))))
            }
            FINALIZERS if !self.finalizers.is_empty() => {
                let each = self.finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
                let message = format!("Some content in the namespace has finalizers remaining: {}", joined(each));
                Some(("SomeFinalizersRemain", message))
            }
            _ => None,
        }
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn set(conditions: &mut Vec<Value>, condition: &str, wanted: (&str, &str, String), now: &str) {
    let (status, reason, message) = wanted;
    let index = conditions.iter().position(|have| have.text("type") == condition);
    let since = index.map(|index| &conditions[index]).filter(|have| have.text("status") == status);
    let since = since.map_or(now, |have| have.text("lastTransitionTime")).to_owned();
    let new = json!({
        "type": condition, "status": status, "lastTransitionTime": since, "reason": reason, "message": message,
    });
    match index {
        Some(index) => conditions[index] = new,
        None => conditions.push(new),
    }
}
