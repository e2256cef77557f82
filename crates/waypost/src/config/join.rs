//! Arguments about other machines: the address of the server, tokens, joining.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use cli::api_client::ApiFlags;

use super::values::lifetime;

/// How other machines reach the server.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct ReachedArguments {
    /// The address by which other machines reach the server [default: that of --listen; where that is every address, the first of this machine]
    #[arg(long, env = "WAYPOST_ADVERTISE_ADDRESS", value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// More names and addresses by which the server is reached, for its certificate
    #[arg(long, env = "WAYPOST_TLS_SAN", value_delimiter = ',', value_name = "NAMES")]
    pub(crate) tls_san: Vec<String>,
}

/// How a machine joins a cluster.
#[derive(Args, Debug, Clone)]
pub(crate) struct JoinArguments {
    /// Join the cluster of this server; the credentials are stored in the data directory, so that later starts need no token
    #[arg(long, env = "WAYPOST_JOIN", value_name = "HOST:PORT")]
    pub(crate) join: Option<String>,
    /// The bootstrap token with which this machine joins (`waypost token create`)
    #[arg(long, env = "WAYPOST_TOKEN", value_name = "TOKEN", hide_env_values = true, requires = "join")]
    pub(crate) token: Option<String>,
    /// A file that contains the token
    #[arg(long, env = "WAYPOST_TOKEN_FILE", value_name = "FILE", requires = "join", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// The hash of the CA's public key, sha256:HEX, as `waypost token create --print-join-command` prints it
    #[arg(long, env = "WAYPOST_CA_HASH", value_name = "HASH", requires = "join")]
    pub(crate) ca_hash: Option<String>,
    /// Trust the CA of the server without verification if it has no signature: a man in the middle could then impersonate it
    #[arg(long, env = "WAYPOST_UNSAFE_SKIP_CA_VERIFICATION", requires = "join")]
    pub(crate) unsafe_skip_ca_verification: bool,
}

/// Operations on bootstrap tokens.
#[derive(Subcommand, Debug)]
pub(crate) enum TokenSubject {
    /// Create a token with which machines join
    Create {
        #[command(flatten)]
        api: ApiFlags,
        /// How long it is valid, such as 24h; 0: without expiry
        #[arg(long, default_value = "24h", value_parser = lifetime, value_name = "DURATION")]
        ttl: std::time::Duration,
        /// A description
        #[arg(long, default_value = "", value_name = "TEXT")]
        description: String,
        /// Print the command with which a machine joins, instead of only the token
        #[arg(long)]
        print_join_command: bool,
    },
    /// List the tokens
    List {
        #[command(flatten)]
        api: ApiFlags,
    },
    /// Delete tokens: machines that have joined stay
    Delete {
        #[command(flatten)]
        api: ApiFlags,
        /// The IDs of the tokens, or the tokens themselves
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}
