//! A machine on which `waypost up` runs; however a test ends, nothing of it stays.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use client::http::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Run;
use testbed::net::{Cluster, Node, Outside, Process, eventually};
use testbed::session::Session;

/// Far more than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";

/// See the module.
pub(super) struct Machine {
    session: Session,
    process: Option<Process>,
    pub(super) home: TempDir,
    pub(super) node: Node,
    arguments: Vec<String>,
    cluster: Cluster,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self::on(Cluster::new(), &[])
    }

    /// On the node `n1` of a cluster, with these arguments besides.
    pub(super) fn on(cluster: Cluster, arguments: &[&str]) -> Self {
        let node = cluster.node("n1");
        let home = testbed::folder();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let process = start(&node, home.path(), &arguments);
        let session = session(&node, home.path());
        Self { session, process: Some(process), home, node, arguments, cluster }
    }

    /// A machine outside of the cluster with a route to Services.
    pub(super) fn outside(&self) -> Outside {
        let outside = self.cluster.outside("client");
        outside.ip(&format!("route add 10.96.0.0/16 via {}", self.node.v4()));
        outside
    }

    /// Runs a command of waypost on the machine; the line is split at spaces.
    pub(super) fn waypost(&self, line: &str) -> Run {
        let mut command = Command::new(testbed::binary());
        command.args(line.split_whitespace()).arg("--kubeconfig").arg(self.home.path().join("kubeconfig"));
        self.node.run(command)
    }

    pub(super) fn kubectl(&self, line: &str) -> Run {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.home.path().join("kubeconfig"));
        command.arg("--cache-dir").arg(self.home.path().join("kubectl-cache"));
        command.args(line.split_whitespace());
        self.node.run(command)
    }

    /// Does something with the API.
    pub(super) fn api<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (node, session) = (&self.node, &mut self.session);
        node.in_namespace(|| work(session))
    }

    #[track_caller]
    pub(super) fn pod(&mut self, name: &str) -> Value {
        self.api(|session| session.get(&format!("{PODS}/{name}"))).success()
    }

    /// Waits until a Pod is as it should be, and answers it.
    #[track_caller]
    pub(super) fn until(&mut self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool + Send + Sync) -> Value {
        let begun = std::time::Instant::now();
        self.api(|session| {
            let mut watch = session.watch(PODS, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|kind, pod| {
                assert!(begun.elapsed() < TIMEOUT, "{name} is not {what}: {}", pod["status"]);
                kind != "DELETED" && wanted(pod)
            })
        })
    }

    #[track_caller]
    pub(super) fn until_ready(&mut self, name: &str, ready: bool) -> Value {
        self.until(name, if ready { "ready" } else { "unready" }, |pod| is_ready(pod) == ready)
    }

    /// Waits until a Pod is gone from the API.
    #[track_caller]
    pub(super) fn until_gone(&mut self, name: &str) {
        eventually(&format!("{name} is gone"), || {
            self.api(|session| session.get(&format!("{PODS}/{name}"))).code == 404
        });
    }

    /// Makes a Service that selects `app=NAME` and leads port 80 to this target; answers its address.
    pub(super) fn service(&mut self, name: &str, target: &Value) -> String {
        let spec = json!({"selector": {"app": name}, "ports": [{"port": 80, "targetPort": target}]});
        let made = self.api(|session| session.create(name, spec));
        made["spec"]["clusterIP"].as_str().expect("an address").to_owned()
    }

    /// The endpoints of a Service: each address, and whether it is ready.
    pub(super) fn endpoints(&mut self, service: &str) -> Vec<(String, bool)> {
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name={service}"
        );
        let slices = self.api(|session| session.items(&path));
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        let one = |endpoint: Value| {
            let address = endpoint["addresses"][0].as_str().expect("an address").to_owned();
            (address, endpoint["conditions"]["ready"] == true)
        };
        endpoints.map(one).collect()
    }

    /// The messages of the Events of a Pod.
    pub(super) fn words(&mut self, pod: &str) -> String {
        let events = self.api(|session| session.items("/api/v1/namespaces/default/events"));
        let own = events.iter().filter(|event| event["involvedObject"]["name"] == pod);
        own.map(|event| event["message"].as_str().unwrap_or_default().to_owned() + "\n").collect()
    }

    /// Ends the program as a power cut would.
    pub(super) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Starts the program again, with other arguments.
    pub(super) fn restart_with(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        self.start();
    }

    /// Starts the program again.
    pub(super) fn start(&mut self) {
        self.process = Some(start(&self.node, self.home.path(), &self.arguments));
        self.session = session(&self.node, self.home.path());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.process.as_ref().map_or_else(String::new, Process::log));
        }
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
        let mut command = Command::new(testbed::binary());
        command.args(["cleanup", "--data-dir"]).arg(self.home.path());
        let run = self.node.run(command);
        assert!(run.ok || std::thread::panicking(), "cleanup: {}", run.err);
    }
}

fn start(node: &Node, home: &Path, arguments: &[String]) -> Process {
    let mut command = Command::new(testbed::binary());
    command.args(["up", "--node-name", "n1", "--data-dir"]).arg(home).args(arguments);
    let process = node.spawn(command);
    process.wait_for_line(" ready ", TIMEOUT);
    process
}

fn session(node: &Node, home: &Path) -> Session {
    node.in_namespace(|| Session::new(Client::from_kubeconfig(&home.join("kubeconfig")).expect("a kubeconfig")))
}

pub(super) fn is_ready(pod: &Value) -> bool {
    let all = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// The addresses of a Pod.
pub(super) fn ips(pod: &Value) -> Vec<String> {
    let all = pod["status"]["podIPs"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().map(|ip| ip["ip"].as_str().expect("an address").to_owned()).collect()
}
