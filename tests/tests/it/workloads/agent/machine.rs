//! A machine on which `waypost up` runs Pods; however a test ends, nothing of it stays.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::http::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Outside, Process};
use testbed::session::{Answer, Session};

/// Far more than anything here takes.
pub(in crate::workloads) const TIMEOUT: Duration = Duration::from_secs(60);
/// The Pods of the namespace `default`.
pub(in crate::workloads) const PODS: &str = "/api/v1/namespaces/default/pods";

/// See the module.
pub(in crate::workloads) struct Machine {
    session: Session,
    process: Option<Process>,
    home: TempDir,
    pub(in crate::workloads) node: Node,
    arguments: Vec<String>,
    cluster: Cluster,
}

impl Machine {
    pub(in crate::workloads) fn new() -> Self {
        Self::with(&[])
    }

    /// With these arguments besides.
    pub(in crate::workloads) fn with(arguments: &[&str]) -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let home = testbed::folder();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let process = start(&node, home.path(), &arguments);
        let session = session(&node, home.path());
        Self { session, process: Some(process), home, node, arguments, cluster }
    }

    /// A machine outside of the cluster, on the same wire.
    pub(super) fn outside(&self, name: &str) -> Outside {
        self.cluster.outside(name)
    }

    /// Runs a line of shell in a container, and answers what it printed.
    #[track_caller]
    pub(super) fn exec(&mut self, pod: &str, container: &str, line: &str) -> String {
        self.exec_program(pod, container, &["sh", "-c", line])
    }

    /// Runs a program in a container, and answers what it printed.
    #[track_caller]
    pub(super) fn exec_program(&mut self, pod: &str, container: &str, words: &[&str]) -> String {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.home.path().join("kubeconfig"));
        command.arg("--cache-dir").arg(self.home.path().join("kubectl-cache"));
        command.args(["exec", pod, "--container", container, "--"]).args(words);
        self.node.run(command).success()
    }

    pub(in crate::workloads) fn data_dir(&self) -> &Path {
        self.home.path()
    }

    /// Does something with the API.
    pub(in crate::workloads) fn api<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (node, session) = (&self.node, &mut self.session);
        node.in_namespace(|| work(session))
    }

    #[track_caller]
    pub(in crate::workloads) fn post(&mut self, path: &str, object: &Value) -> Value {
        self.api(|session| session.post(path, object)).success()
    }

    /// Makes a Pod on this machine from its spec.
    #[track_caller]
    pub(in crate::workloads) fn pod(&mut self, name: &str, spec: Value) -> Value {
        self.make(json!({"name": name, "labels": {"app": name}}), spec)
    }

    /// Makes a Pod that belongs to a set.
    #[track_caller]
    pub(super) fn pod_labelled(&mut self, name: &str, set: &str, spec: Value) -> Value {
        self.make(json!({"name": name, "labels": {"set": set}}), spec)
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "values are written where they are used")]
    fn make(&mut self, metadata: Value, mut spec: Value) -> Value {
        spec["nodeName"] = json!("n1");
        self.post(PODS, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    }

    pub(in crate::workloads) fn get(&mut self, name: &str) -> Value {
        self.api(|session| session.get(&format!("{PODS}/{name}"))).success()
    }

    #[track_caller]
    pub(in crate::workloads) fn delete(&mut self, name: &str, query: &str) -> Answer {
        self.api(|session| session.delete(&format!("{PODS}/{name}{query}")))
    }

    /// Waits until a Pod is as it should be, and answers it.
    #[track_caller]
    pub(in crate::workloads) fn until(
        &mut self,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Value {
        let begun = std::time::Instant::now();
        self.api(|session| {
            let path = format!("{PODS}/{name}");
            let now = session.get(&path);
            if now.code == 200 && wanted(&now.body) {
                return now.body;
            }
            let mut watch = session.watch(PODS, &format!("&fieldSelector=metadata.name={name}"));
            let found = watch.until(|kind, pod| {
                assert!(begun.elapsed() < TIMEOUT, "{name} is not {what}: {}", pod["status"]);
                kind != "DELETED" && wanted(pod)
            });
            drop(watch);
            found
        })
    }

    /// Waits until a Pod is gone from the API.
    #[track_caller]
    pub(in crate::workloads) fn until_gone(&mut self, name: &str) {
        self.api(|session| {
            if session.get(&format!("{PODS}/{name}")).code == 404 {
                return;
            }
            let mut watch = session.watch(PODS, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|kind, _| kind == "DELETED");
        });
    }

    #[track_caller]
    pub(in crate::workloads) fn until_ready(&mut self, name: &str) -> Value {
        self.until(name, "ready", is_ready)
    }

    /// The log of a container's instance, as its file has it, without times.
    pub(in crate::workloads) fn log(&mut self, pod: &str, container: &str, number: u32) -> String {
        let uid = self.get(pod)["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let file = self.pod_folder(&uid).join(format!("containers/{container}/{number}.log"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned() + "\n").collect()
    }

    pub(in crate::workloads) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.home.path().join("agent/pods").join(uid)
    }

    /// Ends the program as a power cut would; what it runs stays.
    pub(in crate::workloads) fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Starts the program again.
    pub(in crate::workloads) fn start(&mut self) {
        self.process = Some(start(&self.node, self.home.path(), &self.arguments));
        self.session = session(&self.node, self.home.path());
    }

    /// Stops the program, and removes all that it made.
    pub(in crate::workloads) fn clean(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
        let mut command = Command::new(testbed::binary());
        command.args(["cleanup", "--data-dir"]).arg(self.home.path());
        let run = self.node.run(command);
        assert!(run.ok, "cleanup: {}", run.err);
    }

    /// The most memory that the program has had, its API server included, in bytes.
    pub(super) fn peak_memory(&self) -> u64 {
        let own = self.process.as_ref().expect("it runs").pid();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).expect("its children");
        let peak = |pid: String| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its memory");
            let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
            kibibytes << 10
        };
        std::iter::once(own.to_string()).chain(children.split_whitespace().map(str::to_owned)).map(peak).sum()
    }

    pub(in crate::workloads) fn logged(&self) -> String {
        self.process.as_ref().map_or_else(String::new, Process::log)
    }
}

