//! Paths below the data directory that must survive a restart of the agent.
//!
//! ```text
//! <data-dir>/agent/addresses.json                       Pod IPs by Pod UID
//! <data-dir>/agent/seccomp/                             profiles for `seccompProfile.localhostProfile`, installed by administrators
//! <data-dir>/agent/pods/UID/pod.json, sandbox.json      the Pod object as last seen; its network
//!                          /netns, hosts, resolv.conf, volumes/NAME
//!                          /containers/NAME/state.json  restart count, backoff, last termination
//!                          /containers/NAME/N/          instance N: order.json, begun.json, exit.json, attach
//! ```

use std::path::{Path, PathBuf};

/// The directory of the writable layer, below that of an instance.
pub const WRITABLE_LAYER: &str = "upper";

/// The agent's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDir(PathBuf);

/// The directory of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDir(PathBuf);

impl AgentDir {
    /// The agent's directory in a data directory.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join("agent"))
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The allocated Pod IPs.
    #[must_use]
    pub fn addresses(&self) -> PathBuf {
        self.0.join("addresses.json")
    }

    /// Seccomp profiles of the administrator.
    #[must_use]
    pub fn seccomp(&self) -> PathBuf {
        self.0.join("seccomp")
    }

    /// The parent of all Pod directories.
    #[must_use]
    pub fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// The directory of a Pod.
    #[must_use]
    pub fn pod(&self, uid: &str) -> PodDir {
        PodDir(self.pods().join(uid))
    }

    /// UIDs of Pods that have a directory.
    #[must_use]
    pub fn uids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.pods()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

impl PodDir {
    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The Pod object as last seen.
    #[must_use]
    pub fn pod(&self) -> PathBuf {
        self.0.join("pod.json")
    }

    /// The saved sandbox.
    #[must_use]
    pub fn sandbox(&self) -> PathBuf {
        self.0.join("sandbox.json")
    }

    /// The bind mount of its network namespace.
    #[must_use]
    pub fn netns(&self) -> PathBuf {
        self.0.join("netns")
    }

    /// Its `/etc/hosts`.
    #[must_use]
    pub fn hosts(&self) -> PathBuf {
        self.0.join("hosts")
    }

    /// Its `/etc/resolv.conf`.
    #[must_use]
    pub fn resolv_conf(&self) -> PathBuf {
        self.0.join("resolv.conf")
    }

    /// The directory of a volume.
    #[must_use]
    pub fn volume(&self, name: &str) -> PathBuf {
        self.0.join("volumes").join(name)
    }

    /// The directory of a container.
    #[must_use]
    pub fn container(&self, name: &str) -> PathBuf {
        self.0.join("containers").join(name)
    }

    /// The saved state of a container.
    #[must_use]
    pub fn state(&self, name: &str) -> PathBuf {
        self.container(name).join("state.json")
    }

    /// The directory of a container instance.
    #[must_use]
    pub fn instance(&self, name: &str, number: u32) -> PathBuf {
        self.container(name).join(number.to_string())
    }

    /// The writable layer of an instance: files that the container changed in its image.
    #[must_use]
    pub fn writable_layer(&self, name: &str, number: u32) -> PathBuf {
        self.instance(name, number).join(WRITABLE_LAYER)
    }

    /// The log file of an instance.
    #[must_use]
    pub fn log(&self, name: &str, number: u32) -> PathBuf {
        self.container(name).join(format!("{number}.log"))
    }
}
