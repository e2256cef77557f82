//! Images of containers, kept on this machine: pulled from registries, imported from archives or folders, found by name.
//!
//! ```text
//! <data-dir>/images/names.json      names ─▶ ids, and who gave the name
//!                  /ID/config.json  what the image says of itself
//!                  /ID/image.json   its layers, and the digests under which registries have it
//!                  /layers/CHAIN    layers, each once (see `layers`)
//!                  /downloads       what has come from registries and is no layer yet
//! ```

mod archive;
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
use self::layers::{Layers, MOST_LAYERS};
pub(crate) use self::lock::Lock;
pub use self::manifest::ManifestError;
pub use self::name::{BadName, Reference, full};
use crate::files;

/// Why an image is not there.
#[derive(Debug, Error)]
pub enum ImageError {
    /// There is none of this name.
    #[error(
        "there is no image {0}; bring one with `waypost image pull {0}` or `waypost image import FILE {0}`, or see `waypost image list`"
    )]
    Unknown(String),
    /// What was given is no image.
    #[error("{0} is no image: expected a folder, an OCI layout or a docker archive: {1}")]
    NotAnImage(String, String),
    /// A layer of it cannot be unpacked.
    #[error("layer {number} of {image}: {source}")]
    Layer {
        /// Which image.
        image: String,
        /// Which layer, the lowest is 1.
        number: usize,
        /// Why.
        source: AddError,
    },
    /// It is for other machines.
    #[error("{0}: {1}")]
    NotForUs(String, ManifestError),
    /// Its name is none.
    #[error(transparent)]
    Name(#[from] BadName),
    /// Pods need it.
    #[error("the image {name} is used by the Pod {pod}; delete that first")]
    Used {
        /// Which image.
        name: String,
        /// A Pod that uses it.
        pod: String,
    },
    /// The disk.
    #[error("{0}: {1}")]
    Disk(String, io::Error),
}

/// The images of a machine.
#[derive(Clone, Debug)]
pub struct Images {
    data_dir: PathBuf,
    root: PathBuf,
    layers: Layers,
}

/// An image.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Its id: the digest of its configuration.
    pub id: String,
    /// What it says of itself.
    pub config: Value,
    /// The folders of its layers, the uppermost first.
    pub layers: Vec<PathBuf>,
    /// Whether its name was given on this machine, and not by a registry.
    pub own: bool,
    /// Exactly this image, for people: with the digest of its registry if it has one.
    pub exact: String,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    id: String,
    /// Given here, by `import` or `tag`.
    own: bool,
}

/// What is written down of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// Chains, the lowest first.
    layers: Vec<String>,
    /// `HOST/REPOSITORY` and the digest that the registry has for it.
    digests: BTreeSet<(String, String)>,
}

impl Images {
    /// Those in a data directory.
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

    /// The configuration of an image that is here, as its registry has it.
    fn config(&self, id: &str) -> Option<Vec<u8>> {
        let bytes = fs::read(self.root.join(id).join("config.json")).ok()?;
        (layers::sha256(&bytes) == id).then_some(bytes)
    }

    /// What has come and is no layer yet.
    fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// The folder of all; only root looks into what belongs to Pods.
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

    /// Keeps what images are made of as long as it is held: whoever begins a container holds it.
    ///
    /// # Errors
    /// When the disk does not allow it.
    pub(crate) fn hold(&self) -> io::Result<Lock> {
        lock::using(&self.root)
    }

