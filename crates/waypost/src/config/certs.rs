//! Settings of `waypost certs`.

use clap::{Subcommand, ValueEnum};
use rest::pki::rotation::Target;

use super::DataDir;

/// Operations on keys and certificates.
#[derive(Subcommand, Debug)]
pub(crate) enum CertsSubject {
    /// List the keys and certificates of a server's data directory
    List {
        #[command(flatten)]
        place: DataDir,
        /// Output format
        #[arg(short, long, value_enum, default_value_t = CertsOutput::Table, value_name = "FORMAT")]
        output: CertsOutput,
    },
    /// Rotate keys and certificates; a running server reloads them, and accepts the old ones until `finish`
    Rotate {
        #[command(flatten)]
        place: DataDir,
        /// Which
        #[arg(value_enum, value_name = "WHICH")]
        target: CertsTarget,
    },
    /// Finish a rotation: the previous keys and certificates are no longer accepted
    Finish {
        #[command(flatten)]
        place: DataDir,
        /// Which
        #[arg(value_enum, value_name = "WHICH")]
        target: FinishTarget,
        /// Also when clients have not presented a certificate of the new CA yet
        #[arg(long)]
        force: bool,
    },
}

/// Output formats.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CertsOutput {
    /// Columns
    Table,
    /// A JSON array
    Json,
}

/// What can be rotated.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CertsTarget {
    /// The cluster CA; finish it once clients trust the new one
    Ca,
    /// The CA of agents' serving certificates; finish it once agents have new ones
    AgentCa,
    /// The server's serving certificate, and its client certificate for agents
    Serving,
    /// The signing key of ServiceAccount tokens; finish it, or wait until tokens of the previous key expire
    Signing,
    /// The administrator's certificate
    Admin,
    /// All of these
    All,
}

/// Rotations that can be finished.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FinishTarget {
    /// Stop trusting the previous cluster CA
    Ca,
    /// Stop trusting the previous CA of agents' serving certificates
    AgentCa,
    /// Reject ServiceAccount tokens of the previous keys
    Signing,
    /// All of these
    All,
}

impl CertsTarget {
    /// The targets to rotate.
    pub(crate) fn targets(self) -> Vec<Target> {
        match self {
            Self::Ca => vec![Target::Ca],
            Self::AgentCa => vec![Target::AgentCa],
            Self::Serving => vec![Target::Serving],
            Self::Signing => vec![Target::Signing],
            Self::Admin => vec![Target::Admin],
            Self::All => vec![Target::Ca, Target::AgentCa, Target::Serving, Target::Signing, Target::Admin],
        }
    }
}

impl FinishTarget {
    /// The targets to finish.
    pub(crate) fn targets(self) -> Vec<Target> {
        match self {
            Self::Ca => vec![Target::Ca],
            Self::AgentCa => vec![Target::AgentCa],
            Self::Signing => vec![Target::Signing],
            Self::All => vec![Target::Ca, Target::AgentCa, Target::Signing],
        }
    }
}
