//! A router that runs BIRD: its configuration, its table, the state of its neighbours.
//!
//! In: neighbours and the routes sent to them. Out: a program that accepts their connections, and installs the received routes in the
//! kernel of its namespace, so that it forwards along them. BIRD must be installed (Debian: `bird2`).

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use testbed::net::{Node, Outside, Process, eventually};

/// The autonomous systems of the nodes and of the router.
pub(super) const NODES: u32 = 64512;
pub(super) const ROUTER: u32 = 64513;

/// The router's configuration for nodes.
#[derive(Clone, Default)]
pub(super) struct RouterConfig {
    /// The password.
    pub(super) password: Option<&'static str>,
    /// How many networks it announces to them.
    pub(super) networks: usize,
    /// Whether it is of the nodes' own system.
    pub(super) internal: bool,
    /// Whether it peers from its IPv6 address.
    pub(super) over_v6: bool,
}

/// A router. It ends with this.
pub(super) struct Router {
    pub(super) host: Outside,
    home: TempDir,
    bird: Mutex<Option<Process>>,
}

impl Router {
    /// A router that forwards, and does not yet run.
    pub(super) fn new(host: Outside) -> Self {
        for name in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/fib_multipath_hash_policy"] {
            host.sysctl(name, "1");
        }
        host.sysctl("net/ipv6/fib_multipath_hash_policy", "1");
        Self { host, home: testbed::folder(), bird: Mutex::default() }
    }

    /// Runs BIRD, with these nodes as neighbours.
    pub(super) fn start(&self, nodes: &[&Node], config: &RouterConfig) {
        let path = self.home.path();
        std::fs::write(path.join("bird.conf"), self.configuration(nodes, config)).expect("a file");
        let mut command = Command::new("bird");
        command.arg("-f").arg("-c").arg(path.join("bird.conf"));
        command.arg("-s").arg(path.join("bird.ctl")).arg("-P").arg(path.join("bird.pid"));
        *self.bird.lock() = Some(self.host.spawn(command));
        eventually("BIRD runs (Debian package bird2)", || self.show("status").is_some());
    }

    /// Ends BIRD at once.
    pub(super) fn kill(&self) {
        if let Some(mut bird) = self.bird.lock().take() {
            bird.kill();
        }
    }

    fn configuration(&self, nodes: &[&Node], config: &RouterConfig) -> String {
        let asn = if config.internal { NODES } else { ROUTER };
        let mut text = format!(
            "log stderr all;\nrouter id {};\nprotocol device {{ scan time 1; }}\n\
             protocol kernel k4 {{ merge paths on; ipv4 {{ import none; export where source = RTS_BGP; }}; }}\n\
             protocol kernel k6 {{ merge paths on; ipv6 {{ import none; export where source = RTS_BGP; }}; }}\n\
             protocol static {{ ipv4;\n",
            self.host.v4()
        );
        for index in 0..config.networks {
            let _ = writeln!(text, "route 10.{}.0.0/16 blackhole;", 100 + index);
        }
        text.push_str("}\n");
        for node in nodes {
            let (local, neighbour) = match config.over_v6 {
                true => (self.host.v6().to_string(), node.v6().to_string()),
                false => (self.host.v4().to_string(), node.v4().to_string()),
            };
            let password = config.password.map(|password| format!("password \"{password}\";")).unwrap_or_default();
            let _ = writeln!(
                text,
                "protocol bgp {} {{ local {local} as {asn}; neighbor {neighbour} as {NODES}; direct; passive;\n\
                 error wait time 1, 2; {password}\n\
                 ipv4 {{ import all; export where source = RTS_STATIC; }}; ipv6 {{ import all; export none; }}; }}",
                node.name()
            );
        }
        text
    }

    /// The output of `birdc show`; none while it does not respond.
    pub(super) fn show(&self, what: &str) -> Option<String> {
        let mut command = Command::new("birdc");
        command.arg("-s").arg(self.home.path().join("bird.ctl")).args(["-r", "show"]).args(what.split(' '));
        let run = self.host.run(command);
        run.ok.then_some(run.out)
    }

    /// The nodes by which the router reaches an address, sorted.
    pub(super) fn ways(&self, address: &str) -> Vec<String> {
        let length = if address.contains(':') { 128 } else { 32 };
        // Lines of a route name the protocol that brought it: `203.0.113.1/32 unicast [n1 10:47:12.345] * (100) [AS64512i]`.
        let table = self.show(&format!("route for {address}/{length}")).unwrap_or_default();
        let lines = table.lines().filter(|line| line.contains("unicast ["));
        let mut ways: Vec<String> =
            lines.filter_map(|line| line.split('[').nth(1)?.split(' ').next().map(str::to_owned)).collect();
        ways.sort();
        ways
    }

    /// Everything about the routes to an address.
    pub(super) fn details(&self, address: &str) -> String {
        self.show(&format!("route for {address} all")).unwrap_or_default()
    }

    /// The state of the session with a node: the end of BIRD's line about it, and the details.
    pub(super) fn session(&self, node: &Node) -> String {
        self.show(&format!("protocols all {}", node.name())).unwrap_or_default()
    }

    pub(super) fn is_established(&self, node: &Node) -> bool {
        self.session(node).contains("Established")
    }

    /// Waits until the router reaches an address by exactly these nodes.
    #[track_caller]
    pub(super) fn wait_for_ways(&self, address: &str, nodes: &[&str]) -> Duration {
        let mut last = Vec::new();
        let took = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(&format!("{address} is reached by {nodes:?}"), || {
                last = self.ways(address);
                last == nodes
            })
        }));
        took.unwrap_or_else(|_| panic!("{address} is reached by {last:?}, not {nodes:?}\n{}", self.log()))
    }

    /// What BIRD logged.
    pub(super) fn log(&self) -> String {
        self.bird.lock().as_ref().map(Process::log).unwrap_or_default()
    }
}
