//! Arguments: a flag wins over its environment variable, that over the `--config` file, that over the default.
//!
//! The file is read first and its values become the defaults of the flags of the same name, so there is one list of
//! settings, one parser and one set of messages.

mod agent;
mod join;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use ipnet::IpNet;
use kernel::ipvs::Scheduler;
use serde_json::Value;

pub(crate) use self::agent::{AgentArguments, CleanupArguments, ImageSubject, ShimSubject};
pub(crate) use self::join::{JoinArguments, ReachedArguments, TokenSubject};

/// The Kubernetes Service system in one binary.
#[derive(Parser, Debug)]
#[command(name = "waypost", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Subject,
    #[command(flatten)]
    pub(crate) log: LogArguments,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Subject {
    /// Run everything on this machine: a server, and the proxy that serves its Services
    Up(UpArguments),
    /// Run the API server and its controllers
    Server(ServerArguments),
    /// Serve Services on this machine, for any Kubernetes API
    Node(NodeArguments),
    /// Remove every kernel object that Waypost made on this machine, and end its Pods
    Cleanup(CleanupArguments),
    /// Show Services at work in a temporary directory, and leave nothing behind
    Demo,
    /// Print the variables that tell a container of the Services of its namespace
    Env(crate::commands::env::Arguments),
    /// Show how a name is resolved: the search path, the records, and the objects behind them
    Dig(crate::commands::dig::Arguments),
    /// Look after the embedded store
    #[command(subcommand)]
    Store(StoreSubject),
    /// Look after the tokens by which other machines join
    #[command(subcommand)]
    Token(TokenSubject),
    /// Look after the images of this machine's containers
    #[command(subcommand)]
    Image(ImageSubject),
    /// Supervise a container; the agent calls this
    #[command(hide = true, subcommand)]
    Shim(ShimSubject),
}

/// What to do with a store.
#[derive(Subcommand, Debug)]
pub(crate) enum StoreSubject {
    /// Write everything a stopped server's store holds into one file
    Backup {
        #[command(flatten)]
        place: Place,
        /// The file to write
        file: PathBuf,
    },
    /// Make a new store from a backup
    Restore {
        #[command(flatten)]
        place: Place,
        /// The file to read
        file: PathBuf,
    },
    /// Read everything and say what is there and what is wrong
    Check {
        #[command(flatten)]
        place: Place,
    },
}

/// Where data lives.
#[derive(Args, Debug, Clone)]
pub(crate) struct Place {
    /// Where data, certificates and the admin kubeconfig live
    #[arg(long, env = "WAYPOST_DATA_DIR", default_value = "/var/lib/waypost", value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
}

/// Settings of a server.
#[derive(Args, Debug, Clone)]
pub(crate) struct ServerArguments {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Read settings from this YAML or JSON file: keys are flag names without dashes in front
    #[arg(long, env = "WAYPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
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
    /// Bearer tokens: lines of `token,user,uid,"group1,group2"`
    #[arg(long, env = "WAYPOST_TOKEN_AUTH_FILE", value_name = "FILE")]
    pub(crate) token_auth_file: Option<PathBuf>,
    /// How many requests may be answered at once; more get a 429
    #[arg(long, env = "WAYPOST_MAX_REQUESTS_INFLIGHT", default_value_t = 400, value_name = "N")]
    pub(crate) max_requests_inflight: usize,
    /// How long a request may take, in seconds; watches have limits of their own
    #[arg(long, env = "WAYPOST_REQUEST_TIMEOUT", default_value = "60", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) request_timeout: Duration,
}

/// Settings of everything on one machine.
#[derive(Args, Debug, Clone)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    pub(crate) server: ServerArguments,
    #[command(flatten)]
    pub(crate) proxy: ProxyArguments,
    #[command(flatten)]
    pub(crate) dns: DnsArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

