//! A cluster whose Services are served: an API server on a separate machine, and a proxy on nodes.
//!
//! In: objects, in any order. Out: a cluster in which [`Served::settle`] returns when every proxy has followed them. That is
//! seen by real packets and nothing else, so the same tests run whatever the proxy does inside.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Protocol::Tcp;
use super::{Cluster, Family, Mode, Node, Outside, Process, kubernetes, objects};
use crate::session::Session;

/// How long a start or a change may take before the test has failed.
const TIMEOUT: Duration = Duration::from_secs(90);
/// The Service that shows how far proxies have followed: its addresses, and its port.
const MARKER: (&str, &str, u16) = ("10.96.255.1", "fd00:10:96::ff01", 9);
/// The first of the ports that the marker leads to in turn.
const FIRST_MARK: u16 = 20_001;

/// How proxies detect pods, unless a test sets another way.
const PODS: [&str; 2] = ["--cluster-cidr", "10.244.0.0/16,fd00:10:244::/56"];

/// A served cluster.
pub struct Served {
    mode: Mode,
    // Processes end before the namespaces they are in.
    proxies: Mutex<Vec<(Node, Process)>>,
    /// The API server, and what it needs.
    server: Mutex<Vec<Process>>,
    session: Mutex<Session>,
    home: TempDir,
    arguments: Vec<String>,
    api: Outside,
    marks: Mutex<u16>,
    cluster: Cluster,
}

impl Served {
    /// A cluster with an API server, and no node yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with_server(Mode::under_test(), &[])
    }

    /// One whose nodes serve in this way, and whose server has these arguments besides.
    #[must_use]
    pub fn with_server(mode: Mode, arguments: &[&str]) -> Self {
        let cluster = Cluster::new();
        let api = cluster.outside("api");
        let home = crate::folder();
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let server = start_server(&api, &home, &arguments);
        let session = api.in_namespace(|| {
            let client = client::http::Client::from_kubeconfig(&home.path().join("kubeconfig"));
            Session::new(client.expect("a kubeconfig that can be used"))
        });
        Self {
            mode,
            proxies: Mutex::default(),
            server: Mutex::new(server),
            session: Mutex::new(session),
            home,
            arguments,
            api,
            marks: Mutex::new(FIRST_MARK),
            cluster,
        }
    }

    /// One with these nodes, each with a proxy.
    #[must_use]
    pub fn with_nodes(names: &[&str]) -> Self {
        let served = Self::new();
        for name in names {
            let node = served.node(name);
            served.serve(&node, &[]);
        }
        served.settle();
        served
    }

    /// How Services are served here.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The cluster, for pods and outside clients.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The machine of the API server.
    #[must_use]
    pub const fn api(&self) -> &Outside {
        &self.api
    }

    /// The admin's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    /// The node of this name, with its Node object.
    #[must_use]
    pub fn node(&self, name: &str) -> Node {
        let node = self.cluster.node(name);
        self.put(&objects::node(&node).json());
        node
    }

    // === programs ===

    /// The command of a node's proxy, with these arguments and none but what it needs.
    #[must_use]
    pub fn proxy_command(&self, node: &Node, arguments: &[&str]) -> Command {
        let mut command = Command::new(crate::binary());
        command.args(["node", "--node-name", node.name(), "--kubeconfig"]).arg(self.kubeconfig());
        command.args(["--proxy-mode", self.mode.name]).args(arguments);
        command
    }

    /// Starts the proxy of a node, which is configured with the pod ranges; with these additional arguments.
    pub fn serve(&self, node: &Node, arguments: &[&str]) {
        self.serve_exactly(node, &[&PODS, arguments].concat());
    }

    /// Starts the proxy of a node with these arguments and none but what it needs.
    pub fn serve_exactly(&self, node: &Node, arguments: &[&str]) {
        self.start_proxy(node, arguments);
        self.with_proxy(node, |proxy| proxy.wait_for_line("ready", TIMEOUT));
    }

    /// Starts the proxy of a node with these arguments, and does not wait until it serves.
    pub fn start_proxy(&self, node: &Node, arguments: &[&str]) {
        self.start_by(node, self.proxy_command(node, arguments));
    }

    /// Starts the proxy of a node by this command.
    pub fn start_by(&self, node: &Node, command: Command) {
        let process = node.spawn(command);
        self.proxies.lock().push((node.clone(), process));
    }

    /// Does something with the proxy of a node.
    pub fn with_proxy<T>(&self, node: &Node, work: impl FnOnce(&mut Process) -> T) -> T {
        let mut proxies = self.proxies.lock();
        let found = proxies.iter_mut().find(|(at, _)| at.name() == node.name());
        work(&mut found.unwrap_or_else(|| panic!("{} has no proxy", node.name())).1)
    }

    /// Whether a node has a proxy.
    #[must_use]
    pub fn serves(&self, node: &Node) -> bool {
        self.proxies.lock().iter().any(|(at, _)| at.name() == node.name())
    }

    /// Ends the proxy of a node at once, as a power cut would.
    pub fn kill_proxy(&self, node: &Node) {
        self.with_proxy(node, Process::kill);
        self.proxies.lock().retain(|(at, _)| at.name() != node.name());
    }

    /// Ends the API server at once.
    pub fn kill_server(&self) {
        for process in self.server.lock().iter_mut() {
            process.kill();
        }
    }

    /// Starts the API server again, on the same data.
    pub fn start_server(&self) {
        *self.server.lock() = start_server(&self.api, &self.home, &self.arguments);
    }

    // === objects ===

    /// Does something with a client of the API.
    pub fn session<T: Send>(&self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        self.api.in_namespace(|| work(&mut self.session.lock()))
    }

    /// Creates or updates an object, its status too.
    #[track_caller]
    pub fn put(&self, object: &Value) {
        let (collection, name) = place(object);
        let path = format!("{collection}/{name}");
        self.session(|session| {
            let answer = match object["kind"].as_str() {
                // The spec of a Pod stays, with what admission added to it.
                Some("Pod") => session.merge(&path, &json!({ "metadata": object["metadata"] })),
                // Kubernetes updates no Lease unconditionally.
                Some("Lease") => session.merge(&path, object),
                _ => session.put(&path, object),
            };
            let answer = if answer.code == 404 { session.post(&collection, object) } else { answer };
            let _ = answer.success();
            let is_stateful = matches!(object["kind"].as_str(), Some("Service" | "Node" | "Pod"));
            if is_stateful && !object["status"].is_null() {
                let status = json!({ "status": object["status"] });
                let _ = session.merge(&format!("{path}/status"), &status).success();
            }
        });
    }

    /// Removes an object.
    #[track_caller]
    pub fn remove(&self, object: &Value) {
        let (collection, name) = place(object);
        let _ = self.session(|session| session.delete(&format!("{collection}/{name}"))).success();
    }

    /// Waits until every proxy has followed all that was put or removed so far.
    #[track_caller]
    pub fn settle(&self) {
        self.see_mark();
        if !self.mode().writes_at_once {
            // What was written together with the mark may have come after it; another mark is written only then.
            self.see_mark();
        }
    }

    /// Puts a mark and waits until every proxy has followed it.
    #[track_caller]
    fn see_mark(&self) {
        let nodes: Vec<Node> = self.proxies.lock().iter().map(|(node, _)| node.clone()).collect();
        let mark = {
            let mut marks = self.marks.lock();
            *marks += 1;
            *marks
        };
        self.api.echo_on(&[Tcp], mark);
        // Watches of Services and of slices are not in step with each other: the mark needs both.
        let (v4, v6, port) = MARKER;
        let service = objects::service("marker").cluster_ip(v4).cluster_ip(v6).port(port).target(mark);
        self.put(&service.label("mark", &mark.to_string()).json());
        for family in Family::BOTH {
            let slice = objects::slice("marker").family(family).port(mark).address(self.api.address(family));
            self.put(&slice.json());
        }
        for node in nodes {
            self.wait_for_mark(&node, mark);
        }
        self.api.silence(mark);
    }

    #[track_caller]
    fn wait_for_mark(&self, node: &Node, mark: u16) {
        let begun = Instant::now();
        let (v4, v6, port) = MARKER;
        for address in [v4, v6] {
            let caller = node.caller().timeout(Duration::from_millis(200));
            loop {
                let answer = caller.ask(Tcp, address, port);
                if answer.as_ref().is_ok_and(|answer| answer.server.port() == mark) {
                    break;
                }
                if begun.elapsed() > TIMEOUT {
                    let log = self.with_proxy(node, |proxy| proxy.log());
                    panic!("{} does not follow; the last answer was {answer:?}; its log:\n{log}", node.name());
                }
            }
        }
    }
}

