//! Pulls images: what a registry has of them and we have not, unpacked into layers, and a name for it.
//!
//! ```text
//! name ─▶ manifest (of this kind of machine) ─▶ configuration ─▶ layers that are missing ─▶ unpacked ─▶ named
//! ```
//! An image is pulled by one at a time, a few images at once, and a few layers of each. Whoever gives up leaves what came for the next.

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
use super::registry::{Session, Web, download};
use super::{ImageError, Images, diffs, layers};

/// How deep an index may lead to others.
const DEPTH: usize = 4;
/// How many images come at once.
const IMAGES: usize = 3;
/// How many layers of an image come at once.
const LAYERS: usize = 3;
/// The most bytes of an image, compressed.
const MOST: u64 = 64 << 30;

/// Somebody who pulls images.
pub struct Puller {
    images: Images,
    web: Web,
    /// Whose turn it is, by name.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    slots: Semaphore,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Its id.
    pub id: String,
    /// The bytes of its files.
    pub size: u64,
    /// How many bytes came for it.
    pub fetched: u64,
}

impl Puller {
    /// Pulls for a machine; speaks plain HTTP to loopback and to these registries.
    #[must_use]
    pub fn new(images: Images, insecure: &[String]) -> Self {
        let web = Web::new(insecure.iter().cloned());
        Self { images, web, turns: Mutex::default(), slots: Semaphore::new(IMAGES) }
    }

    /// Pulls an image, with the first credentials that its registry takes; without any as nobody.
    ///
    /// # Errors
    /// Why it could not be had.
    pub async fn pull(&self, name: &str, credentials: &[Credential]) -> Result<Pulled, PullError> {
        let image = Reference::parse(name)?;
        let key = full(name);
        let turn = self.turns.lock().entry(key.clone()).or_default().clone();
        let pulled = {
            let _turn = turn.lock().await;
            let _slot = self.slots.acquire().await.map_err(io::Error::other)?;
            self.with_any(name, &image, credentials).await
        };
        // Two are this function and the map: nobody else waits.
        self.turns.lock().retain(|other, turn| *other != key || Arc::strong_count(turn) > 2);
        pulled
    }

    async fn with_any(&self, name: &str, image: &Reference, all: &[Credential]) -> Result<Pulled, PullError> {
        let mut tried = all.iter().map(Some).collect::<Vec<_>>();
        if tried.is_empty() {
            tried.push(None);
        }
        let mut last = None;
        for credential in tried {
            match self.once(name, &Session::new(&self.web, image, credential), image).await {
                Err(error) if error.is_about_credentials() => last = Some(error),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(|| ImageError::Unknown(name.to_owned()).into()))
    }

    async fn once(&self, name: &str, session: &Session<'_>, image: &Reference) -> Result<Pulled, PullError> {
        let (parts, digest) = parts(session).await?;
        let config = match self.images.config(&parts.config.digest) {
            Some(config) => config.into(),
            None => session.short_blob(&parts.config).await?,
        };
        let said: Value =
            serde_json::from_slice(&config).map_err(|error| ManifestError::NotUnderstood(error.to_string()))?;
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
        if fetched > MOST {
            return Err(PullError::TooLarge(format!("{fetched} bytes are to be fetched")));
        }
        let files = self.fetch(session, &missing).await?;
        let (images, image_name) = (self.images.clone(), name.to_owned());
        let digest = (image.plain(), digest);
        let work = move || -> Result<Pulled, PullError> {
            let open = |number: usize| files.get(&number).map_or(Err(io::ErrorKind::NotFound.into()), File::try_clone);
            let chains = images.stack(&image_name, &said, parts.layers.len(), open)?;
            let id = images.keep(&config, chains, Some(digest))?;
            images.alias(&image_name, &id, false)?;
            for blob in missing.values() {
                let _ = std::fs::remove_file(images.downloads().join(&blob.digest));
            }
            drop(held);
            // What had the name before may have no other.
            images.collect()?;
            Ok(Pulled { size: images.size(&id), id, fetched })
        };
        tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
    }

    /// Layers that are not there, by their place.
    fn missing(&self, parts: &Parts, config: &Value) -> Result<BTreeMap<usize, Descriptor>, PullError> {
        let diffs = diffs(config);
        if diffs.len() != parts.layers.len() {
            let why = format!("it has {} layers, and its configuration {}", parts.layers.len(), diffs.len());
            return Err(ManifestError::NotUnderstood(why).into());
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
            download(session, &blob, folder).await.map(|file| (number, file))
        };
        let all: Vec<(usize, Descriptor)> = missing.iter().map(|(number, blob)| (*number, blob.clone())).collect();
        futures_util::stream::iter(all).map(one).buffer_unordered(LAYERS).try_collect().await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// The parts of an image for this machine, and the digest of what its name leads to.
async fn parts(session: &Session<'_>) -> Result<(Parts, String), PullError> {
    let (mut bytes, first) = session.manifest(None).await?;
    for _ in 0..DEPTH {
        match Document::read(&bytes, &Platform::here())? {
            Document::Image(parts) => return Ok((parts, first)),
            Document::Leads(to) => (bytes, _) = session.manifest(Some(&to)).await?,
        }
    }
    Err(ManifestError::NotUnderstood("its indexes lead nowhere".to_owned()).into())
}