impl Machine {
    /// For the reader of a failed test: what every instance of every container wrote.
    fn print_container_logs(&self) {
        let entries =
            |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let pods = entries(&self.home.path().join("agent/pods")).map(|pod| pod.join("containers"));
        let containers: Vec<PathBuf> = pods.flat_map(|folder| entries(&folder).collect::<Vec<_>>()).collect();
        for file in containers.iter().flat_map(|container| entries(container)) {
            if let Ok(text) = std::fs::read_to_string(&file) {
                eprintln!("{}:\n{text}", file.display());
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logged());
            self.print_container_logs();
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

/// Whether a Pod is ready.
pub(in crate::workloads) fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

pub(in crate::workloads) fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let all = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().find(|one| one["type"] == kind).and_then(|one| one["status"].as_str()).unwrap_or_default()
}

/// The status of a container.
pub(in crate::workloads) fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    static NOTHING: Value = Value::Null;
    let lists = ["containerStatuses", "initContainerStatuses"].map(|list| pod["status"][list].as_array());
    lists.into_iter().flatten().flatten().find(|status| status["name"] == name).unwrap_or(&NOTHING)
}

/// A container that runs a shell script.
pub(in crate::workloads) fn script(name: &str, text: &str) -> Value {
    json!({"name": name, "image": "host", "command": ["sh", "-c", text]})
}

/// A container that serves the files of a folder.
pub(in crate::workloads) fn web(port: u16) -> Value {
    let port = port.to_string();
    json!({
        "name": "web", "image": "host",
        "command": ["python3", "-m", "http.server", port, "--bind", "::", "--directory", "/tmp"],
    })
}
