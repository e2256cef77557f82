//! Why a Pod is not ready, in its own words: what waits in it, what its scheduler says, what its Ready condition says.

use serde::Deserialize;

use super::words::quote;
use crate::objects::{or_default, read};

/// How much of it is quoted.
const LONGEST: usize = 160;

/// What a stored Pod says of why it is not ready; nothing when it does not say.
pub(super) fn excuse(stored: &[u8]) -> Option<String> {
    let Raw { status } = read(stored);
    let Status { phase, conditions, container_statuses, init_container_statuses } = status;
    let condition =
        |kind: &str| conditions.iter().find(|condition| condition.kind == kind && condition.status != "True");
    let stuck = init_container_statuses.iter().chain(&container_statuses).find(|container| container.is_stuck());
    let scheduled = condition("PodScheduled").filter(|condition| condition.says().is_some());
    let excuse = if let Some(container) = stuck {
        format!("container {} is waiting: {}", container.name, container.state.waiting.reason)
    } else if let Some(said) = scheduled.or_else(|| condition("Ready")).and_then(Condition::says) {
        said
    } else if matches!(phase.as_str(), "Pending" | "Unknown") {
        format!("phase {phase}")
    } else {
        return None;
    };
    Some(quote(&excuse, LONGEST))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    phase: String,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
}

impl Condition {
    fn says(&self) -> Option<String> {
        match (self.reason.as_str(), self.message.as_str()) {
            ("", "") => None,
            (reason, "") => Some(reason.to_owned()),
            ("", message) => Some(message.to_owned()),
            (reason, message) => Some(format!("{reason}: {message}")),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    state: State,
}

impl Container {
    /// Whether it waits for something that may never come.
    fn is_stuck(&self) -> bool {
        !matches!(self.state.waiting.reason.as_str(), "" | "ContainerCreating" | "PodInitializing")
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct State {
    #[serde(deserialize_with = "or_default")]
    waiting: Waiting,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Waiting {
    #[serde(deserialize_with = "or_default")]
    reason: String,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::excuse;

    fn said(status: &Value) -> Option<String> {
        excuse(json!({"metadata": {}, "status": status}).to_string().as_bytes())
    }

    #[test]
    fn the_most_telling_thing_is_said() {
        let ready = json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady",
                           "message": "containers with unready status: [c]"});
        let waits = |reason: &str| json!([{"name": "c", "state": {"waiting": {"reason": reason}}}]);
        let of = |status: Value| said(&status).unwrap_or_default();
        assert_eq!(
            of(json!({"phase": "Pending", "conditions": [ready], "containerStatuses": waits("ImagePullBackOff")})),
            "container c is waiting: ImagePullBackOff"
        );
        assert_eq!(
            of(json!({"phase": "Pending", "conditions": [ready], "containerStatuses": waits("ContainerCreating")})),
            "ContainersNotReady: containers with unready status: [c]"
        );
        let unscheduled = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                                 "message": "0/3 nodes are available:\n3 Insufficient cpu."});
        assert_eq!(
            of(json!({"conditions": [ready, unscheduled]})),
            "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu"
        );
        assert_eq!(of(json!({"phase": "Pending"})), "phase Pending");
        assert_eq!(said(&json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]})), None);
        assert_eq!(said(&json!({"phase": "Running", "conditions": null, "containerStatuses": null})), None);
    }

    #[test]
    fn long_stories_are_cut() {
        let long = json!([{"type": "Ready", "status": "False", "message": "x".repeat(5000)}]);
        assert_eq!(said(&json!({"conditions": long})).map(|said| said.len()), Some(super::LONGEST));
    }
}
