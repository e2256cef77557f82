//! Objects that policies look up: namespaces and parameters.

use std::collections::HashMap;
use std::mem::take;
use std::sync::Arc;

use api::dynamic_admission::policy::{Cluster, ParamKind, Params};
use api::kind::Kind;
use api::kinds;
use parking_lot::Mutex;
use serde_json::Value;
use store::{Entry, KindCatalog, Store, Table};

use crate::conversion::{self, Converter};
use crate::registry::key;
use crate::view;

/// Lookup in a store.
pub(super) struct Stored<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) catalog: &'a KindCatalog,
    pub(super) params: &'a ConvertedParams,
}

/// Parameters of kinds that a webhook converts.
///
/// Policies are evaluated without waiting. A kind that is missing here is noted, and the evaluation is repeated after its objects were
/// converted. So webhooks are called only for policies that match a request.
#[derive(Default)]
pub(super) struct ConvertedParams {
    /// By table and version; `None` when they cannot be converted.
    found: HashMap<(&'static str, &'static str), Option<Vec<Arc<Entry>>>>,
    missing: Mutex<Vec<&'static Kind>>,
}

impl ConvertedParams {
    /// Converts what was missing. Returns whether there was anything.
    pub(super) async fn complete(&mut self, store: &dyn Store, conversion: &Converter) -> bool {
        let missing = take(self.missing.get_mut());
        let is_incomplete = !missing.is_empty();
        for kind in missing {
            // The current state can always be read.
            let entries =
                store.range(Table::named(kind.table), "", None).map(|range| range.entries).unwrap_or_default();
            let converted = conversion.entries(kind, entries).await.ok();
            self.found.insert((kind.table, kind.version), converted);
        }
        is_incomplete
    }

    fn get(&self, kind: &'static Kind) -> Option<Box<dyn Params + '_>> {
        match self.found.get(&(kind.table, kind.version)) {
            Some(entries) => Some(Box::new(Converted { kind, entries: entries.as_ref()? })),
            None => {
                self.missing.lock().push(kind);
                None
            }
        }
    }
}

impl Cluster for Stored<'_> {
    fn namespace(&self, name: &str) -> Option<Value> {
        let kind = &kinds::namespace::KIND;
        Some(view::read(kind, &*self.store.get(&key(kind, "", name))?))
    }

    fn params(&self, kind: &ParamKind) -> Option<Box<dyn Params + '_>> {
        let kind = self.catalog.read(self.store).find_kind(&kind.group, &kind.version, &kind.kind);
        let kind = kind.filter(|kind| !kind.table.is_empty())?;
        if conversion::applies(kind) {
            return self.params.get(kind);
        }
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

/// The objects of one kind, in its version.
struct Converted<'a> {
    kind: &'static Kind,
    entries: &'a [Arc<Entry>],
}

impl Params for Converted<'_> {
    fn namespaced(&self) -> bool {
        self.kind.namespaced
    }

    fn get(&self, namespace: &str, name: &str) -> Option<Value> {
        let key = key(self.kind, namespace, name);
        self.entries.iter().find(|entry| entry.key == key).map(|entry| view::read(self.kind, entry))
    }

    fn list(&self, namespace: &str) -> Vec<Value> {
        let prefix = if self.kind.namespaced { format!("{namespace}/") } else { String::new() };
        let matching = self.entries.iter().filter(|entry| entry.key.name.starts_with(&prefix));
        matching.map(|entry| view::read(self.kind, entry)).collect()
    }
}
