//! A Node: its zone, whether it is ready, and what hints are weighed by.

use std::sync::Arc;

use serde::Deserialize;
use store::Entry;

use super::or_default;

/// The label of the zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// A Node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// The stored form: key and labels.
    pub entry: Arc<Entry>,
    /// Whether it says that it is ready.
    pub ready: bool,
    /// When it last said anything of that.
    pub heartbeat: Option<Box<str>>,
    /// What Pods may use of its processors, in thousandths of one.
    pub millicores: u64,
    /// The addresses of its Pods.
    pub pod_cidrs: Box<[Box<str>]>,
}

impl Node {
    /// Reads a stored Node.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let Raw { spec, status } = super::read(&entry.value);
        let ready = status.conditions.into_iter().find(|condition| condition.kind == "Ready");
        Self {
            entry: Arc::clone(entry),
            ready: ready.as_ref().is_some_and(|condition| condition.status == "True"),
            heartbeat: ready.and_then(|condition| condition.last_heartbeat_time),
            millicores: status.allocatable.cpu.as_deref().map_or(0, millicores),
            pod_cidrs: spec.pod_cidrs,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.key.name
    }

    /// The zone it is in, if it says so.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.entry.facts.label(ZONE).filter(|zone| !zone.is_empty())
    }

    /// Whether it runs the control plane and no ordinary Pods.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
            .iter()
            .any(|label| self.entry.facts.label(label).is_some())
    }
}

/// `4`, `2500m`, `1.5`: quantities of processors, in thousandths. Stored quantities are canonical.
fn millicores(text: &str) -> u64 {
    let (number, factor) = text.strip_suffix('m').map_or((text, 1000.0), |number| (number, 1.0));
    let value = number.parse::<f64>().unwrap_or_default() * factor;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "no machine has 2^53 processors")]
    let whole = value.max(0.0).round() as u64;
    whole
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pod_cidrs: Box<[Box<str>]>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    allocatable: Allocatable,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Allocatable {
    cpu: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_heartbeat_time: Option<Box<str>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_in_thousandths() {
        assert_eq!(["4", "2500m", "1.5", "0", "much"].map(millicores), [4000, 2500, 1500, 0, 0]);
    }
}
