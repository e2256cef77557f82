//! Settings of a server, and of its store.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use control::ClassCreation;
use ipnet::IpNet;

use api::admission::Plugin;
use api::gateway_api::Channel;

use super::values::{count, lifetime, port_range, seconds, token_lifetime};
use super::{
    AcmeArguments, AuditArguments, DataDir, EncryptionArguments, IngressArguments, LoadBalancerArguments,
    ReachedArguments,
};

/// Operations on a store.
#[derive(Subcommand, Debug)]
pub(crate) enum StoreSubject {
    /// Write all data of a stopped server's store into one file
    Backup {
        #[command(flatten)]
        place: StorePlace,
        /// The file to write
        file: PathBuf,
    },
    /// Create a store from a backup
    Restore {
        #[command(flatten)]
        place: StorePlace,
        /// The file to read
        file: PathBuf,
    },
    /// Read all data and report the contents, the encryption, and errors
    Check {
        #[command(flatten)]
        place: StorePlace,
    },
}

/// Where a store is, and how it is encrypted.
#[derive(Args, Debug, Clone)]
pub(crate) struct StorePlace {
    #[command(flatten)]
    pub(crate) place: DataDir,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArguments,
}

/// Settings of a server.
#[derive(Args, Debug, Clone)]
pub(crate) struct ServerArguments {
    #[command(flatten)]
    pub(crate) place: DataDir,
    /// Read settings from this YAML or JSON file: keys are flag names without leading dashes
    #[arg(long, env = "WAYPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The user of the API server when root starts it: a name, UID or UID:GID; by default `waypost` or 60643; `root`: as root
    #[arg(long, env = "WAYPOST_USER", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Listen address of the API
    #[arg(long, env = "WAYPOST_LISTEN", default_value = "127.0.0.1:6443", value_name = "IP:PORT")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) reached: ReachedArguments,
    /// Addresses for Services: one range, or one of each family, the preferred family first
    #[arg(
        long,
        env = "WAYPOST_SERVICE_CLUSTER_IP_RANGE",
        default_value = "10.96.0.0/16,fd00:10:96::/112",
        value_delimiter = ',',
        value_name = "CIDR,CIDR"
    )]
    pub(crate) service_cluster_ip_range: Vec<IpNet>,
    /// Node ports for Services
    #[arg(
        long,
        env = "WAYPOST_SERVICE_NODE_PORT_RANGE",
        default_value = "30000-32767",
        value_parser = port_range,
        value_name = "FIRST-LAST"
    )]
    pub(crate) service_node_port_range: RangeInclusive<u16>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub(crate) cluster_domain: String,
    /// Maximum number of endpoints in an EndpointSlice
    #[arg(
        long,
        env = "WAYPOST_MAX_ENDPOINTS_PER_SLICE",
        default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        value_name = "N"
    )]
    pub(crate) max_endpoints_per_slice: u16,
    /// Set conditions in the status of each Service; on in `up`, off in `server`
    #[arg(long, env = "WAYPOST_SERVICE_CONDITIONS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) service_conditions: Option<bool>,
    /// Addresses for Pods: one range, or one of each family
    #[arg(
        long,
        env = "WAYPOST_CLUSTER_CIDR",
        default_value = "10.244.0.0/16,fd00:10:244::/56",
        value_delimiter = ',',
        value_name = "CIDR,CIDR"
    )]
    pub(crate) cluster_cidr: Vec<IpNet>,
    /// Allocate a part of --cluster-cidr to each Node for its Pods; on in `up`, off in `server`
    #[arg(long, env = "WAYPOST_ALLOCATE_NODE_CIDRS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) allocate_node_cidrs: Option<bool>,
    /// Prefix length of a Node's part of the IPv4 range
    #[arg(
        long,
        env = "WAYPOST_NODE_CIDR_MASK_SIZE_IPV4",
        default_value = "24",
        value_parser = clap::value_parser!(u8).range(1..=32),
        value_name = "BITS"
    )]
    pub(crate) node_cidr_mask_size_ipv4: u8,
    /// Prefix length of a Node's part of the IPv6 range
    #[arg(
        long,
        env = "WAYPOST_NODE_CIDR_MASK_SIZE_IPV6",
        default_value = "64",
        value_parser = clap::value_parser!(u8).range(1..=128),
        value_name = "BITS"
    )]
    pub(crate) node_cidr_mask_size_ipv6: u8,
    /// Time without a heartbeat until a Node is considered lost, in seconds
    #[arg(
        long,
        env = "WAYPOST_NODE_MONITOR_GRACE_PERIOD",
        default_value = "50",
        value_parser = seconds,
        value_name = "SECONDS"
    )]
    pub(crate) node_monitor_grace_period: Duration,
    /// Maximum lifetime of certificates of nodes and of other requested certificates, such as 8760h
    #[arg(
        long,
        env = "WAYPOST_CLUSTER_SIGNING_DURATION",
        default_value = "8760h",
        value_parser = lifetime,
        value_name = "DURATION"
    )]
    pub(crate) cluster_signing_duration: Duration,
    /// The kinds of the Gateway API that the server installs: release channel, or none
    #[arg(long, env = "WAYPOST_GATEWAY_API", default_value = "standard", value_name = "CHANNEL")]
    pub(crate) gateway_api: GatewayApi,
    /// Create the GatewayClass waypost; on in `up`, off in `server`
    #[arg(long, env = "WAYPOST_GATEWAY_CLASS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) gateway_class: Option<bool>,
    /// Serve HTTPS listeners of Gateways and Ingresses over HTTP/3, too, at UDP ports with the same numbers
    #[arg(long, env = "WAYPOST_GATEWAY_HTTP3", num_args = 0..=1, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    pub(crate) gateway_http3: bool,
    /// Create the IngressClass waypost: true, false, or default to make it the default class; on in `up`, off in `server`
    #[arg(long, env = "WAYPOST_INGRESS_CLASS", num_args = 0..=1, default_missing_value = "true", value_name = "WHEN")]
    pub(crate) ingress_class: Option<IngressClassCreation>,
    /// Leader election: only one of several servers over one store runs the controllers
    #[arg(long, env = "WAYPOST_LEADER_ELECT", num_args = 0..=1, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    pub(crate) leader_elect: bool,
    /// Accept requests without credentials, as the user system:anonymous; false rejects them
    #[arg(long, env = "WAYPOST_ANONYMOUS_AUTH", num_args = 0..=1, default_missing_value = "true", default_value = "true", value_name = "BOOL")]
    pub(crate) anonymous_auth: bool,
    /// Admission plugins that run besides the default ones, by their names in Kubernetes
    #[arg(long, env = "WAYPOST_ENABLE_ADMISSION_PLUGINS", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<Plugin>,
    /// Admission plugins that do not run, by their names in Kubernetes
    #[arg(long, env = "WAYPOST_DISABLE_ADMISSION_PLUGINS", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<Plugin>,
    /// Bearer tokens: lines of `token,user,uid,"group1,group2"`
    #[arg(long, env = "WAYPOST_TOKEN_AUTH_FILE", value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// Maximum lifetime of tokens of ServiceAccounts, such as 48h; by default 24h
    #[arg(
        long,
        env = "WAYPOST_SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION",
        value_parser = token_lifetime,
        value_name = "DURATION"
    )]
    pub(crate) service_account_max_token_expiration: Option<i64>,
    /// Maximum number of connections to the API; also at most half of the open-file limit of the process
    #[arg(long, env = "WAYPOST_MAX_CONNECTIONS", default_value = "10000", value_parser = count, value_name = "N")]
    pub(crate) max_connections: usize,
    /// Maximum number of connections of one address (IPv6: one /64); those over loopback may be half of all
    #[arg(
        long,
        env = "WAYPOST_MAX_CONNECTIONS_PER_ADDRESS",
        default_value = "1000",
        value_parser = count,
        value_name = "N"
    )]
    pub(crate) max_connections_per_address: usize,
    /// Maximum number of concurrent requests, shared among kinds of users as by Kubernetes' priority levels; more are queued, and get a 429
    /// when the queues are full
    #[arg(long, env = "WAYPOST_MAX_REQUESTS_INFLIGHT", default_value_t = 400, value_name = "N")]
    pub(crate) max_requests_inflight: usize,
    /// Time limit of a request, in seconds; watches have their own limits
    #[arg(long, env = "WAYPOST_REQUEST_TIMEOUT", default_value = "60", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) request_timeout: Duration,
    #[command(flatten)]
    pub(crate) audit: AuditArguments,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArguments,
    #[command(flatten)]
    pub(crate) balancing: LoadBalancerArguments,
    #[command(flatten)]
    pub(crate) ingress: IngressArguments,
    #[command(flatten)]
    pub(crate) acme: AcmeArguments,
}

