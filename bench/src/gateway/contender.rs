//! The measured programs: `waypost up` with a Gateway, nginx, HAProxy and Envoy, each configured for speed and with the same function.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use testbed::net::Process;

use super::objects::{self, NAMESPACE, Parent, collection};
use super::peers;
use super::up::{self, Up};
use crate::kubernetes;
use crate::lb::contender::worked;
use crate::lb::stage::{GRPC_TARGET, HOST, Stage, TARGET};
use crate::load::Work;
use crate::waypost::Waypost;

/// The host of gRPC calls.
pub const GRPC_HOST: &str = "grpc.example";
/// The ports of peers: HTTP/1.1, TLS, HTTP/2 with prior knowledge, gRPC.
pub const PORTS: [u16; 4] = [8000, 8443, 8001, 8002];

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Waypost,
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
    /// Envoy.
    Envoy,
}

/// A program that is there.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Which it is.
    pub kind: Kind,
    /// Where it is.
    pub program: PathBuf,
}

/// Where it listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// HTTP/1.1.
    pub plain: SocketAddr,
    /// HTTP/1.1 and HTTP/2 over TLS.
    pub tls: SocketAddr,
    /// HTTP/2 with prior knowledge.
    pub h2c: SocketAddr,
    /// gRPC without TLS.
    pub grpc: SocketAddr,
}

/// One that runs. Dropping it ends it.
pub struct Running {
    /// Where it listens.
    pub addresses: Addresses,
    program: Program,
}

enum Program {
    Waypost(Up),
    Peer(Process),
}

impl Kind {
    /// All programs, ours first.
    pub const ALL: [Self; 4] = [Self::Waypost, Self::Nginx, Self::Haproxy, Self::Envoy];

    /// Its name in the report, and that of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waypost => "waypost",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
        }
    }
}

impl Contender {
    /// Finds its program: ours as all benchmarks do, peers in `$WAYPOST_PEERS` or on the path.
    ///
    /// # Errors
    /// When it is missing.
    pub fn find(kind: Kind) -> anyhow::Result<Self> {
        let program = match kind {
            Kind::Waypost => Waypost::find()?.program().to_owned(),
            peer => kubernetes::program(peer.name())?,
        };
        Ok(Self { kind, program })
    }

    /// What is measured.
    #[must_use]
    pub fn describe(&self) -> String {
        let option = match self.kind {
            Kind::Waypost => "version",
            Kind::Nginx | Kind::Haproxy => "-v",
            Kind::Envoy => "--version",
        };
        let run = testbed::run(Command::new(&self.program).arg(option), "");
        let said = [run.out, run.err].concat();
        said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("of unknown version").to_owned()
    }

    /// Starts it on the node.
    ///
    /// # Errors
    /// When it cannot be configured.
    pub fn start(&self, stage: &Stage) -> anyhow::Result<Running> {
        let mut command = Command::new(&self.program);
        let file = |name: &str, text: &str| {
            std::fs::write(stage.file(name), text).with_context(|| format!("writing {name}")).map(|()| stage.file(name))
        };
        match self.kind {
            Kind::Waypost => return self.waypost(stage),
            Kind::Nginx => {
                command.arg("-c").arg(file("nginx.conf", &peers::nginx(stage))?).arg("-p").arg(stage.file(""));
            }
            Kind::Haproxy => {
                command.arg("-db").arg("-f").arg(file("haproxy.cfg", &peers::haproxy(stage))?);
            }
            Kind::Envoy => {
                let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                command.arg("-c").arg(file("envoy.json", &peers::envoy(stage)?.to_string())?);
                command.args(["--concurrency", &cores.to_string(), "--log-level", "error", "--use-dynamic-base-id"]);
            }
        }
        let at = |port| SocketAddr::new(stage.address(), port);
        let [plain, tls, h2c, grpc] = PORTS.map(at);
        let process = stage.node.spawn(command);
        Ok(Running { addresses: Addresses { plain, tls, h2c, grpc }, program: Program::Peer(process) })
    }

    /// `waypost up` with a Gateway, whose routes lead to the pod.
    fn waypost(&self, stage: &Stage) -> anyhow::Result<Running> {
        let up = Up::start(&self.program, stage)?;
        let address = stage.node.in_namespace(|| -> anyhow::Result<IpAddr> {
            up::runtime()?.block_on(async {
                let mut client = up.client()?;
                for (collection, object) in objects(stage)? {
                    Work::create(&collection, &object).send(&mut client).await?;
                }
                let listeners = [objects::http_listener(80), objects::https_listener(443, "web")];
                up::create_gateway(&mut client, &objects::gateway("web", &listeners)).await
            })
        })?;
        let (plain, tls) = (SocketAddr::new(address, 80), SocketAddr::new(address, 443));
        Ok(Running { addresses: Addresses { plain, tls, h2c: plain, grpc: plain }, program: Program::Waypost(up) })
    }
}

/// The certificate, both Services with their slices, both routes; each with its collection.
fn objects(stage: &Stage) -> anyhow::Result<Vec<(String, Value)>> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "web"},
        "stringData": {"tls.crt": stage.read("web.crt")?, "tls.key": stage.read("web.key")?},
    });
    let mut all = vec![(format!("/api/v1/namespaces/{NAMESPACE}/secrets"), secret)];
    for (name, protocol, port) in [("web", None, TARGET), ("calls", Some("kubernetes.io/h2c"), GRPC_TARGET)] {
        let key = (NAMESPACE, name);
        all.push((objects::services(NAMESPACE), objects::service(key, protocol)));
        all.push((objects::slices(NAMESPACE), objects::slice(key, stage.pod.v4().into(), port, true)));
    }
    let web = objects::http_route((NAMESPACE, "web"), Parent::Gateway("web"), (HOST, "/"), "web");
    all.push((collection(NAMESPACE, "httproutes"), web));
    all.push((collection(NAMESPACE, "grpcroutes"), objects::grpc_route("calls", "web", GRPC_HOST, "calls")));
    Ok(all)
}

impl Running {
    /// The processor time of all its processes so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn worked(&self) -> anyhow::Result<Duration> {
        match &self.program {
            Program::Waypost(up) => up.worked(),
            Program::Peer(process) => worked(process.pid()),
        }
    }

    /// What it printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        match &self.program {
            Program::Waypost(_) => String::new(),
            Program::Peer(process) => process.log(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Program::Peer(process) = &mut self.program {
            // One that is killed would leave its children behind.
            let _ = process.terminate();
        }
    }
}
