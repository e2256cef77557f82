//! Settings of `waypost certs`.

use clap::{Subcommand, ValueEnum};
use rest::pki::rotation::Target;

use super::DataDir;

/// What to do with keys and certificates.
#[derive(Subcommand, Debug)]
pub(crate) enum CertsSubject {
    /// List the keys and certificates of a server's data directory
    List {
        #[command(flatten)]
        place: DataDir,
        /// How to print them
        #[arg(short, long, value_enum, default_value_t = CertsOutput::Table, value_name = "FORMAT")]
        output: CertsOutput,
    },
    /// Replace keys and certificates; a running server follows, and accepts what they replace until `finish`
    Rotate {
        #[command(flatten)]
        place: DataDir,
        /// Which
        #[arg(value_enum, value_name = "WHICH")]
        target: CertsTarget,
    },
    /// End a rotation: what was replaced is accepted no longer
    Finish {
        #[command(flatten)]
        place: DataDir,
        /// Which
        #[arg(value_enum, value_name = "WHICH")]
        target: FinishTarget,
        /// Also when clients have shown no certificate of the new CA yet
        #[arg(long)]
        force: bool,
    },
}

/// How a list is printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CertsOutput {
    /// Columns
    Table,
    /// A JSON array
    Json,
}

/// What can be replaced.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CertsTarget {
    /// The cluster CA; finish it once clients trust the new one
    Ca,
    /// The CA of agents' serving certificates; finish it once agents have new ones
    AgentCa,
    /// The server's serving certificate, and its client certificate before agents
    Serving,
    /// The key of ServiceAccount tokens; finish it, or tokens of the key before end by themselves
    Signing,
    /// The administrator's certificate
    Admin,
    /// All of these
    All,
}

/// What of it has an end of its own.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FinishTarget {
    /// Stop trusting the cluster CA before
    Ca,
    /// Stop trusting the CA before of agents' serving certificates
    AgentCa,
    /// Refuse ServiceAccount tokens of the keys before
    Signing,
    /// All of these
    All,
}

impl CertsTarget {
    /// What is replaced.
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
    /// What is given up.
    pub(crate) fn targets(self) -> Vec<Target> {
        match self {
            Self::Ca => vec![Target::Ca],
            Self::AgentCa => vec![Target::AgentCa],
            Self::Signing => vec![Target::Signing],
            Self::All => vec![Target::Ca, Target::AgentCa, Target::Signing],
        }
    }
}
