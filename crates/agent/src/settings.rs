//! What an agent is told.

use std::path::PathBuf;

use ipnet::IpNet;

use crate::adapters::Adapters;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of its Node.
    pub node: String,
    /// Where it keeps what must outlive it.
    pub data_dir: PathBuf,
    /// The name of the bridge.
    pub bridge: String,
    /// The domain of the cluster.
    pub domain: String,
    /// Addresses of Pods of the whole cluster.
    pub cluster: Vec<IpNet>,
    /// The port on which people look into Pods.
    pub port: u16,
    /// How many Pods this machine takes.
    pub max_pods: u32,
    /// How many processes a container may have.
    pub max_processes: u64,
    /// Registries that are spoken to without TLS, besides those on loopback.
    pub insecure_registries: Vec<String>,
    /// The program that runs bundles of images; crun or runc when nothing is said.
    pub runtime: Option<PathBuf>,
    /// Who is asked for what already runs.
    pub adapters: Adapters,
    /// This program, which is also the supervisor of containers.
    pub program: PathBuf,
}
