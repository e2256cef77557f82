//! Volumes of a Pod.
//!
//! In: the Pod and the objects it refers to. Out: a directory (or a host path) per volume. Files of ConfigMaps, Secrets, the downward API and tokens
//! are replaced atomically: they are in a directory that the link `..data` points to, and the link is replaced ([`payload`]).

pub mod payload;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use api::value::ValueExt as _;
use kernel::Errno;
use kernel::mounts::beneath::{self, Links};
use serde_json::Value;
use thiserror::Error;

use self::payload::Payload;
use crate::data_dir::PodDir;
use crate::environment::{ConfigError, Kind};
use crate::quantities::thousandths;

/// Why a volume cannot be set up.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// A source is missing.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : {why}")]
    Config {
        /// The volume.
        volume: String,
        /// The error.
        why: ConfigError,
    },
    /// The host path has another type than specified.
    #[error("MountVolume.SetUp failed for volume \"{volume}\" : hostPath type check failed: {path} is not a {wanted}")]
    HostPath {
        /// The volume.
        volume: String,
        /// The path on the host.
        path: String,
        /// The specified type.
        wanted: String,
    },
    /// The volume type is not supported.
    #[error(
        "volume \"{0}\" is of an unsupported type; supported are configMap, secret, downwardAPI, projected, emptyDir and hostPath"
    )]
    Unknown(String),
    /// A file system operation failed.
    #[error("volume \"{volume}\": {source}")]
    Disk {
        /// The volume.
        volume: String,
        /// The error.
        source: io::Error,
    },
}

/// The ConfigMaps and Secrets of a Pod's volumes.
#[must_use]
pub fn references(pod: &Value) -> Vec<(Kind, String)> {
    pod.items("spec.volumes").iter().flat_map(payload::references).collect()
}

/// Whether a volume has files that are updated from objects.
#[must_use]
pub fn is_updated(volume: &Value) -> bool {
    ["configMap", "secret", "downwardAPI", "projected"].iter().any(|kind| volume.has(kind))
}

/// Creates or updates every volume of a Pod.
///
/// # Errors
/// The first volume that failed.
pub fn prepare(
    pod: &Value,
    home: &PodDir,
    payloads: &BTreeMap<String, Result<Payload, ConfigError>>,
) -> Result<(), VolumeError> {
    let group = pod.at("spec.securityContext.fsGroup").as_u64().and_then(|group| u32::try_from(group).ok());
    for volume in pod.items("spec.volumes") {
        let name = volume.text("name");
        let failed = |source| VolumeError::Disk { volume: name.to_owned(), source };
        let folder = home.volume(name);
        if let Some(payload) = payloads.get(name) {
            let payload = payload.as_ref();
            let payload = payload.map_err(|why| VolumeError::Config { volume: name.to_owned(), why: why.clone() })?;
            in_memory(&folder, volume.has("secret") || volume.has("projected"), None).map_err(failed)?;
            payload::write(&folder, payload, group).map_err(failed)?;
        } else if volume.has("emptyDir") {
            let size = volume.at("emptyDir.sizeLimit").as_str().and_then(thousandths);
            let size = size.and_then(|size| u64::try_from(size / 1000).ok());
            in_memory(&folder, volume.text("emptyDir.medium") == "Memory", size).map_err(failed)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).map_err(failed)?;
            if let Some(group) = group {
                std::os::unix::fs::chown(&folder, None, Some(group)).map_err(failed)?;
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o2777)).map_err(failed)?;
            }
        } else if volume.has("hostPath") {
            host_path(volume).map_err(failed)??;
        } else {
            return Err(VolumeError::Unknown(name.to_owned()));
        }
    }
    Ok(())
}

/// Creates a directory, on tmpfs if `memory` is set; an existing one is kept.
fn in_memory(folder: &Path, memory: bool, size: Option<u64>) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    if memory { kernel::mounts::memory(folder, size, 0o755) } else { Ok(()) }
}

/// Checks or creates a host path by its type.
fn host_path(volume: &Value) -> io::Result<Result<(), VolumeError>> {
    let (path, wanted) = (volume.text("hostPath.path"), volume.text("hostPath.type"));
    let place = Path::new(path);
    match wanted {
        "DirectoryOrCreate" => fs::create_dir_all(place)?,
        "FileOrCreate" if !place.exists() => drop(fs::File::create(place)?),
        // Without a type, container runtimes create a missing directory.
        "" if !place.exists() => fs::create_dir_all(place)?,
        _ => {}
    }
    use std::os::unix::fs::FileTypeExt as _;
    let kind = fs::metadata(place).map(|meta| meta.file_type());
    let fits = match wanted {
        "" => kind.is_ok(),
        "Directory" | "DirectoryOrCreate" => kind.is_ok_and(|kind| kind.is_dir()),
        "File" | "FileOrCreate" => kind.is_ok_and(|kind| kind.is_file()),
        "Socket" => kind.is_ok_and(|kind| kind.is_socket()),
        "CharDevice" => kind.is_ok_and(|kind| kind.is_char_device()),
        "BlockDevice" => kind.is_ok_and(|kind| kind.is_block_device()),
        _ => false,
    };
    let volume = volume.text("name").to_owned();
    Ok(match fits {
        true => Ok(()),
        false => Err(VolumeError::HostPath { volume, path: path.to_owned(), wanted: wanted.to_lowercase() }),
    })
}

/// The source of a volume mount: the volume, or its `subPath`, which is bind-mounted at `place` first. A Pod can write neither the path of the
/// volume nor `place`, so runtimes may use the returned path.
///
/// # Errors
/// When there is no such volume, or the subPath contains a symbolic link or leaves the volume.
pub fn source(pod: &Value, home: &PodDir, mount: &Value, sub_path: &str, place: &Path) -> io::Result<PathBuf> {
    let name = mount.text("name");
    let volume = find(pod, name)
        .ok_or_else(|| io::Error::other(format!("volumeMounts names \"{name}\", which is not in spec.volumes")))?;
    let root = match volume.text("hostPath.path") {
        "" => home.volume(name),
        path => PathBuf::from(path),
    };
    if sub_path.is_empty() {
        return Ok(root);
    }
    // Files of objects are behind the agent's own links, which Pods cannot replace; elsewhere a link is untrusted.
    let links = if is_updated(volume) { Links::Followed } else { Links::Refused };
    let found = beneath::open(&root, Path::new(sub_path), links, !is_updated(volume));
    found.and_then(|found| beneath::mount(found, place)).map_err(|error| {
        let why = why_not(&error);
        io::Error::new(error.kind(), format!("subPath \"{sub_path}\" of volume \"{name}\" {why}"))
    })?;
    Ok(place.to_owned())
}

fn why_not(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP) => {
            "contains a symbolic link, which is not followed: name the file or directory itself".to_owned()
        }
        Some(Errno::XDEV) => "leads out of the volume".to_owned(),
        Some(Errno::INVAL) => "is not a relative path without \"..\"".to_owned(),
        Some(Errno::NOSYS) => "needs the system call openat2, of Linux 5.6 or newer".to_owned(),
        _ => format!("cannot be mounted: {error}"),
    }
}

/// The volume with this name.
fn find<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod.items("spec.volumes").iter().find(|volume| volume.text("name") == name)
}

/// Whether a mount is read-only. Volumes with files of objects always are: a container that replaced one of their links could choose what the
/// agent reads and deletes (CVE-2017-1002102).
#[must_use]
pub fn is_read_only(pod: &Value, mount: &Value) -> bool {
    mount.flag("readOnly") || find(pod, mount.text("name")).is_some_and(is_updated)
}