/// Settings of a node.
#[derive(Args, Debug, Clone)]
pub(crate) struct NodeArguments {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Read settings from this YAML or JSON file: keys are flag names without dashes in front
    #[arg(long, env = "WAYPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How to reach the API: a kubeconfig file
    #[arg(long, env = "KUBECONFIG", value_name = "FILE", required_unless_present = "join")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) join: JoinArguments,
    /// Addresses of Pods: traffic to cluster IPs from elsewhere is masqueraded
    #[arg(
        long,
        env = "WAYPOST_CLUSTER_CIDR",
        default_value = "10.244.0.0/16,fd00:10:244::/56",
        value_delimiter = ',',
        value_name = "CIDR,CIDR"
    )]
    pub(crate) cluster_cidr: Vec<IpNet>,
    /// What this machine does: serve Services (proxy), answer names (dns), run Pods (agent) [default: proxy; with --join proxy,agent]
    #[arg(long, env = "WAYPOST_ROLES", value_delimiter = ',', value_name = "ROLES")]
    roles: Vec<Role>,
    /// The domain of the cluster
    #[arg(long, env = "WAYPOST_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub(crate) cluster_domain: String,
    #[command(flatten)]
    pub(crate) proxy: ProxyArguments,
    #[command(flatten)]
    pub(crate) dns: DnsArguments,
    #[command(flatten)]
    pub(crate) agent: AgentArguments,
}

impl NodeArguments {
    /// Whether this machine does something.
    pub(crate) fn does(&self, role: Role) -> bool {
        match (&self.roles[..], &self.join.join) {
            ([], None) => role == Role::Proxy,
            ([], Some(_)) => [Role::Proxy, Role::Agent].contains(&role),
            (roles, _) => roles.contains(&role),
        }
    }
}

/// What a node does.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Serves Services.
    Proxy,
    /// Answers names.
    Dns,
    /// Runs Pods.
    Agent,
}

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

/// Settings of the proxy of a node.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyArguments {
    /// The name of this node [default: the host name]
    #[arg(long, env = "WAYPOST_NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// How Services are served
    #[arg(long, env = "WAYPOST_PROXY_MODE", default_value = "auto", value_name = "MODE")]
    pub(crate) proxy_mode: ProxyMode,
    /// How many connections this program carries at most in the mode userspace [default: as many as it may have files for]
    #[arg(long, env = "WAYPOST_PROXY_MAX_CONNECTIONS", value_name = "N")]
    pub(crate) proxy_max_connections: Option<usize>,
    /// How long a UDP session may be silent in the mode userspace, in seconds
    #[arg(long, env = "WAYPOST_UDP_TIMEOUT", default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) udp_timeout: Duration,
    /// Masquerade all traffic to cluster IPs
    #[arg(long, env = "WAYPOST_MASQUERADE_ALL")]
    pub(crate) masquerade_all: bool,
    /// Where node ports are served: primary (the addresses of the Node object), all, localhost, or ranges [default: primary; in `up` all]
    #[arg(long, env = "WAYPOST_NODEPORT_ADDRESSES", value_delimiter = ',', value_name = "RANGES")]
    pub(crate) nodeport_addresses: Vec<String>,
    /// Where /metrics and /proxyMode are
    #[arg(long, env = "WAYPOST_METRICS_LISTEN", default_value = "127.0.0.1:10249", value_name = "IP:PORT")]
    pub(crate) metrics_listen: SocketAddr,
    /// Where /healthz and /livez are
    #[arg(long, env = "WAYPOST_HEALTHZ_LISTEN", default_value = "127.0.0.1:10256", value_name = "IP:PORT")]
    pub(crate) healthz_listen: SocketAddr,
    #[command(flatten)]
    pub(crate) ipvs: IpvsArguments,
}

