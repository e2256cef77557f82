//! Container runtimes: each prepares the spec of the shim from a container's configuration.
//!
//! `process` runs a program of the host; `oci` runs an image with `crun` or `runc`. A container without an image, or with the image `host`, is a
//! process.

mod oci;
pub mod process;
pub(crate) mod program;
pub(crate) mod security;

use std::path::PathBuf;

use serde_json::Value;

use crate::container_error::ContainerError;
use crate::data_dir::PodDir;
use crate::images::is_host_image;
use crate::machine::Machine;
use crate::shim::{Program, RuntimeSpec, ViewMount};

/// A container to run.
pub struct ContainerConfig<'a> {
    /// Shared state of the agent.
    pub machine: &'a Machine,
    /// The Pod.
    pub pod: &'a Value,
    /// The container in its spec.
    pub container: &'a Value,
    /// The Pod's directory.
    pub pod_dir: &'a PodDir,
    /// The directory of this instance.
    pub instance: PathBuf,
    /// Environment variables, in order.
    pub environment: Vec<(String, String)>,
    /// Mounts.
    pub mounts: Vec<ViewMount>,
    /// The network namespace; `None` is the host's.
    pub network: Option<PathBuf>,
    /// The host name.
    pub host_name: Option<String>,
    /// Its control group.
    pub group: String,
}

/// A prepared container.
#[derive(Debug)]
pub struct Prepared {
    /// The program.
    pub program: Program,
    /// The runtime part of the shim's spec.
    pub how: RuntimeSpec,
    /// The image ID for the status.
    pub image: String,
}

/// A container runtime.
pub trait Runtime: Send + Sync {
    /// Prepares a container. Blocks.
    ///
    /// # Errors
    /// When the spec cannot be applied or an operation fails.
    fn prepare(&self, config: &ContainerConfig<'_>) -> Result<Prepared, ContainerError>;
}

/// The runtime for an image.
#[must_use]
pub fn of(image: &str) -> &'static dyn Runtime {
    if is_host_image(image) { &process::Process } else { &oci::Oci }
}
