//! An agent for tests of what people look into Pods with: its serving side is the real one, its Pods are not.
//!
//! In: a server. Out: a Node of it whose agent answers in this process, under certificates of the server's own authority. Commands are
//! processes of this machine, except those that begin with `fake`, which the workloads in memory run; logs and attaching are theirs, too.
//! Ports of a Pod are ports of this machine.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use agent::serve::Listening;
use agent::workloads::fake::Fake;
use agent::workloads::{
    Attach, ContainerId, Exec, Exit, LogFiles, LogOptions, LogReader, PodId, Refusal, Running, Workloads,
};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use rest::pki::{self, ServingNames};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::runtime::Runtime;

use crate::Server;
use crate::session::Session;

/// The name of the Node.
pub const NODE: &str = "n1";

/// An agent. Dropping it ends it and all that it started.
pub struct Agent {
    _runtime: Runtime,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its Pods.
    pub fake: Arc<Fake>,
}

impl Agent {
    /// Starts an agent of a server, and creates its Node on the server.
    #[must_use]
    pub fn start(server: &Server, session: &mut Session) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let names = ServingNames { ips: vec![[127, 0, 0, 1].into()], dns: Vec::new() };
        let pki =
            pki::load_or_create(&server.home().join("pki"), &names, Timestamp::now()).expect("the server's identity");
        let served = pki::Served::new(pki.ca_pem());
        served.show(&pki.issue_server(&names, Timestamp::now()).expect("a certificate")).expect("one that can be used");
        let fake = Arc::new(Fake::default());
        let workloads: Arc<dyn Workloads> = Arc::new(Machine(Arc::clone(&fake)));
        let allow: agent::serve::Allow = Arc::new(|der: &[u8]| pki::may_ask_agents(der, Timestamp::now()));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listening = runtime.block_on(Listening::open(any, served.configs(), allow, workloads)).expect("a port");
        let address = listening.address().expect("an address");
        runtime.spawn(listening.run(std::future::pending()));
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}});
        let _ = session.post("/api/v1/nodes", &node).success();
        let _ = session.merge(&format!("/api/v1/nodes/{NODE}/status"), &json!({"status": status})).success();
        Self { _runtime: runtime, address, fake }
    }

    /// Makes a Pod that runs here, with these containers, each of which is `cat`.
    pub fn pod(&self, session: &mut Session, name: &str, containers: &[&str]) -> Vec<ContainerId> {
        let list: Vec<Value> =
            containers.iter().map(|name| json!({"name": name, "image": "host", "stdin": true})).collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": list},
        });
        let _ = session.post("/api/v1/namespaces/default/pods", &pod).success();
        let statuses: Vec<Value> = containers
            .iter()
            .map(|name| json!({"name": name, "ready": true, "image": "host", "imageID": "", "restartCount": 0, "state": {"running": {}}}))
            .collect();
        let status = json!({"status": {"phase": "Running", "containerStatuses": statuses}});
        let _ = session.merge(&format!("/api/v1/namespaces/default/pods/{name}/status"), &status).success();
        let pod = PodId { namespace: "default".into(), name: name.into() };
        let ids = containers.iter().map(|name| ContainerId { pod: pod.clone(), container: (*name).into() });
        ids.inspect(|id| self.fake.container(id, &["cat"])).collect()
    }
}

/// Processes of this machine, for the rest the workloads in memory.
struct Machine(Arc<Fake>);

impl Workloads for Machine {
    fn logs<'a>(&'a self, of: &'a ContainerId, options: &'a LogOptions) -> BoxFuture<'a, Result<LogReader, Refusal>> {
        self.0.logs(of, options)
    }

    fn exec<'a>(&'a self, of: &'a ContainerId, mut how: Exec) -> BoxFuture<'a, Result<Running, Refusal>> {
        if how.command[0] == "fake" {
            how.command.remove(0);
            return self.0.exec(of, how);
        }
        Box::pin(async move {
            // What is not there is refused as the workloads in memory refuse it.
            let probe = Exec { command: vec!["exit".into(), "0".into()], stdout: true, ..Exec::default() };
            self.0.exec(of, probe).await?;
            start(&how)
        })
    }

    fn attach<'a>(&'a self, of: &'a ContainerId, how: Attach) -> BoxFuture<'a, Result<Running, Refusal>> {
        self.0.attach(of, how)
    }

    fn dial<'a>(&'a self, pod: &'a PodId, port: u16) -> BoxFuture<'a, Result<TcpStream, Refusal>> {
        self.0.dial(pod, port)
    }

    fn log_files<'a>(&'a self, path: &'a [String]) -> BoxFuture<'a, Option<LogFiles>> {
        self.0.log_files(path)
    }

    fn metrics(&self) -> String {
        self.0.metrics()
    }

    fn pods(&self) -> Value {
        self.0.pods()
    }
}

/// A process. `script` gives it a terminal, of whatever size.
fn start(how: &Exec) -> Result<Running, Refusal> {
    let pipe = |wanted| if wanted { Stdio::piped() } else { Stdio::null() };
    let mut command = if how.tty {
        let mut command = Command::new("script");
        command.args(["-qfec", &how.command.join(" "), "/dev/null"]);
        command
    } else {
        let mut command = Command::new(&how.command[0]);
        command.args(&how.command[1..]);
        command
    };
    command.stdin(pipe(how.stdin)).stdout(pipe(how.stdout)).stderr(pipe(how.stderr)).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| Refusal::Failed(error.to_string()))?;
    Ok(Running {
        stdin: child.stdin.take().map(|stream| Box::new(stream) as _),
        stdout: child.stdout.take().map(|stream| Box::new(stream) as _),
        stderr: child.stderr.take().map(|stream| Box::new(stream) as _),
        resize: None,
        exit: Box::pin(async move {
            match child.wait().await {
                Ok(status) => Exit::Code(status.code().unwrap_or(137)),
                Err(error) => Exit::Failed(error.to_string()),
            }
        }),
    })
}
