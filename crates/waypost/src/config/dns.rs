//! Settings of the DNS server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// Settings of the DNS server.
#[derive(Args, Debug, Clone)]
pub(crate) struct DnsArguments {
    /// Listen addresses with ports, or none
    /// [default: 0.0.0.0:53; in `up` port 10053 of this machine's own address, to which the Service kube-dns forwards]
    #[arg(long, env = "WAYPOST_DNS_LISTEN", value_delimiter = ',', value_name = "IP:PORT,…")]
    pub(crate) dns_listen: Vec<String>,
    /// Upstream servers for other names: IP, IP:PORT or tls://IP#NAME; none: no upstream [default: those of /etc/resolv.conf]
    #[arg(long, env = "WAYPOST_DNS_UPSTREAM", value_delimiter = ',', value_name = "SERVERS")]
    pub(crate) dns_upstream: Vec<String>,
    /// Whether names of Pods are resolved: for all addresses, for those that a Pod has, or not at all
    #[arg(long, env = "WAYPOST_DNS_PODS", default_value = "insecure", value_name = "MODE")]
    pub(crate) dns_pods: DnsPods,
    /// Respond as CoreDNS does where it differs from the standards
    #[arg(long, env = "WAYPOST_DNS_QUIRKS", default_value = "none", value_name = "WHOSE")]
    pub(crate) dns_quirks: DnsQuirks,
    /// Read the DNS configuration from this Corefile; unsupported directives are rejected
    #[arg(long, env = "WAYPOST_COREFILE", value_name = "FILE")]
    pub(crate) corefile: Option<PathBuf>,
    /// Configure the resolver of this machine to query this server for names of the cluster (`up`); `waypost cleanup` undoes it
    #[arg(long, env = "WAYPOST_HOST_DNS")]
    pub(crate) host_dns: bool,
    /// Queries per second that one client may send, and its burst; as many again are refused, further ones dropped. 0: no limit; loopback has none
    #[arg(long, env = "WAYPOST_DNS_CLIENT_QPS", default_value_t = 20_000, value_name = "QPS")]
    pub(crate) dns_client_qps: u32,
    /// Forwarded queries per second of one client, 256 of which may be in flight; further ones are refused. 0: no limit; loopback has none
    #[arg(long, env = "WAYPOST_DNS_CLIENT_FORWARD_QPS", default_value_t = 1_000, value_name = "QPS")]
    pub(crate) dns_client_forward_qps: u32,
    /// Listen address of /ready and /health of the DNS server; with --corefile its `ready` and `health` apply instead
    #[arg(long, env = "WAYPOST_DNS_READY_LISTEN", default_value = "127.0.0.1:8181", value_name = "IP:PORT")]
    pub(crate) dns_ready_listen: SocketAddr,
    /// Listen address of /metrics of the DNS server; with --corefile its `prometheus` applies instead
    #[arg(long, env = "WAYPOST_DNS_METRICS_LISTEN", default_value = "127.0.0.1:9153", value_name = "IP:PORT")]
    pub(crate) dns_metrics_listen: SocketAddr,
}

/// Whether names of Pods are resolved.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DnsPods {
    /// Not at all.
    Disabled,
    /// For all addresses.
    Insecure,
    /// For those that a Pod has.
    Verified,
}

/// Whether deviations of CoreDNS from the standards are followed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DnsQuirks {
    /// Follow the standards.
    None,
    /// Respond as CoreDNS.
    Coredns,
}
