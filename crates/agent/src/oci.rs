//! Containers from images, by `crun` or `runc`: a root over the image's files, and a `config.json` that says the rest.

mod config;
mod user;

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use api::value::ValueExt as _;
use serde_json::Value;

use crate::files;
use crate::images::Image;
use crate::runtime::program::{Defaults, capability_bits, program};
use crate::runtime::security::{Security, USUAL};
use crate::runtime::{Made, Refused, Runtime, Wish};
use crate::shim::{How, Program};

/// Programs that run bundles, the preferred first.
const RUNTIMES: [&str; 2] = ["crun", "runc"];

/// A mount takes a page of options; those of many layers are said by shorter names.
const MOST_OPTIONS: usize = 3000;

/// The runtime.
pub struct Oci;

impl Runtime for Oci {
    fn prepare(&self, wish: &Wish<'_>) -> Result<Made, Refused> {
        let name = wish.container.text("image");
        // Until its root is mounted nobody may take its layers away; then it is known to have a user.
        let _held = wish.machine.images.hold().map_err(Refused::create)?;
        let image = wish.machine.images.find(name).map_err(Refused::create)?;
        let runtime = runtime(wish.machine.settings.runtime.as_deref())?;
        let rootfs =
            root(wish, &image).map_err(|error| Refused::create(format!("the root of the container: {error}")))?;
        let defaults = defaults(&image, &rootfs, wish.container);
        let bound = defaults.and_then(|defaults| bound(wish, &defaults)).inspect_err(|_| {
            // What is mounted cannot be removed, and so would be in the way of the next attempt.
            let _ = kernel::mounts::detach(&rootfs);
        });
        let (mut program, security) = bound?;
        if program.folder.as_os_str().is_empty() {
            program.folder = "/".into();
        }
        let config = config::config(wish, &program, &security, &rootfs);
        files::put(&wish.instance.join("config.json"), &config).map_err(Refused::create)?;
        let id = format!("{}-{}", wish.pod.text("metadata.uid"), wish.container.text("name"));
        let how = How::Oci {
            hidden: wish.machine.groups.second(),
            runtime,
            state: wish.machine.settings.data_dir.join("agent/oci"),
            bundle: wish.instance.clone(),
            id,
        };
        Ok(Made { program, how, image: image.exact })
    }
}

/// The program of a container, within its bounds. The runtime bounds the first process of the container by `config.json`; commands that
/// are run beside it (probes, hooks, `kubectl exec`) are begun by us, and have theirs from the program.
fn bound(wish: &Wish<'_>, defaults: &Defaults) -> Result<(Program, Security), Refused> {
    let mut program = program(wish, defaults)?;
    let security = Security::of(wish, capability_bits(&USUAL))?;
    security.bind(&mut program)?;
    Ok((program, security))
}

/// The program that was named, or the first of those that are known and there.
fn runtime(named: Option<&Path>) -> Result<PathBuf, Refused> {
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    let folders: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    // A path with folders of its own stays as it is.
    let find = |name: &Path| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let found = match named {
        Some(name) => find(name),
        None => RUNTIMES.iter().find_map(|name| find(Path::new(name))),
    };
    found.ok_or_else(|| match named {
        Some(name) => Refused::create(format!("--oci-runtime {}: there is no such program", name.display())),
        None => Refused::create("neither crun nor runc is on PATH: install one of them (Debian: `apt install crun`)"),
    })
}

/// The container's own root: the image below, its changes above.
fn root(wish: &Wish<'_>, image: &Image) -> std::io::Result<PathBuf> {
    let [target, upper, work] = ["rootfs", "upper", "work"].map(|name| wish.instance.join(name));
    for folder in [&target, &upper, &work] {
        std::fs::create_dir_all(folder)?;
    }
    // The root of an overlay looks like that of its upper folder, and should look like that of the image.
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let mut lower = image.layers.clone();
    if let Some(top) = lower.first() {
        let like = std::fs::metadata(top)?;
        std::os::unix::fs::chown(&upper, Some(like.uid()), Some(like.gid()))?;
        std::fs::set_permissions(&upper, like.permissions())?;
    } else {
        // An image without any file; overlayfs wants one folder at least.
        std::fs::set_permissions(&upper, std::fs::Permissions::from_mode(0o755))?;
        lower.push(wish.instance.join("empty"));
        std::fs::create_dir_all(wish.instance.join("empty"))?;
    }
    if lower.iter().map(|path| path.as_os_str().len() + 1).sum::<usize>() < MOST_OPTIONS {
        kernel::mounts::overlay(&lower, &upper, &work, &target)?;
        return Ok(target);
    }
    let handles = lower.iter().map(std::fs::File::open).collect::<std::io::Result<Vec<_>>>()?;
    let short = handles.iter().map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    kernel::mounts::overlay(&short.collect::<Vec<_>>(), &upper, &work, &target)?;
    Ok(target)
}

/// What the image says where the container does not.
fn defaults(image: &Image, rootfs: &Path, container: &Value) -> Result<Defaults, Refused> {
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