/// Settings of the proxy mode ipvs.
#[derive(Args, Debug, Clone, PartialEq, Eq)]
pub(crate) struct IpvsArguments {
    /// Who gets the next connection in the mode ipvs: rr, wrr, lc, wlc, lblc, lblcr, sh, dh, sed, nq or mh
    #[arg(long, env = "WAYPOST_IPVS_SCHEDULER", default_value = "rr", value_parser = scheduler, value_name = "NAME")]
    pub(crate) ipvs_scheduler: Scheduler,
    /// Do not answer neighbours who ask for Service addresses (mode ipvs, beside programs that announce those themselves)
    #[arg(long, env = "WAYPOST_IPVS_STRICT_ARP")]
    pub(crate) ipvs_strict_arp: bool,
    /// How often IPVS is read and set right, in seconds
    #[arg(long, env = "WAYPOST_IPVS_SYNC_PERIOD", default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    pub(crate) ipvs_sync_period: Duration,
    /// How long IPVS remembers silent TCP connections, in seconds; 0 leaves it as it is
    #[arg(long, env = "WAYPOST_IPVS_TCP_TIMEOUT", default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ipvs_tcp_timeout: u32,
    /// How long IPVS remembers TCP connections that one side has ended, in seconds; 0 leaves it as it is
    #[arg(long, env = "WAYPOST_IPVS_TCPFIN_TIMEOUT", default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ipvs_tcpfin_timeout: u32,
    /// How long IPVS remembers silent UDP clients, in seconds; 0 leaves it as it is
    #[arg(long, env = "WAYPOST_IPVS_UDP_TIMEOUT", default_value_t = 0, value_name = "SECONDS")]
    pub(crate) ipvs_udp_timeout: u32,
}

/// How Services are served.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProxyMode {
    /// As well as this machine can.
    Auto,
    /// By rules of nftables.
    Nftables,
    /// By rules of iptables.
    Iptables,
    /// By this program, which carries every connection.
    Userspace,
    /// By IPVS; by iptables where the kernel lacks it.
    Ipvs,
    /// Not at all.
    None,
}

impl Subject {
    /// What is logged unless it was said. Who asks one question wants the answer, not how it was found.
    pub(crate) const fn default_log(&self) -> &'static str {
        match self {
            Self::Env(_) | Self::Dig(_) | Self::Image(_) | Self::Token(_) => "warn",
            _ => "info",
        }
    }
}

impl ServerArguments {
    /// What `up` turns on unless it was turned off: whatever helps a person, and Kubernetes lacks.
    pub(crate) fn for_one_machine(mut self) -> Self {
        self.service_conditions.get_or_insert(true);
        self.allocate_node_cidrs.get_or_insert(true);
        self
    }
}

