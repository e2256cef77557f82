//! The machines: a node, a pod on it that answers, a client outside; and the certificate.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it needs")]

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use tempfile::TempDir;
use testbed::net::{Cluster, Node, Outside, Pod};

use super::pod;
use crate::program;

/// The name that the certificate is for.
pub const HOST: &str = "web.example";
/// Addresses for load balancers, which are behind the node.
pub const BALANCERS: &str = "203.0.113.0/28";
/// Where the pod answers.
pub const TARGET: u16 = 8080;
/// Where the pod answers gRPC, once it does.
pub const GRPC_TARGET: u16 = 8081;

/// See the module.
pub struct Stage {
    /// Where load balancers run.
    pub node: Node,
    /// Where clients are.
    pub outside: Outside,
    /// The server.
    pub pod: Pod,
    home: TempDir,
    _cluster: Cluster,
}

impl Stage {
    /// Builds it.
    ///
    /// # Errors
    /// When something that it needs is missing.
    pub fn new() -> anyhow::Result<Self> {
        let cluster = Cluster::new();
        let (node, outside) = (cluster.node("n1"), cluster.outside("outside"));
        outside.route(BALANCERS, &node);
        // Before there are rules for an address, its packets would be passed on to the world, and connection tracking would remember that.
        node.ip(&format!("route add unreachable {BALANCERS}"));
        let web = node.pod("web");
        pod::serve(&web, TARGET)?;
        let stage = Self { node, outside, pod: web, home: program::home()?, _cluster: cluster };
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]);
        command.args(["-subj", "/CN=bench", "-addext", &format!("subjectAltName=DNS:{HOST}")]);
        command.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        command.arg("-keyout").arg(stage.file("web.key")).arg("-out").arg(stage.file("web.crt"));
        let run = testbed::run(&mut command, "");
        anyhow::ensure!(run.ok, "openssl makes no certificate: {}", run.err);
        let both = [stage.read("web.crt")?, stage.read("web.key")?].concat();
        std::fs::write(stage.file("web.pem"), both).context("writing a certificate")?;
        Ok(stage)
    }

    /// A file of this run.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// What it holds.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, name: &str) -> anyhow::Result<String> {
        std::fs::read_to_string(self.file(name)).with_context(|| format!("reading {name}"))
    }

    /// The address of the node.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.node.v4().into()
    }

    /// The address of the pod's server.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        SocketAddr::new(self.pod.v4().into(), TARGET)
    }

    /// The address of the pod's server of gRPC.
    #[must_use]
    pub fn grpc_target(&self) -> SocketAddr {
        SocketAddr::new(self.pod.v4().into(), GRPC_TARGET)
    }
}
