//! A machine on which `waypost up` runs Pods and `waypost doctor` checks them; cleaned up however a test ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::http::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Process, backend};
use testbed::session::{Session, text};

/// Far more than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct Clinic {
    session: Session,
    process: Process,
    home: TempDir,
    pub(crate) node: Node,
    _cluster: Cluster,
}

/// The diagnosis of one Service, and the exit code.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) whole: Value,
}

impl Said {
    /// Runs the doctor on a machine.
    #[track_caller]
    pub(crate) fn by(node: &testbed::net::Host, kubeconfig: &Path, arguments: &str) -> Self {
        Self::with(node, Command::new(testbed::binary()), kubeconfig, arguments)
    }

    /// The same by a command to which the arguments are added.
    #[track_caller]
    pub(crate) fn with(node: &testbed::net::Host, mut command: Command, kubeconfig: &Path, arguments: &str) -> Self {
        command.env("KUBECONFIG", kubeconfig).env_remove("WAYPOST_NODE_NAME");
        command.args(["doctor", "-o", "json"]).args(arguments.split_whitespace());
        let run = node.run(command);
        let whole = serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"));
        Self { code: run.code, whole }
    }

    fn verdict(&self) -> &Value {
        &self.whole["services"][0]["verdict"]
    }

    /// The check that is the verdict; empty when healthy.
    pub(crate) fn check(&self) -> &str {
        text(self.verdict(), "/check")
    }

    pub(crate) fn saw(&self) -> &str {
        text(self.verdict(), "/saw")
    }

    /// The code of the verdict; empty when healthy.
    pub(crate) fn code_of_verdict(&self) -> &str {
        text(self.verdict(), "/code")
    }

    /// What was seen, with the evidence, one to a line.
    pub(crate) fn told(&self) -> String {
        let evidence = self.verdict()["evidence"].as_array().into_iter().flatten();
        let lines = evidence.map(|line| line.as_str().expect("a line"));
        [self.saw()].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn fix(&self) -> &str {
        text(self.verdict(), "/fix")
    }

    /// What a check of the first Service found: `proved`, `disproved` or `not measured`.
    #[track_caller]
    pub(crate) fn outcome(&self, check: &str) -> &str {
        let findings = self.whole["services"][0]["findings"].as_array().expect("findings");
        let found = findings.iter().find(|finding| finding["check"] == check);
        text(found.unwrap_or_else(|| panic!("no check {check}")), "/outcome")
    }

    /// This check is the verdict, its evidence contains all of this, and its fix is a command with this prefix.
    #[track_caller]
    pub(crate) fn names(&self, check: &str, saw: &[&str], fix: &str) -> &Self {
        assert_eq!((self.code, self.check()), (Some(1), check), "{:#}", self.whole);
        for part in saw {
            assert!(self.told().contains(part), "{part:?} is not in {:?}", self.told());
        }
        assert!(self.fix().starts_with(fix), "{:?} does not begin with {fix:?}", self.fix());
        self
    }

    #[track_caller]
    pub(crate) fn is_healthy(&self) {
        let sick: Vec<String> = self.whole["services"]
            .as_array()
            .expect("Services")
            .iter()
            .filter(|one| one["healthy"] != json!(true))
            .map(|one| format!("{}: {}", one["name"], one["verdict"]))
            .collect();
        assert_eq!((self.code, sick), (Some(0), Vec::new()));
    }
}

impl Clinic {
    pub(crate) fn new() -> Self {
        let cluster = Cluster::new();
        let node = cluster.node("n1");
        let home = testbed::folder();
        let mut command = Command::new(testbed::binary());
        // Tests here write the addresses of load balancers themselves.
        command.args(["up", "--load-balancer=off", "--node-name", "n1", "--data-dir"]).arg(home.path());
        let process = node.spawn(command);
        process.wait_for_line(" ready ", TIMEOUT);
        let kubeconfig = home.path().join("kubeconfig");
        let session = node.in_namespace(|| Session::new(Client::from_kubeconfig(&kubeconfig).expect("a kubeconfig")));
        Self { session, process, home, node, _cluster: cluster }
    }

    pub(crate) fn api<T: Send>(&mut self, work: impl FnOnce(&mut Session) -> T + Send) -> T {
        let (node, session) = (&self.node, &mut self.session);
        node.in_namespace(|| work(session))
    }

    pub(crate) fn namespace(&mut self, name: &str) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let _ = self.api(|session| session.post("/api/v1/namespaces", &namespace)).success();
    }

    #[expect(clippy::needless_pass_by_value, reason = "a spec is written where it is used")]
    pub(crate) fn service(&mut self, namespace: &str, name: &str, spec: Value) -> Value {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        let path = format!("/api/v1/namespaces/{namespace}/services");
        self.api(|session| session.post(&path, &service)).success()
    }

