//! The image store of the node: images pulled from registries or imported from archives or directories.
//!
//! ```text
//! <data-dir>/images/names.json      names ─▶ IDs, and whether the name is local
//!                  /ID/config.json  the image configuration
//!                  /ID/image.json   its layers, and its manifest digests by repository
//!                  /layers/CHAIN    layers (see `layers`)
//!                  /downloads       blobs that are not unpacked yet
//! ```

mod archive;
pub mod backoff;
pub mod credentials;
mod decompress;
mod entries;
mod garbage;
mod layer;
mod layers;
mod lock;
mod manifest;
mod name;
pub mod pull;
mod registry;
#[cfg(test)]
mod tests;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::value::ValueExt as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

pub use self::entries::LayerError;
pub use self::garbage::{Freed, Listed};
pub use self::layers::AddError;
use self::layers::{Layers, MAX_LAYERS};
pub(crate) use self::lock::Lock;
pub use self::manifest::ManifestError;
pub use self::name::{BadName, Reference, full, is_host_image};
use crate::files;

/// Errors of the image store.
#[derive(Debug, Error)]
pub enum ImageError {
    /// There is no image with this name.
    #[error(
        "image {0} not found; use `waypost image pull {0}` or `waypost image import FILE {0}`, or see `waypost image list`"
    )]
    Unknown(String),
    /// The source is not an image.
    #[error("{0} is not an image: expected a directory, an OCI layout or a docker archive: {1}")]
    NotAnImage(String, String),
    /// A layer cannot be unpacked.
    #[error("layer {number} of {image}: {source}")]
    Layer {
        /// The image.
        image: String,
        /// The layer; the lowest is 1.
        number: usize,
        /// The error.
        source: AddError,
    },
    /// The image is for another platform.
    #[error("{0}: {1}")]
    WrongPlatform(String, ManifestError),
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The image is in use.
    #[error("image {name} is used by the Pod {pod}; delete the Pod first")]
    Used {
        /// The image.
        name: String,
        /// A Pod that uses it.
        pod: String,
    },
    /// A file system operation failed.
    #[error("{0}: {1}")]
    Disk(String, io::Error),
}

/// The image store.
#[derive(Clone, Debug)]
pub struct Images {
    data_dir: PathBuf,
    root: PathBuf,
    layers: Layers,
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// The image ID: the digest of its configuration.
    pub id: String,
    /// Its configuration.
    pub config: Value,
    /// The directories of its layers, the uppermost first.
    pub layers: Vec<PathBuf>,
    /// Whether the name is local (`import`, `tag`) and not from a registry.
    pub own: bool,
    /// The image reference with digest, for `imageID`.
    pub exact: String,
}

/// The target of a name (`names.json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    id: String,
    /// Local, by `import` or `tag`.
    own: bool,
}

/// The metadata of an image (`image.json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// Chain IDs, the lowest first.
    layers: Vec<String>,
    /// `HOST/REPOSITORY` and the manifest digest there.
    digests: BTreeSet<(String, String)>,
}

