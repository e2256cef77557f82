//! The file system view of a process: its own mounts in place, and parts of the machine hidden.
//!
//! In: a [`View`]. Out: a new root for the calling process, which must have its own mount namespace and be
//! single-threaded: a tmpfs into which every top-level directory of the machine is mounted. Where a mount point does
//! not exist, its parent directory is rebuilt on tmpfs with all its entries mounted into it: nothing is created on the
//! machine.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, move_mount,
    open_tree, unmount,
};

use super::{Propagation, detach, list, propagate, remount_read_only};

/// A mount in a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// Source on the machine.
    pub source: PathBuf,
    /// Mount point.
    pub target: PathBuf,
    /// Whether it is read-only.
    pub read_only: bool,
}

/// View of a process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// An empty directory on which the new root is built.
    pub staging: PathBuf,
    /// Its own mounts, in this order.
    pub mounts: Vec<Mount>,
    /// Directories of the machine that appear empty.
    pub hidden: Vec<PathBuf>,
    /// Kernel files and directories that appear empty: below `/proc` and `/sys`.
    pub masked: Vec<PathBuf>,
    /// Kernel files and directories that are read-only, with their submounts.
    pub locked: Vec<PathBuf>,
    /// Whether everything but its mounts is read-only.
    pub read_only: bool,
    /// Whether it has all devices, not only the standard ones.
    pub all_devices: bool,
}

/// Name of a directory while it is rebuilt.
const ASIDE: &str = "/.waypost";

