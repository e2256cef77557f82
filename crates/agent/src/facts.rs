//! The observed state of a Pod on this node: sandbox, containers, probe results. Values only.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The observed state of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Its sandbox.
    pub sandbox: Sandbox,
    /// Containers by name, init containers included. A missing one was never started.
    pub containers: BTreeMap<String, Container>,
    /// Node addresses, the preferred one first.
    pub host: Vec<IpAddr>,
    /// When it was first seen here.
    pub started: Option<Timestamp>,
    /// Whether the Pod object was deleted.
    pub deleted: bool,
    /// Its ephemeral storage, as last measured.
    pub storage: StorageUsage,
    /// The message of its eviction, once it was decided: it is final, even if usage decreases before the status is written.
    pub evicted: Option<String>,
}

/// Ephemeral storage in use, in bytes. What was not measured is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageUsage {
    /// emptyDir volumes on disk.
    pub volumes: BTreeMap<String, u64>,
    /// Writable layer and logs of each container.
    pub containers: BTreeMap<String, u64>,
}

impl StorageUsage {
    /// The usage of the Pod.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.volumes.values().chain(self.containers.values()).fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The sandbox of a Pod: network namespace and whatever else its containers share.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sandbox {
    /// Not created yet.
    #[default]
    Absent,
    /// Being created.
    Creating,
    /// Created.
    Ready {
        /// The Pod's addresses.
        addresses: Vec<IpAddr>,
    },
    /// Creation or removal failed and is retried.
    Failed {
        /// Why.
        why: String,
        /// When it is retried.
        until: Timestamp,
    },
    /// Being removed.
    Removing,
    /// Removed.
    Removed,
}

/// A container of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// The restart count.
    pub restarts: u32,
    /// Backoff before the next restart, in seconds.
    pub backoff: u32,
    /// The state of the current instance.
    pub state: State,
    /// How the previous instance terminated.
    pub last: Option<Termination>,
    /// Results of probes and hooks.
    pub health: Health,
    /// The container ID.
    pub id: String,
    /// The image ID.
    pub image: String,
}

/// The state of a container.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum State {
    /// Never started.
    #[default]
    New,
    /// The start failed and is retried.
    StartFailed {
        /// The reason, in CamelCase.
        reason: String,
        /// The message.
        message: String,
        /// When it is retried.
        until: Timestamp,
    },
    /// Being started.
    Starting,
    /// Running.
    Running {
        /// The start time.
        since: Timestamp,
        /// The grace period of a stop that is under way, in seconds.
        stopping: Option<u32>,
    },
    /// Terminated.
    Terminated(Termination),
}

/// How a container terminated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Termination {
    /// The exit code.
    pub code: i32,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The message, or the termination message of the container.
    pub message: String,
    /// When it started.
    pub started: Option<Timestamp>,
    /// When it finished.
    pub finished: Timestamp,
    /// Its container ID.
    pub id: String,
}

/// Results of probes and hooks of a running container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Health {
    /// Whether the postStart hook has succeeded, or there is none.
    pub post_start_done: bool,
    /// Whether the startup probe has succeeded.
    pub started: bool,
    /// The result of the readiness probe.
    pub ready: bool,
    /// Why the container must be killed, if it must.
    pub kill_reason: Option<String>,
}

impl Container {
    /// Whether it may have a process.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        matches!(self.state, State::Starting | State::Running { .. })
    }

    /// How it terminated, if it did.
    #[must_use]
    pub fn ending(&self) -> Option<&Termination> {
        match &self.state {
            State::Terminated(ending) => Some(ending),
            _ => None,
        }
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }
}

impl Sandbox {
    /// The Pod IPs.
    #[must_use]
    pub fn addresses(&self) -> &[IpAddr] {
        match self {
            Self::Ready { addresses } => addresses,
            _ => &[],
        }
    }
}
