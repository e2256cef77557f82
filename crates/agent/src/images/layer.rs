//! Unpacks a layer into an overlayfs lower directory.
//!
//! In: the layer's archive, and the directories of the layers below. Out: a directory. A whiteout `.wh.NAME` becomes a character device 0/0 called NAME,
//! an opaque marker the xattr `trusted.overlay.opaque`. Parent directories without an entry get owner and mode of the layers below.
//!
//! Absolute links are resolved inside the image. Nothing is written outside of the directory: entries whose path leaves it are errors, also through
//! a link of the same layer.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::entries::{Entry, Kind, LayerError, each};

/// The prefix of whiteouts.
const WHITEOUT: &[u8] = b".wh.";
/// The name of an opaque marker.
const OPAQUE_MARKER: &[u8] = b".wh..wh..opq";
/// The prefix of other AUFS metadata, which is skipped.
const INTERNAL: &[u8] = b".wh..wh.";
/// The xattr of an opaque directory.
const OPAQUE: &str = "trusted.overlay.opaque";
/// The most links in a path.
const MAX_LINKS: usize = 40;

/// Unpacks a layer into an empty directory; returns the size of its files in bytes.
pub(super) fn unpack(from: impl Read, root: &Path, below: &[PathBuf]) -> Result<u64, LayerError> {
    let layer = Layer { root, below };
    let mut folders = Vec::new();
    let mut bytes = 0;
    each(from, |entry, content| {
        layer.put(entry, content)?;
        bytes += entry.size;
        if entry.kind == Kind::Directory {
            folders.push((entry.path.clone(), entry.modified));
        }
        Ok(())
    })?;
    // Writing into directories changed their modification times.
    for (path, modified) in folders.iter().rev() {
        if let Ok(there) = layer.find(path) {
            let _ = set_time(&there, *modified);
        }
    }
    Ok(bytes)
}

struct Layer<'a> {
    root: &'a Path,
    /// The layers below, the uppermost first.
    below: &'a [PathBuf],
}

impl Layer<'_> {
    fn put(&self, entry: &Entry, content: &mut dyn Read) -> Result<(), LayerError> {
        let disk = |error| LayerError::Disk(entry.path.clone(), error);
        let Some(name) = entry.path.file_name() else {
            return if entry.kind == Kind::Directory { set_metadata(self.root, entry) } else { Ok(()) };
        };
        let parent = entry.path.parent().unwrap_or_else(|| Path::new(""));
        let folder = self.enter(parent, &entry.path)?;
        let bytes = name.as_bytes();
        if bytes == OPAQUE_MARKER {
            return set_opaque(&folder).map_err(disk);
        }
        if bytes.starts_with(INTERNAL) {
            return Ok(());
        }
        if let Some(gone) = bytes.strip_prefix(WHITEOUT) {
            return match gone {
                b"" | b"." | b".." => Err(LayerError::Outside(entry.path.clone())),
                gone => whiteout(&folder.join(OsStr::from_bytes(gone))).map_err(disk),
            };
        }
        let target = folder.join(name);
        let before = fs::symlink_metadata(&target).ok();
        let was_whiteout = before.as_ref().is_some_and(is_whiteout);
        let stays = entry.kind == Kind::Directory && before.as_ref().is_some_and(Metadata::is_dir);
        if entry.kind == Kind::Device {
            return Ok(());
        }
        if before.is_some() && !stays {
            remove(&target).map_err(disk)?;
        }
        match &entry.kind {
            Kind::Directory if stays => {}
            Kind::Directory => {
                fs::create_dir(&target).map_err(disk)?;
                if was_whiteout {
                    set_opaque(&target).map_err(disk)?;
                }
            }
            Kind::File => {
                let mut file = fs::File::create_new(&target).map_err(disk)?;
                let copied = io::copy(&mut content.take(entry.size), &mut file).map_err(disk)?;
                if copied != entry.size {
                    return Err(LayerError::Broken(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            Kind::Symlink(to) => symlink(to, &target).map_err(disk)?,
            Kind::HardLink(other) => return self.link(other, &target, entry),
            Kind::Fifo => {
                rustix::fs::mknodat(CWD, &target, FileType::Fifo, Mode::empty(), 0)
                    .map_err(|error| disk(error.into()))?;
            }
            Kind::Device => {}
        }
        set_metadata(&target, entry)
    }

    /// Creates a hard link to a file of this layer.
    fn link(&self, other: &Path, target: &Path, entry: &Entry) -> Result<(), LayerError> {
        let from = self.find(other)?;
        let plain = fs::symlink_metadata(&from).is_ok_and(|there| !there.is_dir() && !is_whiteout(&there));
        if !plain {
            let why = format!("is a hard link to {}, which is not a file of its layer", other.display());
            return Err(LayerError::Entry(entry.path.clone(), why));
        }
        fs::hard_link(from, target).map_err(|error| LayerError::Disk(entry.path.clone(), error))
    }

    /// The path of an entry of this layer; links in its parents are resolved.
    fn find(&self, path: &Path) -> Result<PathBuf, LayerError> {
        let Some(name) = path.file_name() else { return Ok(self.root.to_owned()) };
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        Ok(self.root.join(self.walk(parent, path, false)?).join(name))
    }

    /// The parent directory of an entry, created if necessary.
    fn enter(&self, folder: &Path, entry: &Path) -> Result<PathBuf, LayerError> {
        Ok(self.root.join(self.walk(folder, entry, true)?))
    }

    fn walk(&self, folder: &Path, entry: &Path, make: bool) -> Result<PathBuf, LayerError> {
        let outside = || LayerError::Outside(entry.to_owned());
        let mut here = PathBuf::new();
        let mut rest = parts(folder);
        rest.reverse();
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                // Only from link targets: entry paths have no `..`.
                if !here.pop() {
                    return Err(outside());
                }
                continue;
            }
            let next = here.join(&name);
            let there = self.root.join(&next);
            match fs::symlink_metadata(&there) {
                Ok(meta) if meta.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(LayerError::Entry(entry.to_owned(), "has too many links in its path".to_owned()));
                    }
                    let link = fs::read_link(&there).map_err(|error| LayerError::Disk(entry.to_owned(), error))?;
                    if link.is_absolute() {
                        here = PathBuf::new();
                    }
                    let mut more = parts(&link);
                    more.reverse();
                    rest.extend(more);
                    continue;
                }
                Ok(meta) if meta.is_dir() || !make => {}
                Ok(meta) if is_whiteout(&meta) => {
                    let made = remove(&there).and_then(|()| fs::create_dir(&there)).and_then(|()| set_opaque(&there));
                    made.map_err(|error| LayerError::Disk(entry.to_owned(), error))?;
                }
                Ok(_) => {
                    return Err(LayerError::Entry(entry.to_owned(), "has a parent that is not a directory".to_owned()));
                }
                Err(_) if make => {
                    self.create_like_below(&next).map_err(|error| LayerError::Disk(entry.to_owned(), error))?;
                }
                Err(_) => {}
            }
            here = next;
        }
        Ok(here)
    }

    /// Creates a directory with owner and mode of the one below.
    fn create_like_below(&self, path: &Path) -> io::Result<()> {
        let target = self.root.join(path);
        fs::create_dir(&target)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
        if let Some(like) = folder_below(self.below, path) {
            lchown(&target, Some(like.uid()), Some(like.gid()))?;
            fs::set_permissions(&target, like.permissions())?;
        }
        Ok(())
    }
}

