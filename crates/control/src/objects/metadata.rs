//! What every object says of itself: who it is, whose it is, and whether it is being deleted.

use serde::Deserialize;

use super::or_default;

/// The part of `metadata` that garbage collection looks at.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its uid.
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// Its owners.
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Box<[Owner]>,
    /// What keeps it while it is being deleted.
    #[serde(deserialize_with = "or_default")]
    pub finalizers: Box<[Box<str>]>,
    /// When it was deleted.
    pub deletion_timestamp: Option<Box<str>>,
}

/// An owner.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Owner {
    /// `v1`, `apps/v1`.
    pub api_version: Box<str>,
    /// `Service`.
    pub kind: Box<str>,
    /// Its name; the namespace is that of the object it owns.
    pub name: Box<str>,
    /// Its uid: another object of the same name is another owner.
    pub uid: Box<str>,
    /// Whether the owner may go only after this object when it is deleted in the foreground.
    #[serde(deserialize_with = "or_default")]
    pub block_owner_deletion: bool,
    /// Whether the owner manages this object; there is at most one of these.
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

/// The owner that manages an object.
#[must_use]
pub fn controller_of(owners: &[Owner]) -> Option<&Owner> {
    owners.iter().find(|owner| owner.controller)
}

#[derive(Deserialize, Default)]
struct Raw {
    #[serde(default)]
    metadata: Metadata,
}

impl Metadata {
    /// Reads the metadata of a stored object.
    #[must_use]
    pub fn read(stored: &[u8]) -> Self {
        super::read::<Raw>(stored).metadata
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Whether it has a finalizer.
    #[must_use]
    pub fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|have| **have == *name)
    }
}
