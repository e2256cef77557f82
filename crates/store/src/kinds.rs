//! The kinds that a store has objects of: those of the static table, and those that its CustomResourceDefinitions define.

use std::sync::Arc;

use api::custom::{Catalog, Kinds};
use api::kind::Kind;
use api::kinds::customresourcedefinition;
use api::object;

use crate::{Entry, Followed, Store};

static DEFINITIONS: [&Kind; 1] = [&customresourcedefinition::KIND];

/// The kinds of a store, following its definitions.
pub struct KindCatalog(Followed<Catalog>);

impl KindCatalog {
    /// Reads the definitions of a store and follows them.
    #[must_use]
    pub fn new(store: &dyn Store) -> Self {
        Self(Followed::new(store, &DEFINITIONS, apply))
    }

    /// The kinds at this moment.
    #[must_use]
    pub fn read(&self, store: &dyn Store) -> Arc<Kinds> {
        self.0.read(store).state.kinds().clone()
    }
}

fn apply(catalog: &mut Catalog, _: &'static Kind, entry: &Entry, deleted: bool) {
    let definition = (!deleted).then(|| object::decode_light(&entry.value));
    catalog.apply(&entry.key.name, definition.as_ref(), entry.modified);
}
