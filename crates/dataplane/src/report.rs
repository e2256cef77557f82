//! The proxy report of a node: Services, frontends, backends and their connections.
//!
//! In: a [`Snapshot`] of the sync loop and the conntrack entries. Out: a JSON document. Pure. Values that could not be
//! read are null.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::ip::Family;
use jiff::Timestamp;
use kernel::conntrack::Counted;
use plan::{
    Backend, Frontend, LocalDetector, NodePortAddresses, Options, PortKey, Problem, Protocol, Redirect, ServicePort,
    ServicePortName,
};
use serde_json::{Map, Value, json};

/// Request for a [`Snapshot`].
pub struct SnapshotRequest {
    /// Only this Service (`namespace/name`); all if none.
    pub service: Option<String>,
    /// Whether to include rules.
    pub rules: bool,
    /// Called with the snapshot on the loop's thread: must not block.
    pub reply: Box<dyn FnOnce(Snapshot) + Send>,
}

impl fmt::Debug for SnapshotRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotRequest")
            .field("service", &self.service)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// State of the proxy at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Active mode.
    pub mode: &'static str,
    /// Command line options.
    pub options: Options,
    /// Addresses that serve node ports.
    pub node_port_ips: Vec<IpAddr>,
    /// Whether the last sync succeeded.
    pub synced: bool,
    /// Open problems.
    pub problems: Vec<Problem>,
    /// Leases that traffic policies name, and their holders.
    pub leaders: BTreeMap<Arc<str>, Option<Box<str>>>,
    /// The requested ports.
    pub ports: Vec<PortStatus>,
}

/// State of one Service port.
#[derive(Clone, Debug)]
pub struct PortStatus {
    /// The planned port.
    pub port: Arc<ServicePort>,
    /// Frontends that it owns.
    pub frontends: Vec<Frontend>,
    /// Whether the kernel has it as planned.
    pub programmed: bool,
    /// Its rules, if requested.
    pub rules: String,
}

/// Connections of this machine.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Connections; none when they cannot be read or do not show the backend.
    pub flows: Option<Vec<Counted>>,
    /// Whether the kernel counts bytes (`nf_conntrack_acct`).
    pub accounting: bool,
}

/// Last successful sync and the error since.
#[derive(Clone, Debug, Default)]
pub struct LastSync {
    /// Time of the last successful sync.
    pub at: Option<Timestamp>,
    /// Error of the last attempt.
    pub error: Option<String>,
}

/// Connections and bytes of one backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct FlowStats {
    connections: u64,
    bytes: u64,
}

type StatsByPort<'a> = BTreeMap<&'a PortKey, BTreeMap<Backend, FlowStats>>;

/// The report as JSON.
#[must_use]
pub fn report(snapshot: &Snapshot, last_sync: &LastSync, traffic: &Traffic) -> Value {
    let shares = traffic.flows.as_deref().map(|flows| shares(snapshot, flows));
    let mut services: BTreeMap<&str, Vec<&PortStatus>> = BTreeMap::new();
    for status in &snapshot.ports {
        services.entry(&status.port.key.service).or_default().push(status);
    }
    let services: Map<String, Value> = services
        .into_iter()
        .map(|(name, statuses)| {
            (name.to_owned(), service(name, &statuses, snapshot, last_sync, shares.as_ref(), traffic.accounting))
        })
        .collect();
    json!({
        "node": snapshot.options.node_name, "mode": snapshot.mode, "synced": snapshot.synced,
        "syncedAt": last_sync.at.map(|at| at.to_string()), "options": options(snapshot), "services": services,
        "leaders": snapshot.leaders.iter().map(|(lease, holder)| (lease.to_string(), json!(holder))).collect::<Map<_, _>>(),
    })
}

/// The rules of the requested ports as text.
#[must_use]
pub fn rules(snapshot: &Snapshot) -> String {
    let all: String = snapshot.ports.iter().map(|status| status.rules.as_str()).collect();
    match (snapshot.ports.is_empty(), all.is_empty()) {
        (true, _) => "# no port of this Service is served on this node\n".to_owned(),
        (false, true) => format!("# mode {} has no rules per Service\n", snapshot.mode),
        (false, false) => all,
    }
}