    /// Imports an image under a name; answers its id.
    ///
    /// # Errors
    /// When what is there is no image, or the disk is full.
    pub fn import(&self, from: &Path, name: &str) -> Result<String, ImageError> {
        let disk = |error| ImageError::Disk(from.display().to_string(), error);
        Reference::parse(name)?;
        self.prepare().map_err(disk)?;
        let held = self.hold().map_err(disk)?;
        let (config, chains) = if from.is_dir() && !from.join("oci-layout").exists() {
            let chain = self.layers.add_folder(from).map_err(|source| layer_of(from, 1, source))?;
            // A folder says nothing of itself, and two of them are two images.
            (json!({"config": {}, "os": "linux", "rootfs": {"diff_ids": [chain]}}).to_string().into(), vec![chain])
        } else {
            self.bring(from)?
        };
        let id = self.keep(&config, chains, None).map_err(disk)?;
        self.alias(name, &id, true).map_err(disk)?;
        drop(held);
        // What had the name before may have no other.
        self.collect().map_err(disk)?;
        Ok(id)
    }

    /// Adds the layers of an archive.
    fn bring(&self, from: &Path) -> Result<(Vec<u8>, Vec<String>), ImageError> {
        let not = |why: String| ImageError::NotAnImage(from.display().to_string(), why);
        let work = self.root.join(format!("{}{}", layers::UNFINISHED, std::process::id()));
        let made = (|| {
            let found = archive::open(from, &work).map_err(|error| not(error.to_string()))?;
            let config: Value = serde_json::from_slice(&found.config).map_err(|error| not(error.to_string()))?;
            if let Some(error) = manifest::Platform::here().refuses(&config) {
                return Err(ImageError::NotForUs(from.display().to_string(), error));
            }
            let open = |number: usize| fs::File::open(found.layers.get(number).map_or(Path::new(""), PathBuf::as_path));
            let chains = self.stack(&from.display().to_string(), &config, found.layers.len(), open)?;
            Ok((found.config, chains))
        })();
        files::remove_folder(&work).map_err(|error| ImageError::Disk(work.display().to_string(), error))?;
        made
    }

    /// Adds layers that are not there yet, over one another; answers their chains, the lowest first.
    fn stack<R: io::Read>(
        &self,
        image: &str,
        config: &Value,
        count: usize,
        open: impl Fn(usize) -> io::Result<R>,
    ) -> Result<Vec<String>, ImageError> {
        let diffs = diffs(config);
        if count > MOST_LAYERS || !(diffs.is_empty() || diffs.len() == count) {
            let why = format!("it has {count} layers, and says that it has {}", diffs.len());
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

    /// Keeps an image whose layers are there; answers its id.
    fn keep(&self, config: &[u8], chains: Vec<String>, digest: Option<(String, String)>) -> io::Result<String> {
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

    /// Gives an id one more name.
    fn alias(&self, name: &str, id: &str, own: bool) -> io::Result<()> {
        let _lock = lock::names(&self.root)?;
        let mut names = self.named();
        names.insert(full(name), Named { id: id.to_owned(), own });
        files::put(&self.root.join("names.json"), &names)
    }

    /// Gives an image another name.
    ///
    /// # Errors
    /// When there is no such image.
    pub fn tag(&self, name: &str, other: &str) -> Result<(), ImageError> {
        Reference::parse(other)?;
        let image = self.find(name)?;
        self.alias(other, &image.id, true).map_err(|error| ImageError::Disk(other.to_owned(), error))
    }
}

fn layer_of(image: &Path, number: usize, source: AddError) -> ImageError {
    ImageError::Layer { image: image.display().to_string(), number, source }
}

/// Unpacks the archive of a layer into an empty folder, and nowhere else; answers how many bytes its files have.
///
/// # Errors
/// When it is damaged, or hostile.
pub fn unpack_layer(from: impl io::Read, into: &Path) -> Result<u64, LayerError> {
    layer::unpack(from, into, &[])
}

/// The digests of layers that a configuration names; those that are none are left out, so that their number is wrong.
fn diffs(config: &Value) -> Vec<String> {
    let all = config.texts("rootfs.diff_ids").into_iter();
    let hex = all.filter_map(|diff| diff.strip_prefix("sha256:")).filter(|hex| name::is_digest(hex));
    hex.map(str::to_owned).collect()
}
