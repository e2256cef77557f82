//! What a node tells about its proxy: which Services are served, behind which addresses, and who talks to whom.
//!
//! In: a [`Snapshot`] of the loop, and the connections that the kernel remembers. Out: a document for people and
//! programs. Pure: what could not be read is null in it, never a guess.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::ip::Family;
use jiff::Timestamp;
use kernel::conntrack::Counted;
use plan::{Backend, Frontend, LocalDetector, NodePortAddresses, Options, PortKey, Problem, Protocol, ServicePort};
use serde_json::{Map, Value, json};

/// Asks the loop how things stand.
pub struct Question {
    /// Of this Service alone: `namespace/name`.
    pub service: Option<String>,
    /// Whether rules are wanted.
    pub rules: bool,
    /// Called with the answer, from the loop: it must not wait.
    pub answer: Box<dyn FnOnce(Snapshot) + Send>,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Question").field("service", &self.service).field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// How things stand at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The mode that serves.
    pub mode: &'static str,
    /// What the command line says.
    pub options: Options,
    /// The addresses on which node ports are served.
    pub node_port_ips: Vec<IpAddr>,
    /// Whether the last attempt to write succeeded.
    pub synced: bool,
    /// What people should know.
    pub problems: Vec<Problem>,
    /// The ports that were asked for.
    pub ports: Vec<Stand>,
}

/// How one Service port stands.
#[derive(Clone, Debug)]
pub struct Stand {
    /// The port, as planned.
    pub port: Arc<ServicePort>,
    /// The frontends that it has.
    pub owned: Vec<Frontend>,
    /// Whether the kernel has it so.
    pub written: bool,
    /// Its rules, where they were asked for.
    pub rules: String,
}

/// What was read of the connections of this machine.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// The connections; nothing when they could not be read, or do not tell who is behind a Service.
    pub flows: Option<Vec<Counted>>,
    /// Whether the kernel counts their bytes.
    pub counted: bool,
}

/// When rules were last written, and why not since.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// When.
    pub at: Option<Timestamp>,
    /// What went wrong since.
    pub error: Option<String>,
}

/// What passes to one backend of a Service port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Passing {
    connections: u64,
    bytes: u64,
}

type Shares<'a> = BTreeMap<&'a PortKey, BTreeMap<Backend, Passing>>;

/// The report of a node.
#[must_use]
pub fn report(snapshot: &Snapshot, written: &Written, traffic: &Traffic) -> Value {
    let shares = traffic.flows.as_deref().map(|flows| shares(snapshot, flows));
    let mut services: BTreeMap<&str, Vec<&Stand>> = BTreeMap::new();
    for stand in &snapshot.ports {
        services.entry(&stand.port.key.service).or_default().push(stand);
    }
    let services: Map<String, Value> = services
        .into_iter()
        .map(|(name, stands)| {
            (name.to_owned(), service(name, &stands, snapshot, written, shares.as_ref(), traffic.counted))
        })
        .collect();
    json!({
        "node": snapshot.options.node_name, "mode": snapshot.mode, "synced": snapshot.synced,
        "syncedAt": written.at.map(|at| at.to_string()), "options": options(snapshot), "services": services,
    })
}

/// The rules of what was asked for, as text.
#[must_use]
pub fn rules(snapshot: &Snapshot) -> String {
    let all: String = snapshot.ports.iter().map(|stand| stand.rules.as_str()).collect();
    match (snapshot.ports.is_empty(), all.is_empty()) {
        (true, _) => "# no port of this Service is served here\n".to_owned(),
        (false, true) => format!("# the mode {} has no rules for a single Service\n", snapshot.mode),
        (false, false) => all,
    }
}

fn service(
    name: &str,
    stands: &[&Stand],
    snapshot: &Snapshot,
    written: &Written,
    shares: Option<&Shares<'_>>,
    counted: bool,
) -> Value {
    let programmed = stands.iter().all(|stand| stand.written);
    let why = match (programmed, &written.error) {
        (true, _) => String::new(),
        (false, Some(error)) => format!("the rules could not be written: {error}"),
        (false, None) => "the rules are about to be written".to_owned(),
    };
    let problems = snapshot.problems.iter().filter(|problem| *problem.service == *name).map(|problem| &problem.what);
    let ports: Vec<Value> = stands.iter().map(|stand| port(stand, shares, counted)).collect();
    json!({"programmed": programmed, "why": why, "problems": problems.collect::<Vec<_>>(), "ports": ports})
}

