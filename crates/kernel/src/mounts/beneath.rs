//! Paths in directories writable by untrusted programs: resolved and mounted by file descriptor.
//!
//! In: the root of a volume and a relative path. Out: a descriptor of the object, or a mount of it. There is no path
//! between check and use that could be swapped: `openat2` refuses to leave the root, missing directories are created
//! one by one below open descriptors, and the mount is made from the descriptor (CVE-2017-1002101, CVE-2021-25741).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fchmod, fstat, mkdirat, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

/// Treatment of symbolic links below the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// Refused: untrusted programs write there.
    Refused,
    /// Followed within the root: only we write there.
    Followed,
}

/// How often a path is resolved again during renames.
const ATTEMPTS: usize = 16;

/// Opens a path below a root with `O_PATH`, which opens neither devices nor FIFOs. With `create`, missing directories
/// are created with the mode of the root.
///
/// # Errors
/// `ELOOP` for a refused symbolic link, `EXDEV` when the path leaves the root, `EINVAL` when it is not a relative path
/// of plain names.
pub fn open(root: &Path, path: &Path, links: Links, create: bool) -> io::Result<OwnedFd> {
    let names = path.components().map(|part| match part {
        Component::Normal(name) => Ok(name),
        _ => Err(Errno::INVAL),
    });
    let names = names.collect::<Result<Vec<_>, Errno>>()?;
    // The root itself is trusted and may be a link.
    let top = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    match resolve(&top, path, OFlags::PATH, links) {
        Err(Errno::NOENT) if create => {}
        found => return Ok(found?),
    }
    let mode = Mode::from_raw_mode(fstat(&top)?.st_mode & 0o7777);
    let mut here = top;
    for name in names {
        let name = Path::new(name);
        here = match resolve(&here, name, OFlags::PATH, links) {
            Err(Errno::NOENT) => make(&here, name, mode, links)?,
            found => found?,
        };
    }
    Ok(here)
}

fn resolve(top: &OwnedFd, path: &Path, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
    let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refused {
        how |= ResolveFlags::NO_SYMLINKS;
    }
    let flags = flags | OFlags::CLOEXEC;
    let mut found = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        found = openat2(top, path, flags, Mode::empty(), how);
        if !matches!(found, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    found
}

/// Creates one directory and opens it, or the one that another process created.
fn make(above: &OwnedFd, name: &Path, mode: Mode, links: Links) -> Result<OwnedFd, Errno> {
    match mkdirat(above, name, mode) {
        Ok(()) => {
            let made = resolve(above, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, links)?;
            // Undo the umask.
            fchmod(&made, mode)?;
            resolve(&made, Path::new("."), OFlags::PATH, links)
        }
        Err(Errno::EXIST) => resolve(above, name, OFlags::PATH, links),
        Err(errno) => Err(errno),
    }
}

/// Mounts the object of a descriptor, with its submounts, at a new file or directory.
///
/// # Errors
/// When the target exists, or the kernel refuses.
pub fn mount(source: impl AsFd, target: &Path) -> io::Result<()> {
    match FileType::from_raw_mode(fstat(&source)?.st_mode) {
        FileType::Directory => std::fs::create_dir(target)?,
        // A mounted link would be followed on open.
        FileType::Symlink => return Err(Errno::LOOP.into()),
        _ => drop(std::fs::File::create_new(target)?),
    }
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(source, c"", clone | OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::AT_RECURSIVE)?;
    Ok(move_mount(tree, c"", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("waypost-beneath-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("made");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = super::super::detach_below(&self.0);
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refusal(root: &Path, path: &str, links: Links, create: bool) -> Option<Errno> {
        open(root, Path::new(path), links, create).err().and_then(|error| Errno::from_io_error(&error))
    }

    #[test]
    fn no_path_escapes_the_root() {
        let folder = Folder::new("out");
        let (root, outside) = (folder.0.join("root"), folder.0.join("outside"));
        fs::create_dir_all(root.join("a/b")).expect("made");
        fs::create_dir_all(&outside).expect("made");
        symlink(&outside, root.join("absolute")).expect("linked");
        symlink("../outside", root.join("relative")).expect("linked");
        symlink("a", root.join("inner")).expect("linked");
        symlink("/proc/self/root", root.join("magic")).expect("linked");
        for path in ["absolute", "relative", "magic", "inner", "absolute/new", "relative/new/er", "inner/b"] {
            assert_eq!(refusal(&root, path, Links::Refused, true), Some(Errno::LOOP), "{path}");
        }
        for path in ["absolute", "relative", "magic", "relative/new"] {
            let why = refusal(&root, path, Links::Followed, true);
            assert!(matches!(why, Some(Errno::XDEV | Errno::LOOP)), "{path}: {why:?}");
        }
        for path in ["..", "a/../..", "/etc", "."] {
            assert_eq!(refusal(&root, path, Links::Followed, true), Some(Errno::INVAL), "{path}");
        }
        assert_eq!(fs::read_dir(&outside).expect("there").count(), 0, "something was made outside");
        assert!(open(&root, Path::new("inner/b"), Links::Followed, false).is_ok());
        assert_eq!(refusal(&root, "a/new", Links::Refused, false), Some(Errno::NOENT));
    }

    #[test]
    fn missing_directories_have_the_mode_of_the_root() {
        let folder = Folder::new("mode");
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).expect("set");
        open(&folder.0, Path::new("new/er"), Links::Refused, true).expect("made");
        for path in ["new", "new/er"] {
            let mode = fs::metadata(folder.0.join(path)).expect("made").permissions().mode();
            assert_eq!(mode & 0o7777, 0o777, "{path}");
        }
    }

    /// A directory is swapped for a link to the outside in a loop, while it is resolved and mounted.
    #[test]
    fn a_swapped_directory_is_refused_or_inside() {
        let folder = Folder::new("swap");
        let (root, outside, places) = (folder.0.join("root"), folder.0.join("outside"), folder.0.join("places"));
        for path in [&root.join("part/deep"), &outside.join("deep"), &places] {
            fs::create_dir_all(path).expect("made");
        }
        fs::write(outside.join("deep/secret"), "x").expect("written");
        symlink(&outside, root.join("link")).expect("linked");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let (part, link) = (root.join("part"), root.join("link"));
                    let _ = rustix::fs::renameat_with(CWD, &part, CWD, &link, rustix::fs::RenameFlags::EXCHANGE);
                }
            });
            let mut counts = [0; 2];
            for number in 0..20_000 {
                if number >= 500 && counts.iter().all(|count| *count > 0) {
                    break;
                }
                match open(&root, Path::new("part/deep"), Links::Refused, true) {
                    Ok(found) => {
                        let place = places.join(number.to_string());
                        mount(&found, &place).expect("mounted; this test needs root");
                        assert!(!place.join("secret").exists(), "the outside was mounted");
                        super::super::detach(&place).expect("gone");
                        counts[0] += 1;
                    }
                    Err(error) => {
                        assert_eq!(Errno::from_io_error(&error), Some(Errno::LOOP), "{error}");
                        counts[1] += 1;
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(counts.iter().all(|count| *count > 0), "nothing was swapped: {counts:?}");
        });
    }
}