    /// Gives a Service addresses of a load balancer.
    pub(crate) fn balance(&mut self, namespace: &str, name: &str, ips: &[&str]) {
        let ingress: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}/status");
        let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let _ = self.api(|session| session.merge(&path, &status)).success();
    }

    /// A manually created slice.
    pub(crate) fn slice(&mut self, namespace: &str, service: &str, ip: &str, port: u16) {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{service}-hand"), "labels": {"kubernetes.io/service-name": service}},
            "ports": [{"port": port}], "endpoints": [{"addresses": [ip]}],
        });
        let path = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
        let _ = self.api(|session| session.post(&path, &slice)).success();
    }

    /// A Pod that serves on port 8080, which it calls `http`.
    pub(crate) fn pod(&mut self, namespace: &str, name: &str, app: &str) {
        self.pod_of(namespace, name, app, backend(8080));
        self.until(namespace, name, "ready", |pod| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
        });
    }

    /// A Pod of any kind.
    pub(crate) fn pod_of(&mut self, namespace: &str, name: &str, app: &str, mut spec: Value) {
        spec["nodeName"] = json!("n1");
        let metadata = json!({"name": name, "labels": {"app": app}});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        let _ = self.api(|session| session.post(&format!("/api/v1/namespaces/{namespace}/pods"), &pod)).success();
    }

    /// Waits until the condition Ready of a Service has the reason and the message of the verdict.
    #[track_caller]
    pub(crate) fn condition_says(&mut self, name: &str, said: &Said) {
        let services = "/api/v1/namespaces/default/services";
        let (code, message) = (said.code_of_verdict().to_owned(), said.saw().to_owned());
        let fits = |service: &Value| {
            let conditions = service["status"]["conditions"].as_array();
            let mut ready = conditions.into_iter().flatten().filter(|one| one["type"] == "Ready");
            ready.any(|one| one["reason"] == *code && one["message"] == *message)
        };
        let begun = Instant::now();
        self.api(|session| {
            if fits(&session.get(&format!("{services}/{name}")).body) {
                return;
            }
            let mut watch = session.watch(services, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|_, service| {
                assert!(begun.elapsed() < TIMEOUT, "{code} {message:?} is not in {}", service["status"]);
                fits(service)
            });
        });
    }

    /// What `waypost explain` finds, the first of it: its code and its sentence.
    #[track_caller]
    pub(crate) fn explained(&self, name: &str) -> (String, String) {
        let mut command = Command::new(testbed::binary());
        command.env("KUBECONFIG", self.kubeconfig()).args(["explain", &format!("svc/{name}"), "-o", "json"]);
        let run = self.node.run(command);
        let whole: Value = serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("{error}: {run:?}"));
        let first = &whole["findings"][0];
        (text(first, "/code").to_owned(), text(first, "/message").to_owned())
    }

    /// Waits until a Pod is as it should be, and answers it.
    #[track_caller]
    pub(crate) fn until(
        &mut self,
        namespace: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool + Send + Sync,
    ) -> Value {
        let begun = Instant::now();
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        self.api(|session| {
            let now = session.get(&format!("{pods}/{name}"));
            if now.code == 200 && wanted(&now.body) {
                return now.body;
            }
            let mut watch = session.watch(&pods, &format!("&fieldSelector=metadata.name={name}"));
            watch.until(|kind, pod| {
                assert!(begun.elapsed() < TIMEOUT, "{name} is not {what}: {}", pod["status"]);
                kind != "DELETED" && wanted(pod)
            })
        })
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("kubeconfig")
    }

    #[track_caller]
    pub(crate) fn doctor(&self, arguments: &str) -> Said {
        Said::by(&self.node, &self.kubeconfig(), arguments)
    }

    /// Runs the doctor with these arguments before the program, which set up its environment.
    #[track_caller]
    pub(crate) fn doctor_after(&self, before: &[&str], arguments: &str) -> Said {
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(testbed::binary());
        Said::with(&self.node, command, &self.kubeconfig(), arguments)
    }

    /// Executes the command suggested by the doctor in a shell, as a user would.
    #[track_caller]
    pub(crate) fn mend(&self, said: &Said) {
        let mut command = Command::new("sh");
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.home.path());
        command.args(["-ec", said.fix()]);
        let run = self.node.run(command);
        assert!(run.ok, "{}: {run:?}", said.fix());
    }
}

impl Drop for Clinic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.process.log());
        }
        self.process.kill();
        let mut command = Command::new(testbed::binary());
        command.args(["cleanup", "--data-dir"]).arg(self.home.path());
        let run = self.node.run(command);
        assert!(run.ok || std::thread::panicking(), "cleanup: {}", run.err);
    }
}
