//! The entries of a layer's archive, one after the other, read with care: whoever made it may not like us.
//!
//! In: a tar stream (ustar, with the extensions of PAX and GNU for long names, and extended attributes). Out: entries with paths that
//! lead nowhere but down, and their content. What is too long, too many or not understood is refused by name.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;
use thiserror::Error;

/// The most entries of a layer.
const MOST_ENTRIES: u64 = 1_000_000;
/// The longest path, and target of a link.
const LONGEST_PATH: usize = 4095;
/// The longest name.
const LONGEST_NAME: usize = 255;
/// The longest header of an extension: names, and attributes that the kernel takes.
const LONGEST_EXTENSION: u64 = 1 << 20;
/// How extended attributes are called in PAX.
const ATTRIBUTE: &str = "SCHILY.xattr.";

/// Why a layer is not unpacked.
#[derive(Debug, Error)]
pub enum LayerError {
    /// It would be written outside of the image.
    #[error("its entry {0:?} leads out of the image")]
    Outside(PathBuf),
    /// Something in it is not possible.
    #[error("its entry {0:?} {1}")]
    Entry(PathBuf, String),
    /// There is too much of it.
    #[error("it has more than {MOST_ENTRIES} entries")]
    TooMany,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Broken(#[source] io::Error),
    /// It cannot be written.
    #[error("writing its entry {0:?}: {1}")]
    Disk(PathBuf, #[source] io::Error),
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    /// A symbolic link, to whatever.
    Link(PathBuf),
    /// Another name of a file of the layer.
    Same(PathBuf),
    Pipe,
    /// Devices: containers get theirs from their runtime.
    Device,
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Without anything that leads upward; empty is the root.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) modified: i64,
    pub(super) size: u64,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
}

/// What extensions say of the entry after them.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    user: Option<u64>,
    group: Option<u64>,
    modified: Option<i64>,
    attributes: Vec<(String, Vec<u8>)>,
}

/// Hands every entry to somebody, in their order; answers how many there were.
pub(super) fn each<R: Read>(
    from: R,
    mut take: impl FnMut(&Entry, &mut dyn Read) -> Result<(), LayerError>,
) -> Result<u64, LayerError> {
    let mut archive = tar::Archive::new(from);
    let mut pending = Extensions::default();
    let mut count = 0;
    // Raw: the library would hold extensions of any length in memory.
    for found in archive.entries().map_err(LayerError::Broken)?.raw(true) {
        let mut found = found.map_err(LayerError::Broken)?;
        count += 1;
        if count > MOST_ENTRIES {
            return Err(LayerError::TooMany);
        }
        let kind = found.header().entry_type();
        match kind {
            EntryType::XHeader => pax(&extension(&mut found)?, &mut pending)?,
            EntryType::GNULongName => pending.path = Some(text(extension(&mut found)?)),
            EntryType::GNULongLink => pending.link = Some(text(extension(&mut found)?)),
            // Comments, mostly of git.
            EntryType::XGlobalHeader => drop(extension(&mut found)?),
            _ => {
                let entry = entry(found.header(), std::mem::take(&mut pending))?;
                take(&entry, &mut found)?;
            }
        }
    }
    Ok(count)
}

fn extension(found: &mut impl Read) -> Result<Vec<u8>, LayerError> {
    let mut out = Vec::new();
    found.take(LONGEST_EXTENSION + 1).read_to_end(&mut out).map_err(LayerError::Broken)?;
    if out.len() as u64 > LONGEST_EXTENSION {
        return Err(LayerError::Broken(io::Error::other("a header in it is longer than 1 MiB")));
    }
    Ok(out)
}

fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(length);
    bytes
}

fn bad(path: &Path, why: impl Into<String>) -> LayerError {
    LayerError::Entry(path.to_owned(), why.into())
}

