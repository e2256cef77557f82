//! The measured servers: `waypost node` as DNS server, CoreDNS when its program is installed, and the echo.
//!
//! CoreDNS is set up as kubeadm does it, but for the addresses; so it has no cache for the names of the cluster.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{LISTEN, METRICS, UPSTREAM};
use crate::kubernetes;
use crate::subject::Process;
use crate::waypost::Waypost;

/// The flag that makes this benchmark's binary run as the echo server.
pub const ECHO_FLAG: &str = "--echo";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Waypost,
    /// The peer.
    CoreDns,
    /// The limit.
    Echo,
}

/// A server that can be measured.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Which it is.
    pub kind: Kind,
    program: PathBuf,
}

impl Contender {
    /// Finds its program.
    ///
    /// # Errors
    /// When it is missing.
    pub fn find(kind: Kind) -> anyhow::Result<Self> {
        let program = match kind {
            Kind::Waypost => Waypost::find()?.program().to_owned(),
            Kind::CoreDns => kubernetes::program("coredns")?,
            Kind::Echo => std::env::current_exe().context("finding this program")?,
        };
        Ok(Self { kind, program })
    }

    /// Its name in the report.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Waypost => "waypost",
            Kind::CoreDns => "coredns",
            Kind::Echo => "echo",
        }
    }

    /// What is measured.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.kind {
            Kind::Waypost => "waypost node --roles dns".to_owned(),
            Kind::CoreDns => format!("{}, Corefile of kubeadm", self.version()),
            Kind::Echo => "datagrams sent back, same calls, one thread for each processor".to_owned(),
        }
    }

    /// Starts it with its files in this directory, where the kubeconfig is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, home: &Path) -> anyhow::Result<Process> {
        let kubeconfig = home.join("kubeconfig");
        let arguments = match self.kind {
            Kind::Waypost => waypost(&kubeconfig, home),
            Kind::CoreDns => {
                let path = home.join("Corefile");
                std::fs::write(&path, corefile(&kubeconfig)).with_context(|| format!("writing {}", path.display()))?;
                vec!["-conf".to_owned(), path.display().to_string()]
            }
            Kind::Echo => vec![ECHO_FLAG.to_owned(), LISTEN.to_string()],
        };
        Process::spawn(&self.program, &arguments, home, self.name())
    }

    fn version(&self) -> String {
        let said = Command::new(&self.program).arg("-version").output();
        let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().take(2).collect();
        if lines.is_empty() { "version not said".to_owned() } else { lines.join(", ") }
    }
}

fn waypost(kubeconfig: &Path, _home: &Path) -> Vec<String> {
    let (listen, upstream, metrics) = (LISTEN.to_string(), UPSTREAM.to_string(), METRICS.to_string());
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = [
        "node",
        "--kubeconfig",
        &kubeconfig,
        "--roles",
        "dns",
        "--dns-listen",
        &listen,
        "--dns-upstream",
        &upstream,
        "--dns-metrics-listen",
        &metrics,
    ];
    arguments.map(str::to_owned).to_vec()
}

/// What kubeadm writes, with the way to the API server and the addresses of this machine.
fn corefile(kubeconfig: &Path) -> String {
    format!(
        ".:{port} {{
    bind {address}
    errors
    health {{
       lameduck 5s
    }}
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
       kubeconfig {kubeconfig}
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }}
    prometheus {METRICS}
    forward . {UPSTREAM} {{
       max_concurrent 1000
    }}
    cache 30 {{
       disable success cluster.local
       disable denial cluster.local
    }}
    loop
    reload
    loadbalance
}}
",
        port = LISTEN.port(),
        address = LISTEN.ip(),
        kubeconfig = kubeconfig.display(),
    )
}
