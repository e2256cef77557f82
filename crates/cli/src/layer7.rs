//! The objects of layer 7, listed once: what `diagnose::layer7` needs besides Services and Pods.
//!
//! In: an API. Out: lists by kind, and the Secrets and ConfigMaps that they refer to. Lists that cannot be read are noted;
//! kinds that the server does not have are empty.

use std::collections::BTreeMap;

use diagnose::layer7::{Kind, Layer7, Lists, Material, MaterialObject, Materials, materials};
use diagnose::{Object, Snapshot};
use serde_json::Value;

use crate::api_client::{ApiClient, is_name};

/// The most Secrets and ConfigMaps that are read; further ones count as valid.
const MATERIALS: usize = 256;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Layer7Objects {
    lists: BTreeMap<Kind, Vec<Value>>,
    /// None where there is no such object.
    materials: BTreeMap<Material, Option<Value>>,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

impl Layer7Objects {
    /// Reads them.
    pub async fn read(api: &mut ApiClient) -> Self {
        let mut found = Self::default();
        for kind in Kind::ALL {
            match api.list(kind.path()).await {
                Ok(list) => drop(found.lists.insert(kind, list)),
                Err(error) => found.missing.push(format!("{}s could not be read: {error:#}", kind.name())),
            }
        }
        let wanted = materials(&found.listed());
        if wanted.len() > MATERIALS {
            let more = wanted.len() - MATERIALS;
            found.missing.push(format!("{more} Secrets and ConfigMaps were not read; they are taken as valid"));
        }
        for material in wanted.into_iter().take(MATERIALS) {
            match read(api, &material).await {
                Ok(object) => drop(found.materials.insert(material, object)),
                Err(error) => found.missing.push(format!("{error:#}; it is taken as valid")),
            }
        }
        found
    }

    /// Whether every list could be read, so that what is absent does not exist.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.lists.len() == Kind::ALL.len()
    }

    /// The diagnosis; `has_pods`: whether the snapshot has the Pods of the cluster.
    #[must_use]
    pub fn layer7<'a>(&'a self, snapshot: &'a Snapshot<'a>, has_pods: bool) -> Layer7<'a> {
        let known = |object: &'a Option<Value>| object.as_ref().map_or(MaterialObject::Missing, MaterialObject::Found);
        let materials: Materials<'_> =
            self.materials.iter().map(|(one, object)| (one.clone(), known(object))).collect();
        Layer7::new(&self.listed(), &materials, snapshot, has_pods)
    }

    fn listed(&self) -> Lists<'_> {
        self.lists.iter().map(|(kind, list)| (*kind, Object::listed(list))).collect()
    }

    /// Objects for tests: as of a server, each with its kind. Every list is complete, and no Secret could be read.
    #[cfg(test)]
    pub(crate) fn of(objects: &[Value]) -> Self {
        use api::value::ValueExt as _;
        let of_kind = |kind: Kind| objects.iter().filter(move |one| one.text("kind") == kind.name()).cloned().collect();
        let lists = Kind::ALL.into_iter().map(|kind| (kind, of_kind(kind))).collect();
        Self { lists, ..Self::default() }
    }
}

/// Reads a Secret or a ConfigMap; none where there is no such object.
async fn read(api: &mut ApiClient, material: &Material) -> anyhow::Result<Option<Value>> {
    let (plural, kind, key) = match material {
        Material::Secret(key) => ("secrets", "Secret", key),
        Material::ConfigMap(key) => ("configmaps", "ConfigMap", key),
    };
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    is_name("namespace", namespace)?;
    is_name(kind, name)?;
    api.get(&format!("/api/v1/namespaces/{namespace}/{plural}/{name}")).await
}
