//! Several machines: a server on one, others that join it with a token, and what each of them may do.

mod certificates;
mod machines;
mod rights;
mod rotation;
mod takeover;
mod tokens;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::http::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Outside, Process};
use testbed::session::Session;
use testbed::{Run, binary};

/// Far more than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Addresses of Pods that the testbed does not use itself.
const PODS: &str = "10.245.0.0/16,fd00:10:245::/56";

/// A server on a machine of its own, and machines that may join it. However a test ends, nothing of it stays.
struct Stage {
    nodes: Vec<Machine>,
    session: Session,
    _server: Process,
    home: TempDir,
    api: Outside,
    cluster: Cluster,
}

/// A machine that may be a node.
struct Machine {
    node: Node,
    home: TempDir,
    process: Option<Process>,
}

impl Stage {
    fn start(arguments: &[&str]) -> Self {
        let cluster = Cluster::new();
        let api = cluster.outside("api");
        let home = testbed::folder();
        let mut command = Command::new(binary());
        command.args([
            "server",
            "--listen",
            "0.0.0.0:6443",
            "--allocate-node-cidrs",
            "--cluster-cidr",
            PODS,
            "--data-dir",
        ]);
        command.arg(home.path()).args(arguments);
        let server = api.spawn(command);
        server.wait_for_line(" ready ", TIMEOUT);
        let session = session(&api, &home.path().join("kubeconfig"));
        Self { nodes: Vec::new(), session, _server: server, home, api, cluster }
    }

    /// Where the server is, as its machine calls itself.
    fn server(&self) -> String {
        format!("{}:6443", self.api.v4())
    }

    /// Runs our program where the server is, on its data directory.
    fn waypost(&self, words: &str) -> Run {
        let mut command = Command::new(binary());
        command.env_remove("KUBECONFIG").args(words.split_whitespace()).arg("--data-dir").arg(self.home.path());
        self.api.run(command)
    }

    /// Runs kubectl where the server is.
    fn kubectl(&self, words: &[&str], input: &str) -> Run {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.home.path().join("kubeconfig"));
        command.arg("--cache-dir").arg(self.home.path().join("kubectl-cache")).args(words);
        self.api.run_with(command, input)
    }

    /// Does something with the API.
    fn api<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (api, session) = (&self.api, &mut self.session);
        api.in_namespace(|| work(session))
    }

    #[track_caller]
    fn post(&mut self, path: &str, object: &Value) -> Value {
        self.api(|session| session.post(path, object)).success()
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> Value {
        self.api(|session| session.get(path)).success()
    }

    /// Waits until an object is as it should be.
    #[track_caller]
    fn until(&mut self, collection: &str, name: &str, wanted: impl Fn(&Value) -> bool + Send + Sync) -> Value {
        self.api(|session| {
            let mut watch = session.watch(collection, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|kind, object| kind != "DELETED" && wanted(object))
        })
    }

    /// A machine of this name.
    fn machine(&mut self, name: &str) -> usize {
        let home = testbed::folder();
        self.nodes.push(Machine { node: self.cluster.node(name), home, process: None });
        self.nodes.len() - 1
    }

    /// A token.
    #[track_caller]
    fn token(&self) -> String {
        self.waypost("token create").success().trim().to_owned()
    }

    /// Starts a machine as a node, and waits until it is ready.
    #[track_caller]
    fn join(&mut self, machine: usize, arguments: &[&str]) {
        let server = self.server();
        let machine = &mut self.nodes[machine];
        let process = machine.node.spawn(machine.command(&server, arguments));
        process.wait_for_line(" ready", TIMEOUT);
        machine.process = Some(process);
    }

    /// Starts a machine that is expected not to become a node, and returns its output.
    #[track_caller]
    fn refused(&self, machine: usize, arguments: &[&str]) -> String {
        let machine = &self.nodes[machine];
        machine.node.run(machine.command(&self.server(), arguments)).failure()
    }
}

impl Machine {
    fn command(&self, server: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.env_remove("KUBECONFIG").args(["node", "--join", server, "--node-name", self.node.name()]);
        command.args(["--cluster-cidr", PODS, "--data-dir"]).arg(self.home.path()).args(arguments);
        command
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("node/kubeconfig")
    }

    /// The API, as this node sees it.
    fn as_itself<T: Send>(&self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let mut session = session(&self.node, &self.kubeconfig());
        self.node.in_namespace(move || {
            let done = work(&mut session);
            drop(session);
            done
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for machine in &mut self.nodes {
            if let Some(mut process) = machine.process.take() {
                process.kill();
                if std::thread::panicking() {
                    eprintln!("{}:\n{}", machine.node.name(), process.log());
                }
            }
            let mut command = Command::new(binary());
            command.args(["cleanup", "--data-dir"]).arg(machine.home.path());
            let run = machine.node.run(command);
            assert!(run.ok || std::thread::panicking(), "cleanup: {}", run.err);
        }
    }
}

fn session(at: &testbed::net::Host, kubeconfig: &Path) -> Session {
    at.in_namespace(|| Session::new(Client::from_kubeconfig(kubeconfig).expect("a kubeconfig")))
}

/// Whether a condition of an object is true.
fn is_true(object: &Value, kind: &str) -> bool {
    let all = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().any(|one| one["type"] == kind && one["status"] == "True")
}

/// A Pod of a node.
#[expect(clippy::needless_pass_by_value, reason = "a container is written where it is used")]
fn pod(name: &str, node: &str, container: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}