/// Reads records of PAX: `LENGTH KEY=VALUE\n`, where a value may have any bytes.
fn pax(bytes: &[u8], out: &mut Extensions) -> Result<(), LayerError> {
    let broken = || LayerError::Broken(io::Error::other("an extended header in it is damaged"));
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
        let digits = std::str::from_utf8(rest.get(..space).unwrap_or_default()).map_err(|_| broken())?;
        let length: usize = digits.parse().map_err(|_| broken())?;
        let record = rest.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(broken)?;
        rest = rest.get(length..).unwrap_or_default();
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
        let (key, value) = record.split_at(equals);
        let (key, value) = (String::from_utf8_lossy(key), value.get(1..).unwrap_or_default());
        let number = || std::str::from_utf8(value).ok();
        match key.as_ref() {
            "path" => out.path = Some(value.to_vec()),
            "linkpath" => out.link = Some(value.to_vec()),
            "uid" => out.user = number().and_then(|number| number.parse().ok()),
            "gid" => out.group = number().and_then(|number| number.parse().ok()),
            "mtime" => out.modified = number().and_then(|number| number.split('.').next()?.parse().ok()),
            "size" => return Err(LayerError::Broken(io::Error::other("a file in it is of 8 GiB or more"))),
            key if key.starts_with("GNU.sparse.") => {
                return Err(LayerError::Broken(io::Error::other("a file in it is sparse, which is not understood")));
            }
            key => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    out.attributes.push((name.to_owned(), value.to_vec()));
                }
            }
        }
    }
    Ok(())
}

fn entry(header: &tar::Header, said: Extensions) -> Result<Entry, LayerError> {
    let raw = said.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let shown = PathBuf::from(OsStr::from_bytes(&raw));
    let path = clean(&raw)?;
    let link = || {
        let raw = said.link.clone().or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
        let raw = raw.filter(|raw| !raw.is_empty() && !raw.contains(&0) && raw.len() <= LONGEST_PATH);
        raw.ok_or_else(|| bad(&shown, "is a link to nothing, or to too long a path"))
    };
    let kind = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous => {
            // Old archives have no other way to say that it is a folder.
            if raw.ends_with(b"/") { Kind::Folder } else { Kind::File }
        }
        EntryType::Directory => Kind::Folder,
        EntryType::Symlink => Kind::Link(PathBuf::from(OsStr::from_bytes(&link()?))),
        EntryType::Link => Kind::Same(clean(&link()?)?),
        EntryType::Fifo => Kind::Pipe,
        EntryType::Char | EntryType::Block => Kind::Device,
        EntryType::GNUSparse => return Err(bad(&shown, "is a sparse file, which is not understood")),
        other => return Err(bad(&shown, format!("is of the kind {:?}, which is not understood", other.as_byte()))),
    };
    let number = |said: Option<u64>, own: io::Result<u64>, what: &str| {
        let own = own.map_err(|error| bad(&shown, format!("has no {what}: {error}")));
        let all = said.map_or(own, Ok)?;
        u32::try_from(all).map_err(|_| bad(&shown, format!("has the {what} {all}")))
    };
    let damaged = |error: io::Error| bad(&shown, format!("is damaged: {error}"));
    Ok(Entry {
        user: number(said.user, header.uid(), "owner")?,
        group: number(said.group, header.gid(), "group")?,
        mode: header.mode().map_err(damaged)? & 0o7777,
        modified: said.modified.unwrap_or_else(|| header.mtime().ok().and_then(|at| at.try_into().ok()).unwrap_or(0)),
        size: if kind == Kind::File { header.size().map_err(damaged)? } else { 0 },
        attributes: said.attributes,
        path,
        kind,
    })
}

/// A path below the root, by names alone.
pub(super) fn clean(raw: &[u8]) -> Result<PathBuf, LayerError> {
    let shown = || PathBuf::from(OsStr::from_bytes(raw.get(..200).unwrap_or(raw)));
    if raw.len() > LONGEST_PATH || raw.contains(&0) {
        return Err(bad(&shown(), "has a path that is too long, or has a zero in it"));
    }
    let mut out = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(raw)).components() {
        match part {
            Component::Normal(name) if name.len() > LONGEST_NAME => return Err(bad(&shown(), "has too long a name")),
            Component::Normal(name) => out.push(name),
            Component::ParentDir => return Err(LayerError::Outside(shown())),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(out)
}
