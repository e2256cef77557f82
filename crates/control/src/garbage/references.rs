//! Where an owner reference leads, and what stands there.

use api::kinds;
use api::view::OwnerReference;
use store::{Key, Table};

use super::{FOREGROUND, waits};
use crate::controller::View;
use crate::objects::{ownership, split};

/// In how many namespaces a lost owner is looked for, to say what is wrong with the reference. It is only for a message, and
/// many objects may lose their owners at once.
const SEARCHED: usize = 50;

/// What an owner is to its dependent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It is there, or nobody can say that it is not.
    Solid,
    /// It is gone, or another object has its name.
    Dangling,
    /// It is being deleted and waits for this dependent to go first.
    Waiting,
    /// It would be in a namespace, and the dependent is in none: nothing can be said.
    Misplaced,
}

/// Why there is no key that an owner could be stored under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nowhere {
    /// We do not know its kind, or do not store it.
    UnknownKind,
    /// The owner would be in a namespace, and the dependent is in none.
    NoNamespace,
}

/// The key of an owner of the object `dependent`.
pub(super) fn locate(owner: &OwnerReference, dependent: &str) -> Result<Key, Nowhere> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let kind = kinds::find_kind(group, version, &owner.kind).filter(|kind| !kind.table.is_empty());
    let kind = kind.ok_or(Nowhere::UnknownKind)?;
    let table = Table::named(kind.table);
    if !kind.namespaced {
        return Ok(Key::new(table, owner.name.clone()));
    }
    match split(dependent).0 {
        "" => Err(Nowhere::NoNamespace),
        namespace => Ok(Key::new(table, format!("{namespace}/{}", owner.name))),
    }
}

/// What an owner is to the object `dependent` now.
pub(super) fn standing(view: &View<'_>, owner: &OwnerReference, dependent: &str) -> Standing {
    let key = match locate(owner, dependent) {
        Ok(key) => key,
        Err(Nowhere::UnknownKind) => return Standing::Solid,
        Err(Nowhere::NoNamespace) => return Standing::Misplaced,
    };
    let found = view.store.get(&key).map(|entry| ownership(&entry.value));
    match found.filter(|found| found.uid == owner.uid) {
        None => Standing::Dangling,
        Some(found) if owner.block_owner_deletion && waits(&found, FOREGROUND) => Standing::Waiting,
        Some(_) => Standing::Solid,
    }
}

/// Whether the owner is in another namespace than the object `dependent`, where it does not count.
pub(super) fn is_elsewhere(view: &View<'_>, owner: &OwnerReference, dependent: &str) -> bool {
    let (home, _) = split(dependent);
    let Ok(here) = locate(owner, dependent) else { return false };
    if home.is_empty() || !here.name.contains('/') {
        return false;
    }
    let Ok(namespaces) = view.store.range(Table::named("namespaces"), "", None) else { return false };
    let others = namespaces.entries.iter().take(SEARCHED).map(|entry| &entry.key.name);
    others.filter(|other| ***other != *home).any(|other| {
        let there = view.store.get(&Key::new(here.table, format!("{other}/{}", owner.name)));
        there.is_some_and(|there| ownership(&there.value).uid == owner.uid)
    })
}
