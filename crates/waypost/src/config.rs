//! Arguments: a flag wins over its environment variable, that over the `--config` file, that over the default.
//!
//! The file is read first and its values become the defaults of the flags of the same name, so there is one list of
//! settings, one parser and one set of messages.

mod access_log;
mod acme;
mod adopt;
mod agent;
mod audit;
mod certs;
mod dns;
mod encryption;
mod file;
mod ingress;
mod join;
mod load_balancer;
mod log;
mod node;
mod proxy;
mod server;
mod up;
mod values;

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
pub(crate) use cli::kubeconfig::DataDir;

pub(crate) use self::access_log::AccessLogArguments;
pub(crate) use self::acme::AcmeArguments;
pub(crate) use self::adopt::AdoptArguments;
pub(crate) use self::agent::{AgentArguments, CleanupArguments, ImageSubject, ShimSubject};
pub(crate) use self::audit::AuditArguments;
pub(crate) use self::certs::{CertsOutput, CertsSubject};
pub(crate) use self::dns::{DnsArguments, DnsPods, DnsQuirks};
pub(crate) use self::encryption::EncryptionArguments;
pub(crate) use self::ingress::IngressArguments;
pub(crate) use self::join::{JoinArguments, ReachedArguments, TokenSubject};
pub(crate) use self::load_balancer::LoadBalancerArguments;
pub(crate) use self::log::LogArguments;
pub(crate) use self::node::{NodeArguments, Role};
pub(crate) use self::proxy::{ProxyArguments, ProxyMode};
pub(crate) use self::server::{IngressClassCreation, ServerArguments, StorePlace, StoreSubject};
pub(crate) use self::up::{DownArguments, UpArguments};
use crate::commands::version::VERSION;

/// The Kubernetes Service system in one binary.
#[derive(Parser, Debug)]
#[command(name = "waypost", version = VERSION, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Subject,
    #[command(flatten)]
    pub(crate) log: LogArguments,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub(crate) enum Subject {
    /// Run all components on this machine: the API server, controllers, and the proxy of its Services
    Up(Box<UpArguments>),
    /// Stop what `waypost up` started on this machine, and remove everything it created
    Down(DownArguments),
    /// Run the API server and its controllers
    Server(Box<ServerArguments>),
    /// Run this machine as a node of any Kubernetes API: Service proxy, optionally DNS server, agent, announcer
    Node(Box<NodeArguments>),
    /// Remove every kernel object that Waypost created on this machine, and stop its Pods
    Cleanup(CleanupArguments),
    /// Demonstrate Services on an isolated node, and remove everything afterwards
    Demo(crate::commands::demo::Arguments),
    /// Print the environment variables of a container for the Services of its namespace
    Env(cli::env::Arguments),
    /// Show how a DNS name is resolved: the search path, the records, and the objects behind them
    Dig(crate::commands::dig::Arguments),
    #[command(flatten)]
    Cli(Box<cli::verbs::Verb>),
    /// Diagnose a Service, and print the command that repairs it
    Doctor(crate::commands::doctor::Arguments),
    #[command(flatten)]
    Why(cli::why::Subject),
    /// Show Services in a browser: prints a link for a single login
    Page(cli::page::Arguments),
    /// Register a program that listens on this machine as an endpoint of Services
    Register(crate::commands::register::Arguments),
    /// Undo `register`
    Unregister(crate::commands::register::Removal),
    /// Back up, restore and check the embedded store
    #[command(subcommand)]
    Store(StoreSubject),
    /// List and rotate keys and certificates of a server
    #[command(subcommand)]
    Certs(CertsSubject),
    /// Manage the bootstrap tokens with which other machines join
    #[command(subcommand)]
    Token(TokenSubject),
    /// Manage the container images of this machine
    #[command(subcommand)]
    Image(ImageSubject),
    /// Print the version and the commit of this program
    Version(crate::commands::version::Arguments),
    /// Supervise a container; the agent calls this
    #[command(hide = true, subcommand)]
    Shim(ShimSubject),
}

impl Subject {
    /// The default log level: `info` for long-running commands, `warn` for others and for `up` on a terminal.
    pub(crate) fn default_log(&self) -> &'static str {
        match self {
            Self::Up(_) if std::io::stderr().is_terminal() => "warn",
            Self::Up(_) | Self::Server(_) | Self::Node(_) | Self::Down(_) | Self::Cleanup(_) | Self::Store(_) => "info",
            _ => "warn",
        }
    }

    /// The name of a long-running command, for spans; none for other commands.
    pub(crate) fn component(&self) -> Option<&'static str> {
        match self {
            Self::Up(_) if crate::commands::is_api_server_of_up() => Some("server"),
            Self::Up(_) => Some("up"),
            Self::Server(_) => Some("server"),
            Self::Node(_) => Some("node"),
            _ => None,
        }
    }
}

/// Reads arguments, environment and configuration file.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = up::presets(Arguments::command(), &arguments);
    if let Some(path) = file::path(&arguments) {
        command = file::read_into(command, &path)?;
    }
    Arguments::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// Reads the current settings of the proxy again, with the configuration file.
pub(crate) fn reload_proxy_arguments() -> anyhow::Result<ProxyArguments> {
    match parse(std::env::args_os())?.command {
        Subject::Up(arguments) => Ok(arguments.proxy),
        Subject::Node(arguments) => Ok(arguments.proxy),
        _ => anyhow::bail!("this command has no proxy"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use super::*;

    fn server(arguments: &[&str]) -> Result<ServerArguments, clap::Error> {
        let all = ["waypost", "server"].iter().chain(arguments).map(OsString::from);
        match parse(all)?.command {
            Subject::Server(arguments) => Ok(*arguments),
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

    #[test]
    fn arguments_of_all_commands_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_mode_of_the_audit_log_is_checked() {
        assert!(server(&["--audit-log-path", "-", "--audit-log-mode", "blocking-strict"]).is_ok());
        let error = server(&["--audit-log-mode", "strict"]).expect_err("refused");
        assert!(error.to_string().contains("allowed modes are batch, blocking, blocking-strict"), "{error}");
    }
}
