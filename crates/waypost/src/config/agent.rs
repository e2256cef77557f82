//! Arguments about Pods: the agent, its images, its supervisors, and what is removed of them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{AdoptArguments, DataDir};

/// What to do with images.
#[derive(Subcommand, Debug)]
pub(crate) enum ImageSubject {
    /// Bring an image here: an OCI layout or docker archive (a tar file, or unpacked), or a folder with the files of a root
    Import {
        #[command(flatten)]
        place: DataDir,
        /// The archive or folder
        from: PathBuf,
        /// What containers call it, such as web:v1
        name: String,
    },
    /// Bring an image here from its registry
    Pull {
        #[command(flatten)]
        place: DataDir,
        /// Its name, such as example.com/web:v1
        name: String,
        /// Who you are to the registry; the password is read from standard input
        #[arg(long, requires = "password_stdin")]
        username: Option<String>,
        /// Read the password from standard input
        #[arg(long, requires = "username")]
        password_stdin: bool,
        /// A registry that is spoken to without TLS; may be given several times. Loopback always is
        #[arg(long, env = "WAYPOST_INSECURE_REGISTRY", value_delimiter = ',', value_name = "HOST:PORT")]
        insecure_registry: Vec<String>,
    },
    /// Show which images there are, how large they are, and which Pods use them
    List {
        #[command(flatten)]
        place: DataDir,
    },
    /// Give an image another name
    Tag {
        #[command(flatten)]
        place: DataDir,
        /// The name it has
        name: String,
        /// The name it gets
        other: String,
    },
    /// Take a name away, and the image with its last name, and what no other image needs of it
    Remove {
        #[command(flatten)]
        place: DataDir,
        /// The name
        name: String,
    },
    /// Take away what nothing uses: images without a name, layers without an image, downloads that were given up
    Prune {
        #[command(flatten)]
        place: DataDir,
        /// Also images that have a name but no Pod
        #[arg(long)]
        all: bool,
    },
}

/// What a supervisor does.
#[derive(Subcommand, Debug)]
pub(crate) enum ShimSubject {
    /// Run the container of a folder
    Run {
        /// The folder with its order
        folder: PathBuf,
    },
    /// Run a command in a container
    Exec {
        /// The file with its order
        file: PathBuf,
    },
}

/// What is to be removed.
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
    /// Run the Pods that are bound to this machine (`up`) [default: true when this is root]
    #[arg(long, env = "WAYPOST_WORKLOADS", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) workloads: Option<bool>,
    /// The bridge of this machine's Pods
    #[arg(long, env = "WAYPOST_POD_BRIDGE", default_value = "waypost0", value_name = "NAME")]
    pub(crate) pod_bridge: String,
    /// How many Pods this machine takes
    #[arg(long, env = "WAYPOST_MAX_PODS", default_value_t = 500, value_name = "N")]
    pub(crate) max_pods: u32,
    /// How many processes a container may have
    #[arg(long, env = "WAYPOST_CONTAINER_PIDS_LIMIT", default_value_t = 4096, value_name = "N")]
    pub(crate) container_pids_limit: u64,
    /// A registry that is spoken to without TLS, such as 10.0.0.7:5000; may be given several times. Loopback always is
    #[arg(long, env = "WAYPOST_INSECURE_REGISTRY", value_delimiter = ',', value_name = "HOST:PORT")]
    pub(crate) insecure_registry: Vec<String>,
    /// The program that runs containers of images: a name or a path [default: crun, or else runc]
    #[arg(long, env = "WAYPOST_OCI_RUNTIME", value_name = "PROGRAM")]
    pub(crate) oci_runtime: Option<PathBuf>,
    /// The port on which logs and commands of Pods are served
    #[arg(long, env = "WAYPOST_AGENT_PORT", default_value_t = 10250, value_name = "PORT")]
    pub(crate) agent_port: u16,
    #[command(flatten)]
    pub(crate) adopt: AdoptArguments,
}
