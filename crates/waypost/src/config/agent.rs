//! Arguments about Pods: the agent, its images, its supervisors, and cleanup.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AdoptArguments, DataDir};

/// Operations on images.
#[derive(Subcommand, Debug)]
pub(crate) enum ImageSubject {
    /// Import an image: an OCI layout or docker archive (a tar file, or unpacked), or a directory with a root filesystem
    Import {
        #[command(flatten)]
        place: DataDir,
        /// The archive or directory
        from: PathBuf,
        /// The name of the image, such as web:v1
        name: String,
    },
    /// Pull an image from its registry
    Pull {
        #[command(flatten)]
        place: DataDir,
        /// Its name, such as example.com/web:v1
        name: String,
        /// The user name for the registry; the password is read from standard input
        #[arg(long, requires = "password_stdin")]
        username: Option<String>,
        /// Read the password from standard input
        #[arg(long, requires = "username")]
        password_stdin: bool,
        /// A registry that is accessed without TLS; may be repeated. Registries on loopback always are
        #[arg(long, env = "WAYPOST_INSECURE_REGISTRY", value_delimiter = ',', value_name = "HOST:PORT")]
        insecure_registry: Vec<String>,
    },
    /// List images, their sizes, and the Pods that use them
    List {
        #[command(flatten)]
        place: DataDir,
    },
    /// Add a name to an image
    Tag {
        #[command(flatten)]
        place: DataDir,
        /// The existing name
        name: String,
        /// The new name
        other: String,
    },
    /// Remove a name, the image with its last name, and layers that no other image needs
    Remove {
        #[command(flatten)]
        place: DataDir,
        /// The name
        name: String,
    },
    /// Remove unused data: images without a name, layers without an image, abandoned downloads
    Prune {
        #[command(flatten)]
        place: DataDir,
        /// Also images that have a name but are used by no Pod
        #[arg(long)]
        all: bool,
    },
}

/// Operations of a supervisor.
#[derive(Subcommand, Debug)]
pub(crate) enum ShimSubject {
    /// Run the container of a directory
    Run {
        /// The directory with its configuration
        folder: PathBuf,
    },
    /// Run a command in a container
    Exec {
        /// The file with its configuration
        file: PathBuf,
    },
}

/// Settings of `cleanup`.
#[derive(Args, Debug, Clone)]
pub(crate) struct CleanupArguments {
    #[command(flatten)]
    pub(crate) place: DataDir,
    /// The bridge of Pods
    #[arg(long, env = "WAYPOST_POD_BRIDGE", default_value = "waypost0", value_name = "NAME")]
    pub(crate) pod_bridge: String,
}

/// Settings of the agent, which runs Pods.
#[derive(Args, Debug, Clone)]
pub(crate) struct AgentArguments {
    /// Run the Pods that are bound to this machine (`up`) [default: true as root]
    #[arg(long, env = "WAYPOST_WORKLOADS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) workloads: Option<bool>,
    /// The bridge of this machine's Pods
    #[arg(long, env = "WAYPOST_POD_BRIDGE", default_value = "waypost0", value_name = "NAME")]
    pub(crate) pod_bridge: String,
    /// Maximum number of Pods on this machine
    #[arg(long, env = "WAYPOST_MAX_PODS", default_value_t = 500, value_name = "N")]
    pub(crate) max_pods: u32,
    /// Maximum number of processes of a container
    #[arg(long, env = "WAYPOST_CONTAINER_PIDS_LIMIT", default_value_t = 4096, value_name = "N")]
    pub(crate) container_pids_limit: u64,
    /// A registry that is accessed without TLS, such as 10.0.0.7:5000; may be repeated. Registries on loopback always are
    #[arg(long, env = "WAYPOST_INSECURE_REGISTRY", value_delimiter = ',', value_name = "HOST:PORT")]
    pub(crate) insecure_registry: Vec<String>,
    /// The OCI runtime for containers of images: a name or a path [default: crun, or else runc]
    #[arg(long, env = "WAYPOST_OCI_RUNTIME", value_name = "PROGRAM")]
    pub(crate) oci_runtime: Option<PathBuf>,
    /// The port of the agent, for logs and commands in Pods
    #[arg(long, env = "WAYPOST_AGENT_PORT", default_value_t = 10250, value_name = "PORT")]
    pub(crate) agent_port: u16,
    #[command(flatten)]
    pub(crate) adopt: AdoptArguments,
}
