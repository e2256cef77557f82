//! Where the agent keeps what must outlive it.
//!
//! ```text
//! <data-dir>/agent/addresses.json                       which address belongs to which Pod
//! <data-dir>/agent/seccomp/                             profiles for `seccompProfile.localhostProfile`, put there by administrators
//! <data-dir>/agent/pods/UID/pod.json, sandbox.json      the Pod as last seen; its network
//!                          /netns, hosts, resolv.conf, volumes/NAME
//!                          /containers/NAME/state.json  how often it was begun, how it ended last
//!                          /containers/NAME/N/          the N-th instance: order, begun, exit, log
//! ```

use std::path::{Path, PathBuf};

/// The folder of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home(PathBuf);

/// The folder of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodHome(PathBuf);

impl Home {
    /// The one in a data directory.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self(data_dir.join("agent"))
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Which address belongs to whom.
    #[must_use]
    pub fn addresses(&self) -> PathBuf {
        self.0.join("addresses.json")
    }

    /// Where seccomp profiles of the administrator are.
    #[must_use]
    pub fn seccomp(&self) -> PathBuf {
        self.0.join("seccomp")
    }

    /// Where Pods are.
    #[must_use]
    pub fn pods(&self) -> PathBuf {
        self.0.join("pods")
    }

    /// The folder of a Pod.
    #[must_use]
    pub fn pod(&self, uid: &str) -> PodHome {
        PodHome(self.pods().join(uid))
    }

    /// The uids of Pods that have a folder.
    #[must_use]
    pub fn uids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.pods()).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

impl PodHome {
    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The Pod as it was last seen.
    #[must_use]
    pub fn pod(&self) -> PathBuf {
        self.0.join("pod.json")
    }

    /// Its network.
    #[must_use]
    pub fn sandbox(&self) -> PathBuf {
        self.0.join("sandbox.json")
    }

    /// The file of its network namespace.
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

    /// A volume.
    #[must_use]
    pub fn volume(&self, name: &str) -> PathBuf {
        self.0.join("volumes").join(name)
    }

    /// A container.
    #[must_use]
    pub fn container(&self, name: &str) -> PathBuf {
        self.0.join("containers").join(name)
    }

    /// What is known of a container.
    #[must_use]
    pub fn state(&self, name: &str) -> PathBuf {
        self.container(name).join("state.json")
    }

    /// An instance of a container.
    #[must_use]
    pub fn instance(&self, name: &str, number: u32) -> PathBuf {
        self.container(name).join(number.to_string())
    }

    /// The log of an instance.
    #[must_use]
    pub fn log(&self, name: &str, number: u32) -> PathBuf {
        self.container(name).join(format!("{number}.log"))
    }
}
