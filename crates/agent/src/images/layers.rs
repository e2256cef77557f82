//! The layer store: layers are shared between images by chain ID.
//!
//! ```text
//! <data-dir>/images/layers/CHAIN/files      the overlayfs lower directory
//!                               /about.json diff ID and size
//! ```
//! The chain ID (OCI image specification) identifies a layer together with all layers below. Layers are added atomically.

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

/// The most layers of an image; a common limit of overlay drivers.
pub(super) const MAX_LAYERS: usize = 127;

/// Why a layer cannot be added.
#[derive(Debug, Error)]
pub enum AddError {
    /// The archive is invalid or malicious.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// The digest differs.
    #[error("its uncompressed digest is sha256:{found}, but the image says sha256:{wanted}")]
    DigestMismatch {
        /// The expected digest.
        wanted: String,
        /// The actual digest.
        found: String,
    },
    /// A file system operation failed.
    #[error("writing the layer: {0}")]
    Disk(#[from] io::Error),
}

/// The metadata of a layer (`about.json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    /// The diff ID: the digest of the uncompressed archive.
    pub(super) diff: String,
    /// The size of its files, in bytes.
    pub(super) size: u64,
}

/// The layer store.
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

/// The chain ID of a layer over a chain.
pub(super) fn chain(below: Option<&str>, diff: &str) -> String {
    below.map_or_else(|| diff.to_owned(), |below| sha256(format!("sha256:{below} sha256:{diff}").as_bytes()))
}

/// The chain IDs of an image, the lowest first.
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

    /// The directory of the uppermost layer of a chain.
    pub(super) fn files(&self, chain: &str) -> PathBuf {
        self.0.join(chain).join("files")
    }

    /// The metadata; `None` when the layer does not exist.
    pub(super) fn about(&self, chain: &str) -> Option<About> {
        files::get(&self.0.join(chain).join("about.json"))
    }

    /// All chain IDs.
    pub(super) fn all(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).into_iter().flatten().flatten();
        names.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Adds a layer from its archive, compressed or not, over the chains below (the lowest first); returns its chain ID.
    pub(super) fn add(&self, from: impl Read, below: &[String], wanted: Option<&str>) -> Result<String, AddError> {
        let folders: Vec<PathBuf> = below.iter().rev().map(|chain| self.files(chain)).collect();
        self.make(below.last().map(String::as_str), |root| {
            if let Some(like) = folders.first() {
                fs::set_permissions(root, fs::metadata(like)?.permissions())?;
            }
            let mut from = Hashing { inner: decompressed(from)?, context: Context::new(&SHA256) };
            let size = layer::unpack(&mut from, root, &folders)?;
            // Padding after the archive is part of the digest.
            io::copy(&mut from, &mut io::sink()).map_err(LayerError::Broken)?;
            let found = hex(from.context.finish().as_ref());
            match wanted {
                Some(wanted) if wanted != found => Err(AddError::DigestMismatch { wanted: wanted.to_owned(), found }),
                _ => Ok(About { diff: found, size }),
            }
        })
    }

    /// Adds a directory as the only layer of an image.
    pub(super) fn add_folder(&self, from: &Path) -> Result<String, AddError> {
        self.make(None, |root| {
            let size = layer::copy(from, root)?;
            // A directory has no digest: use a random one.
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
            // A layer must not appear with empty files after a power failure.
            rustix::fs::syncfs(fs::File::open(&work)?).map_err(io::Error::from)?;
            let chain = chain(below, &about.diff);
            match fs::rename(&work, self.0.join(&chain)) {
                // Another process added the same layer.
                Err(_) if self.about(&chain).is_some() => {}
                moved => moved?,
            }
            Ok(chain)
        });
        files::remove_folder(&work)?;
        made
    }

    pub(super) fn remove(&self, chain: &str) -> io::Result<()> {
        // Rename first, so that a partial layer is never visible.
        let aside = self.0.join(format!("{UNFINISHED}gone-{:016x}", fastrand::u64(..)));
        match fs::rename(self.0.join(chain), &aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            moved => moved.and_then(|()| files::remove_folder(&aside)),
        }
    }
}

/// The prefix of temporary directories.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// A reader that computes the SHA-256 of the data.
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
