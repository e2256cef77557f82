//! The row of a Pod: a summary of the state of its containers in one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::{AGE, NAME, Table, age, column, or, since, wide_column};
use crate::value::ValueExt as _;

pub(super) static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Ready", "How many containers are ready, of how many."),
        column("Status", "What the Pod is doing, or why it is not."),
        column("Restarts", "How often containers were started again, and when last."),
        AGE,
        wide_column("IP", "The address of the Pod."),
        wide_column("Node", "Where it runs."),
        wide_column("Nominated Node", "Where it will run once others have made room."),
        wide_column("Readiness Gates", "How many further conditions of readiness are met, of how many."),
    ],
    row,
    conditions,
};

/// The state collected from the containers.
#[derive(Default)]
struct Summary<'p> {
    reason: String,
    ready: usize,
    restarts: i64,
    last_restart: Option<&'p str>,
}

fn row(pod: &Value, now: Timestamp) -> Vec<Value> {
    let side_cars = pod.items("spec.initContainers").iter().filter(|container| is_side_car(container)).count();
    let total = pod.items("spec.containers").len() + side_cars;
    let summary = summarise(pod);
    let restarts = match summary.last_restart {
        Some(time) if summary.restarts != 0 => {
            format!("{} ({} ago)", summary.restarts, since(&Value::from(time), now))
        }
        _ => summary.restarts.to_string(),
    };
    let address = pod.at("status.podIPs").get(0).map_or("", |ip| ip.text("ip"));
    vec![
        pod.text("metadata.name").into(),
        format!("{}/{total}", summary.ready).into(),
        summary.reason.into(),
        restarts.into(),
        age(pod, now).into(),
        or(address, "<none>").into(),
        or(pod.text("spec.nodeName"), "<none>").into(),
        or(pod.text("status.nominatedNodeName"), "<none>").into(),
        gates_cell(pod).into(),
    ]
}

fn conditions(pod: &Value) -> Vec<Value> {
    let message = match pod.text("status.phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![json!({"type": "Completed", "status": "True", "reason": pod.text("status.phase"), "message": message})]
}

/// An init container that keeps running next to the others.
fn is_side_car(container: &Value) -> bool {
    container.text("restartPolicy") == "Always"
}

fn summarise(pod: &Value) -> Summary<'_> {
    let status = pod.at("status");
    let gated =
        |condition: &Value| condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated";
    let mut summary = Summary {
        reason: if status.items("conditions").iter().any(gated) {
            "SchedulingGated".to_owned()
        } else {
            or(status.text("reason"), status.text("phase")).to_owned()
        },
        ..Summary::default()
    };
    let mut side_cars = Summary::default();
    let initializing = look_at_init(pod, &mut summary, &mut side_cars);
    let initialized = status.items("conditions").iter().find(|condition| condition.text("type") == "Initialized");
    if !initializing || initialized.is_some_and(|condition| condition.text("status") == "True") {
        summary.restarts = side_cars.restarts;
        summary.last_restart = side_cars.last_restart;
        look_at_containers(status, &mut summary);
    }
    if pod.has("metadata.deletionTimestamp") {
        if status.text("reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.reason);
        } else if !matches!(status.text("phase"), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.reason);
        }
    }
    summary
}

impl<'p> Summary<'p> {
    fn count_restarts(&mut self, status: &'p Value) {
        self.restarts += status.int("restartCount");
        // RFC 3339 in UTC sorts by time.
        let finished = status.at("lastState.terminated.finishedAt").as_str();
        self.last_restart = self.last_restart.max(finished);
    }
}

/// Checks the init containers up to the first unfinished one; returns whether there is
/// one.
fn look_at_init<'p>(pod: &'p Value, summary: &mut Summary<'p>, side_cars: &mut Summary<'p>) -> bool {
    let specs = pod.items("spec.initContainers");
    for (index, status) in pod.items("status.initContainerStatuses").iter().enumerate() {
        let side_car = specs.iter().any(|spec| spec.text("name") == status.text("name") && is_side_car(spec));
        summary.count_restarts(status);
        if side_car {
            side_cars.count_restarts(status);
        }
        let terminated = status.at("state.terminated");
        let waiting = status.text("state.waiting.reason");
        if !terminated.is_null() && terminated.int("exitCode") == 0 {
            continue;
        }
        if side_car && status.flag("started") {
            summary.ready += usize::from(status.flag("ready"));
            continue;
        }
        summary.reason = if !terminated.is_null() {
            format!("Init:{}", end_of(terminated))
        } else if !matches!(waiting, "" | "PodInitializing") {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", specs.len())
        };
        return true;
    }
    false
}

