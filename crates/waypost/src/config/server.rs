//! Settings of a server, and of the store that it keeps.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use ipnet::IpNet;

use api::admission::Plugin;

use super::values::{count, lifetime, port_range, seconds, token_lifetime};
use super::{AuditArguments, DataDir, EncryptionArguments, LoadBalancerArguments, ReachedArguments};

/// What to do with a store.
#[derive(Subcommand, Debug)]
pub(crate) enum StoreSubject {
    /// Write everything a stopped server's store holds into one file
    Backup {
        #[command(flatten)]
        place: StorePlace,
        /// The file to write
        file: PathBuf,
    },
    /// Make a new store from a backup
    Restore {
        #[command(flatten)]
        place: StorePlace,
        /// The file to read
        file: PathBuf,
    },
    /// Read everything and say what is there, how it is encrypted, and what is wrong
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
    /// Read settings from this YAML or JSON file: keys are flag names without dashes in front
    #[arg(long, env = "WAYPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Who the API server runs as when root starts it: a name, UID or UID:GID; `waypost` or 60643 unless it is said, `root`: as root
    #[arg(long, env = "WAYPOST_USER", value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Where to serve the API
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
    /// How many endpoints an EndpointSlice holds at most
    #[arg(
        long,
        env = "WAYPOST_MAX_ENDPOINTS_PER_SLICE",
        default_value = "100",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        value_name = "N"
    )]
    pub(crate) max_endpoints_per_slice: u16,
    /// Say in the status of each Service what it has and what it lacks; on in `up`, off in `server`
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
    /// Give each Node a piece of --cluster-cidr for its Pods; on in `up`, off in `server`
    #[arg(long, env = "WAYPOST_ALLOCATE_NODE_CIDRS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) allocate_node_cidrs: Option<bool>,
    /// How long the prefix of a Node's piece of the IPv4 range is
    #[arg(
        long,
        env = "WAYPOST_NODE_CIDR_MASK_SIZE_IPV4",
        default_value = "24",
        value_parser = clap::value_parser!(u8).range(1..=32),
        value_name = "BITS"
    )]
    pub(crate) node_cidr_mask_size_ipv4: u8,
    /// How long the prefix of a Node's piece of the IPv6 range is
    #[arg(
        long,
        env = "WAYPOST_NODE_CIDR_MASK_SIZE_IPV6",
        default_value = "64",
        value_parser = clap::value_parser!(u8).range(1..=128),
        value_name = "BITS"
    )]
    pub(crate) node_cidr_mask_size_ipv6: u8,
    /// How long a Node may be silent before it counts as lost, in seconds
    #[arg(
        long,
        env = "WAYPOST_NODE_MONITOR_GRACE_PERIOD",
        default_value = "50",
        value_parser = seconds,
        value_name = "SECONDS"
    )]
    pub(crate) node_monitor_grace_period: Duration,
    /// How long certificates of nodes, and others that are asked for, are good at most, such as 8760h
    #[arg(
        long,
        env = "WAYPOST_CLUSTER_SIGNING_DURATION",
        default_value = "8760h",
        value_parser = lifetime,
        value_name = "DURATION"
    )]
    pub(crate) cluster_signing_duration: Duration,
    /// Let only one of several servers over one store run the controllers
    #[arg(long, env = "WAYPOST_LEADER_ELECT", num_args = 0..=1, default_missing_value = "true", default_value = "false", value_name = "BOOL")]
    pub(crate) leader_elect: bool,
    /// Answer requests without credentials, as the user system:anonymous; false refuses them
    #[arg(long, env = "WAYPOST_ANONYMOUS_AUTH", num_args = 0..=1, default_missing_value = "true", default_value = "true", value_name = "BOOL")]
    pub(crate) anonymous_auth: bool,
    /// Admission plugins that run besides the usual ones, by their names in Kubernetes
    #[arg(long, env = "WAYPOST_ENABLE_ADMISSION_PLUGINS", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<Plugin>,
    /// Admission plugins that do not run, by their names in Kubernetes
    #[arg(long, env = "WAYPOST_DISABLE_ADMISSION_PLUGINS", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<Plugin>,
    /// Bearer tokens: lines of `token,user,uid,"group1,group2"`
    #[arg(long, env = "WAYPOST_TOKEN_AUTH_FILE", value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// How long tokens of ServiceAccounts live at most, such as 48h; 24h unless it is said
    #[arg(
        long,
        env = "WAYPOST_SERVICE_ACCOUNT_MAX_TOKEN_EXPIRATION",
        value_parser = token_lifetime,
        value_name = "DURATION"
    )]
    pub(crate) service_account_max_token_expiration: Option<i64>,
    /// How many connections to the API may be open; also at most half of the files that the process may open
    #[arg(long, env = "WAYPOST_MAX_CONNECTIONS", default_value = "10000", value_parser = count, value_name = "N")]
    pub(crate) max_connections: usize,
    /// How many connections one address (IPv6: one /64) may have open; those of this machine by loopback may be half of all
    #[arg(
        long,
        env = "WAYPOST_MAX_CONNECTIONS_PER_ADDRESS",
        default_value = "1000",
        value_parser = count,
        value_name = "N"
    )]
    pub(crate) max_connections_per_address: usize,
    /// How many requests may be answered at once, shared among kinds of users as by Kubernetes' priority levels; more wait, and get a 429 when
    /// too many do
    #[arg(long, env = "WAYPOST_MAX_REQUESTS_INFLIGHT", default_value_t = 400, value_name = "N")]
    pub(crate) max_requests_inflight: usize,
    /// How long a request may take, in seconds; watches have limits of their own
    #[arg(long, env = "WAYPOST_REQUEST_TIMEOUT", default_value = "60", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) request_timeout: Duration,
    #[command(flatten)]
    pub(crate) audit: AuditArguments,
    #[command(flatten)]
    pub(crate) encryption: EncryptionArguments,
    #[command(flatten)]
    pub(crate) balancing: LoadBalancerArguments,
}

impl ServerArguments {
    /// The files that the server reads, with their flags.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let files = [
            ("--token-auth-file", self.token_auth_file.as_deref()),
            ("--audit-policy-file", self.audit.policy()),
            ("--encryption-provider-config", self.encryption.encryption_provider_config.as_deref()),
        ];
        files.into_iter().filter_map(|(flag, path)| Some((flag, path?)))
    }

    /// What `up` turns on unless it was turned off: whatever helps a person, and Kubernetes lacks.
    pub(crate) fn for_one_machine(mut self) -> Self {
        self.service_conditions.get_or_insert(true);
        self.allocate_node_cidrs.get_or_insert(true);
        self.balancing.for_one_machine();
        self
    }
}
