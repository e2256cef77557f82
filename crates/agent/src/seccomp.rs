//! Seccomp profiles of containers.
//!
//! In: `securityContext.seccompProfile`, the capabilities of a container, and for `Localhost` a file in the profile directory. Out: [`Resolved`], as
//! `linux.seccomp` of `config.json` for OCI runtimes and as a BPF filter for programs that the agent starts.

mod profile;

use std::io;
use std::path::{Component, Path};

use api::value::ValueExt as _;
use serde_json::Value;

pub(crate) use self::profile::{Host, Resolved};
use crate::container_error::ContainerError;
use crate::files;

/// The default profile; equivalent to those of containerd and Docker.
const DEFAULT: &str = include_str!("seccomp/default.json");

/// The largest profile, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The profile of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice<'a> {
    /// Not specified.
    Unset,
    /// No filter.
    Unconfined,
    /// The default profile.
    RuntimeDefault,
    /// A file in the profile directory.
    Localhost(&'a str),
}

/// Reads a `seccompProfile`. A privileged container is unconfined whatever it specifies, as with containerd.
///
/// # Errors
/// When the type is unknown, or `localhostProfile` is missing.
pub(crate) fn choose(said: &Value, privileged: bool) -> Result<Choice<'_>, ContainerError> {
    match said.text("type") {
        _ if privileged => Ok(Choice::Unconfined),
        "" => Ok(Choice::Unset),
        "Unconfined" => Ok(Choice::Unconfined),
        "RuntimeDefault" => Ok(Choice::RuntimeDefault),
        "Localhost" if said.text("localhostProfile").is_empty() => {
            Err(ContainerError::config("localhostProfile must be set if seccompProfile type is Localhost"))
        }
        "Localhost" => Ok(Choice::Localhost(said.text("localhostProfile"))),
        other => Err(ContainerError::config(format!(
            "seccompProfile type {other:?} is unknown: use RuntimeDefault, Localhost or Unconfined"
        ))),
    }
}

/// The default profile.
///
/// # Errors
/// Never: a test reads it.
pub(crate) fn default(host: &Host) -> Result<Resolved, ContainerError> {
    profile::resolve(DEFAULT.as_bytes(), host)
        .map_err(|error| ContainerError::create(format!("default profile: {error}")))
}

/// A profile of the directory.
///
/// # Errors
/// When there is no such file below the directory, or it is no profile.
pub(crate) fn localhost(directory: &Path, name: &str, host: &Host) -> Result<Resolved, ContainerError> {
    let path = directory.join(name);
    let whole = |error: &dyn std::fmt::Display| {
        ContainerError::create(format!("cannot load seccomp profile {:?}: {error}", path.display().to_string()))
    };
    if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(ContainerError::config(format!(
            "localhostProfile {name:?} must be a relative path without `..`, below {}",
            directory.display()
        )));
    }
    let bytes = files::read_beneath(directory, Path::new(name), MAX_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => whole(&"no such file: put the profile there on this node"),
        io::ErrorKind::CrossesDevices => whole(&"a symbolic link leads out of the directory of profiles"),
        _ => whole(&error),
    })?;
    profile::resolve(&bytes, host).map_err(|error| whole(&error))
}

#[cfg(test)]
mod tests;
