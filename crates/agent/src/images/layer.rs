//! One layer, unpacked as overlayfs wants it: what it adds as files, what it takes away as marks.
//!
//! In: the layer's archive, and the folders of the layers below it. Out: a folder. `.wh.NAME` becomes a device 0/0 called NAME, and a
//! folder that begins anew gets the mark `opaque`. Folders that a layer does not mention itself look like those below.
//!
//! Links inside of an image mean the image: `/run` in a link is the image's, as it will be for its containers. Nothing is ever
//! written outside of the folder: entries that would be are refused, also where they go through a link of the same layer.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::entries::{Entry, Kind, LayerError, each};

/// What the name of a file that is to go begins with.
const GONE: &[u8] = b".wh.";
/// The name that says that a folder begins anew.
const ANEW: &[u8] = b".wh..wh..opq";
/// What other names of the layering itself begin with.
const INTERNAL: &[u8] = b".wh..wh.";
/// The mark of a folder that begins anew.
const OPAQUE: &str = "trusted.overlay.opaque";
/// How many links are followed.
const LINKS: usize = 40;

/// Unpacks a layer into an empty folder; answers how many bytes its files have.
pub(super) fn unpack(from: impl Read, root: &Path, below: &[PathBuf]) -> Result<u64, LayerError> {
    let layer = Layer { root, below };
    let mut folders = Vec::new();
    let mut bytes = 0;
    each(from, |entry, content| {
        layer.put(entry, content)?;
        bytes += entry.size;
        if entry.kind == Kind::Folder {
            folders.push((entry.path.clone(), entry.modified));
        }
        Ok(())
    })?;
    // What was written into them has changed their times.
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
            return if entry.kind == Kind::Folder { dress(self.root, entry) } else { Ok(()) };
        };
        let parent = entry.path.parent().unwrap_or_else(|| Path::new(""));
        let folder = self.enter(parent, &entry.path)?;
        let bytes = name.as_bytes();
        if bytes == ANEW {
            return set_opaque(&folder).map_err(disk);
        }
        if bytes.starts_with(INTERNAL) {
            return Ok(());
        }
        if let Some(gone) = bytes.strip_prefix(GONE) {
            return match gone {
                b"" | b"." | b".." => Err(LayerError::Outside(entry.path.clone())),
                gone => hide(&folder.join(OsStr::from_bytes(gone))).map_err(disk),
            };
        }
        let target = folder.join(name);
        let before = fs::symlink_metadata(&target).ok();
        let was_hidden = before.as_ref().is_some_and(is_hidden);
        let stays = entry.kind == Kind::Folder && before.as_ref().is_some_and(Metadata::is_dir);
        if entry.kind == Kind::Device {
            return Ok(());
        }
        if before.is_some() && !stays {
            remove(&target).map_err(disk)?;
        }
        match &entry.kind {
            Kind::Folder if stays => {}
            Kind::Folder => {
                fs::create_dir(&target).map_err(disk)?;
                if was_hidden {
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
            Kind::Link(to) => symlink(to, &target).map_err(disk)?,
            Kind::Same(other) => return self.link(other, &target, entry),
            Kind::Pipe => {
                rustix::fs::mknodat(CWD, &target, FileType::Fifo, Mode::empty(), 0)
                    .map_err(|error| disk(error.into()))?;
            }
            Kind::Device => {}
        }
        dress(&target, entry)
    }

    /// Gives a file of this layer another name.
    fn link(&self, other: &Path, target: &Path, entry: &Entry) -> Result<(), LayerError> {
        let from = self.find(other)?;
        let plain = fs::symlink_metadata(&from).is_ok_and(|there| !there.is_dir() && !is_hidden(&there));
        if !plain {
            let why = format!("is another name of {}, which is no file of its layer", other.display());
            return Err(LayerError::Entry(entry.path.clone(), why));
        }
        fs::hard_link(from, target).map_err(|error| LayerError::Disk(entry.path.clone(), error))
    }

    /// Where an entry of this layer is, with links of the layer followed on the way to it, but not itself.
    fn find(&self, path: &Path) -> Result<PathBuf, LayerError> {
        let Some(name) = path.file_name() else { return Ok(self.root.to_owned()) };
        let parent = path.parent().unwrap_or_else(|| Path::new(""));
        Ok(self.root.join(self.walk(parent, path, false)?).join(name))
    }

    /// The folder of an entry; made, when the layer has not mentioned it.
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
                // By links only: entries with this were refused before.
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
                    if links > LINKS {
                        return Err(LayerError::Entry(entry.to_owned(), "leads through too many links".to_owned()));
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
                Ok(meta) if is_hidden(&meta) => {
                    let made = remove(&there).and_then(|()| fs::create_dir(&there)).and_then(|()| set_opaque(&there));
                    made.map_err(|error| LayerError::Disk(entry.to_owned(), error))?;
                }
                Ok(_) => return Err(LayerError::Entry(entry.to_owned(), "lies in what is no folder".to_owned())),
                Err(_) if make => {
                    self.make_like_below(&next).map_err(|error| LayerError::Disk(entry.to_owned(), error))?;
                }
                Err(_) => {}
            }
            here = next;
        }
        Ok(here)
    }

    /// Makes a folder that looks like the one that it covers.
    fn make_like_below(&self, path: &Path) -> io::Result<()> {
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

/// The folder of this path as the layers below show it.
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

/// Owner, mode, attributes and time.
fn dress(target: &Path, entry: &Entry) -> Result<(), LayerError> {
    let disk = |error| LayerError::Disk(entry.path.clone(), error);
    lchown(target, Some(entry.user), Some(entry.group)).map_err(disk)?;
    if !matches!(entry.kind, Kind::Link(_)) {
        fs::set_permissions(target, fs::Permissions::from_mode(entry.mode)).map_err(disk)?;
    }
    for (name, value) in entry.attributes.iter().filter(|(name, _)| is_welcome(name)) {
        match rustix::fs::lsetxattr(target, name.as_str(), value, XattrFlags::empty()) {
            // Filesystems differ in what they keep; rights of programs must not be lost without a word.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::PERM) if name != "security.capability" => {}
            set => set.map_err(|error| disk(error.into()))?,
        }
    }
    set_time(target, entry.modified).map_err(disk)
}

/// Attributes that mean something to containers. Others mean something to this machine: marks of overlayfs above all.
fn is_welcome(name: &str) -> bool {
    name == "security.capability" || (name.starts_with("user.") && !name.starts_with("user.overlay."))
}

fn set_time(target: &Path, modified: i64) -> io::Result<()> {
    let at = Timespec { tv_sec: modified, tv_nsec: 0 };
    let times = Timestamps { last_access: at, last_modification: at };
    Ok(rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Hides a file of the layers below; one of this layer stays, as the order in an archive means nothing.
fn hide(target: &Path) -> io::Result<()> {
    match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() => set_opaque(target),
        Ok(_) => Ok(()),
        Err(_) => Ok(rustix::fs::mknodat(CWD, target, FileType::CharacterDevice, Mode::empty(), 0)?),
    }
}

fn is_hidden(there: &Metadata) -> bool {
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

/// Copies a folder with owners and modes; what is no file, folder or link stays behind. Answers how many bytes there were.
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
