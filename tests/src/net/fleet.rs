//! Machines that run Pods: an API server on a separate one, and `waypost node` on each of the others.
//!
//! In: names of machines, and objects. Out: Deployments whose Pods are processes with addresses of their own, reached by real
//! packets. However a test ends, nothing of its Pods stays: each machine is cleaned up.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Mode, Node, Served};

/// Ranges that the testbed's own pods do not use.
const PODS: &str = "10.200.0.0/16,fd00:10:200::/56";
/// How long a start or a change may take before the test has failed.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Where Deployments of `default` are.
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// Where Pods of `default` are.
const PODS_OF_DEFAULT: &str = "/api/v1/namespaces/default/pods";

/// See the module.
pub struct Fleet {
    served: Served,
    machines: Vec<(Node, TempDir)>,
}

impl Fleet {
    /// Machines of these names, on which Services are served in this way.
    #[must_use]
    pub fn new(mode: Mode, names: &[&str]) -> Self {
        let served = Served::with_server(mode, &["--allocate-node-cidrs", "--cluster-cidr", PODS]);
        let home = || crate::folder();
        let machines = names.iter().map(|name| (served.cluster().node(name), home())).collect();
        let fleet = Self { served, machines };
        for (node, _) in &fleet.machines {
            fleet.begin(node);
        }
        for (node, _) in &fleet.machines {
            fleet.served.with_proxy(node, |program| program.wait_for_line("ready", TIMEOUT));
        }
        fleet
    }

    /// The machine of this name.
    #[must_use]
    pub fn machine(&self, name: &str) -> &Node {
        self.machines.iter().map(|(node, _)| node).find(|node| node.name() == name).expect("a machine of this name")
    }

    /// Where a machine keeps what must outlive its program.
    #[must_use]
    pub fn home(&self, node: &Node) -> &Path {
        let found = self.machines.iter().find(|(known, _)| known.name() == node.name());
        found.expect("a machine of ours").1.path()
    }

    /// Starts the program of a machine, also again.
    pub fn start(&self, node: &Node) {
        self.begin(node);
        self.served.with_proxy(node, |program| program.wait_for_line("ready", TIMEOUT));
    }

    fn begin(&self, node: &Node) {
        let arguments = ["--roles", "proxy,agent", "--cluster-cidr", PODS, "--nodeport-addresses", "all", "--data-dir"];
        let mut command = self.served.proxy_command(node, &arguments);
        command.arg(self.home(node));
        self.served.start_by(node, command);
    }

    // === objects ===

    /// A Deployment of such Pods; waits until all serve.
    #[track_caller]
    pub fn deploy(&self, name: &str, replicas: u32, pod: &Value) {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        });
        let _ = self.session(|session| session.post(DEPLOYMENTS, &deployment)).success();
        self.until_rolled_out(name);
    }

    /// Has a Deployment replace its Pods by such ones; waits until it did.
    #[track_caller]
    pub fn update(&self, name: &str, pod: &Value) {
        let patch = json!({"spec": {"template": {"spec": pod}}});
        let _ = self.session(|session| session.merge(&format!("{DEPLOYMENTS}/{name}"), &patch)).success();
        self.until_rolled_out(name);
    }

    /// Waits until a Deployment matches its spec, and nothing else is left.
    #[track_caller]
    pub fn until_rolled_out(&self, name: &str) {
        let begun = Instant::now();
        let path = format!("{DEPLOYMENTS}/{name}");
        self.session(|session| {
            if is_rolled_out(&session.get(&path).success()) {
                return;
            }
            let mut watch = session.watch(DEPLOYMENTS, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|_, deployment| {
                assert!(begun.elapsed() < TIMEOUT, "{name} is not rolled out: {}", deployment["status"]);
                is_rolled_out(deployment)
            });
        });
    }

    /// Waits until a Pod reports that it is ready, or that it is not.
    #[track_caller]
    pub fn until_ready(&self, name: &str, wanted: bool) {
        let status = if wanted { "True" } else { "False" };
        self.until(name, &format!("Ready={status}"), |pod| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == status)
        });
    }

    /// Waits until a Pod is as it should be.
    #[track_caller]
    pub fn until(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool + Send + Sync) {
        let begun = Instant::now();
        self.session(|session| {
            if wanted(&session.get(&format!("{PODS_OF_DEFAULT}/{name}")).success()) {
                return;
            }
            let mut watch = session.watch(PODS_OF_DEFAULT, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|_, pod| {
                assert!(begun.elapsed() < TIMEOUT, "{name} is not {what}: {}", pod["status"]);
                wanted(pod)
            });
        });
    }

    /// The Pods of a label that are not on their way out.
    #[must_use]
    pub fn pods(&self, app: &str) -> Vec<Value> {
        let path = format!("{PODS_OF_DEFAULT}?labelSelector=app={app}");
        let mut pods = self.session(|session| session.items(&path));
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }
}

/// Whether all Pods of a Deployment exist, and none of an earlier revision.
fn is_rolled_out(deployment: &Value) -> bool {
    let (wanted, status) = (&deployment["spec"]["replicas"], &deployment["status"]);
    let have = |field: &str| &status[field] == wanted;
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].into_iter().all(have)
}

/// The spec of a Pod that serves on this port, named `http`. After SIGTERM it keeps serving until no proxy can still route to it.
#[must_use]
pub fn backend(port: u16) -> Value {
    json!({
        "terminationGracePeriodSeconds": 3,
        "containers": [{
            "name": "backend", "image": "host",
            "command": [crate::backend(), port.to_string()],
            "ports": [{"name": "http", "containerPort": port}],
            "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"sleep": {"seconds": 2}}},
        }],
    })
}

impl Deref for Fleet {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The server may be gone as well.
            let pods = catch_unwind(AssertUnwindSafe(|| self.session(|session| session.items(PODS_OF_DEFAULT))));
            pods.unwrap_or_default().iter().for_each(|pod| eprintln!("{}: {}", pod["metadata"]["name"], pod["status"]));
        }
        for (node, home) in &self.machines {
            if std::thread::panicking() && self.served.serves(node) {
                eprintln!("{}:\n{}", node.name(), self.served.with_proxy(node, |program| program.log()));
            }
            if self.served.serves(node) {
                self.served.kill_proxy(node);
            }
            let mut command = Command::new(crate::binary());
            command.args(["cleanup", "--data-dir"]).arg(home.path());
            let run = node.run(command);
            assert!(run.ok || std::thread::panicking(), "cleanup of {}: {}", node.name(), run.err);
        }
    }
}
