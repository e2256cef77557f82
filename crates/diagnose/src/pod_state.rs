//! Why a Pod is not ready, in its own words: what waits in it, what its scheduler says, what its Ready condition says; and the
//! ports that its containers declare.

use serde::Deserialize;
use serde_json::Value;

use crate::model::{Protocol, or_default, protocol, read};
use crate::words::{count, quote};

/// How much of it is quoted.
const LONGEST: usize = 160;

/// What a Pod says of itself.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub struct Detail {
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

/// A port that a container declares.
#[derive(Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Declared {
    /// Its name, if it has one.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its number.
    #[serde(rename = "containerPort")]
    pub number: u16,
    /// Its protocol.
    #[serde(deserialize_with = "protocol")]
    pub protocol: Protocol,
}

impl Declared {
    /// `http (8080/TCP)`, or `8080/TCP` without a name.
    #[must_use]
    pub fn text(&self) -> String {
        match &*self.name {
            "" => format!("{}/{}", self.number, self.protocol),
            name => format!("{name} ({}/{})", self.number, self.protocol),
        }
    }

    /// The `targetPort` that leads to it.
    #[must_use]
    pub fn target(&self) -> Value {
        if self.name.is_empty() { Value::from(self.number) } else { Value::from(&*self.name) }
    }
}

impl Detail {
    /// Reads the bytes of a Pod.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Self {
        read(bytes)
    }

    /// Reads a Pod of a list.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self::deserialize(object).unwrap_or_default()
    }

    /// The ports that its containers declare, in their order. Init containers have none, unless they keep running.
    #[must_use]
    pub fn ports(&self) -> Vec<&Declared> {
        let sidecars = self.spec.init_containers.iter().filter(|container| container.restart_policy == "Always");
        self.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports).collect()
    }

    /// Why it is not ready; nothing when it does not say.
    #[must_use]
    pub fn excuse(&self) -> Option<String> {
        let Status { phase, conditions, .. } = &self.status;
        let condition =
            |kind: &str| conditions.iter().find(|condition| condition.kind == kind && condition.status != "True");
        let scheduled = condition("PodScheduled").filter(|condition| condition.says().is_some());
        let excuse = if let Some(container) = self.stuck() {
            let exit = container.last_state.terminated.exit_code;
            let exit = exit.map(|code| format!("; its last exit code was {code}")).unwrap_or_default();
            format!("container {} is waiting: {}{exit}", container.name, container.state.waiting.reason)
        } else if let Some(said) = scheduled.or_else(|| condition("Ready")).and_then(Condition::says) {
            said
        } else if matches!(phase.as_str(), "Pending" | "Unknown") {
            format!("phase {phase}")
        } else {
            return None;
        };
        Some(quote(&excuse, LONGEST))
    }

    /// More about it, one thing to a line.
    pub(crate) fn evidence(&self, pod: &str) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(ContainerStatus { name, state, restart_count, .. }) = self.stuck() else { return lines };
        if !state.waiting.message.is_empty() {
            lines.push(format!("pod {pod}, container {name}: {}", quote(&state.waiting.message, 4 * LONGEST)));
        }
        if *restart_count > 0 {
            lines.push(format!("pod {pod}, container {name}: {}", count(*restart_count as usize, "restart")));
        }
        lines
    }

    /// The container whose last log tells why it ends again and again.
    pub(crate) fn crashing(&self) -> Option<&str> {
        let container = self.stuck().filter(|container| container.state.waiting.reason == "CrashLoopBackOff")?;
        Some(&container.name)
    }

    /// The first container that waits for something that may never come.
    fn stuck(&self) -> Option<&ContainerStatus> {
        let Status { container_statuses, init_container_statuses, .. } = &self.status;
        let mut all = init_container_statuses.iter().chain(container_statuses);
        all.find(|one| !matches!(one.state.waiting.reason.as_str(), "" | "ContainerCreating" | "PodInitializing"))
    }
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<Container>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    #[serde(deserialize_with = "or_default")]
    restart_policy: String,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<Declared>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    phase: String,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize, Debug, Default)]
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

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    state: State,
    #[serde(deserialize_with = "or_default")]
    last_state: State,
    #[serde(deserialize_with = "or_default")]
    restart_count: u32,
}

#[derive(Deserialize, Debug, Default)]
#[serde(default)]
struct State {
    #[serde(deserialize_with = "or_default")]
    waiting: Waiting,
    #[serde(deserialize_with = "or_default")]
    terminated: Terminated,
}

#[derive(Deserialize, Debug, Default)]
#[serde(default)]
struct Waiting {
    #[serde(deserialize_with = "or_default")]
    reason: String,
    #[serde(deserialize_with = "or_default")]
    message: String,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: Option<i32>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Detail;

    fn said(status: &Value) -> Option<String> {
        Detail::read(json!({"metadata": {}, "status": status}).to_string().as_bytes()).excuse()
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
        let crashed = json!([{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                              "lastState": {"terminated": {"exitCode": 3}}}]);
        assert_eq!(
            of(json!({"phase": "Running", "conditions": [ready], "containerStatuses": crashed})),
            "container c is waiting: CrashLoopBackOff; its last exit code was 3"
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
