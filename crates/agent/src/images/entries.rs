//! Reads the entries of an untrusted layer archive.
//!
//! In: a tar stream (ustar, with PAX and GNU extensions for long names, and extended attributes). Out: entries with relative paths without `..`, and
//! their content. Oversized, too many or unsupported entries are errors.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use tar::EntryType;
use thiserror::Error;

/// The most entries of a layer.
const MAX_ENTRIES: u64 = 1_000_000;
/// The longest path or link target, in bytes.
const MAX_PATH: usize = 4095;
/// The longest path component, in bytes.
const MAX_NAME: usize = 255;
/// The longest extension header, in bytes.
const MAX_EXTENSION: u64 = 1 << 20;
/// The PAX key prefix of extended attributes.
const ATTRIBUTE: &str = "SCHILY.xattr.";

/// Why a layer cannot be unpacked.
#[derive(Debug, Error)]
pub enum LayerError {
    /// An entry is outside of the image.
    #[error("entry {0:?} is outside of the image")]
    Outside(PathBuf),
    /// An entry is invalid.
    #[error("entry {0:?} {1}")]
    Entry(PathBuf, String),
    /// There are too many entries.
    #[error("it has more than {MAX_ENTRIES} entries")]
    TooMany,
    /// The archive cannot be read.
    #[error("it cannot be read: {0}")]
    Broken(#[source] io::Error),
    /// An entry cannot be written.
    #[error("writing entry {0:?}: {1}")]
    Disk(PathBuf, #[source] io::Error),
}

/// The type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// A symbolic link.
    Symlink(PathBuf),
    /// A hard link to a file of the layer.
    HardLink(PathBuf),
    Fifo,
    /// A device; skipped, because the runtime provides devices.
    Device,
}

/// An entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Relative, without `..`; empty is the root.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) modified: i64,
    pub(super) size: u64,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
}

/// Extension headers of the next entry.
#[derive(Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    user: Option<u64>,
    group: Option<u64>,
    modified: Option<i64>,
    attributes: Vec<(String, Vec<u8>)>,
}

/// Calls `take` with every entry in order; returns their number.
pub(super) fn each<R: Read>(
    from: R,
    mut take: impl FnMut(&Entry, &mut dyn Read) -> Result<(), LayerError>,
) -> Result<u64, LayerError> {
    let mut archive = tar::Archive::new(from);
    let mut pending = Extensions::default();
    let mut count = 0;
    // Raw, because the library would buffer extension headers of any length.
    for found in archive.entries().map_err(LayerError::Broken)?.raw(true) {
        let mut found = found.map_err(LayerError::Broken)?;
        count += 1;
        if count > MAX_ENTRIES {
            return Err(LayerError::TooMany);
        }
        let kind = found.header().entry_type();
        match kind {
            EntryType::XHeader => pax(&extension(&mut found)?, &mut pending)?,
            EntryType::GNULongName => pending.path = Some(text(extension(&mut found)?)),
            EntryType::GNULongLink => pending.link = Some(text(extension(&mut found)?)),
            // Comments, for instance of git archives.
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
    found.take(MAX_EXTENSION + 1).read_to_end(&mut out).map_err(LayerError::Broken)?;
    if out.len() as u64 > MAX_EXTENSION {
        return Err(LayerError::Broken(io::Error::other("an extension header is longer than 1 MiB")));
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

/// Parses PAX records: `LENGTH KEY=VALUE\n`, where a value may contain any byte.
fn pax(bytes: &[u8], out: &mut Extensions) -> Result<(), LayerError> {
    let broken = || LayerError::Broken(io::Error::other("an extended header is invalid"));
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
            "size" => return Err(LayerError::Broken(io::Error::other("a file has 8 GiB or more"))),
            key if key.starts_with("GNU.sparse.") => {
                return Err(LayerError::Broken(io::Error::other("a file is sparse, which is not supported")));
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
        let raw = raw.filter(|raw| !raw.is_empty() && !raw.contains(&0) && raw.len() <= MAX_PATH);
        raw.ok_or_else(|| bad(&shown, "is a link with an empty or too long target"))
    };
    let kind = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous => {
            // Pre-POSIX archives mark directories by a trailing slash.
            if raw.ends_with(b"/") { Kind::Directory } else { Kind::File }
        }
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink(PathBuf::from(OsStr::from_bytes(&link()?))),
        EntryType::Link => Kind::HardLink(clean(&link()?)?),
        EntryType::Fifo => Kind::Fifo,
        EntryType::Char | EntryType::Block => Kind::Device,
        EntryType::GNUSparse => return Err(bad(&shown, "is a sparse file, which is not supported")),
        other => return Err(bad(&shown, format!("has the type {:?}, which is not supported", other.as_byte()))),
    };
    let number = |said: Option<u64>, own: io::Result<u64>, what: &str| {
        let own = own.map_err(|error| bad(&shown, format!("has no {what}: {error}")));
        let all = said.map_or(own, Ok)?;
        u32::try_from(all).map_err(|_| bad(&shown, format!("has the {what} {all}")))
    };
    let damaged = |error: io::Error| bad(&shown, format!("is invalid: {error}"));
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

/// A relative path without `..`.
pub(super) fn clean(raw: &[u8]) -> Result<PathBuf, LayerError> {
    let shown = || PathBuf::from(OsStr::from_bytes(raw.get(..200).unwrap_or(raw)));
    if raw.len() > MAX_PATH || raw.contains(&0) {
        return Err(bad(&shown(), "has a path that is too long or contains a NUL byte"));
    }
    let mut out = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(raw)).components() {
        match part {
            Component::Normal(name) if name.len() > MAX_NAME => return Err(bad(&shown(), "has too long a name")),
            Component::Normal(name) => out.push(name),
            Component::ParentDir => return Err(LayerError::Outside(shown())),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(out)
}
