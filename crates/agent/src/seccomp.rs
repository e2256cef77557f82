//! Seccomp profiles of containers: which one, and what it means for a container on this machine.
//!
//! In: `securityContext.seccompProfile`, the capabilities of a container, and for `Localhost` a file below the directory of profiles. Out:
//! [`Resolved`], as `linux.seccomp` of `config.json` for a runtime of images and as a BPF filter for programs that we begin ourselves.

mod profile;

use std::io;
use std::path::{Component, Path};

use api::value::ValueExt as _;
use serde_json::Value;

pub(crate) use self::profile::{Host, Resolved};
use crate::files;
use crate::runtime::Refused;

/// The default profile, in the format of every other: of the same effect as those of containerd and Docker.
const DEFAULT: &str = include_str!("seccomp/default.json");

/// How long a profile may be, in bytes.
const LONGEST: usize = 1 << 20;

/// Which profile a container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice<'a> {
    /// Nothing was said.
    Unset,
    /// No filter.
    Unconfined,
    /// The default profile, by name.
    RuntimeDefault,
    /// A file below the directory of profiles.
    Localhost(&'a str),
}

/// The choice of a `seccompProfile`. A privileged container has none, whatever it says, as with containerd.
///
/// # Errors
/// When the type is unknown, or a file is missing where one is needed.
pub(crate) fn choose(said: &Value, privileged: bool) -> Result<Choice<'_>, Refused> {
    match said.text("type") {
        _ if privileged => Ok(Choice::Unconfined),
        "" => Ok(Choice::Unset),
        "Unconfined" => Ok(Choice::Unconfined),
        "RuntimeDefault" => Ok(Choice::RuntimeDefault),
        "Localhost" if said.text("localhostProfile").is_empty() => {
            Err(Refused::config("localhostProfile must be set if seccompProfile type is Localhost"))
        }
        "Localhost" => Ok(Choice::Localhost(said.text("localhostProfile"))),
        other => Err(Refused::config(format!(
            "seccompProfile type {other:?} is unknown: use RuntimeDefault, Localhost or Unconfined"
        ))),
    }
}

/// The default profile.
///
/// # Errors
/// Never: a test reads it.
pub(crate) fn default(host: &Host) -> Result<Resolved, Refused> {
    profile::resolve(DEFAULT.as_bytes(), host).map_err(|error| Refused::create(format!("default profile: {error}")))
}

/// A profile of the directory.
///
/// # Errors
/// When there is no such file below the directory, or it is no profile.
pub(crate) fn localhost(directory: &Path, name: &str, host: &Host) -> Result<Resolved, Refused> {
    let path = directory.join(name);
    let whole = |error: &dyn std::fmt::Display| {
        Refused::create(format!("cannot load seccomp profile {:?}: {error}", path.display().to_string()))
    };
    if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(Refused::config(format!(
            "localhostProfile {name:?} must be a relative path without `..`, below {}",
            directory.display()
        )));
    }
    let bytes = files::read_beneath(directory, Path::new(name), LONGEST).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => whole(&"no such file: put the profile there on this node"),
        io::ErrorKind::CrossesDevices => whole(&"a symbolic link leads out of the directory of profiles"),
        _ => whole(&error),
    })?;
    profile::resolve(&bytes, host).map_err(|error| whole(&error))
}

#[cfg(test)]
mod tests;
