//! Builds the machines and the wires between them.
//!
//! In: names. Out: [`Node`], [`Pod`] and [`Outside`], each a [`Host`] with addresses, routes and links. The links are made by
//! `ip -batch`, one run per side of a wire; [`super`] has the picture.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

use super::Family;
use super::host::Host;
use super::namespace::Namespace;

/// What holds for every namespace: no waiting for duplicate addresses, no redirects past the node, no limit on refusals.
const EVERYWHERE: &[(&str, &str)] = &[
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/all/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/all/accept_redirects", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
    // An empty line is an empty list; nothing at all would be no change.
    ("net/ipv6/icmp/ratemask", "\n"),
];

/// What makes a namespace a router.
const ROUTER: &[(&str, &str)] = &[("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")];

/// The default gateway of the cluster. It knows nodes and pods, and responds "unreachable" to all else: what a proxy fails to
/// redirect fails at once.
const ROUTER_V4: &str = "192.0.2.1";
const ROUTER_V6: &str = "2001:db8::1";

/// Where a bridge hands packets to the rules of IP, unasked. Absent when the kernel cannot do so.
const BRIDGE_RULES: [&str; 2] = ["net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"];

/// Nodes, pods and outside clients. They exist until this is dropped; handles to them may be kept or dropped.
pub struct Cluster {
    underlay: Namespace,
    nodes: Mutex<Vec<Node>>,
    outsides: Mutex<Vec<Outside>>,
    /// Serves all that is served here; taken when the cluster ends.
    echoes: Option<Runtime>,
    runtime: Handle,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// An empty cluster: the network, without machines.
    #[must_use]
    pub fn new() -> Self {
        let echoes = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("echo")
            .enable_io()
            .build()
            .expect("a thread for the servers");
        let underlay = namespace();
        underlay.sysctls(ROUTER);
        ip(
            &underlay,
            &format!(
                "link set lo up\nlink add underlay type bridge mcast_snooping 0\naddr add {ROUTER_V4}/24 dev underlay\n\
                 addr add {ROUTER_V6}/64 dev underlay nodad\nlink set underlay up\n"
            ),
        );
        let runtime = echoes.handle().clone();
        Self { underlay, nodes: Mutex::default(), outsides: Mutex::default(), echoes: Some(echoes), runtime }
    }

    /// The node of this name; it is made when it is first named.
    #[must_use]
    pub fn node(&self, name: &str) -> Node {
        let mut nodes = self.nodes.lock();
        if let Some(known) = nodes.iter().find(|node| node.name() == name) {
            return known.clone();
        }
        let node = Node::new(self, name, &nodes);
        nodes.push(node.clone());
        node
    }

    /// The outside client of this name, created on first use. It has a route to the underlay and nothing behind it.
    #[must_use]
    pub fn outside(&self, name: &str) -> Outside {
        let mut outsides = self.outsides.lock();
        if let Some(known) = outsides.iter().find(|outside| outside.name() == name) {
            return known.clone();
        }
        let number = numbered(outsides.len(), 100);
        let host = Arc::new(underlay_host(self, name, number));
        outsides.push(Outside { host });
        outsides[outsides.len() - 1].clone()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.lock().drain(..) {
            node.pods.lock().drain(..).for_each(|pod| pod.shut());
            node.shut();
        }
        self.outsides.lock().drain(..).for_each(|outside| outside.shut());
        if let Some(echoes) = self.echoes.take() {
            // Not waited for: a test may end inside its own runtime, where blocking is forbidden.
            echoes.shutdown_background();
        }
    }
}

/// A node: a router with an address on the underlay and a bridge for its pods.
#[derive(Clone)]
pub struct Node {
    host: Arc<Host>,
    number: u8,
    pods: Arc<Mutex<Vec<Pod>>>,
}

impl Node {
    fn new(cluster: &Cluster, name: &str, others: &[Self]) -> Self {
        let number = numbered(others.len(), 10) - 10;
        let host = Arc::new(underlay_host(cluster, name, number + 10));
        host.namespace().sysctls(ROUTER);
        let node = Self { host, number, pods: Arc::default() };
        let mut lines = format!(
            "link add pods type bridge mcast_snooping 0\naddr add {}/24 dev pods\naddr add {}/64 dev pods nodad\n\
             link set pods up\nroute add default via {ROUTER_V4}\nroute add default via {ROUTER_V6}\n",
            pod_v4(number, 1),
            pod_v6(number, 1)
        );
        for other in others {
            lines.push_str(&route_to(other));
            other.ip(&route_to(&node));
        }
        node.ip(&lines);
        ip(&cluster.underlay, &route_to(&node));
        node
    }

    /// Makes a pod on this node. Pod names are the test's to keep apart.
    #[must_use]
    pub fn pod(&self, name: &str) -> Pod {
        let mut pods = self.pods.lock();
        // Addresses are not given twice, also not after a deletion: a stale flow must not find a new owner by chance.
        let number = pods.last().map_or(2, |last| last.number.checked_add(1).expect("an address for one pod more"));
        let namespace = namespace();
        plug(self.host.namespace(), "pods", name, &namespace, true);
        let (v4, v6) = (pod_v4(self.number, number), pod_v6(self.number, number));
        ip(&namespace, &pod_lines(v4, v6, self.number));
        let host = Arc::new(Host::new(name, namespace, v4, v6, self.host.runtime()));
        pods.push(Pod { host, node: Arc::clone(&self.host), number });
        pods[pods.len() - 1].clone()
    }

