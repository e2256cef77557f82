//! Settings of the DNS server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Settings of the DNS server.
#[derive(Args, Debug, Clone)]
pub(crate) struct DnsArguments {
    /// Where names are answered: addresses with ports, or none [default: 0.0.0.0:53; in `up` port 10053 of this machine's own address, to which the Service kube-dns leads]
    #[arg(long, env = "WAYPOST_DNS_LISTEN", value_delimiter = ',', value_name = "IP:PORT,…")]
    pub(crate) dns_listen: Vec<String>,
    /// Whom to ask for other names: IP, IP:PORT or tls://IP#NAME; none asks nobody [default: those of /etc/resolv.conf]
    #[arg(long, env = "WAYPOST_DNS_UPSTREAM", value_delimiter = ',', value_name = "SERVERS")]
    pub(crate) dns_upstream: Vec<String>,
    /// Whether names of Pods are answered: for all addresses, for those that a Pod has, or not at all
    #[arg(long, env = "WAYPOST_DNS_PODS", default_value = "insecure", value_name = "MODE")]
    pub(crate) dns_pods: DnsPods,
    /// Answer as CoreDNS does where it differs from the standards
    #[arg(long, env = "WAYPOST_DNS_QUIRKS", default_value = "none", value_name = "WHOSE")]
    pub(crate) dns_quirks: DnsQuirks,
    /// Take everything about names from this Corefile; what is not understood in it is refused
    #[arg(long, env = "WAYPOST_COREFILE", value_name = "FILE")]
    pub(crate) corefile: Option<PathBuf>,
    /// Have the programs of this machine ask here for names of the cluster (`up`); `waypost cleanup` undoes it
    #[arg(long, env = "WAYPOST_HOST_DNS")]
    pub(crate) host_dns: bool,
    /// Queries per second that one client may send, and its burst; as many again are refused, further ones dropped. 0 is no limit; loopback has none
    #[arg(long, env = "WAYPOST_DNS_CLIENT_QPS", default_value_t = 20_000, value_name = "QPS")]
    pub(crate) dns_client_qps: u32,
    /// Queries per second of one client that upstreams have to answer, 256 of which may be in flight; further ones are refused. 0 is no limit; loopback has none
    #[arg(long, env = "WAYPOST_DNS_CLIENT_FORWARD_QPS", default_value_t = 1_000, value_name = "QPS")]
    pub(crate) dns_client_forward_qps: u32,
    /// Where /ready and /health of the DNS server are; with --corefile its `ready` and `health` say so
    #[arg(long, env = "WAYPOST_DNS_READY_LISTEN", default_value = "127.0.0.1:8181", value_name = "IP:PORT")]
    pub(crate) dns_ready_listen: SocketAddr,
    /// Where /metrics of the DNS server is; with --corefile its `prometheus` says so
    #[arg(long, env = "WAYPOST_DNS_METRICS_LISTEN", default_value = "127.0.0.1:9153", value_name = "IP:PORT")]
    pub(crate) dns_metrics_listen: SocketAddr,
}

/// Whether names of Pods are answered.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DnsPods {
    /// Not at all.
    Disabled,
    /// For all addresses.
    Insecure,
    /// For those that a Pod has.
    Verified,
}

/// Whose habits are followed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DnsQuirks {
    /// What the standards say.
    None,
    /// What CoreDNS answers.
    Coredns,
}
