//! `metadata` of any object.

use serde::Deserialize;

use super::StringMap;
use super::lenient::{number, or_default};

/// The identity of an object, its labels, its annotations, and whether it is being deleted.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Its namespace; empty for kinds without.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its uid.
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// Its labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: StringMap,
    /// Its annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: StringMap,
    /// Increases with every change of the spec, for kinds that count it.
    #[serde(deserialize_with = "number")]
    pub generation: i64,
    /// When it was created, RFC 3339.
    #[serde(deserialize_with = "or_default")]
    pub creation_timestamp: Box<str>,
    /// When its deletion was requested, RFC 3339.
    pub deletion_timestamp: Option<Box<str>>,
    /// Its owners.
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Box<[OwnerReference]>,
    /// What keeps it while it is being deleted.
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Box<[Box<str>]>,
}

impl ObjectMeta {
    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether its deletion was requested.
    #[must_use]
    pub const fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it names an object of the core group as its owner.
    #[must_use]
    pub fn is_owned_by(&self, kind: &str, uid: &str) -> bool {
        let is = |owner: &OwnerReference| *owner.uid == *uid && *owner.kind == *kind && &*owner.api_version == "v1";
        self.owner_references.iter().any(is)
    }

    /// An annotation without the spaces around it; none when it is empty.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(str::trim).filter(|text| !text.is_empty())
    }
}

/// The part of `metadata` that garbage collection reads. Controllers read it of every object of every kind, so it leaves
/// out labels and annotations.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Ownership {
    /// Its uid.
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// Its owners.
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Box<[OwnerReference]>,
    /// What keeps it while it is being deleted.
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Box<[Box<str>]>,
    /// When its deletion was requested, RFC 3339.
    pub deletion_timestamp: Option<Box<str>>,
}

/// An owner of an object.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// `v1`, `apps/v1`.
    #[serde(deserialize_with = "or_default")]
    pub api_version: Box<str>,
    /// `Service`.
    #[serde(deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its name; the namespace is that of the object it owns.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its uid: another object of the same name is another owner.
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(deserialize_with = "or_default")]
    pub block_owner_deletion: bool,
    /// Whether the owner manages this object; at most one does.
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

impl Ownership {
    /// Whether its deletion was requested.
    #[must_use]
    pub const fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it has a finalizer.
    #[must_use]
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|have| **have == *name)
    }
}

/// The owner that manages an object.
#[must_use]
pub fn controller_of(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller)
}
