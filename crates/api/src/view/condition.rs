//! Conditions in the status of an object.

use serde::Deserialize;

use super::lenient::or_default;

/// A condition.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// `Ready`, `PodScheduled`, …
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub status: Box<str>,
    /// Why, in one word.
    #[serde(deserialize_with = "or_default")]
    pub reason: Box<str>,
    /// Why, as a sentence.
    pub message: Option<Box<str>>,
    /// When the status last changed, RFC 3339.
    pub last_transition_time: Option<Box<str>>,
    /// When a Node last reported it, RFC 3339.
    pub last_heartbeat_time: Option<Box<str>>,
}

impl Condition {
    /// Whether its status is `True`.
    #[must_use]
    pub fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}

/// The condition of this type.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| &*condition.kind == kind)
}
