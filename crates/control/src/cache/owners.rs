//! Owner references: from the UID of an owner to its dependents.

use std::collections::{BTreeSet, HashMap};

use api::view::{OwnerReference, Ownership};
use store::Key;

/// Owner references of all objects that have some.
#[derive(Debug, Default)]
pub struct Owners {
    owners: HashMap<Key, Box<[OwnerReference]>>,
    dependents: HashMap<Box<str>, BTreeSet<Key>>,
}

/// An object with an owner reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dependent<'a> {
    /// The object.
    pub key: &'a Key,
    /// `blockOwnerDeletion`
    pub blocks: bool,
}

impl Owners {
    /// Applies the metadata of an object; `None` when it was deleted.
    pub(super) fn apply(&mut self, key: &Key, metadata: Option<&Ownership>) {
        let now = metadata.map_or(&[][..], |metadata| &metadata.owner_references);
        if now.is_empty() && !self.owners.contains_key(key) {
            return;
        }
        for owner in self.owners.remove(key).iter().flatten() {
            if let Some(list) = self.dependents.get_mut(&owner.uid) {
                list.remove(key);
                if list.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        if now.is_empty() {
            return;
        }
        for owner in now {
            self.dependents.entry(owner.uid.clone()).or_default().insert(key.clone());
        }
        self.owners.insert(key.clone(), now.into());
    }

    /// The owners of an object.
    #[must_use]
    pub fn of(&self, key: &Key) -> &[OwnerReference] {
        self.owners.get(key).map_or(&[], |owners| owners)
    }

    /// The dependents of an owner, in order.
    pub fn dependents_of<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = Dependent<'a>> {
        self.dependents.get(uid).into_iter().flatten().map(move |key| Dependent {
            key,
            blocks: self.of(key).iter().any(|owner| *owner.uid == *uid && owner.block_owner_deletion),
        })
    }
}
