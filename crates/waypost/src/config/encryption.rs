//! Settings of encryption at rest, which a server and the tools of its store share.

use std::path::PathBuf;

use clap::Args;

/// How the store is encrypted.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct EncryptionArguments {
    /// Encrypt resources in the store's files according to this EncryptionConfiguration of Kubernetes; a running server reloads it
    #[arg(long, env = "WAYPOST_ENCRYPTION_PROVIDER_CONFIG", value_name = "FILE")]
    pub(crate) encryption_provider_config: Option<PathBuf>,
}
