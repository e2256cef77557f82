//! Configuration of the agent.

use std::path::PathBuf;

use ipnet::IpNet;

/// Configuration of an agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of its Node.
    pub node: String,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The name of the bridge that connects Pods.
    pub bridge: String,
    /// The cluster domain.
    pub domain: String,
    /// The Pod CIDRs of the whole cluster (`--cluster-cidr`).
    pub cluster: Vec<IpNet>,
    /// The port of the agent's HTTPS endpoint (logs, exec, attach, port-forward).
    pub port: u16,
    /// The most Pods that this node accepts.
    pub max_pods: u32,
    /// The most processes of a container.
    pub max_processes: u64,
    /// Registries that are reached without TLS, besides those on loopback.
    pub insecure_registries: Vec<String>,
    /// The OCI runtime; by default the first of crun and runc on PATH.
    pub runtime: Option<PathBuf>,
    /// Where adopted workloads are discovered.
    pub adapters: Adapters,
    /// The path of this program, which is also the shim of containers.
    pub program: PathBuf,
}

/// Sources of adopted workloads; `None` disables a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapters {
    /// The API socket of podman.
    pub podman: Option<PathBuf>,
    /// The API socket of docker.
    pub docker: Option<PathBuf>,
    /// Names of systemd units; an empty list means all units with an `[X-Waypost]` section.
    pub systemd: Option<Vec<String>>,
    /// The `systemctl` program.
    pub systemctl: PathBuf,
}