/// Adds the path to an error.
fn about(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl View {
    /// Switches to this view.
    ///
    /// # Errors
    /// When a mount fails; the path is named.
    pub fn take(&self) -> io::Result<()> {
        propagate(Path::new("/"), Propagation::PRIVATE).map_err(|error| about(Path::new("/"), error))?;
        let sources = self.mounts.iter().map(|mount| clone_of(&mount.source)).collect::<io::Result<Vec<OwnedFd>>>()?;
        self.build()?;
        let mut known = Known::default();
        if !self.all_devices {
            known.ours.insert(PathBuf::from("/dev"));
        }
        for (mount, source) in self.mounts.iter().zip(sources) {
            known.place(mount, &source)?;
        }
        for hidden in self.hidden.iter().filter(|path| path.is_dir()) {
            hide(hidden)?;
        }
        self.lock()?;
        self.masked.iter().try_for_each(|path| mask(path))?;
        if self.read_only { self.freeze() } else { Ok(()) }
    }

    /// Makes kernel files read-only, except its own mounts.
    fn lock(&self) -> io::Result<()> {
        use io::ErrorKind::{InvalidInput, NotFound};
        let ours: BTreeSet<PathBuf> = self.mounts.iter().map(|mount| resolved(&mount.target)).collect();
        for path in self.locked.iter().filter(|path| path.exists()) {
            mount_bind_recursive(path, path).map_err(|errno| about(path, errno))?;
            for inner in list()?.iter().filter(|inner| inner.starts_with(path)) {
                if inner == path || !ours.iter().any(|own| inner.starts_with(own)) {
                    match remount_read_only(inner) {
                        // A mount that is covered by another cannot be reached and need not be.
                        Err(error) if inner != path && matches!(error.kind(), NotFound | InvalidInput) => {}
                        done => done.map_err(|error| about(inner, error))?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Builds the new root and pivots to it.
    fn build(&self) -> io::Result<()> {
        let new = &self.staging;
        mount("tmpfs", new, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=755,size=1m")
            .map_err(|errno| about(new, errno))?;
        copy_entries(Path::new("/"), new, |name| name == "proc" || (name == "dev" && !self.all_devices))?;
        let proc = new.join("proc");
        fs::create_dir(&proc)?;
        mount("proc", &proc, "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, c"")
            .map_err(|errno| about(&proc, errno))?;
        if !self.all_devices {
            devices(&new.join("dev"))?;
        }
        rustix::process::chdir(new).map_err(|errno| about(new, errno))?;
        // The old root is stacked on the new one and unmounted from there.
        rustix::process::pivot_root(".", ".").map_err(|errno| match errno {
            // The initial ramfs cannot be left.
            Errno::INVAL => io::Error::other("/: this machine runs from the memory it was started from, which processes cannot leave; mount a root and switch to it"),
            errno => about(Path::new("/"), errno),
        })?;
        unmount(".", UnmountFlags::DETACH).map_err(|errno| about(Path::new("/"), errno))?;
        Ok(rustix::process::chdir("/")?)
    }

    /// Makes everything read-only except its mounts and kernel file systems.
    fn freeze(&self) -> io::Result<()> {
        let ours: BTreeSet<PathBuf> = self.mounts.iter().map(|mount| resolved(&mount.target)).collect();
        for path in list()? {
            let special = ["/proc", "/dev", "/sys"].iter().any(|root| path.starts_with(root));
            if !special && !ours.iter().any(|own| path.starts_with(own)) {
                // A mount that is covered by another cannot be reached and need not be.
                let _ = remount_read_only(&path);
            }
        }
        Ok(())
    }
}

/// The standard devices.
fn devices(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    for name in ["null", "zero", "full", "random", "urandom", "tty", "ptmx"] {
        let (source, there) = (Path::new("/dev").join(name), folder.join(name));
        if source.exists() {
            fs::File::create(&there)?;
            mount_bind_recursive(&source, &there).map_err(|errno| about(&source, errno))?;
        }
    }
    let (terminals, memory) = (folder.join("pts"), folder.join("shm"));
    fs::create_dir(&terminals)?;
    fs::create_dir(&memory)?;
    if Path::new("/dev/pts").is_dir() {
        mount_bind_recursive("/dev/pts", &terminals).map_err(|errno| about(&terminals, errno))?;
    }
    mount("tmpfs", &memory, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=1777,size=64m")
        .map_err(|errno| about(&memory, errno))?;
    for (name, to) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(Path::new("/proc/self").join(to), folder.join(name))?;
    }
    Ok(())
}

/// A detached copy of a mount.
fn clone_of(source: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, source, flags).map_err(|errno| about(source, errno))
}

/// Attaches a detached mount.
fn attach(source: &OwnedFd, target: &Path) -> io::Result<()> {
    move_mount(source, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(|errno| about(target, errno))
}

/// Mounts the entries of a directory into another one, except these.
fn copy_entries(from: &Path, to: &Path, but: impl Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(from).map_err(|error| about(from, error))? {
        let entry = entry?;
        let (kind, there) = (entry.file_type()?, to.join(entry.file_name()));
        if entry.file_name().to_str().is_some_and(&but) {
            continue;
        }
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &there)?;
            continue;
        }
        match kind.is_dir() {
            true => fs::create_dir(&there)?,
            false => drop(fs::File::create(&there)?),
        }
        mount_bind_recursive(entry.path(), &there).map_err(|errno| about(&there, errno))?;
    }
    Ok(())
}

/// Hides a directory and releases its submounts.
fn hide(folder: &Path) -> io::Result<()> {
    for inner in list()?.iter().rev().filter(|path| path.starts_with(folder) && *path != folder) {
        let _ = detach(inner);
    }
    mount("tmpfs", folder, "tmpfs", MountFlags::RDONLY, c"mode=000,size=4k").map_err(|errno| about(folder, errno))
}

/// Masks a kernel file or directory, if it exists.
fn mask(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => mount("tmpfs", path, "tmpfs", MountFlags::RDONLY, c"mode=555,size=4k"),
        Ok(_) => mount_bind("/dev/null", path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => return Err(about(path, error)),
    }
    .map_err(|errno| about(path, errno))
}

/// A path without symbolic links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    // A dangling link: its target will be created.
    if let Ok(link) = fs::read_link(path) {
        return match path.parent() {
            Some(parent) => clean(&resolved(parent).join(link)),
            None => clean(&link),
        };
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolved(parent).join(name),
        _ => path.to_owned(),
    }
}

/// A path without `.` and `..`.
fn clean(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Directories of this view that are writable for us.
#[derive(Default)]
struct Known {
    ours: BTreeSet<PathBuf>,
}

impl Known {
    fn place(&mut self, mount: &Mount, source: &OwnedFd) -> io::Result<()> {
        let target = resolved(&mount.target);
        if fs::symlink_metadata(&target).is_err() {
            let folder = rustix::fs::fstat(source)?.st_mode & 0o170_000 == 0o040_000;
            self.make(&target, folder)?;
        }
        attach(source, &target)?;
        if mount.read_only {
            remount_read_only(&target).map_err(|error| about(&target, error))?;
        }
        self.ours.insert(target);
        Ok(())
    }

    /// Creates a missing file or directory.
    fn make(&mut self, path: &Path, folder: bool) -> io::Result<()> {
        let above = path.ancestors().skip(1).find(|above| above.is_dir()).unwrap_or(Path::new("/"));
        let writable = above == Path::new("/") || self.ours.iter().any(|own| above.starts_with(own));
        if !writable {
            rebuild(above).map_err(|error| about(above, error))?;
            self.ours.insert(above.to_owned());
        }
        match (folder, path.parent()) {
            (true, _) => fs::create_dir_all(path),
            (false, Some(parent)) => fs::create_dir_all(parent).and_then(|()| fs::File::create(path).map(drop)),
            (false, None) => Err(io::ErrorKind::InvalidInput.into()),
        }
        .map_err(|error| about(path, error))
    }
}

/// Rebuilds a directory on tmpfs, with its entries mounted into it.
fn rebuild(folder: &Path) -> io::Result<()> {
    let (aside, meta) = (Path::new(ASIDE), fs::metadata(folder)?);
    fs::create_dir_all(aside)?;
    attach(&clone_of(folder)?, aside)?;
    mount("tmpfs", folder, "tmpfs", MountFlags::empty(), c"mode=755")?;
    fs::set_permissions(folder, fs::Permissions::from_mode(meta.mode()))?;
    std::os::unix::fs::chown(folder, Some(meta.uid()), Some(meta.gid()))?;
    copy_entries(aside, folder, |_| false)?;
    unmount(aside, UnmountFlags::DETACH)?;
    fs::remove_dir(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_as_far_as_they_exist() {
        assert_eq!(clean(Path::new("/a/./b/../c")), Path::new("/a/c"));
        let folder = std::env::temp_dir().join(format!("waypost-view-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("made");
        let folder = folder.canonicalize().expect("a path");
        symlink("../nowhere/file", folder.join("link")).expect("linked");
        let parent = folder.parent().expect("a parent");
        assert_eq!(resolved(&folder.join("link")), parent.join("nowhere/file"));
        assert_eq!(resolved(&folder.join("new/er")), folder.join("new/er"));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
