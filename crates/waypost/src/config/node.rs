//! Settings of a node: its roles, and the API server.

use std::path::PathBuf;

use clap::Args;
use ipnet::IpNet;

use super::{
    AccessLogArguments, AgentArguments, DataDir, DnsArguments, IngressArguments, JoinArguments, ProxyArguments,
};

/// Settings of a node.
#[derive(Args, Debug, Clone)]
pub(crate) struct NodeArguments {
    #[command(flatten)]
    pub(crate) place: DataDir,
    /// Read settings from this YAML or JSON file: keys are flag names without leading dashes
    #[arg(long, env = "WAYPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How to reach the API: a kubeconfig file
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", required_unless_present = "join")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) join: JoinArguments,
    /// CIDRs of Pods: traffic to cluster IPs from elsewhere is masqueraded
    #[arg(
        long,
        env = "WAYPOST_CLUSTER_CIDR",
        default_value = "10.244.0.0/16,fd00:10:244::/56",
        value_delimiter = ',',
        value_name = "CIDR,CIDR"
    )]
    pub(crate) cluster_cidr: Vec<IpNet>,
    /// Roles of this machine: Service proxy (proxy), DNS server (dns), Pods (agent), announcer of load-balancer addresses (announce)
    /// [default: proxy; with --join proxy,agent,announce]
    #[arg(long, env = "WAYPOST_ROLES", value_delimiter = ',', value_name = "ROLES")]
    roles: Vec<Role>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub(crate) cluster_domain: String,
    #[command(flatten)]
    pub(crate) proxy: ProxyArguments,
    #[command(flatten)]
    pub(crate) ingress: IngressArguments,
    #[command(flatten)]
    pub(crate) access_log: AccessLogArguments,
    #[command(flatten)]
    pub(crate) dns: DnsArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

impl NodeArguments {
    /// Whether this machine has a role.
    pub(crate) fn does(&self, role: Role) -> bool {
        match (&self.roles[..], &self.join.join) {
            ([], None) => role == Role::Proxy,
            ([], Some(_)) => [Role::Proxy, Role::Agent, Role::Announce].contains(&role),
            (roles, _) => roles.contains(&role),
        }
    }
}

/// A role of a node.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The Service proxy.
    Proxy,
    /// The DNS server.
    Dns,
    /// The agent, which runs Pods.
    Agent,
    /// The announcer of load-balancer addresses.
    Announce,
}
