//! Pulls images: fetches missing blobs, unpacks them into layers and names the image.
//!
//! ```text
//! name ─▶ manifest (of this kind of machine) ─▶ configuration ─▶ layers that are missing ─▶ unpacked ─▶ named
//! ```
//! Pulls of the same image are serialized; images and layers are fetched concurrently within limits. Partial downloads are resumed.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::credentials::Credential;
use super::manifest::{Descriptor, Document, ManifestError, Parts, Platform};
use super::name::{Reference, full};
pub use super::registry::PullError;
use super::registry::{HttpClient, Session, download_blob};
use super::{ImageError, Images, diffs, layers};

/// The most nested indexes.
const MAX_INDEX_DEPTH: usize = 4;
/// Concurrent image pulls.
const CONCURRENT_IMAGES: usize = 3;
/// Concurrent layers per image.
const CONCURRENT_LAYERS: usize = 3;
/// The most bytes of an image, compressed.
const MAX_SIZE: u64 = 64 << 30;

/// Pulls images.
pub struct Puller {
    images: Images,
    web: HttpClient,
    /// One lock per image name.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    slots: Semaphore,
}

/// A pulled image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The image ID.
    pub id: String,
    /// The size of its files, in bytes.
    pub size: u64,
    /// The bytes downloaded.
    pub fetched: u64,
}

impl Puller {
    /// Uses plain HTTP for loopback and the `insecure` registries.
    #[must_use]
    pub fn new(images: Images, insecure: &[String]) -> Self {
        let web = HttpClient::new(insecure.iter().cloned());
        Self { images, web, locks: Mutex::default(), slots: Semaphore::new(CONCURRENT_IMAGES) }
    }

    /// Pulls an image with the first credentials that the registry accepts; anonymously without credentials.
    ///
    /// # Errors
    /// Why the pull failed.
    pub async fn pull(&self, name: &str, credentials: &[Credential]) -> Result<Pulled, PullError> {
        let image = Reference::parse(name)?;
        let key = full(name);
        let lock = self.locks.lock().entry(key.clone()).or_default().clone();
        let pulled = {
            let _lock = lock.lock().await;
            let _slot = self.slots.acquire().await.map_err(io::Error::other)?;
            self.try_credentials(name, &image, credentials).await
        };
        // Two references, this function and the map: no other pull waits.
        self.locks.lock().retain(|other, lock| *other != key || Arc::strong_count(lock) > 2);
        pulled
    }

    async fn try_credentials(&self, name: &str, image: &Reference, all: &[Credential]) -> Result<Pulled, PullError> {
        let mut tried = all.iter().map(Some).collect::<Vec<_>>();
        if tried.is_empty() {
            tried.push(None);
        }
        let mut last = None;
        for credential in tried {
            match self.pull_once(name, &Session::new(&self.web, image, credential), image).await {
                Err(error) if error.is_about_credentials() => last = Some(error),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(|| ImageError::Unknown(name.to_owned()).into()))
    }

    async fn pull_once(&self, name: &str, session: &Session<'_>, image: &Reference) -> Result<Pulled, PullError> {
        let (parts, digest) = parts(session).await?;
        let config = match self.images.config(&parts.config.digest) {
            Some(config) => config.into(),
            None => session.short_blob(&parts.config).await?,
        };
        let said: Value = serde_json::from_slice(&config).map_err(|error| ManifestError::Invalid(error.to_string()))?;
        if let Some(error) = Platform::here().refuses(&said) {
            return Err(error.into());
        }
        let images = self.images.clone();
        let held = blocking(move || {
            images.prepare()?;
            images.hold()
        })
        .await?;
        let missing = self.missing(&parts, &said)?;
        let fetched = missing.values().map(|blob| blob.size).sum();
        if fetched > MAX_SIZE {
            return Err(PullError::TooLarge(format!("{fetched} bytes to download")));
        }
        let files = self.fetch(session, &missing).await?;
        let (images, image_name) = (self.images.clone(), name.to_owned());
        let digest = (image.plain(), digest);
        let work = move || -> Result<Pulled, PullError> {
            let open = |number: usize| files.get(&number).map_or(Err(io::ErrorKind::NotFound.into()), File::try_clone);
            let chains = images.add_layers(&image_name, &said, parts.layers.len(), open)?;
            let id = images.store(&config, chains, Some(digest))?;
            images.set_name(&image_name, &id, false)?;
            for blob in missing.values() {
                let _ = std::fs::remove_file(images.downloads().join(&blob.digest));
            }
            drop(held);
            // The previous image of this name may be unused now.
            images.collect()?;
            Ok(Pulled { size: images.size(&id), id, fetched })
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    }

    /// Missing layers by index.
    fn missing(&self, parts: &Parts, config: &Value) -> Result<BTreeMap<usize, Descriptor>, PullError> {
        let diffs = diffs(config);
        if diffs.len() != parts.layers.len() {
            let why = format!("it has {} layers, but its configuration lists {}", parts.layers.len(), diffs.len());
            return Err(ManifestError::Invalid(why).into());
        }
        let chains = layers::chains(&diffs);
        let all = parts.layers.iter().zip(&chains).enumerate();
        let missing = all.filter(|(_, (_, chain))| self.images.layers.about(chain).is_none());
        Ok(missing.map(|(number, (blob, _))| (number, blob.clone())).collect())
    }

    async fn fetch(
        &self,
        session: &Session<'_>,
        missing: &BTreeMap<usize, Descriptor>,
    ) -> Result<BTreeMap<usize, File>, PullError> {
        let folder = self.images.downloads();
        let folder = &folder;
        let one = |(number, blob): (usize, Descriptor)| async move {
            download_blob(session, &blob, folder).await.map(|file| (number, file))
        };
        let all: Vec<(usize, Descriptor)> = missing.iter().map(|(number, blob)| (*number, blob.clone())).collect();
        futures_util::stream::iter(all).map(one).buffer_unordered(CONCURRENT_LAYERS).try_collect().await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The manifest for this platform, and the digest of the document that the name refers to.
async fn parts(session: &Session<'_>) -> Result<(Parts, String), PullError> {
    let (mut bytes, first) = session.manifest(None).await?;
    for _ in 0..MAX_INDEX_DEPTH {
        match Document::read(&bytes, &Platform::here())? {
            Document::Image(parts) => return Ok((parts, first)),
            Document::Index(to) => (bytes, _) = session.manifest(Some(&to)).await?,
        }
    }
    Err(ManifestError::Invalid("its indexes are nested too deeply".to_owned()).into())
}
