//! A server on a machine of its own, and machines that joined it: each serves Services, runs Pods and reports. However a test ends,
//! nothing of it stays.

use std::process::Command;
use std::time::Duration;

use client::http::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::Protocol::Tcp;
use testbed::net::{Cluster, Node, Outside, Process, backend, eventually};
use testbed::session::{Session, text};
use testbed::{Run, binary};

/// The cluster IP of the Service.
pub(super) const VIP: &str = "10.96.0.90";
/// Its node port, of those that are not given out by themselves.
pub(super) const NODE_PORT: u16 = 30_061;
/// Addresses of Pods that the testbed does not use itself.
const CIDRS: &str = "10.246.0.0/16,fd00:10:246::/56";
/// Far more than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);
const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// See the module.
pub(super) struct Stage {
    machines: Vec<Machine>,
    session: Session,
    _server: Process,
    home: TempDir,
    api: Outside,
    outside: Outside,
    _cluster: Cluster,
}

struct Machine {
    node: Node,
    home: TempDir,
    process: Option<Process>,
}

impl Stage {
    /// A server, and machines of these names that are ready.
    pub(super) fn start(names: &[&str]) -> Self {
        let cluster = Cluster::new();
        let (api, outside) = (cluster.outside("api"), cluster.outside("client"));
        let home = testbed::folder();
        let mut command = Command::new(binary());
        command.args(["server", "--listen", "0.0.0.0:6443", "--allocate-node-cidrs", "--cluster-cidr", CIDRS]);
        command.arg("--data-dir").arg(home.path());
        let server = api.spawn(command);
        server.wait_for_line(" ready ", TIMEOUT);
        let session = api.in_namespace(|| {
            Session::new(Client::from_kubeconfig(&home.path().join("kubeconfig")).expect("a kubeconfig"))
        });
        let nodes = names.iter().map(|name| cluster.node(name));
        let machine = |node| Machine { node, home: testbed::folder(), process: None };
        let machines = nodes.map(machine).collect();
        let mut stage = Self { machines, session, _server: server, home, api, outside, _cluster: cluster };
        let join = stage.local("token create --print-join-command").success();
        let words: Vec<&str> = join.split_whitespace().skip(1).collect();
        for machine in &mut stage.machines {
            let mut command = Command::new(binary());
            command.env_remove("KUBECONFIG").args(&words).args(["--node-name", machine.node.name()]);
            command.args(["--roles", "proxy,agent", "--cluster-cidr", CIDRS, "--data-dir"]).arg(machine.home.path());
            let process = machine.node.spawn(command);
            process.wait_for_line(" ready", TIMEOUT);
            machine.process = Some(process);
        }
        stage
    }

    /// Runs our program where the server is, on its data directory.
    fn local(&self, words: &str) -> Run {
        let mut command = Command::new(binary());
        command.env_remove("KUBECONFIG").args(words.split_whitespace()).arg("--data-dir").arg(self.home.path());
        self.api.run(command)
    }

    /// Runs our program with the administrator's kubeconfig.
    pub(super) fn waypost(&self, words: &str) -> Run {
        let mut command = Command::new(binary());
        command.args(words.split_whitespace()).env("KUBECONFIG", self.home.path().join("kubeconfig"));
        self.api.run(command)
    }

    /// The same, for JSON.
    #[track_caller]
    pub(super) fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.waypost(words).success()).expect("JSON")
    }

    pub(super) fn kubectl(&self, words: &str) -> Run {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.home.path().join("kubeconfig"));
        command.arg("--cache-dir").arg(self.home.path().join("kubectl-cache")).args(words.split_whitespace());
        self.api.run(command)
    }

    fn with<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (api, session) = (&self.api, &mut self.session);
        api.in_namespace(|| work(session))
    }

    #[track_caller]
    pub(super) fn get(&mut self, path: &str) -> Value {
        self.with(|session| session.get(path)).success()
    }

    /// Makes the Service `web`.
    #[track_caller]
    pub(super) fn service(&mut self, spec: &Value) {
        let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec});
        let _ = self.with(|session| session.post(SERVICES, &object)).success();
    }

    /// Makes a Pod of the Service on a machine, and waits until it is ready; or until it runs and is not.
    #[track_caller]
    pub(super) fn pod(&mut self, name: &str, node: &str, ready: bool) {
        let mut spec = backend(8080);
        spec["nodeName"] = json!(node);
        if !ready {
            spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec});
        self.with(|session| {
            let _ = session.post(PODS, &pod).success();
            let mut watch = session.watch(PODS, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|_, pod| {
                let conditions = pod["status"]["conditions"].as_array();
                let is = conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
                is == ready && pod["status"]["phase"] == "Running" && !text(pod, "/status/podIP").is_empty()
            });
        });
    }

    pub(super) fn pod_ip(&mut self, name: &str) -> String {
        text(&self.get(&format!("{PODS}/{name}")), "/status/podIP").to_owned()
    }

    /// Waits until both Pods are reached by the cluster IP from every machine.
    pub(super) fn served(&self) {
        for machine in &self.machines {
            eventually("both Pods answer", || machine.node.ask_many(10, Tcp, VIP, 80).names().len() == 2);
        }
    }

    pub(super) fn node(&self, name: &str) -> &Node {
        let found = self.machines.iter().find(|machine| machine.node.name() == name);
        &found.expect("a machine of this name").node
    }

    /// A client outside of the cluster.
    pub(super) const fn outside(&self) -> &Outside {
        &self.outside
    }

    /// Ends the program of a machine as a power cut would.
    pub(super) fn kill(&mut self, name: &str) {
        let machine = self.machines.iter_mut().find(|machine| machine.node.name() == name);
        let process = machine.and_then(|machine| machine.process.take());
        process.expect("it runs").kill();
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for machine in &mut self.machines {
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
