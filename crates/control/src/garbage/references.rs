//! Resolves owner references.

use api::view::OwnerReference;
use store::{Key, Table};

use super::{FOREGROUND, waits};
use crate::controller::View;
use crate::objects::{ownership, split};

/// The most namespaces that are searched for a missing owner; only for the message of an Event.
const MAX_SEARCHED: usize = 50;

/// The state of an owner reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnerState {
    /// The owner exists, or its kind is unknown.
    Solid,
    /// The owner does not exist, or has another UID.
    Dangling,
    /// The owner is being deleted in the foreground and waits for this dependent.
    Waiting,
    /// The owner is namespaced and the dependent is cluster-scoped.
    Misplaced,
}

/// Why a reference cannot be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReferenceError {
    /// The kind is unknown or not stored.
    UnknownKind,
    /// The owner is namespaced and the dependent is cluster-scoped.
    NoNamespace,
}

/// The key of an owner of the object `dependent`.
pub(super) fn locate(view: &View<'_>, owner: &OwnerReference, dependent: &str) -> Result<Key, ReferenceError> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let kind = view.cache.kinds.kinds().find_kind(group, version, &owner.kind).filter(|kind| !kind.table.is_empty());
    let kind = kind.ok_or(ReferenceError::UnknownKind)?;
    let table = Table::named(kind.table);
    if !kind.namespaced {
        return Ok(Key::new(table, owner.name.clone()));
    }
    match split(dependent).0 {
        "" => Err(ReferenceError::NoNamespace),
        namespace => Ok(Key::new(table, format!("{namespace}/{}", owner.name))),
    }
}

/// The state of an owner reference of `dependent`.
pub(super) fn owner_state(view: &View<'_>, owner: &OwnerReference, dependent: &str) -> OwnerState {
    let key = match locate(view, owner, dependent) {
        Ok(key) => key,
        Err(ReferenceError::UnknownKind) => return OwnerState::Solid,
        Err(ReferenceError::NoNamespace) => return OwnerState::Misplaced,
    };
    let found = view.store.get(&key).map(|entry| ownership(&entry.value));
    match found.filter(|found| found.uid == owner.uid) {
        None => OwnerState::Dangling,
        Some(found) if owner.block_owner_deletion && waits(&found, FOREGROUND) => OwnerState::Waiting,
        Some(_) => OwnerState::Solid,
    }
}

/// Whether the owner exists in another namespace than `dependent`, which is invalid.
pub(super) fn is_elsewhere(view: &View<'_>, owner: &OwnerReference, dependent: &str) -> bool {
    let (home, _) = split(dependent);
    let Ok(here) = locate(view, owner, dependent) else { return false };
    if home.is_empty() || !here.name.contains('/') {
        return false;
    }
    let Ok(namespaces) = view.store.range(Table::named("namespaces"), "", None) else { return false };
    let others = namespaces.entries.iter().take(MAX_SEARCHED).map(|entry| &entry.key.name);
    others.filter(|other| ***other != *home).any(|other| {
        let there = view.store.get(&Key::new(here.table, format!("{other}/{}", owner.name)));
        there.is_some_and(|there| ownership(&there.value).uid == owner.uid)
    })
}
