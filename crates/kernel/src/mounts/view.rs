//! This machine as one process sees it: its own files and folders in their places, and some of the machine's not at all.
//!
//! In: a [`View`]. Out: the calling process, which must have a mount namespace of its own and no other thread, has a new root: a small
//! filesystem in memory into which every top folder of the machine is mounted. Where a mount wants a place that the machine does not
//! have, the folder above is rebuilt in memory, with all its entries mounted into it: nothing is ever made on the machine itself.

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

/// Something mounted in a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// What is shown, on the machine.
    pub source: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// Whether it may not be written.
    pub read_only: bool,
}

/// What a process sees.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// An empty folder on which the new root is built.
    pub staging: PathBuf,
    /// Its own things, in this order.
    pub mounts: Vec<Mount>,
    /// Folders of the machine that look empty.
    pub hidden: Vec<PathBuf>,
    /// Files and folders of the kernel that look empty: below `/proc` and `/sys`.
    pub masked: Vec<PathBuf>,
    /// Files and folders of the kernel that cannot be written, with all that is mounted in them.
    pub locked: Vec<PathBuf>,
    /// Whether it may write nothing but its mounts.
    pub read_only: bool,
    /// Whether it sees every device of the machine, and not only those that every program needs.
    pub all_devices: bool,
}

/// Where a folder is kept while it is rebuilt.
const ASIDE: &str = "/.waypost";

/// An error with the path that it is about.
fn about(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl View {
    /// Takes this view.
    ///
    /// # Errors
    /// When something cannot be mounted; the path is named.
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

    /// Lets files of the kernel be read only, but for mounts of its own.
    fn lock(&self) -> io::Result<()> {
        use io::ErrorKind::{InvalidInput, NotFound};
        let ours: BTreeSet<PathBuf> = self.mounts.iter().map(|mount| resolved(&mount.target)).collect();
        for path in self.locked.iter().filter(|path| path.exists()) {
            mount_bind_recursive(path, path).map_err(|errno| about(path, errno))?;
            for inner in list()?.iter().filter(|inner| inner.starts_with(path)) {
                if inner == path || !ours.iter().any(|own| inner.starts_with(own)) {
                    match remount_read_only(inner) {
                        // Something that is mounted over cannot be reached, and need not be.
                        Err(error) if inner != path && matches!(error.kind(), NotFound | InvalidInput) => {}
                        done => done.map_err(|error| about(inner, error))?,
                    }
                }
            }
        }
        Ok(())
    }

    /// Builds the new root and makes it the root.
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
        // The old root lies on top of the new one, and is taken away from there.
        rustix::process::pivot_root(".", ".").map_err(|errno| match errno {
            // The first root of a kernel, from which it was started, stays for ever.
            Errno::INVAL => io::Error::other("/: this machine runs from the memory it was started from, which processes cannot leave; mount a root and switch to it"),
            errno => about(Path::new("/"), errno),
        })?;
        unmount(".", UnmountFlags::DETACH).map_err(|errno| about(Path::new("/"), errno))?;
        Ok(rustix::process::chdir("/")?)
    }

    /// Lets nothing be written but the mounts, and what the kernel shows as files.
    fn freeze(&self) -> io::Result<()> {
        let ours: BTreeSet<PathBuf> = self.mounts.iter().map(|mount| resolved(&mount.target)).collect();
        for path in list()? {
            let special = ["/proc", "/dev", "/sys"].iter().any(|root| path.starts_with(root));
            if !special && !ours.iter().any(|own| path.starts_with(own)) {
                // Something that is mounted over cannot be reached, and need not be.
                let _ = remount_read_only(&path);
            }
        }
        Ok(())
    }
}

/// The devices that every program needs.
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

/// A mount of the same thing, not yet anywhere.
fn clone_of(source: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, source, flags).map_err(|errno| about(source, errno))
}

/// Puts a mount that is not yet anywhere to a place.
fn attach(source: &OwnedFd, target: &Path) -> io::Result<()> {
    move_mount(source, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(|errno| about(target, errno))
}

/// Shows every entry of a folder in another one, but these.
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

/// Makes a folder look empty; what was mounted in it is no longer held.
fn hide(folder: &Path) -> io::Result<()> {
    for inner in list()?.iter().rev().filter(|path| path.starts_with(folder) && *path != folder) {
        let _ = detach(inner);
    }
    mount("tmpfs", folder, "tmpfs", MountFlags::RDONLY, c"mode=000,size=4k").map_err(|errno| about(folder, errno))
}

/// Makes a file or folder of the kernel look empty; one that this kernel does not have is as good.
fn mask(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => mount("tmpfs", path, "tmpfs", MountFlags::RDONLY, c"mode=555,size=4k"),
        Ok(_) => mount_bind("/dev/null", path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => return Err(about(path, error)),
    }
    .map_err(|errno| about(path, errno))
}

/// A path without symbolic links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    // A link that leads nowhere yet: what it names is to be made.
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

/// Folders into which we may write, as they are only in this view.
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

    /// Makes a file or folder that is not there.
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

/// Rebuilds a folder in memory, with its entries mounted into it.
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
    fn paths_are_followed_as_far_as_they_lead() {
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
