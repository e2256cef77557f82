//! DNS names of the cluster, queried by `dig` and by the resolver of the C library.

mod clients;
mod coredns;
mod golden;
mod hostile;
mod machine;
mod node;
mod storm;
mod up;
mod wire;

use std::process::Command;

use tempfile::TempDir;
use testbed::Run;
use testbed::net::{Host, Process, Served};

/// A Corefile for one block.
struct Block<'t> {
    port: u16,
    /// The zones of the cluster.
    zones: &'t str,
    /// Lines inside of `kubernetes`.
    kubernetes: &'t [&'t str],
    /// Further lines of the block.
    rest: &'t [&'t str],
}

/// The zones that clusters have.
const ZONES: &str = "cluster.local in-addr.arpa ip6.arpa";

impl Block<'_> {
    fn corefile(&self) -> String {
        let inner: String = self.kubernetes.iter().map(|line| format!("        {line}\n")).collect();
        let rest: String = self.rest.iter().map(|line| format!("    {line}\n")).collect();
        format!(".:{} {{\n    kubernetes {} {{\n{inner}    }}\n{rest}}}\n", self.port, self.zones)
    }

    /// Starts a DNS server on a machine, and waits until it is synced.
    fn start(&self, served: &Served, host: &Host) -> Names {
        let home = testbed::folder();
        let file = home.path().join("Corefile");
        std::fs::write(&file, self.corefile()).expect("written");
        let mut command = node(served, &[]);
        command.arg("--corefile").arg(file);
        let process = host.spawn(command);
        process.wait_for_line("ready", crate::proxy::TIMEOUT);
        Names { process, _home: home }
    }
}

/// A server of names that runs.
struct Names {
    process: Process,
    _home: TempDir,
}

/// `waypost node` that does nothing but answer names.
fn node(served: &Served, arguments: &[String]) -> Command {
    let mut command = Command::new(testbed::binary());
    command.args(["node", "--roles", "dns", "--kubeconfig"]).arg(served.kubeconfig()).args(arguments);
    command
}

/// Pages of their own for each of many on one machine.
fn pages(port: u16) -> [String; 4] {
    let at = |port: u16| format!("127.0.0.1:{port}");
    ["--dns-ready-listen".to_owned(), at(port + 1000), "--dns-metrics-listen".to_owned(), at(port + 2000)]
}

/// The output of `dig +short`.
fn dig(host: &Host, server: &str, words: &str) -> String {
    host.run(&*format!("dig +short +tries=1 +time=3 @{server} {words}")).success()
}

/// Runs a program on a host whose `/etc/resolv.conf` is this.
fn with_resolv_conf(host: &Host, text: &str, program: &str) -> Run {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("written");
    let mut command = Command::new("unshare");
    let script = format!("mount --bind {} /etc/resolv.conf && exec {program}", file.path().display());
    command.args(["--mount", "sh", "-c", &script]);
    host.run(command)
}
