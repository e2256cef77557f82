//! [`Grants`] that follow a store.

use api::kind::Kind;
use api::kinds::{role, rolebinding};
use api::object;
use store::{Entry, Followed, Store};

use super::grants::Grants;

/// The kinds that RBAC reads.
static KINDS: [&Kind; 4] =
    [&role::ROLE, &role::CLUSTER_ROLE, &rolebinding::ROLE_BINDING, &rolebinding::CLUSTER_ROLE_BINDING];

pub(super) struct Tracked(Followed<Grants>);

impl Tracked {
    pub(super) fn new(store: &dyn Store) -> Self {
        Self(Followed::new(store, &KINDS, apply))
    }

    /// Increases with every change.
    pub(super) fn version(&self, store: &dyn Store) -> u64 {
        self.0.read(store).changes
    }

    /// Reads the current grants.
    pub(super) fn read<T>(&self, store: &dyn Store, look: impl FnOnce(&Grants) -> T) -> T {
        look(&self.0.read(store).state)
    }
}

fn apply(grants: &mut Grants, kind: &'static Kind, entry: &Entry, deleted: bool) {
    let whole: &str = &entry.key.name;
    let (namespace, name) = if kind.namespaced { whole.split_once('/').unwrap_or(("", whole)) } else { ("", whole) };
    let object = (!deleted).then(|| object::decode_light(&entry.value));
    grants.change(kind, namespace, name, object.as_ref());
}
