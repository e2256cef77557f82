//! Wiring of the agent of a machine: watches and the kernel in, Pods out.
//!
//! `up` and `node` differ only in the source of objects.

mod clean;
mod serve;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use client::remote::Remote;
use client::requests::Requests;
use client::watch::Source;
use ipnet::IpNet;
use kernel::lock::Lock;
use kernel::pod_network;
use rest::pki::ServingNames;
use tokio::task::JoinSet;

pub(super) use self::clean::clean;
use super::{dns, privileges};
use crate::config::AgentArguments;

/// Name of the lock that only one agent per machine holds.
pub(super) const LOCK: &str = "waypost-agent";
/// This program, even after its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// Dependencies of the agent.
pub(super) struct Places<'a> {
    /// The source of objects.
    pub(super) source: Arc<dyn Source>,
    /// The client of the API.
    pub(super) remote: &'a Remote,
    /// Its data directory.
    pub(super) data_dir: &'a Path,
    /// The addresses of all Pods.
    pub(super) cluster: &'a [IpNet],
    /// The domain of the cluster.
    pub(super) domain: &'a str,
    /// The name of the node, if it is set.
    pub(super) node: Option<&'a str>,
    /// Its TLS settings; without them logs, exec and reports do not work.
    pub(super) tls: Option<::agent::serve::Tls>,
    /// Metrics of the agent; the proxy's `/metrics` shows them.
    pub(super) metrics: Arc<::agent::metrics::Metrics>,
    /// Reports of the proxy of this machine, if there is one.
    pub(super) reports: Option<Arc<dyn ::agent::serve::reports::Reports>>,
}

/// A running agent. Dropping it stops it and leaves its Pods running.
pub(super) struct Pods {
    agent: ::agent::agent::Agent,
    _serving: JoinSet<()>,
    _lock: Lock,
}

impl Pods {
    /// Waits until the agent is ready.
    pub(super) async fn ready(&self) {
        self.agent.ready().await;
    }
}

/// Starts the agent, if this process has the privileges and `--workloads` is not false.
pub(super) async fn for_one_machine(places: &Places<'_>, arguments: &AgentArguments) -> anyhow::Result<Option<Pods>> {
    match (arguments.workloads, may_run_pods()) {
        (Some(false), _) | (None, false) if arguments.adopt.flag().is_some() => {
            let flag = arguments.adopt.flag().unwrap_or_default();
            bail!("{flag} is for the agent, which takes root and is switched off by --workloads=false")
        }
        (Some(false), _) => Ok(None),
        (None, false) => {
            tracing::info!(
                "Pods are not run: that takes root; run this as root, or name other machines with `waypost node`"
            );
            Ok(None)
        }
        (Some(true), false) => bail!("--workloads: running Pods takes root"),
        (_, true) => start(places, arguments).await.map(Some),
    }
}

/// Whether the agent is enabled.
pub(super) fn is_wanted(arguments: &AgentArguments) -> bool {
    arguments.workloads.unwrap_or(true) && may_run_pods()
}

/// Whether the process has the privileges to run Pods.
pub(super) fn may_run_pods() -> bool {
    use rustix::thread::CapabilitySet;
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|have| have.effective.contains(wanted))
}

/// Starts the agent.
pub(super) async fn start(places: &Places<'_>, arguments: &AgentArguments) -> anyhow::Result<Pods> {
    let Some(lock) = Lock::take(LOCK)? else {
        bail!("another waypost runs Pods on this machine; stop it first, or leave Pods to it with --workloads=false");
    };
    let data_dir = std::path::absolute(places.data_dir).context("finding the data directory")?;
    std::fs::create_dir_all(&data_dir)
        .with_context(|| format!("creating the data directory {}", data_dir.display()))?;
    privileges::data_dir::is_of_root(&data_dir)?;
    let settings = ::agent::settings::Settings {
        node: node_name(places.node),
        data_dir,
        bridge: arguments.pod_bridge.clone(),
        domain: places.domain.to_owned(),
        cluster: places.cluster.to_vec(),
        port: arguments.agent_port,
        max_pods: arguments.max_pods,
        max_processes: arguments.container_pids_limit,
        insecure_registries: arguments.insecure_registry.clone(),
        runtime: arguments.oci_runtime.clone(),
        adapters: arguments.adopt.adapters(),
        program: PathBuf::from(PROGRAM),
    };
    let tools = ::agent::agent::Tools {
        api: Arc::new(Requests::new(places.remote.clone())),
        network: Box::new(pod_network::linux::Linux::open().context("opening the network of Pods")?),
        metrics: places.metrics.clone(),
        host: own_addresses(),
    };
    let agent =
        ::agent::agent::Agent::start(settings, places.source.clone(), tools).await.context("starting the agent")?;
    let mut serving = JoinSet::new();
    if let Some(tls) = &places.tls {
        match serve::open(arguments.agent_port, tls, agent.workloads()).await {
            Ok(listening) => {
                let listening = match &places.reports {
                    Some(reports) => listening.with_reports(reports.clone()),
                    None => listening,
                };
                serving.spawn(listening.run(std::future::pending()));
            }
            Err(error) => tracing::warn!("{error:#}; logs, exec, attach and port-forward will not work"),
        }
    }
    Ok(Pods { agent, _serving: serving, _lock: lock })
}

/// The names of the agent of this machine in its serving certificate.
pub(super) fn serving_names() -> ServingNames {
    let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    ServingNames { ips: own_addresses().into_iter().chain(loopback).collect(), dns: vec![host_name()] }
}

/// The addresses of the agent of this machine in its serving certificate.
pub(super) fn serving_ips() -> Vec<IpAddr> {
    own_addresses()
}

/// The name of the Node of this machine.
pub(super) fn node_name(said: Option<&str>) -> String {
    said.map_or_else(host_name, str::to_owned)
}

/// The host name, the default name of the Node.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

/// The addresses of this machine.
pub(super) fn own_addresses() -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = dns::own_addresses().iter().map(std::net::SocketAddr::ip).collect();
    all.sort_by_key(|ip| !ip.is_ipv4());
    all
}