fn service(
    name: &str,
    statuses: &[&PortStatus],
    snapshot: &Snapshot,
    last_sync: &LastSync,
    shares: Option<&StatsByPort<'_>>,
    accounting: bool,
) -> Value {
    let programmed = statuses.iter().all(|status| status.programmed);
    let why = match (programmed, &last_sync.error) {
        (true, _) => String::new(),
        (false, Some(error)) => format!("the rules could not be written: {error}"),
        (false, None) => "the rules are about to be written".to_owned(),
    };
    let problems = snapshot.problems.iter().filter(|problem| *problem.service == *name).map(|problem| &problem.what);
    let ports: Vec<Value> = statuses.iter().map(|status| port(status, shares, accounting)).collect();
    json!({"programmed": programmed, "why": why, "problems": problems.collect::<Vec<_>>(), "ports": ports})
}

fn port(status: &PortStatus, shares: Option<&StatsByPort<'_>>, accounting: bool) -> Value {
    let ServicePort { key, port, cluster, local, .. } = &*status.port;
    let frontend = |frontend: &Frontend| match frontend {
        Frontend::Address(ip, _, port) => SocketAddr::new(*ip, *port).to_string(),
        Frontend::NodePort(_, _, port) => format!("*:{port}"),
    };
    let mut planned: Vec<Backend> = cluster.iter().chain(local).copied().collect();
    planned.sort_unstable();
    planned.dedup();
    let stats = shares.map(|shares| shares.get(key).cloned().unwrap_or_default());
    let is_gone = |(backend, stats): &(&Backend, &FlowStats)| stats.connections > 0 && !planned.contains(backend);
    let gone: Vec<Backend> = stats.iter().flatten().filter(is_gone).map(|(backend, _)| *backend).collect();
    let all: Vec<Backend> = planned.iter().copied().chain(gone).collect();
    let backends: Vec<Value> = all
        .iter()
        .map(|backend| {
            let stats = stats.as_ref().map(|stats| stats.get(backend).copied().unwrap_or_default());
            json!({
                "address": SocketAddr::new(backend.ip, backend.port).to_string(),
                "local": local.contains(backend) || status.port.hairpin.contains(backend),
                "planned": planned.contains(backend),
                "connections": stats.map(|stats| stats.connections),
                "bytes": stats.filter(|_| accounting).map(|stats| stats.bytes),
            })
        })
        .collect();
    json!({
        "name": &*key.port, "protocol": key.protocol.as_str(), "family": key.family.as_str(), "port": port,
        "policy": status.port.balancing.policy().name(),
        "redirected": key.redirected.is_some(), "redirect": status.port.redirect.as_deref().map(redirect),
        "frontends": status.frontends.iter().map(frontend).collect::<Vec<_>>(), "backends": backends,
    })
}

/// Where a redirected port leads, so that a client can compute the same plan.
fn redirect(redirect: &Redirect) -> Value {
    let name = |name: &ServicePortName| json!({"service": &*name.service, "port": &*name.port});
    json!({
        "frontends": redirect.frontends.as_str(),
        "listener": redirect.listener.to_string(), "direct": redirect.direct.as_ref().map(name),
        "backends": redirect.backends.iter().map(name).collect::<Vec<_>>(),
    })
}

/// Connections and bytes per port and backend. Closed connections count with their bytes until the kernel deletes the
/// entry.
fn shares<'a>(snapshot: &'a Snapshot, flows: &[Counted]) -> StatsByPort<'a> {
    let owners: BTreeMap<Frontend, &PortKey> =
        snapshot.ports.iter().flat_map(|status| status.frontends.iter().map(|one| (*one, &status.port.key))).collect();
    let mut shares = StatsByPort::new();
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

/// Command line options, so that a client can compute the same plan.
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