/// Settings of the log.
#[derive(Args, Debug, Clone)]
pub(crate) struct LogArguments {
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,rest=debug`
    /// [default: info; warn in `env` and `dig`]
    #[arg(long, global = true, env = "WAYPOST_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// Log more: once for debug, twice for trace
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Write the log as JSON lines
    #[arg(long, global = true, env = "WAYPOST_LOG_JSON")]
    pub(crate) log_json: bool,
}

/// Reads arguments, environment and configuration file.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = Arguments::command();
    if let Some(path) = config_path(&arguments) {
        command = with_file(command, &path)?;
    }
    Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// Reads the settings of the proxy again, as they are now in the configuration file.
pub(crate) fn proxy_again() -> anyhow::Result<ProxyArguments> {
    match parse(std::env::args_os())?.command {
        Subject::Up(arguments) => Ok(arguments.proxy),
        Subject::Node(arguments) => Ok(arguments.proxy),
        _ => anyhow::bail!("this command has no proxy"),
    }
}

/// Finds `--config` before everything else is read.
fn config_path(arguments: &[OsString]) -> Option<PathBuf> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let text = argument.to_string_lossy();
        if text == "--config" {
            return rest.next().map(PathBuf::from);
        }
        if let Some(path) = text.strip_prefix("--config=") {
            return Some(PathBuf::from(path));
        }
    }
    std::env::var_os("WAYPOST_CONFIG").map(PathBuf::from)
}

/// Makes the values of a file the defaults of the flags they name.
fn with_file(mut command: Command, path: &std::path::Path) -> Result<Command, clap::Error> {
    let refuse = |command: &mut Command, why: String| {
        command.error(ErrorKind::InvalidValue, format!("configuration file {}: {why}", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|error| refuse(&mut command, error.to_string()))?;
    let (value, repeated) = api::yaml::from_yaml(&bytes).map_err(|error| refuse(&mut command, error.to_string()))?;
    if let Some(first) = repeated.first() {
        return Err(refuse(&mut command, first.clone()));
    }
    let Value::Object(settings) = value else {
        return Err(refuse(&mut command, "expected `flag-name: value` lines".to_owned()));
    };
    for (key, value) in settings {
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Array(items) => items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(","),
            other => other.to_string(),
        };
        let known = command
            .get_subcommands()
            .flat_map(Command::get_arguments)
            .chain(command.get_arguments())
            .any(|argument| argument.get_long() == Some(&key) && key != "config");
        if !known {
            return Err(refuse(
                &mut command,
                format!("`{key}` is not a setting; settings are the flags of `waypost server --help`"),
            ));
        }
        command = with_default(command, &key, &text);
    }
    Ok(command)
}

fn with_default(mut command: Command, key: &str, text: &str) -> Command {
    // clap keeps defaults for the life of the program.
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    let id = key.replace('-', "_");
    let has = |command: &Command| command.get_arguments().any(|argument| argument.get_id() == id.as_str());
    if has(&command) {
        command = command.mut_arg(&id, |argument| argument.default_value(text));
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(name, |sub| {
            if has(&sub) { sub.mut_arg(&id, |argument| argument.default_value(text)) } else { sub }
        });
    }
    command
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').ok_or("expected FIRST-LAST, such as 30000-32767")?;
    let parse = |text: &str| text.trim().parse::<u16>().map_err(|_| format!("`{text}` is not a port number"));
    let (first, last) = (parse(first)?, parse(last)?);
    if first == 0 || first > last {
        return Err("the first port must be at least 1 and not above the last".to_owned());
    }
    Ok(first..=last)
}

fn scheduler(name: &str) -> Result<Scheduler, String> {
    let known = || Scheduler::ALL.map(Scheduler::name).join(", ");
    Scheduler::named(name).ok_or_else(|| format!("there is no scheduler of that name; choose one of {}", known()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().map(Duration::from_secs).map_err(|_| "expected a number of seconds, such as 60".to_owned())
}

/// A duration as Go writes it, such as 24h.
fn lifetime(text: &str) -> Result<Duration, String> {
    let nanoseconds = api::duration::parse(text)?;
    u64::try_from(nanoseconds).map(Duration::from_nanos).map_err(|_| "it must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn server(arguments: &[&str]) -> Result<ServerArguments, clap::Error> {
        let all = ["waypost", "server"].iter().chain(arguments).map(OsString::from);
        match parse(all)?.command {
            Subject::Server(arguments) => Ok(arguments),
            other => panic!("not a server: {other:?}"),
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        file
    }

    #[test]
    fn a_file_sets_what_no_flag_sets() {
        let file = file("listen: 127.0.0.1:1234\nservice-node-port-range: 31000-31999\n");
        let path = file.path().to_str().expect("a name");
        let arguments = server(&["--config", path, "--listen", "127.0.0.1:99"]).expect("good arguments");
        assert_eq!(arguments.listen.port(), 99);
        assert_eq!(arguments.service_node_port_range, 31000..=31999);
    }

    #[test]
    fn unknown_settings_are_named() {
        let file = file("lissten: 127.0.0.1:1234\n");
        let error = server(&["--config", file.path().to_str().expect("a name")]).expect_err("refused");
        assert!(error.to_string().contains("`lissten` is not a setting"), "{error}");
    }

    #[test]
    fn ranges_are_checked() {
        assert!(server(&["--service-node-port-range", "5-3"]).is_err());
        assert!(server(&["--service-cluster-ip-range", "10.0.0.0/33"]).is_err());
        let arguments = server(&[]).expect("defaults");
        assert_eq!(arguments.service_cluster_ip_range.len(), 2);
        assert_eq!(arguments.request_timeout, Duration::from_secs(60));
    }
}