/// Whether the IngressClass `waypost` is created.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IngressClassCreation {
    /// It is not.
    False,
    /// It is.
    True,
    /// It is, as the default class unless there is one.
    Default,
}

impl IngressClassCreation {
    /// The setting of the controllers.
    pub(crate) const fn setting(self) -> ClassCreation {
        match self {
            Self::False => ClassCreation::Off,
            Self::True => ClassCreation::On,
            Self::Default => ClassCreation::Default,
        }
    }
}

/// Which kinds of the Gateway API are installed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GatewayApi {
    /// Stable kinds and fields.
    Standard,
    /// Also experimental ones.
    Experimental,
    /// No kinds; installed ones stay.
    None,
}

impl GatewayApi {
    /// The release channel.
    pub(crate) const fn channel(self) -> Option<Channel> {
        match self {
            Self::Standard => Some(Channel::Standard),
            Self::Experimental => Some(Channel::Experimental),
            Self::None => None,
        }
    }
}

impl ServerArguments {
    /// The files that the server reads, with their flags.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("--token-auth-file", self.token_auth_file.as_deref()),
            ("--audit-policy-file", self.audit.policy()),
            ("--encryption-provider-config", self.encryption.encryption_provider_config.as_deref()),
            ("--acme-ca-file", self.acme.file()),
        ];
        files.into_iter().filter_map(|(flag, path)| Some((flag, path?)))
    }

    /// Enables what is on by default in `up`, for a single machine.
    pub(crate) fn for_one_machine(mut self) -> Self {
        self.service_conditions.get_or_insert(true);
        self.allocate_node_cidrs.get_or_insert(true);
        self.gateway_class.get_or_insert(true);
        self.ingress_class.get_or_insert(IngressClassCreation::True);
        self.balancing.for_one_machine();
        self
    }
}
