//! The layers of all images, each once: images that begin alike share what they begin with.
//!
//! ```text
//! <data-dir>/images/layers/CHAIN/files      what it adds and takes away, as overlayfs wants it
//!                               /about.json its own digest, how large it is
//! ```
//! A chain is a layer with all that lie below it, and its name is the digest of their digests. A layer is there as a whole or not at all.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::decompress::decompressed;
use super::entries::LayerError;
use super::layer;
use crate::files;

/// The most layers of an image: what overlayfs, and everybody else, takes.
pub(super) const MOST_LAYERS: usize = 127;

/// Why a layer is not there.
#[derive(Debug, Error)]
pub enum AddError {
    /// Its content is no layer, or a hostile one.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// It is another one than was announced.
    #[error("it unpacks to sha256:{found}, but the image says sha256:{wanted}")]
    Another {
        /// What the image says.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// The disk.
    #[error("the disk: {0}")]
    Disk(#[from] io::Error),
}

/// What is known of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    /// The digest of its archive.
    pub(super) diff: String,
    /// The bytes of its files.
    pub(super) size: u64,
}

/// The layers of a machine.
#[derive(Clone, Debug)]
pub(super) struct Layers(PathBuf);

/// Hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The SHA-256 of bytes.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, bytes).as_ref())
}

/// The name of a layer over a chain.
pub(super) fn chain(below: Option<&str>, diff: &str) -> String {
    below.map_or_else(|| diff.to_owned(), |below| sha256(format!("sha256:{below} sha256:{diff}").as_bytes()))
}

/// The names of all chains of an image, the lowest first.
pub(super) fn chains(diffs: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for diff in diffs {
        out.push(chain(out.last().map(String::as_str), diff));
    }
    out
}

impl Layers {
    pub(super) fn new(images: &Path) -> Self {
        Self(images.join("layers"))
    }

    /// The files of a chain's uppermost layer.
    pub(super) fn files(&self, chain: &str) -> PathBuf {
        self.0.join(chain).join("files")
    }

    /// What is known of it; nothing when it is not there.
    pub(super) fn about(&self, chain: &str) -> Option<About> {
        files::get(&self.0.join(chain).join("about.json"))
    }

    /// Names of all.
    pub(super) fn all(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Adds a layer from its archive, compressed or not, over the chains below it, the lowest first; answers its chain.
    pub(super) fn add(&self, from: impl Read, below: &[String], wanted: Option<&str>) -> Result<String, AddError> {
        let folders: Vec<PathBuf> = below.iter().rev().map(|chain| self.files(chain)).collect();
        self.make(below.last().map(String::as_str), |root| {
            if let Some(like) = folders.first() {
                fs::set_permissions(root, fs::metadata(like)?.permissions())?;
            }
            let mut from = Hashing { inner: decompressed(from)?, context: Context::new(&SHA256) };
            let size = layer::unpack(&mut from, root, &folders)?;
            // What follows the end of an archive belongs to its digest.
            io::copy(&mut from, &mut io::sink()).map_err(LayerError::Broken)?;
            let found = hex(from.context.finish().as_ref());
            match wanted {
                Some(wanted) if wanted != found => Err(AddError::Another { wanted: wanted.to_owned(), found }),
                _ => Ok(About { diff: found, size }),
            }
        })
    }

    /// Adds a folder as the only layer of an image.
    pub(super) fn add_folder(&self, from: &Path) -> Result<String, AddError> {
        self.make(None, |root| {
            let size = layer::copy(from, root)?;
            // A folder has no digest: each time it is another.
            let diff = sha256(&fastrand::u128(..).to_ne_bytes());
            Ok(About { diff, size })
        })
    }

    fn make(
        &self,
        below: Option<&str>,
        fill: impl FnOnce(&Path) -> Result<About, AddError>,
    ) -> Result<String, AddError> {
        fs::create_dir_all(&self.0)?;
        let work = self.0.join(format!("{UNFINISHED}{}-{:016x}", std::process::id(), fastrand::u64(..)));
        let root = work.join("files");
        fs::create_dir_all(&root)?;
        let made = fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).map_err(AddError::from);
        let made = made.and_then(|()| fill(&root)).and_then(|about| {
            files::put(&work.join("about.json"), &about)?;
            // After a power cut it must not be there with empty files.
            rustix::fs::syncfs(fs::File::open(&work)?).map_err(io::Error::from)?;
            let chain = chain(below, &about.diff);
            match fs::rename(&work, self.0.join(&chain)) {
                // Somebody else was faster, with the same.
                Err(_) if self.about(&chain).is_some() => {}
                moved => moved?,
            }
            Ok(chain)
        });
        files::remove_folder(&work)?;
        made
    }

    pub(super) fn remove(&self, chain: &str) -> io::Result<()> {
        // First away from its place, so that nobody takes half of it for a layer.
        let aside = self.0.join(format!("{UNFINISHED}gone-{:016x}", fastrand::u64(..)));
        match fs::rename(self.0.join(chain), &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            moved => moved.and_then(|()| files::remove_folder(&aside)),
        }
    }
}

/// What names of layers that are being made begin with.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// A reader that knows the digest of what was read.
struct Hashing<R> {
    inner: R,
    context: Context,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.context.update(buffer.get(..length).unwrap_or_default());
        Ok(length)
    }
}
