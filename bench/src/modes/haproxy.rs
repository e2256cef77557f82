//! HAProxy in TCP mode: a program that carries connections as the mode userspace does, and is known for doing it well.
#![expect(clippy::disallowed_methods, reason = "a benchmark runs the programs it measures")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use testbed::net::{Node, Process, eventually};

use super::carry::Way;

/// Its listening addresses on its node, for the sink and for the server of short connections.
const PORTS: [u16; 2] = [7001, 7002];

/// An address that rules lead to it, as they lead those of Services to the mode userspace.
const REDIRECTED: Ipv4Addr = Ipv4Addr::new(10, 96, 240, 201);

/// A running HAProxy. Dropping it kills it.
pub struct HaProxy {
    /// The way to it by a redirection.
    pub redirected: Way,
    /// The way to the address where it listens.
    pub straight: Way,
    _process: Process,
}

/// Its version, when it is there.
#[must_use]
pub fn version() -> Option<String> {
    let output = Command::new("haproxy").arg("-v").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

impl HaProxy {
    /// Starts it on a node, set up to its advantage: as many threads as cores, and the kernel moves the bytes.
    ///
    /// # Errors
    /// When its settings cannot be written.
    pub fn start(node: &Node, to: Way, home: &Path) -> anyhow::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let [sink, desk] = PORTS;
        let settings = format!(
            "global\n  maxconn 4000\n  nbthread {threads}\ndefaults\n  mode tcp\n  option splice-auto\n  timeout connect 5s\n  \
             timeout client 60s\n  timeout server 60s\nlisten sink\n  bind :{sink}\n  server far {}\nlisten desk\n  bind \
             :{desk}\n  server far {}\n",
            to.sink, to.desk
        );
        let file = home.join("haproxy.cfg");
        std::fs::write(&file, settings).with_context(|| format!("writing {}", file.display()))?;
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(&file);
        let process = node.spawn(command);
        let at = |port| SocketAddr::new(node.v4().into(), port);
        let is_there = || std::net::TcpStream::connect_timeout(&at(desk), Duration::from_secs(1)).is_ok();
        eventually("HAProxy listens", || node.in_namespace(is_there));
        let ports = format!("{} : {sink}, {} : {desk}", to.sink.port(), to.desk.port());
        let rules = format!(
            "table ip haproxy {{ chain prerouting {{ type nat hook prerouting priority dstnat - 5\n ip daddr {REDIRECTED} meta l4proto tcp redirect to \
             :tcp dport map {{ {ports} }}\n }}\n}}\n"
        );
        drop(node.run_with("nft -f -", &rules).success());
        let redirected = |way: SocketAddr| SocketAddr::new(REDIRECTED.into(), way.port());
        let redirected = Way { sink: redirected(to.sink), desk: redirected(to.desk), echo: None };
        Ok(Self { redirected, straight: Way { sink: at(sink), desk: at(desk), echo: None }, _process: process })
    }
}