fn look_at_containers<'p>(status: &'p Value, summary: &mut Summary<'p>) {
    let (mut running, mut failure) = (false, None);
    for container in status.items("containerStatuses").iter().rev() {
        summary.count_restarts(container);
        let terminated = container.at("state.terminated");
        let waiting = container.text("state.waiting.reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.reason);
        } else if !terminated.is_null() {
            summary.reason = end_of(terminated);
            if terminated.int("exitCode") != 0 {
                failure = Some(summary.reason.clone());
            }
        } else if container.flag("ready") && container.has("state.running") {
            running = true;
            summary.ready += 1;
        }
    }
    if summary.reason != "Completed" {
        return;
    }
    let is_ready = |condition: &Value| condition.text("type") == "Ready" && condition.text("status") == "True";
    summary.reason = match failure {
        _ if running && status.items("conditions").iter().any(is_ready) => "Running".to_owned(),
        Some(failure) => failure,
        None if running => "NotReady".to_owned(),
        None => return,
    };
}

/// How a container ended.
fn end_of(terminated: &Value) -> String {
    match (terminated.text("reason"), terminated.int("signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.int("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn gates_cell(pod: &Value) -> String {
    let gates = pod.items("spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let is_met = |gate: &&Value| {
        let wanted = gate.text("conditionType");
        let condition = pod.items("status.conditions").iter().find(|condition| condition.text("type") == wanted);
        condition.is_some_and(|condition| condition.text("status") == "True")
    };
    format!("{}/{}", gates.iter().filter(is_met).count(), gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(pod: &Value) -> (String, String, String) {
        let now = "2024-01-01T01:00:00Z".parse().expect("a time");
        let cells = row(pod, now);
        let text = |index: usize| cells[index].as_str().unwrap_or_default().to_owned();
        (text(1), text(2), text(3))
    }

    fn expect(pod: &Value, ready: &str, status: &str, restarts: &str) {
        assert_eq!(cells(pod), (ready.to_owned(), status.to_owned(), restarts.to_owned()), "{pod}");
    }

    #[test]
    fn phases_and_reasons() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        expect(&json!({"spec": spec, "status": {"phase": "Pending"}}), "0/2", "Pending", "0");
        expect(&json!({"spec": spec, "status": {"phase": "Failed", "reason": "Evicted"}}), "0/2", "Evicted", "0");
        let gated = json!([{"type": "PodScheduled", "reason": "SchedulingGated", "status": "False"}]);
        expect(
            &json!({"spec": spec, "status": {"phase": "Pending", "conditions": gated}}),
            "0/2",
            "SchedulingGated",
            "0",
        );
        let deleted = json!({"deletionTimestamp": "2024-01-01T00:00:00Z"});
        expect(&json!({"metadata": deleted, "status": {"phase": "Running"}}), "0/0", "Terminating", "0");
        expect(&json!({"metadata": deleted, "status": {"phase": "Succeeded"}}), "0/0", "Succeeded", "0");
        expect(&json!({"metadata": deleted, "status": {"reason": "NodeLost"}}), "0/0", "Unknown", "0");
    }

    #[test]
    fn the_first_container_with_news_speaks() {
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
        let crashed = json!({
            "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2024-01-01T00:55:00Z"}},
        });
        let pod = json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [crashed, running]}});
        expect(&pod, "1/2", "CrashLoopBackOff", "3 (5m ago)");
        let done = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let failed = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 2}}});
        let killed = json!({"restartCount": 0, "state": {"terminated": {"exitCode": 137, "signal": 9}}});
        let of = |statuses: Value, conditions: Value| {
            let status = json!({"phase": "Running", "containerStatuses": statuses, "conditions": conditions});
            json!({"spec": spec, "status": status})
        };
        expect(&of(json!([done, running]), json!([{"type": "Ready", "status": "True"}])), "1/2", "Running", "0");
        expect(&of(json!([done, running]), json!([])), "1/2", "NotReady", "0");
        expect(&of(json!([done, failed]), json!([])), "0/2", "ExitCode:2", "0");
        expect(&of(json!([killed]), json!([])), "0/2", "Signal:9", "0");
    }

    #[test]
    fn init_containers_come_first() {
        let spec = json!({
            "containers": [{"name": "a"}],
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "i"}],
        });
        let side = json!({"name": "side", "started": true, "ready": true, "restartCount": 1, "state": {"running": {}}});
        let busy = json!({"name": "i", "restartCount": 2, "state": {"running": {}}});
        let of = |statuses: Value, containers: Value| {
            json!({"spec": spec, "status": {
                "phase": "Pending", "initContainerStatuses": statuses, "containerStatuses": containers}})
        };
        expect(&of(json!([side, busy]), json!([])), "1/2", "Init:1/2", "3");
        let done = json!({"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 0}}});
        let main = json!({"name": "a", "ready": true, "restartCount": 1, "state": {"running": {}}});
        expect(&of(json!([side, done]), json!([main])), "2/2", "Pending", "2");
        let waiting = json!({"name": "i", "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}});
        expect(&of(json!([side, waiting]), json!([])), "1/2", "Init:ErrImagePull", "1");
    }

    #[test]
    fn gates_and_conditions() {
        let pod = json!({
            "spec": {"readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
            "status": {"phase": "Succeeded", "conditions": [{"type": "a", "status": "True"}]},
        });
        assert_eq!(gates_cell(&pod), "1/2");
        assert_eq!(conditions(&pod)[0].text("reason"), "Succeeded");
        assert!(conditions(&json!({"status": {"phase": "Running"}})).is_empty());
    }
}