fn port(stand: &Stand, shares: Option<&Shares<'_>>, counted: bool) -> Value {
    let ServicePort { key, port, cluster, local, .. } = &*stand.port;
    let frontend = |frontend: &Frontend| match frontend {
        Frontend::Address(ip, _, port) => SocketAddr::new(*ip, *port).to_string(),
        Frontend::NodePort(_, _, port) => format!("*:{port}"),
    };
    let mut planned: Vec<Backend> = cluster.iter().chain(local).copied().collect();
    planned.sort_unstable();
    planned.dedup();
    let passing = shares.map(|shares| shares.get(key).cloned().unwrap_or_default());
    let is_gone = |(backend, passing): &(&Backend, &Passing)| passing.connections > 0 && !planned.contains(backend);
    let gone: Vec<Backend> = passing.iter().flatten().filter(is_gone).map(|(backend, _)| *backend).collect();
    let all: Vec<Backend> = planned.iter().copied().chain(gone).collect();
    let backends: Vec<Value> = all
        .iter()
        .map(|backend| {
            let passing = passing.as_ref().map(|passing| passing.get(backend).copied().unwrap_or_default());
            json!({
                "address": SocketAddr::new(backend.ip, backend.port).to_string(),
                "local": local.contains(backend) || stand.port.hairpin.contains(backend),
                "planned": planned.contains(backend),
                "connections": passing.map(|passing| passing.connections),
                "bytes": passing.filter(|_| counted).map(|passing| passing.bytes),
            })
        })
        .collect();
    json!({
        "name": &*key.port, "protocol": key.protocol.as_str(), "family": key.family.as_str(), "port": port,
        "frontends": stand.owned.iter().map(frontend).collect::<Vec<_>>(), "backends": backends,
    })
}

/// What passes to each backend of each port. Those that have ended count with their bytes until the kernel forgets them.
fn shares<'a>(snapshot: &'a Snapshot, flows: &[Counted]) -> Shares<'a> {
    let owners: BTreeMap<Frontend, &PortKey> =
        snapshot.ports.iter().flat_map(|stand| stand.owned.iter().map(|one| (*one, &stand.port.key))).collect();
    let mut shares = Shares::new();
    for Counted { flow, bytes, ended } in flows {
        let Some(protocol) = Protocol::ALL.into_iter().find(|one| one.number() == flow.protocol) else { continue };
        let (asked, answers) = (flow.original.destination, flow.reply.source);
        let at_address = Frontend::Address(asked.ip(), protocol, asked.port());
        let at_node = Frontend::NodePort(Family::of(asked.ip()), protocol, asked.port());
        let of_node = || owners.get(&at_node).filter(|_| snapshot.node_port_ips.contains(&asked.ip()));
        let Some(key) = owners.get(&at_address).or_else(of_node) else { continue };
        let backend = Backend { ip: answers.ip(), port: answers.port() };
        let share = shares.entry(*key).or_default().entry(backend).or_default();
        share.connections += u64::from(!ended);
        share.bytes = share.bytes.saturating_add(bytes.unwrap_or_default());
    }
    shares
}

/// What the command line says, for those who want to plan as this node does.
fn options(snapshot: &Snapshot) -> Value {
    let options = &snapshot.options;
    let ranges = |ranges: &[ipnet::IpNet]| ranges.iter().map(ToString::to_string).collect::<Vec<_>>();
    let pods = match &options.local {
        LocalDetector::None => json!({}),
        LocalDetector::Ranges(list) => json!({"ranges": ranges(list)}),
        LocalDetector::Interface(name) => json!({"interface": name}),
        LocalDetector::InterfacePrefix(prefix) => json!({"interfacePrefix": prefix}),
    };
    let node_ports = match &options.node_port_addresses {
        NodePortAddresses::Primary => json!(["primary"]),
        NodePortAddresses::All => json!(["all"]),
        NodePortAddresses::Ranges(list) => json!(ranges(list)),
    };
    let ips: Vec<String> = snapshot.node_port_ips.iter().map(ToString::to_string).collect();
    json!({
        "masqueradeAll": options.masquerade_all, "rootless": options.rootless, "pods": pods,
        "nodePortAddresses": node_ports, "nodePortIPs": ips,
    })
}

#[cfg(test)]
mod tests;