impl Images {
    /// The image store of a data directory.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        let root = data_dir.join("images");
        Self { data_dir: data_dir.to_owned(), layers: Layers::new(&root), root }
    }

    fn named(&self) -> BTreeMap<String, Named> {
        files::get(&self.root.join("names.json")).unwrap_or_default()
    }

    fn written(&self, id: &str) -> Option<Written> {
        files::get(&self.root.join(id).join("image.json"))
    }

    /// The configuration of an image, byte for byte.
    fn config(&self, id: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.root.join(id).join("config.json")).ok()?;
        (layers::sha256(&bytes) == id).then_some(bytes)
    }

    /// The directory of downloaded blobs.
    fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// Creates the store with mode 0700.
    fn prepare(&self) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        fs::create_dir_all(&self.root)?;
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o700))
    }

    /// Finds an image by its name.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, name: &str) -> Result<Image, ImageError> {
        let unknown = || ImageError::Unknown(name.to_owned());
        let key = full(name);
        let named = self.named().get(&key).cloned().ok_or_else(unknown)?;
        let config = files::get(&self.root.join(&named.id).join("config.json")).ok_or_else(unknown)?;
        let written = self.written(&named.id).ok_or_else(unknown)?;
        if written.layers.iter().any(|chain| self.layers.about(chain).is_none()) {
            return Err(unknown());
        }
        let plain = Reference::parse(name).map(|parts| parts.plain()).unwrap_or_default();
        let digest = written.digests.iter().find(|(repository, _)| *repository == plain);
        let digest = digest.map_or(&named.id, |(_, digest)| digest);
        Ok(Image {
            exact: format!("{}@sha256:{digest}", if plain.is_empty() { &key } else { &plain }),
            layers: written.layers.iter().rev().map(|chain| self.layers.files(chain)).collect(),
            own: named.own,
            id: named.id,
            config,
        })
    }

    /// A shared lock that prevents the removal of layers, for starting containers and pulling.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub(crate) fn hold(&self) -> io::Result<Lock> {
        lock::using(&self.root)
    }

    /// Imports an image under a name; returns its ID.
    ///
    /// # Errors
    /// When the source is not an image, or cannot be stored.
    pub fn import(&self, from: &Path, name: &str) -> Result<String, ImageError> {
        let disk = |error| ImageError::Disk(from.display().to_string(), error);
        Reference::parse(name)?;
        self.prepare().map_err(disk)?;
        let held = self.hold().map_err(disk)?;
        let (config, chains) = if from.is_dir() && !from.join("oci-layout").exists() {
            let chain = self.layers.add_folder(from).map_err(|source| layer_of(from, 1, source))?;
            // A directory has no configuration; each import is a new image.
            (json!({"config": {}, "os": "linux", "rootfs": {"diff_ids": [chain]}}).to_string().into(), vec![chain])
        } else {
            self.import_archive(from)?
        };
        let id = self.store(&config, chains, None).map_err(disk)?;
        self.set_name(name, &id, true).map_err(disk)?;
        drop(held);
        // The previous image of this name may be unused now.
        self.collect().map_err(disk)?;
        Ok(id)
    }

    /// Imports the layers of an archive.
    fn import_archive(&self, from: &Path) -> Result<(Vec<u8>, Vec<String>), ImageError> {
        let not = |why: String| ImageError::NotAnImage(from.display().to_string(), why);
        let work = self.root.join(format!("{}{}", layers::UNFINISHED, std::process::id()));
        let made = (|| {
            let found = archive::open(from, &work).map_err(|error| not(error.to_string()))?;
            let config: Value = serde_json::from_slice(&found.config).map_err(|error| not(error.to_string()))?;
            if let Some(error) = manifest::Platform::here().refuses(&config) {
                return Err(ImageError::WrongPlatform(from.display().to_string(), error));
            }
            let open = |number: usize| fs::File::open(found.layers.get(number).map_or(Path::new(""), PathBuf::as_path));
            let chains = self.add_layers(&from.display().to_string(), &config, found.layers.len(), open)?;
            Ok((found.config, chains))
        })();
        files::remove_folder(&work).map_err(|error| ImageError::Disk(work.display().to_string(), error))?;
        made
    }

    /// Adds missing layers; returns the chain IDs, the lowest first.
    fn add_layers<R: io::Read>(
        &self,
        image: &str,
        config: &Value,
        count: usize,
        open: impl Fn(usize) -> io::Result<R>,
    ) -> Result<Vec<String>, ImageError> {
        let diffs = diffs(config);
        if count > MAX_LAYERS || !(diffs.is_empty() || diffs.len() == count) {
            let why = format!("it has {count} layers, but its configuration lists {}", diffs.len());
            return Err(ImageError::NotAnImage(image.to_owned(), why));
        }
        let known = layers::chains(&diffs);
        let mut chains: Vec<String> = Vec::new();
        for number in 0..count {
            let there = known.get(number).filter(|chain| self.layers.about(chain).is_some());
            let chain = match there {
                Some(chain) => chain.clone(),
                None => {
                    let failed = |source| ImageError::Layer { image: image.to_owned(), number: number + 1, source };
                    let from = open(number).map_err(|error| failed(error.into()))?;
                    self.layers.add(from, &chains, diffs.get(number).map(String::as_str)).map_err(failed)?
                }
            };
            chains.push(chain);
        }
        Ok(chains)
    }

    /// Stores an image whose layers exist; returns its ID.
    fn store(&self, config: &[u8], chains: Vec<String>, digest: Option<(String, String)>) -> io::Result<String> {
        let id = layers::sha256(config);
        let _lock = lock::names(&self.root)?;
        let mut written = self.written(&id).unwrap_or_default();
        written.layers = chains;
        written.digests.extend(digest);
        let folder = self.root.join(&id);
        fs::create_dir_all(&folder)?;
        files::write(&folder.join("config.json"), config)?;
        files::put(&folder.join("image.json"), &written)?;
        Ok(id)
    }

    /// Adds a name to an image ID.
    fn set_name(&self, name: &str, id: &str, own: bool) -> io::Result<()> {
        let _lock = lock::names(&self.root)?;
        let mut names = self.named();
        names.insert(full(name), Named { id: id.to_owned(), own });
        files::put(&self.root.join("names.json"), &names)
    }

    /// Adds a local name to an image.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn tag(&self, name: &str, other: &str) -> Result<(), ImageError> {
        Reference::parse(other)?;
        let image = self.find(name)?;
        self.set_name(other, &image.id, true).map_err(|error| ImageError::Disk(other.to_owned(), error))
    }
}

fn layer_of(image: &Path, number: usize, source: AddError) -> ImageError {
    ImageError::Layer { image: image.display().to_string(), number, source }
}

/// Unpacks a layer archive into an empty directory and never outside of it; returns the size of its files in bytes.
///
/// # Errors
/// When the archive is invalid or malicious.
pub fn unpack_layer(from: impl io::Read, into: &Path) -> Result<u64, LayerError> {
    layer::unpack(from, into, &[])
}

/// The `diff_ids` of a configuration. Invalid ones are skipped, which callers detect by the count.
fn diffs(config: &Value) -> Vec<String> {
    let all = config.texts("rootfs.diff_ids").into_iter();
    let hex = all.filter_map(|diff| diff.strip_prefix("sha256:")).filter(|hex| name::is_digest(hex));
    hex.map(str::to_owned).collect()
}