/// Waits until something holds that only real packets, or the programs themselves, can tell.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "{what}: not so within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    begun.elapsed()
}

impl Default for Served {
    fn default() -> Self {
        Self::new()
    }
}

fn start_server(api: &Outside, home: &TempDir, arguments: &[String]) -> Vec<Process> {
    if kubernetes::is_under_test() {
        assert!(arguments.is_empty(), "kube-apiserver does not understand {arguments:?}");
        return kubernetes::start(api, home.path());
    }
    let mut command = Command::new(crate::binary());
    command.arg("server").arg("--data-dir").arg(home.path()).args(["--listen", &format!("{}:6443", api.v4())]);
    command.args(arguments);
    let process = api.spawn(command);
    process.wait_for_line("ready", TIMEOUT);
    vec![process]
}

/// The path of an object: its collection, and its name there.
fn place(object: &Value) -> (String, String) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let namespace = text("/metadata/namespace");
    let within = |group: &str, plural: &str| format!("{group}/namespaces/{namespace}/{plural}");
    let collection = match text("/kind").as_str() {
        "Service" => within("/api/v1", "services"),
        "EndpointSlice" => within("/apis/discovery.k8s.io/v1", "endpointslices"),
        "Pod" => within("/api/v1", "pods"),
        "Node" => "/api/v1/nodes".to_owned(),
        "Lease" => within("/apis/coordination.k8s.io/v1", "leases"),
        "ServiceCIDR" => "/apis/networking.k8s.io/v1/servicecidrs".to_owned(),
        other => panic!("where does a {other} live?"),
    };
    (collection, text("/metadata/name"))
}