/// The metadata of a directory in the layers below.
fn folder_below(below: &[PathBuf], path: &Path) -> Option<Metadata> {
    'layers: for layer in below {
        let mut here = layer.clone();
        let mut covers = false;
        for part in path.components() {
            here.push(part);
            match fs::symlink_metadata(&here) {
                Ok(meta) if meta.is_dir() => covers |= is_opaque(&here),
                Ok(_) => return None,
                Err(_) if covers => return None,
                Err(_) => continue 'layers,
            }
        }
        return fs::symlink_metadata(here).ok();
    }
    None
}

/// Sets owner, mode, extended attributes and modification time.
fn set_metadata(target: &Path, entry: &Entry) -> Result<(), LayerError> {
    let disk = |error| LayerError::Disk(entry.path.clone(), error);
    lchown(target, Some(entry.user), Some(entry.group)).map_err(disk)?;
    if !matches!(entry.kind, Kind::Symlink(_)) {
        fs::set_permissions(target, fs::Permissions::from_mode(entry.mode)).map_err(disk)?;
    }
    for (name, value) in entry.attributes.iter().filter(|(name, _)| is_kept_xattr(name)) {
        match rustix::fs::lsetxattr(target, name.as_str(), value, XattrFlags::empty()) {
            // Not all file systems support user attributes; lost file capabilities must be an error.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::PERM) if name != "security.capability" => {}
            set => set.map_err(|error| disk(error.into()))?,
        }
    }
    set_time(target, entry.modified).map_err(disk)
}

/// Extended attributes that are kept. Others affect the host, in particular those of overlayfs.
fn is_kept_xattr(name: &str) -> bool {
    name == "security.capability" || (name.starts_with("user.") && !name.starts_with("user.overlay."))
}

fn set_time(target: &Path, modified: i64) -> io::Result<()> {
    let at = Timespec { tv_sec: modified, tv_nsec: 0 };
    let times = Timestamps { last_access: at, last_modification: at };
    Ok(rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Creates a whiteout; a file of this layer is kept, because the order of entries is not significant.
fn whiteout(target: &Path) -> io::Result<()> {
    match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() => set_opaque(target),
        Ok(_) => Ok(()),
        Err(_) => Ok(rustix::fs::mknodat(CWD, target, FileType::CharacterDevice, Mode::empty(), 0)?),
    }
}

fn is_whiteout(there: &Metadata) -> bool {
    there.file_type().is_char_device() && there.rdev() == 0
}

fn set_opaque(folder: &Path) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(folder, OPAQUE, b"y", XattrFlags::empty())?)
}

fn is_opaque(folder: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::lgetxattr(folder, OPAQUE, &mut value[..]).is_ok_and(|length| length == 1) && value == *b"y"
}

fn parts(path: &Path) -> Vec<OsString> {
    let name = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(there) if there.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
    }
}

/// Copies a directory with owners and modes; special files are skipped. Returns the size of the files in bytes.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    let meta = fs::metadata(from)?;
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, there) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, &there)?;
        } else if kind.is_dir() {
            bytes += copy(&entry.path(), &there)?;
        } else if kind.is_file() {
            bytes += fs::copy(entry.path(), &there)?;
            let meta = entry.metadata()?;
            std::os::unix::fs::chown(&there, Some(meta.uid()), Some(meta.gid()))?;
            fs::set_permissions(&there, meta.permissions())?;
        }
    }
    std::os::unix::fs::chown(to, Some(meta.uid()), Some(meta.gid()))?;
    fs::set_permissions(to, meta.permissions())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
