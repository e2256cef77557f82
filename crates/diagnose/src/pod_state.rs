//! Why a Pod is not ready, from its status: waiting containers, the message of the scheduler, the condition Ready; and the
//! ports that its containers declare.

use api::view::lenient::or_default;
use api::view::pod::{ContainerPort, PodSpec};
use api::view::{Condition, condition};
use serde::Deserialize;
use serde_json::Value;

use crate::model::{of, protocol_name, read};
use crate::words::{count, quote};

/// Maximum length of quoted text.
const LONGEST: usize = 160;

/// The reported state of a Pod.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub struct Detail {
    #[serde(deserialize_with = "or_default")]
    spec: PodSpec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

/// A declared port: `http (8080/TCP)`, or `8080/TCP` without a name.
#[must_use]
pub fn port_text(port: &ContainerPort) -> String {
    let at = format!("{}/{}", port.container_port, protocol_name(port.protocol));
    if port.name.is_empty() { at } else { format!("{} ({at})", port.name) }
}

/// The `targetPort` that resolves to a declared port.
#[must_use]
pub fn target_of(port: &ContainerPort) -> Value {
    if port.name.is_empty() { Value::from(port.container_port) } else { Value::from(&*port.name) }
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
        of(object)
    }

    /// The ports that its containers declare, in their order. Init containers have none, unless they keep running.
    #[must_use]
    pub fn ports(&self) -> Vec<&ContainerPort> {
        self.spec.running_containers().flat_map(|container| &container.ports).collect()
    }

    /// Why it is not ready; none when its status has no reason.
    #[must_use]
    pub fn excuse(&self) -> Option<String> {
        let Status { phase, conditions, .. } = &self.status;
        let condition = |kind: &str| condition::find(conditions, kind).filter(|condition| !condition.is_true());
        let scheduled = condition("PodScheduled").filter(|condition| text_of(condition).is_some());
        let excuse = if let Some(container) = self.stuck() {
            let exit = container.last_state.terminated.exit_code;
            let exit = exit.map(|code| format!("; its last exit code was {code}")).unwrap_or_default();
            format!("container {} is waiting: {}{exit}", container.name, container.state.waiting.reason)
        } else if let Some(said) = scheduled.or_else(|| condition("Ready")).and_then(text_of) {
            said
        } else if matches!(&**phase, "Pending" | "Unknown") {
            format!("phase {phase}")
        } else {
            return None;
        };
        Some(quote(&excuse, LONGEST))
    }

    /// Further details, one per line.
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

    /// The container whose last log shows why it is in a restart loop.
    pub(crate) fn crashing(&self) -> Option<&str> {
        let container = self.stuck().filter(|container| container.state.waiting.reason == "CrashLoopBackOff")?;
        Some(&container.name)
    }

    /// The first container that waits for something that may never happen.
    fn stuck(&self) -> Option<&ContainerStatus> {
        let Status { container_statuses, init_container_statuses, .. } = &self.status;
        let mut all = init_container_statuses.iter().chain(container_statuses);
        all.find(|one| !matches!(one.state.waiting.reason.as_str(), "" | "ContainerCreating" | "PodInitializing"))
    }
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    phase: Box<str>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerStatus>,
}

/// The reason and the message of a condition.
fn text_of(condition: &Condition) -> Option<String> {
    match (&*condition.reason, condition.message.as_deref().unwrap_or_default()) {
        ("", "") => None,
        (reason, "") => Some(reason.to_owned()),
        ("", message) => Some(message.to_owned()),
        (reason, message) => Some(format!("{reason}: {message}")),
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