    /// Its address towards its pods.
    #[must_use]
    pub fn gateway(&self, family: Family) -> IpAddr {
        match family {
            Family::V4 => pod_v4(self.number, 1).into(),
            Family::V6 => pod_v6(self.number, 1).into(),
        }
    }

    /// The ranges of its pods, IPv4 first.
    #[must_use]
    pub fn pod_cidrs(&self) -> [String; 2] {
        [format!("10.244.{}.0/24", self.number), format!("fd00:10:244:{}::/64", self.number)]
    }
}

impl Deref for Node {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// A pod: one address of each family, and a default route by its node.
#[derive(Clone)]
pub struct Pod {
    host: Arc<Host>,
    node: Arc<Host>,
    number: u8,
}

impl Pod {
    /// The name of its node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        self.node.name()
    }

    /// Disconnects it from the network at once, as when it is deleted: its servers end, its link is removed, its address stays
    /// unused.
    pub fn delete(&self) {
        self.shut();
        self.node.ip(&format!("link del {}\n", self.name()));
    }
}

impl Deref for Pod {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// A machine outside of the cluster, on the same wire as its nodes.
#[derive(Clone)]
pub struct Outside {
    host: Arc<Host>,
}

impl Outside {
    /// Sends a range of addresses by this node, as a router in front of the cluster would.
    pub fn route(&self, range: &str, node: &Node) {
        let gateway = if range.contains(':') { node.v6().to_string() } else { node.v4().to_string() };
        self.ip(&format!("route replace {range} via {gateway}\n"));
    }
}

impl Deref for Outside {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

// === wires ===

/// A namespace with what holds everywhere.
fn namespace() -> Namespace {
    let namespace = Namespace::new();
    namespace.sysctls(EVERYWHERE);
    for name in BRIDGE_RULES.iter().filter(|name| std::path::Path::new("/proc/sys").join(name).exists()) {
        namespace.sysctl(name, "0");
    }
    namespace
}

/// A host with a wire to the underlay.
fn underlay_host(cluster: &Cluster, name: &str, number: u8) -> Host {
    let namespace = namespace();
    plug(&cluster.underlay, "underlay", name, &namespace, false);
    let v4 = Ipv4Addr::new(192, 0, 2, number);
    let v6 = digits(format!("2001:db8::{number}"));
    ip(
        &namespace,
        &format!("link set lo up\naddr add {v4}/24 dev eth0\naddr add {v6}/64 dev eth0 nodad\nlink set eth0 up\n"),
    );
    Host::new(name, namespace, v4, v6, &cluster.runtime)
}

/// A link from a bridge to the `eth0` of a namespace. The bridge port is named after the machine at the other end.
fn plug(at: &Namespace, bridge: &str, name: &str, to: &Namespace, hairpin: bool) {
    assert!((1..=15).contains(&name.len()), "{name:?} is to name an interface: 1 to 15 bytes");
    let mut lines =
        format!("link add {name} type veth peer name eth0 netns {}\nlink set {name} master {bridge} up\n", to.path());
    if hairpin {
        let _ = writeln!(lines, "link set {name} type bridge_slave hairpin on");
    }
    ip(at, &lines);
}

/// How a pod is set up: alone on its address, everything else behind the node.
fn pod_lines(v4: Ipv4Addr, v6: Ipv6Addr, node: u8) -> String {
    let (gateway4, gateway6) = (pod_v4(node, 1), pod_v6(node, 1));
    format!(
        "link set lo up\naddr add {v4}/32 dev eth0\naddr add {v6}/128 dev eth0 nodad\nlink set eth0 up\n\
         route add {gateway4} dev eth0\nroute add default via {gateway4}\n\
         route add {gateway6} dev eth0\nroute add default via {gateway6}\n"
    )
}

/// The lines that send the pods of a node to it.
fn route_to(node: &Node) -> String {
    let [v4, v6] = node.pod_cidrs();
    format!("route add {v4} via {}\nroute add {v6} via {}\n", node.v4(), node.v6())
}

/// Runs lines of `ip` inside.
pub(super) fn ip(inside: &Namespace, lines: &str) {
    let run = inside.within(|| crate::run(std::process::Command::new("ip").args(["-batch", "-"]), lines));
    assert!(run.ok, "ip refused:\n{lines}\n{}", run.err);
}

// === addresses ===

/// The last part of the next address after `before` others, counted from `base + 1`.
fn numbered(before: usize, base: u8) -> u8 {
    let most = if base == 10 { 89 } else { 99 };
    assert!(before < most, "the underlay has no address for one more");
    base + 1 + u8::try_from(before).expect("few")
}

fn pod_v4(node: u8, number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, node, number)
}

fn pod_v6(node: u8, number: u8) -> Ipv6Addr {
    digits(format!("fd00:10:244:{node}::{number}"))
}

/// An address whose groups repeat the decimal digits of its IPv4 counterpart, to be recognised at a glance.
#[expect(clippy::needless_pass_by_value, reason = "always a fresh text")]
fn digits(text: String) -> Ipv6Addr {
    text.parse().expect("decimal digits are hexadecimal ones")
}
