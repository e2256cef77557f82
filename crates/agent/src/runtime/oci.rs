//! Runs images with `crun` or `runc`: prepares an overlay root file system and `config.json`.

mod config;
mod user;

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use api::value::ValueExt as _;
use serde_json::Value;

use crate::container_error::ContainerError;
use crate::data_dir::WRITABLE_LAYER;
use crate::files;
use crate::images::Image;
use crate::runtime::program::{Defaults, capability_bits, program};
use crate::runtime::security::{DEFAULT_CAPABILITIES, Security};
use crate::runtime::{ContainerConfig, Prepared, Runtime};
use crate::shim::{Program, RuntimeSpec};

/// Known OCI runtimes, the preferred one first.
const RUNTIMES: [&str; 2] = ["crun", "runc"];

/// Mount options are limited to one page: the paths of many layers are shortened through `/proc/self/fd`.
const MAX_OPTIONS: usize = 3000;

/// The runtime.
pub(super) struct Oci;

impl Runtime for Oci {
    fn prepare(&self, config: &ContainerConfig<'_>) -> Result<Prepared, ContainerError> {
        let name = config.container.text("image");
        // Prevents garbage collection of the layers until the root is mounted; then the image is in use.
        let _held = config.machine.images.hold().map_err(ContainerError::create)?;
        let image = config.machine.images.find(name).map_err(ContainerError::create)?;
        let runtime = runtime(config.machine.settings.runtime.as_deref())?;
        let rootfs = root(config, &image)
            .map_err(|error| ContainerError::create(format!("mounting the root file system: {error}")))?;
        let defaults = defaults(&image, &rootfs, config.container);
        let secured = defaults.and_then(|defaults| secured(config, &defaults)).inspect_err(|_| {
            // A mounted directory cannot be removed and would block the next attempt.
            let _ = kernel::mounts::detach(&rootfs);
        });
        let (mut program, security) = secured?;
        if program.folder.as_os_str().is_empty() {
            program.folder = "/".into();
        }
        let document = config::config(config, &program, &security, &rootfs);
        files::put(&config.instance.join("config.json"), &document).map_err(ContainerError::create)?;
        let id = format!("{}-{}", config.pod.text("metadata.uid"), config.container.text("name"));
        let how = RuntimeSpec::Oci {
            hidden: config.machine.groups.second(),
            runtime,
            state: config.machine.settings.data_dir.join("agent/oci"),
            bundle: config.instance.clone(),
            id,
        };
        Ok(Prepared { program, how, image: image.exact })
    }
}

/// The program of a container with its security settings. The OCI runtime applies `config.json` to the first process; the agent starts further
/// commands (probes, hooks, `kubectl exec`) with the settings of the program.
fn secured(config: &ContainerConfig<'_>, defaults: &Defaults) -> Result<(Program, Security), ContainerError> {
    let mut program = program(config, defaults)?;
    let security = Security::of(config, capability_bits(&DEFAULT_CAPABILITIES))?;
    security.apply(&mut program)?;
    Ok((program, security))
}

/// The configured OCI runtime, or the first known one on PATH.
fn runtime(named: Option<&Path>) -> Result<PathBuf, ContainerError> {
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    let folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    // An absolute path is not changed by join.
    let find = |name: &Path| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let found = match named {
        Some(name) => find(name),
        None => RUNTIMES.iter().find_map(|name| find(Path::new(name))),
    };
    found.ok_or_else(|| match named {
        Some(name) => ContainerError::create(format!("--oci-runtime {}: program not found", name.display())),
        None => {
            ContainerError::create("neither crun nor runc is on PATH: install one of them (Debian: `apt install crun`)")
        }
    })
}

/// Mounts the root file system: an overlay with the image's layers below a writable directory.
fn root(config: &ContainerConfig<'_>, image: &Image) -> std::io::Result<PathBuf> {
    let [target, upper, work] = ["rootfs", WRITABLE_LAYER, "work"].map(|name| config.instance.join(name));
    for folder in [&target, &upper, &work] {
        std::fs::create_dir_all(folder)?;
    }
    // The root directory takes owner and mode of the upper directory: copy those of the image.
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut lower = image.layers.clone();
    if let Some(top) = lower.first() {
        let like = std::fs::metadata(top)?;
        std::os::unix::fs::chown(&upper, Some(like.uid()), Some(like.gid()))?;
        std::fs::set_permissions(&upper, like.permissions())?;
    } else {
        // An image without files: overlayfs needs at least one lower directory.
        std::fs::set_permissions(&upper, std::fs::Permissions::from_mode(0o755))?;
        lower.push(config.instance.join("empty"));
        std::fs::create_dir_all(config.instance.join("empty"))?;
    }
    if lower.iter().map(|path| path.as_os_str().len() + 1).sum::<usize>() < MAX_OPTIONS {
        kernel::mounts::overlay(&lower, &upper, &work, &target)?;
        return Ok(target);
    }
    let handles = lower.iter().map(std::fs::File::open).collect::<std::io::Result<Vec<_>>>()?;
    let short = handles.iter().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    kernel::mounts::overlay(&short.collect::<Vec<_>>(), &upper, &work, &target)?;
    Ok(target)
}

/// Defaults from the image configuration.
fn defaults(image: &Image, rootfs: &Path, container: &Value) -> Result<Defaults, ContainerError> {
    let said = image.config.at("config");
    let texts = |name: &str| said.texts(name).into_iter().map(str::to_owned).collect();
    let pair = |text: &&str| text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let asked = container.at("securityContext.runAsUser").as_u64().and_then(|user| u32::try_from(user).ok());
    let whose = asked.map_or_else(|| said.text("User").to_owned(), |user| user.to_string());
    let user = user::find(rootfs, &whose)?;
    Ok(Defaults {
        entrypoint: texts("Entrypoint"),
        command: texts("Cmd"),
        environment: said.texts("Env").iter().filter_map(pair).collect(),
        folder: said.text("WorkingDir").to_owned(),
        user: Some(user.user),
        group: Some(user.group),
        home: user.home,
    })
}
