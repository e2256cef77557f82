//! Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and ReplicationControllers with the real kubectl.
//!
//! Only [`agent`] and [`images`] have one that runs Pods. In the others a thread of the test acts as the kubelet. It watches Pods, reports those that
//! are bound to a node as running and ready, and removes those that are being deleted. So what is tested is the server and its controllers.

mod agent;
mod daemons;
mod disruption;
mod images;
mod jobs;
mod join;
mod kinds;
mod priority;
mod rolling;
mod rollout;
mod scale;
mod streams;
mod survival;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use testbed::session::{Session, text};
use testbed::{Home, Run, Server};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with Nodes that are ready, and a thread that acts as their kubelets.
struct Stage {
    server: Server,
    kubelet: Option<JoinHandle<()>>,
    /// While this is set no Pod becomes ready.
    stuck: Arc<AtomicBool>,
}

impl Stage {
    /// Two Nodes that are ready, and their kubelets.
    fn start() -> Self {
        let stage = Self::without_kubelet(&["one", "two"]);
        stage.with_kubelet()
    }

    /// Nodes without a kubelet.
    fn without_kubelet(nodes: &[&str]) -> Self {
        // No heartbeats are sent here, and a busy machine may be slow.
        let home = testbed::folder();
        let server = Server::start_with(Home::Own(home), &["--node-monitor-grace-period", "600s"]);
        let mut session = server.session();
        for name in nodes {
            let _ = session.post("/api/v1/nodes", &node(name)).success();
        }
        Self { server, kubelet: None, stuck: Arc::default() }
    }

    fn with_kubelet(mut self) -> Self {
        let (watching, writing) = (self.server.session(), self.server.session());
        let stuck = Arc::clone(&self.stuck);
        self.kubelet = Some(std::thread::spawn(move || play_the_kubelet(&watching, writing, &stuck)));
        self
    }

    /// Runs kubectl; the line is split at spaces.
    fn run(&self, line: &str, input: &str) -> Run {
        self.server.kubectl_with(&line.split_whitespace().collect::<Vec<_>>(), input)
    }

    /// What kubectl printed; it must succeed.
    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.run(line, "").success()
    }

    #[track_caller]
    fn ok_with(&self, line: &str, input: &str) -> String {
        self.run(line, input).success()
    }

    /// What kubectl complained of; it must fail.
    #[track_caller]
    fn fails(&self, line: &str) -> String {
        self.run(line, "").failure()
    }

    #[track_caller]
    fn json(&self, what: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("get {what} -o json"))).expect("JSON")
    }

    /// Waits until the Pods of a label are what is wanted.
    #[track_caller]
    fn pods_until(&self, label: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut session = self.server.session();
        let query = format!("{PODS}?labelSelector={label}");
        let watching = self.server.session();
        let mut watch = watching.watch(PODS, &format!("&labelSelector={label}"));
        loop {
            let pods = session.items(&query);
            if wanted(&pods) {
                return pods;
            }
            watch.event().expect("the watch goes on");
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.kill();
        if let Some(kubelet) = self.kubelet.take() {
            // It ends because the server is gone, in the middle of whatever it did.
            let _ = kubelet.join();
        }
    }
}

/// A Node that is ready.
fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "4Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    })
}

/// Runs Pods without running anything.
fn play_the_kubelet(watching: &Session, mut writing: Session, stuck: &AtomicBool) {
    let mut watch = watching.watch("/api/v1/pods", "");
    let mut number = 0_u32;
    while let Some((kind, pod)) = watch.event() {
        if kind == "DELETED" || text(&pod, "/spec/nodeName").is_empty() {
            continue;
        }
        let path =
            format!("/api/v1/namespaces/{}/pods/{}", text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
        if !text(&pod, "/metadata/deletionTimestamp").is_empty() {
            writing.delete(&format!("{path}?gracePeriodSeconds=0"));
        } else if text(&pod, "/status/phase") == "Pending" && !stuck.load(Ordering::Relaxed) {
            number += 1;
            let ip = format!("10.244.{}.{}", number / 250, number % 250 + 1);
            writing.merge(&format!("{path}/status"), &json!({"status": running(&pod, &ip)}));
        }
    }
}

/// The status of a Pod that runs and is ready.
fn running(pod: &Value, ip: &str) -> Value {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] == "PodScheduled");
    for kind in ["Initialized", "ContainersReady", "Ready"] {
        // Long ago, so that no test has to wait until the Pod counts as available.
        conditions.push(json!({"type": kind, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}));
    }
    let statuses: Vec<Value> = pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2020-01-01T00:00:00Z"}},
            })
        })
        .collect();
    json!({
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions,
        "containerStatuses": statuses,
    })
}

/// A workload in YAML.
fn manifest(kind: &str, name: &str, replicas: u32, extra: &str) -> String {
    let (version, selector) = match kind {
        "ReplicationController" => ("v1", format!("{{app: {name}}}")),
        _ => ("apps/v1", format!("{{matchLabels: {{app: {name}}}}}")),
    };
    format!(
        "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n  replicas: {replicas}\n  \
         selector: {selector}\n{extra}  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         containers: [{{name: main, image: 'image:1', ports: [{{containerPort: 80}}]}}]\n"
    )
}

/// The cells of a table, row by row; the first row is the header.
fn cells(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}
