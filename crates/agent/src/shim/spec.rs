//! Files between the agent and a shim. Field and variant names are the on-disk format.

use std::path::PathBuf;

use jiff::Timestamp;
use kernel::process::Identity;
use serde::{Deserialize, Serialize};

/// The container that a shim runs (`order.json`).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShimSpec {
    /// The program and its credentials.
    pub program: Program,
    /// The runtime.
    pub how: RuntimeSpec,
    /// The image ID for the status.
    #[serde(default)]
    pub image: String,
    /// Whether stdin is open.
    pub stdin: bool,
    /// Whether stdin is closed after the first attach client.
    pub stdin_once: bool,
    /// Its control group.
    pub group: String,
    /// The `cgroup.procs` files of the control group of the shim itself.
    pub own_groups: Vec<PathBuf>,
    /// `oom_score_adj`.
    pub oom_score: Option<i32>,
    /// Its log.
    pub log: PathBuf,
}

/// A program and its credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// The working directory.
    pub folder: PathBuf,
    /// The UID.
    pub user: Option<u32>,
    /// The GID.
    pub group: Option<u32>,
    /// Supplementary groups.
    pub groups: Option<Vec<u32>>,
    /// `no_new_privs`.
    pub no_new_privileges: bool,
    /// The capability bounding set, as bits.
    pub capabilities: Option<u64>,
    /// The seccomp filter and flags of [`kernel::seccomp::Filter`]; `None` means no filter.
    #[serde(default)]
    pub seccomp: Option<(Vec<u64>, u32)>,
    /// Whether it has a controlling terminal.
    pub terminal: bool,
}

/// A runtime and its parameters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RuntimeSpec {
    /// A program of the host in its own namespaces.
    Process {
        /// The network namespace; `None` is the host's.
        network: Option<PathBuf>,
        /// The host name.
        host_name: Option<String>,
        /// Mounts.
        mounts: Vec<ViewMount>,
        /// Hidden directories.
        hidden: Vec<PathBuf>,
        /// Masked paths.
        #[serde(default)]
        masked: Vec<PathBuf>,
        /// Read-only paths.
        #[serde(default)]
        locked: Vec<PathBuf>,
        /// Whether the root file system is read-only.
        read_only: bool,
        /// An empty directory for the new root.
        staging: PathBuf,
        /// Whether all devices of the host are visible.
        all_devices: bool,
    },
    /// An OCI bundle.
    Oci {
        /// `crun` or `runc`.
        runtime: PathBuf,
        /// The state directory of the runtime (`--root`).
        state: PathBuf,
        /// The directory with `config.json`.
        bundle: PathBuf,
        /// The container ID.
        id: String,
        /// A cgroup mount of the host that is hidden from the runtime, which cannot handle two hierarchies.
        hidden: Option<PathBuf>,
    },
}

/// A bind mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMount {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the container.
    pub target: PathBuf,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// The start of a container (`begun.json`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    shim: (i32, u64),
    process: (i32, u64),
    /// The start time.
    pub at: Timestamp,
}

impl StartRecord {
    pub(crate) fn new(shim: Identity, process: Identity, at: Timestamp) -> Self {
        Self { shim: (shim.pid, shim.began), process: (process.pid, process.began), at }
    }

    /// The shim.
    #[must_use]
    pub const fn shim(&self) -> Identity {
        Identity { pid: self.shim.0, began: self.shim.1 }
    }

    /// The first process of the container.
    #[must_use]
    pub const fn process(&self) -> Identity {
        Identity { pid: self.process.0, began: self.process.1 }
    }
}

/// The exit of a container (`exit.json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The exit code; 128 + N for signal N.
    pub code: i32,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The exit time.
    pub finished: Timestamp,
}

impl Program {
    /// The type of the kernel crate.
    #[must_use]
    pub fn to_kernel(&self) -> kernel::process::Program {
        kernel::process::Program {
            words: self.words.iter().map(Into::into).collect(),
            environment: self.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            folder: self.folder.clone(),
            user: self.user,
            group: self.group,
            groups: self.groups.clone(),
            no_new_privileges: self.no_new_privileges,
            capabilities: self.capabilities,
            seccomp: self
                .seccomp
                .as_ref()
                .map(|(program, flags)| kernel::seccomp::Filter { program: program.clone(), flags: *flags }),
            terminal: self.terminal,
        }
    }
}

impl ViewMount {
    pub(super) fn to_kernel(&self) -> kernel::mounts::view::Mount {
        kernel::mounts::view::Mount {
            source: self.source.clone(),
            target: self.target.clone(),
            read_only: self.read_only,
        }
    }
}
