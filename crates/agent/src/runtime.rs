//! Ways to run a container. Each turns a wish into an order for the supervisor, and tidies up after it.
//!
//! `process` runs a program of this machine; `oci` an image, by `crun` or `runc`. A container without an image, or with the image `host`,
//! is a process.

pub mod process;
pub(crate) mod program;
pub(crate) mod security;

use std::path::PathBuf;

use serde_json::Value;
use thiserror::Error;

use crate::home::PodHome;
use crate::machine::Machine;
use crate::shim::{How, Program, ViewMount};

/// What is to run.
pub struct Wish<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The Pod.
    pub pod: &'a Value,
    /// The container of its spec.
    pub container: &'a Value,
    /// The Pod's folder.
    pub home: &'a PodHome,
    /// The folder of this instance.
    pub instance: PathBuf,
    /// Its variables, in order.
    pub environment: Vec<(String, String)>,
    /// What is mounted for it.
    pub mounts: Vec<ViewMount>,
    /// The file of its network namespace; none is the machine's.
    pub network: Option<PathBuf>,
    /// What it takes for the name of the machine.
    pub host_name: Option<String>,
    /// Its control group.
    pub group: String,
}

/// What a runtime made of it.
#[derive(Debug)]
pub struct Made {
    /// The program.
    pub program: Program,
    /// For the supervisor.
    pub how: How,
    /// Which image it is, for people.
    pub image: String,
}

/// Why a container cannot be begun; the words are the original's where people know them.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct Refused {
    /// `CreateContainerConfigError`, `ErrImagePull`, …
    pub reason: &'static str,
    /// A sentence, with what to do next.
    pub message: String,
}

impl Refused {
    /// Something in the spec is not possible.
    pub(crate) fn config(message: impl std::fmt::Display) -> Self {
        Self { reason: "CreateContainerConfigError", message: format!("{message}") }
    }

    /// Something went wrong.
    pub(crate) fn create(message: impl std::fmt::Display) -> Self {
        Self { reason: "CreateContainerError", message: format!("{message}") }
    }
}

/// A way to run containers.
pub trait Runtime: Send + Sync {
    /// Makes ready what a container needs. Waits for the disk.
    ///
    /// # Errors
    /// Why it cannot be.
    fn prepare(&self, wish: &Wish<'_>) -> Result<Made, Refused>;
}

/// The runtime for an image.
#[must_use]
pub fn of(image: &str) -> &'static dyn Runtime {
    if is_process(image) { &process::Process } else { &crate::oci::Oci }
}

/// Whether an image means a program of this machine.
#[must_use]
pub fn is_process(image: &str) -> bool {
    matches!(image, "" | "host")
}
