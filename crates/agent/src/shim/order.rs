//! What a supervisor is told, and what it says, as the files have it.

use std::path::PathBuf;

use jiff::Timestamp;
use kernel::process::Identity;
use serde::{Deserialize, Serialize};

/// A container that is to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The program, and as whom it runs.
    pub program: Program,
    /// By which runtime.
    pub how: How,
    /// Which image it has, for people.
    #[serde(default)]
    pub image: String,
    /// Whether somebody may write to it.
    pub stdin: bool,
    /// Whether its input ends with the first who wrote to it.
    pub stdin_once: bool,
    /// Its control group.
    pub group: String,
    /// Files of control groups for the supervisor itself.
    pub own_groups: Vec<PathBuf>,
    /// How likely it is killed when the machine has no more memory.
    pub oom_score: Option<i32>,
    /// Its log.
    pub log: PathBuf,
}

/// A program, and as whom it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// Where it stands.
    pub folder: PathBuf,
    /// Its user.
    pub user: Option<u32>,
    /// Its group.
    pub group: Option<u32>,
    /// Its other groups.
    pub groups: Option<Vec<u32>>,
    /// Whether it may not get more rights.
    pub no_new_privileges: bool,
    /// The rights that it may have at most, as bits.
    pub capabilities: Option<u64>,
    /// Its seccomp filter and flags, as [`kernel::seccomp::Filter`] has them; none when it may make every call.
    #[serde(default)]
    pub seccomp: Option<(Vec<u64>, u32)>,
    /// Whether it has a terminal.
    pub terminal: bool,
}

/// A runtime and what it needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum How {
    /// A program of this machine in namespaces of its own.
    Process {
        /// The file of its network namespace; none is the machine's.
        network: Option<PathBuf>,
        /// What it takes for the name of the machine.
        host_name: Option<String>,
        /// What is mounted for it.
        mounts: Vec<ViewMount>,
        /// What it does not see.
        hidden: Vec<PathBuf>,
        /// Files and folders of the kernel that look empty.
        #[serde(default)]
        masked: Vec<PathBuf>,
        /// Files and folders of the kernel that it cannot write.
        #[serde(default)]
        locked: Vec<PathBuf>,
        /// Whether it may write only its mounts.
        read_only: bool,
        /// An empty folder.
        staging: PathBuf,
        /// Whether it sees every device of the machine.
        all_devices: bool,
    },
    /// A bundle for a runtime of the Open Container Initiative.
    Oci {
        /// `crun` or `runc`.
        runtime: PathBuf,
        /// Where the runtime keeps its notes.
        state: PathBuf,
        /// The folder with `config.json`.
        bundle: PathBuf,
        /// What it calls the container.
        id: String,
        /// A mount of this machine whose sight the runtime does not stand.
        hidden: Option<PathBuf>,
    },
}

/// Something mounted for a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewMount {
    /// On the machine.
    pub source: PathBuf,
    /// In the container.
    pub target: PathBuf,
    /// Whether it may not be written.
    pub read_only: bool,
}

/// A container has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    shim: (i32, u64),
    process: (i32, u64),
    /// When.
    pub at: Timestamp,
}

impl Begun {
    pub(crate) fn new(shim: Identity, process: Identity, at: Timestamp) -> Self {
        Self { shim: (shim.pid, shim.began), process: (process.pid, process.began), at }
    }

    /// The supervisor.
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

/// A container has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// In one word.
    pub reason: String,
    /// In a sentence.
    pub message: String,
    /// When.
    pub finished: Timestamp,
}

impl Program {
    /// For the kernel.
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
