//! Objects that policies look up: namespaces and parameters.

use api::dynamic_admission::policy::{Cluster, ParamKind, Params};
use api::kind::Kind;
use api::kinds;
use serde_json::Value;
use store::{KindCatalog, Store, Table};

use crate::registry::key;
use crate::view;

/// Lookup in a store.
pub(super) struct Stored<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) catalog: &'a KindCatalog,
}

impl Cluster for Stored<'_> {
    fn namespace(&self, name: &str) -> Option<Value> {
        let kind = &kinds::namespace::KIND;
        Some(view::read(kind, &*self.store.get(&key(kind, "", name))?))
    }

    fn params(&self, kind: &ParamKind) -> Option<Box<dyn Params + '_>> {
        let kind = self.catalog.read(self.store).find_kind(&kind.group, &kind.version, &kind.kind);
        let kind = kind.filter(|kind| !kind.table.is_empty())?;
        Some(Box::new(Objects { store: self.store, kind }))
    }
}

/// The objects of one kind.
struct Objects<'a> {
    store: &'a dyn Store,
    kind: &'static Kind,
}

impl Params for Objects<'_> {
    fn namespaced(&self) -> bool {
        self.kind.namespaced
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        Some(view::read(self.kind, &*self.store.get(&key(self.kind, namespace, name))?))
    }

    fn list(&self, namespace: &str) -> Vec<Value> {
        let prefix = if self.kind.namespaced { format!("{namespace}/") } else { String::new() };
        // The current state can always be read.
        let Ok(range) = self.store.range(Table::named(self.kind.table), &prefix, None) else { return Vec::new() };
        range.entries.iter().map(|entry| view::read(self.kind, entry)).collect()
    }
}
