//! Keeps the Pod network in step with Nodes and ServiceCIDRs: Pod CIDRs of this node, bridge, and routes to the Pods of other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use api::value::ValueExt as _;
use client::watch::{Event, KnownKeys, Watch};
use ipnet::IpNet;
use kernel::pod_network::Route;
use kernel::sysctl::ledger_file::LedgerFile;
use kernel::sysctl::{self, Sysctl as _};
use serde_json::Value;
use tokio::sync::watch;

use super::pods::parse;
use super::routes::{Limits, NodeInfo, Refusal, routes};
use crate::machine::Machine;
use crate::{rules, sandbox};

/// Where original sysctl values are saved, for `waypost cleanup`.
const SAVED_SYSCTLS: &str = "/run/waypost/agent";

/// A reflector: the objects of one kind, reduced to the fields that the network needs.
struct Reflector<T> {
    watch: Watch,
    names: KnownKeys,
    objects: BTreeMap<String, T>,
    synced: bool,
}

impl<T: PartialEq> Reflector<T> {
    fn new(watch: Watch) -> Self {
        Self { watch, names: KnownKeys::default(), objects: BTreeMap::new(), synced: false }
    }

    /// Waits for the next event and applies it; true when something changed.
    async fn next(&mut self, read: impl Fn(&Value) -> T) -> bool {
        let event = self.watch.next().await;
        let mut changed = false;
        for key in self.names.apply(&event) {
            changed |= self.objects.remove(&*key).is_some();
        }
        match &event {
            Event::InitApply(object) | Event::Apply(object) => {
                if let Some(value) = parse(object) {
                    let new = read(&value);
                    changed |= self.objects.get(&object.key()) != Some(&new);
                    self.objects.insert(object.key(), new);
                }
            }
            Event::Delete(object) => changed |= self.objects.remove(&object.key()).is_some(),
            Event::InitDone => changed |= !std::mem::replace(&mut self.synced, true),
            Event::Init => {}
        }
        changed
    }
}

/// The CIDRs of a ServiceCIDR.
fn service_ranges(object: &Value) -> Vec<IpNet> {
    object.texts("spec.cidrs").into_iter().filter_map(|range| range.parse().ok()).collect()
}

/// Watches Nodes, and ServiceCIDRs, which no Node may use as Pod CIDR.
pub(super) async fn watch(
    machine: Arc<Machine>,
    nodes: Watch,
    services: Watch,
    ranges: watch::Sender<Vec<IpNet>>,
    ready: watch::Sender<bool>,
) {
    let (mut nodes, mut services) = (Reflector::new(nodes), Reflector::new(services));
    let mut refused = BTreeSet::new();
    loop {
        let changed = tokio::select! {
            changed = nodes.next(NodeInfo::read) => changed,
            changed = services.next(service_ranges) => changed,
        };
        // A server without the ServiceCIDR API never completes that list: Pods do not wait for it.
        if !nodes.synced || (!changed && *ready.borrow()) {
            continue;
        }
        let nodes = &nodes.objects;
        let own = nodes.get(&machine.settings.node).cloned().unwrap_or_default();
        if *ranges.borrow() != own.ranges && !own.ranges.is_empty() {
            ranges.send_replace(own.ranges.clone());
            let machine = machine.clone();
            let _ = tokio::task::spawn_blocking(move || prepare(&machine)).await;
        }
        let services: Vec<IpNet> = services.objects.values().flatten().copied().collect();
        let (own_name, cluster) = (&machine.settings.node, &machine.settings.cluster);
        let limits = Limits { own: own_name, cluster, services: &services, host: &machine.host };
        let (wanted, now_refused) = routes(nodes, &limits);
        for Refusal { node, range, why } in now_refused.difference(&refused) {
            tracing::warn!(%node, %range, %why, "refused pod CIDR of node");
        }
        refused = now_refused;
        let machine = machine.clone();
        let _ = tokio::task::spawn_blocking(move || set_routes(&machine, &wanted)).await;
        if !own.ranges.is_empty() {
            ready.send_replace(true);
        }
    }
}

fn set_routes(machine: &Machine, wanted: &BTreeSet<Route>) {
    match machine.network.lock().routes(wanted) {
        Ok(refused) => {
            for (route, errno) in refused {
                tracing::warn!(
                    to = %route.to, via = %route.via, %errno,
                    "cannot route to Pods of a node: it is not on a directly connected network"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "failed to sync routes to Pods of other nodes"),
    }
}

/// Creates the bridge, enables forwarding and writes the rules.
fn prepare(machine: &Machine) {
    let bridge = sandbox::bridge_of(machine);
    tracing::info!(bridge = bridge.name, addresses = ?bridge.addresses, "setting up the Pod network");
    if let Err(error) = enable_forwarding() {
        tracing::warn!(%error, "failed to enable forwarding of Pod traffic");
    }
    if let Err(error) = machine.network.lock().bridge(&bridge) {
        tracing::warn!(%error, "failed to create the Pod bridge");
    }
    let ports = sandbox::ports(machine);
    match machine.network.lock().guard(&ports) {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "source addresses of Pods are not checked: the kernel lacks nftables for bridges (CONFIG_NF_TABLES_BRIDGE)"
        ),
        Err(error) => tracing::warn!(%error, "failed to install the source address check; no Pod gets a network"),
    }
    if let Err(error) = rules::sync(machine) {
        tracing::warn!(%error, "failed to write masquerade and hostPort rules");
    }
}

/// Enables IP forwarding; original values are saved for `waypost cleanup`.
fn enable_forwarding() -> io::Result<()> {
    let mut kept = LedgerFile::open(Path::new(SAVED_SYSCTLS))?;
    let mut machine = sysctl::Linux;
    // With forwarding enabled the kernel ignores router advertisements unless accept_ra is 2.
    let forwards = machine.read("net/ipv6/conf/all/forwarding").is_ok_and(|value| value == "1");
    let links = std::fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
    for link in links.filter(|_| !forwards) {
        let name = format!("net/ipv6/conf/{}/accept_ra", link.file_name().to_string_lossy());
        if machine.read(&name).is_ok_and(|value| value == "1") && !name.contains("/all/") && !name.contains("/lo/") {
            let _ = kept.ledger.set(&mut machine, &name, "2");
        }
    }
    let v6 = kept.ledger.set(&mut machine, "net/ipv6/conf/all/forwarding", "1");
    let v4 = kept.ledger.set(&mut machine, "net/ipv4/ip_forward", "1");
    kept.save()?;
    // The host may have no IPv6.
    let _ = v6;
    v4.map(|_| ())
}

/// Restores sysctls; true when some had been changed.
///
/// # Errors
/// When one cannot be restored.
pub fn restore_sysctls() -> io::Result<bool> {
    let mut kept = LedgerFile::open(Path::new(SAVED_SYSCTLS))?;
    let found = !kept.ledger.changed.is_empty();
    let failures = kept.ledger.restore(&mut sysctl::Linux);
    kept.save()?;
    match failures.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(found),
    }
}
