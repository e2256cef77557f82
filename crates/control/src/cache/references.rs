//! Services, Secrets and ConfigMaps that other objects refer to. Each is read when the first object refers to it, and is followed until none does: what
//! nothing refers to costs nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map};
use std::sync::Arc;

use store::{Entry, Key, Revision, Store, Table};

/// An object that is referred to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Reference {
    pub(super) kind: Referenced,
    /// `namespace/name`
    pub(super) key: Arc<str>,
}

/// The kind of an object that is referred to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Referenced {
    Service,
    Secret,
    ConfigMap,
}

impl Referenced {
    /// The kind that is stored in a table.
    fn of_table(table: Table) -> Option<Self> {
        [Self::Service, Self::Secret, Self::ConfigMap].into_iter().find(|kind| kind.table() == table.as_str())
    }

    const fn table(self) -> &'static str {
        match self {
            Self::Service => "services/specs",
            Self::Secret => "secrets",
            Self::ConfigMap => "configmaps",
        }
    }
}

/// What each object refers to.
#[derive(Debug, Default)]
pub(super) struct References {
    of: HashMap<(Table, Box<str>), BTreeSet<Reference>>,
    followed: BTreeMap<Reference, Followed>,
}

/// An object that is referred to.
#[derive(Debug)]
struct Followed {
    /// How many objects refer to it.
    count: usize,
    /// The revision that was read; 0 for none.
    revision: Revision,
}

impl References {
    /// Sets what an object refers to. Returns the references that are new with what the store has for them, and none for those that are no longer
    /// followed.
    pub(super) fn set(
        &mut self,
        store: &dyn Store,
        from: &Key,
        now: BTreeSet<Reference>,
    ) -> Vec<(Reference, Option<Arc<Entry>>)> {
        let place = (from.table, from.name.clone());
        let before = self.of.remove(&place).unwrap_or_default();
        let mut changed = Vec::new();
        for reference in now.difference(&before) {
            match self.followed.entry(reference.clone()) {
                btree_map::Entry::Occupied(mut followed) => followed.get_mut().count += 1,
                btree_map::Entry::Vacant(vacant) => {
                    let entry = store.get(&Key::new(Table::named(reference.kind.table()), &*reference.key));
                    let revision = entry.as_ref().map_or(0, |entry| entry.modified);
                    vacant.insert(Followed { count: 1, revision });
                    changed.push((reference.clone(), entry));
                }
            }
        }
        for reference in before.difference(&now) {
            let btree_map::Entry::Occupied(mut followed) = self.followed.entry(reference.clone()) else { continue };
            followed.get_mut().count -= 1;
            if followed.get().count == 0 {
                followed.remove();
                changed.push((reference.clone(), None));
            }
        }
        if !now.is_empty() {
            self.of.insert(place, now);
        }
        changed
    }

    /// The reference to a changed object, if it is followed and was not read after the change.
    pub(super) fn changed(&mut self, entry: &Entry) -> Option<Reference> {
        if self.followed.is_empty() {
            return None;
        }
        let reference = Reference { kind: Referenced::of_table(entry.key.table)?, key: entry.key.name.as_ref().into() };
        let followed = self.followed.get_mut(&reference)?;
        if entry.modified <= followed.revision {
            return None;
        }
        followed.revision = entry.modified;
        Some(reference)
    }
}
