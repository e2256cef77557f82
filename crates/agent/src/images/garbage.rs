//! Garbage collection of images and layers.
//!
//! In: names, images, layers, and the Pods of this node. Out: a list, and freed space. An image is kept while it has a name or a Pod uses it; a layer
//! while an image uses it.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use super::name::{full, is_digest};
use super::users::{User, users};
use super::{ImageError, Images, layers, lock};
use crate::files;

/// A row of `waypost image list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name; `None` for an untagged image.
    pub name: Option<String>,
    /// The image ID.
    pub id: String,
    /// The size of its files in bytes, shared layers included.
    pub size: u64,
    /// Pods that use it.
    pub pods: BTreeSet<String>,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Images.
    pub images: usize,
    /// Layers.
    pub layers: usize,
    /// The size of their files, in bytes.
    pub bytes: u64,
    /// Whether layers were kept because an image is being pulled or a container started.
    pub busy: bool,
}

impl Images {
    /// All image IDs.
    fn ids(&self) -> Vec<String> {
        let all = fs::read_dir(&self.root).into_iter().flatten().flatten();
        all.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_digest(name)).collect()
    }

    /// The Pods that use an image, by name or by a running container.
    fn pods_of(&self, id: &str, all: &[User]) -> BTreeSet<String> {
        let names = self.named();
        let digests = self.written(id).map(|written| written.digests).unwrap_or_default();
        let uses = |user: &&User| {
            user.names.iter().any(|name| names.get(name).is_some_and(|named| named.id == id))
                || user.digests.iter().any(|own| own == id || digests.iter().any(|(_, digest)| digest == own))
        };
        all.iter().filter(uses).map(|user| user.pod.clone()).collect()
    }

    /// All images, untagged ones included.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let (names, users) = (self.named(), users(&self.data_dir));
        let listed = |name: Option<&String>, id: &String| Listed {
            name: name.cloned(),
            id: id.clone(),
            size: self.size(id),
            pods: self.pods_of(id, &users),
        };
        let mut out: Vec<Listed> = names.iter().map(|(name, named)| listed(Some(name), &named.id)).collect();
        let nameless = self.ids().into_iter().filter(|id| !names.values().any(|named| named.id == *id));
        out.extend(nameless.map(|id| listed(None, &id)));
        out
    }

    /// The size of an image's files, in bytes.
    #[must_use]
    pub fn size(&self, id: &str) -> u64 {
        let chains = self.written(id).map(|written| written.layers).unwrap_or_default();
        chains.iter().filter_map(|chain| self.layers.about(chain)).map(|about| about.size).sum()
    }

    /// Removes a name; with its last name the image and its unshared layers.
    ///
    /// # Errors
    /// When there is no such image, or a Pod uses it.
    pub fn remove(&self, name: &str) -> Result<Freed, ImageError> {
        let disk = |error| ImageError::Disk(name.to_owned(), error);
        let key = full(name);
        {
            let _lock = lock::names(&self.root).map_err(disk)?;
            let mut names = self.named();
            let id = names.remove(&key).ok_or_else(|| ImageError::Unknown(name.to_owned()))?.id;
            let users = users(&self.data_dir);
            let by_name = users.iter().find(|user| user.names.contains(&key)).map(|user| user.pod.clone());
            let last = !names.values().any(|named| named.id == id);
            let in_use = by_name.or_else(|| last.then(|| self.pods_of(&id, &users).into_iter().next()).flatten());
            if let Some(pod) = in_use {
                return Err(ImageError::Used { name: name.to_owned(), pod });
            }
            files::put(&self.root.join("names.json"), &names).map_err(disk)?;
        }
        self.collect().map_err(disk)
    }

    /// Removes untagged images, unused layers and incomplete downloads; with `all` also tagged images without Pods.
    ///
    /// # Errors
    /// When a file system operation fails.
    pub fn prune(&self, all: bool) -> Result<Freed, ImageError> {
        let disk = |error| ImageError::Disk(self.root.display().to_string(), error);
        if all {
            let _lock = lock::names(&self.root).map_err(disk)?;
            let users = users(&self.data_dir);
            let mut names = self.named();
            names.retain(|_, named| !self.pods_of(&named.id, &users).is_empty());
            files::put(&self.root.join("names.json"), &names).map_err(disk)?;
        }
        let freed = self.collect().map_err(disk)?;
        if !freed.busy {
            files::remove_folder(&self.downloads()).map_err(disk)?;
        }
        Ok(freed)
    }

    /// Removes unused images and layers, unless the store is in use.
    pub(super) fn collect(&self) -> io::Result<Freed> {
        let mut freed = Freed::default();
        let Some(_alone) = lock::exclusive(&self.root)? else { return Ok(Freed { busy: true, ..freed }) };
        let _names = lock::names(&self.root)?;
        let (names, users) = (self.named(), users(&self.data_dir));
        let mut needed = BTreeSet::new();
        for id in self.ids() {
            let has_name = names.values().any(|named| named.id == id);
            if has_name || !self.pods_of(&id, &users).is_empty() {
                needed.extend(self.written(&id).map(|written| written.layers).unwrap_or_default());
            } else {
                files::remove_folder(&self.root.join(&id))?;
                freed.images += 1;
            }
        }
        for chain in self.layers.all() {
            if needed.contains(&chain) {
                continue;
            }
            if let Some(about) = self.layers.about(&chain) {
                freed.layers += 1;
                freed.bytes += about.size;
            }
            self.layers.remove(&chain)?;
        }
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if name.starts_with(layers::UNFINISHED) {
                files::remove_folder(&path)?;
            }
        }
        Ok(freed)
    }
}
