//! Arguments: a flag wins over its environment variable, that over the `--config` file, that over the default.
//!
//! The file is read first and its values become the defaults of the flags of the same name, so there is one list of
//! settings, one parser and one set of messages.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use ipnet::IpNet;
use serde_json::Value;

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
    /// Remove every kernel object that Waypost made on this machine
    Cleanup,
    /// Show Services at work in a temporary directory, and leave nothing behind
    Demo,
    /// Look after the embedded store
    #[command(subcommand)]
    Store(StoreSubject),
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
}

/// Settings of a node.
#[derive(Args, Debug, Clone)]
pub(crate) struct NodeArguments {
    /// Read settings from this YAML or JSON file: keys are flag names without dashes in front
    #[arg(long, env = "WAYPOST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How to reach the API: a kubeconfig file
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: PathBuf,
    /// Addresses of Pods: traffic to cluster IPs from elsewhere is masqueraded
    #[arg(
        long,
        env = "WAYPOST_CLUSTER_CIDR",
        default_value = "10.244.0.0/16,fd00:10:244::/56",
        value_delimiter = ',',
        value_name = "CIDR,CIDR"
    )]
    pub(crate) cluster_cidr: Vec<IpNet>,
    #[command(flatten)]
    pub(crate) proxy: ProxyArguments,
}

/// Settings of the proxy of a node.
#[derive(Args, Debug, Clone)]
pub(crate) struct ProxyArguments {
    /// The name of this node [default: the host name]
    #[arg(long, env = "WAYPOST_NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// How Services are served: auto, nftables or none
    #[arg(long, env = "WAYPOST_PROXY_MODE", default_value = "auto", value_name = "MODE")]
    pub(crate) proxy_mode: ProxyMode,
    /// Masquerade all traffic to cluster IPs
    #[arg(long, env = "WAYPOST_MASQUERADE_ALL")]
    pub(crate) masquerade_all: bool,
    /// Where node ports are served: primary (the addresses of the Node object), all, or ranges [default: primary; in `up` all]
    #[arg(long, env = "WAYPOST_NODEPORT_ADDRESSES", value_delimiter = ',', value_name = "RANGES")]
    pub(crate) nodeport_addresses: Vec<String>,
    /// Where /metrics and /proxyMode are
    #[arg(long, env = "WAYPOST_METRICS_LISTEN", default_value = "127.0.0.1:10249", value_name = "IP:PORT")]
    pub(crate) metrics_listen: SocketAddr,
    /// Where /healthz and /livez are
    #[arg(long, env = "WAYPOST_HEALTHZ_LISTEN", default_value = "127.0.0.1:10256", value_name = "IP:PORT")]
    pub(crate) healthz_listen: SocketAddr,
}

/// How Services are served.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProxyMode {
    /// As well as this machine can.
    Auto,
    /// By rules of nftables.
    Nftables,
    /// Not at all.
    None,
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
    #[arg(long, global = true, env = "WAYPOST_LOG", default_value = "info", value_name = "FILTER")]
    pub(crate) log: String,
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

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().map(Duration::from_secs).map_err(|_| "expected a number of seconds, such as 60".to_owned())
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
