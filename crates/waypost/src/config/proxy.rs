//! Settings of the proxy of a node.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use kernel::ipvs::Scheduler;

use super::values::{listen_address, scheduler, seconds};

/// Settings of the proxy of a node.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyArguments {
    /// The name of this node [default: the host name]
    #[arg(long, env = "WAYPOST_NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// The proxy mode
    #[arg(long, env = "WAYPOST_PROXY_MODE", default_value = "auto", value_name = "MODE")]
    pub(crate) proxy_mode: ProxyMode,
    /// Maximum number of proxied connections in the mode userspace [default: as many as the open-file limit allows]
    #[arg(long, env = "WAYPOST_PROXY_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) proxy_max_connections: Option<usize>,
    /// Idle timeout of a UDP session in the mode userspace, in seconds
    #[arg(long, env = "WAYPOST_UDP_TIMEOUT", default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) udp_timeout: Duration,
    /// Masquerade all traffic to cluster IPs
    #[arg(long, env = "WAYPOST_MASQUERADE_ALL")]
    pub(crate) masquerade_all: bool,
    /// Addresses of node ports: primary (the addresses of the Node object), all, localhost, or ranges [default: primary; in `up` all]
    #[arg(long, env = "WAYPOST_NODEPORT_ADDRESSES", value_delimiter = ',', value_name = "RANGES")]
    pub(crate) nodeport_addresses: Vec<String>,
    /// Listen address of /metrics and /proxyMode
    #[arg(long, env = "WAYPOST_METRICS_LISTEN", default_value = "127.0.0.1:10249", value_name = "IP:PORT")]
    pub(crate) metrics_listen: SocketAddr,
    /// Listen address of /healthz and /livez; without IP all addresses, so that load balancers can probe
    /// [default: :10256; in `up` 127.0.0.1:10256]
    #[arg(long, env = "WAYPOST_HEALTHZ_LISTEN", value_parser = listen_address, value_name = "[IP]:PORT")]
    pub(crate) healthz_listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) ipvs: IpvsArguments,
}

/// Settings of the proxy mode ipvs.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct IpvsArguments {
    /// The scheduler of the mode ipvs: rr, wrr, lc, wlc, lblc, lblcr, sh, dh, sed, nq or mh
    #[arg(long, env = "WAYPOST_IPVS_SCHEDULER", default_value = "rr", value_parser = scheduler, value_name = "NAME")]
    pub(crate) ipvs_scheduler: Scheduler,
    /// Do not answer ARP requests for Service addresses (mode ipvs, together with programs that announce them)
    #[arg(long, env = "WAYPOST_IPVS_STRICT_ARP")]
    pub(crate) ipvs_strict_arp: bool,
    /// Interval at which the IPVS rules are compared and repaired, in seconds
    #[arg(long, env = "WAYPOST_IPVS_SYNC_PERIOD", default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) ipvs_sync_period: Duration,
    /// IPVS timeout of idle TCP connections, in seconds; 0 leaves it unchanged
    #[arg(long, env = "WAYPOST_IPVS_TCP_TIMEOUT", default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ipvs_tcp_timeout: u32,
    /// IPVS timeout of TCP connections after a FIN, in seconds; 0 leaves it unchanged
    #[arg(long, env = "WAYPOST_IPVS_TCPFIN_TIMEOUT", default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ipvs_tcpfin_timeout: u32,
    /// IPVS timeout of idle UDP clients, in seconds; 0 leaves it unchanged
    #[arg(long, env = "WAYPOST_IPVS_UDP_TIMEOUT", default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ipvs_udp_timeout: u32,
}

/// Proxy modes.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProxyMode {
    /// The best available mode.
    Auto,
    /// Rules of nftables.
    Nftables,
    /// Rules of iptables.
    Iptables,
    /// Connections are proxied by this program.
    Userspace,
    /// IPVS; iptables where the kernel lacks it.
    Ipvs,
    /// No proxy.
    None,
}
