//! Gateway API (S52): writes the statuses of GatewayClasses, Gateways, ListenerSets, routes, BackendTLSPolicies and TrafficPolicies, and the Service of each Gateway.
//!
//! In: the states that [`routing::cluster`] derives in the cache. Out: statuses, written through their subresource, so that no generation moves; conditions
//! and entries of other controllers stay, and nothing is written when nothing changes. A state that was derived from another generation than the stored
//! one is not written: the change that leads to the new one is on its way.

pub(crate) mod class;
pub(crate) mod gateway;
pub(crate) mod listener_set;
pub(crate) mod policy;
pub(crate) mod route;
mod service;
#[cfg(test)]
mod tests;
pub(crate) mod traffic_policy;

use std::sync::Arc;

use api::kind::Kind;
use api::object;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Entry, Key, Table};

use crate::controller::View;
use crate::write::Write;

/// A stored object whose status is to be written.
pub(crate) struct Reported {
    pub(crate) kind: &'static Kind,
    pub(crate) entry: Arc<Entry>,
    pub(crate) object: Value,
}

impl Reported {
    /// Reads an object; `None` while it is being deleted, or if there is none, or if its kind is not served.
    pub(crate) fn read(view: &View<'_>, table: &str, key: &str) -> Option<Self> {
        let kind = view.cache.kinds.kinds().by_table(table)?;
        let entry = view.store.get(&Key::new(Table::named(table), key))?;
        let object = object::decode(kind, &entry.value, entry.modified);
        Some(Self { kind, entry, object })
    }

    /// Whether it is being deleted.
    pub(crate) fn is_deleting(&self) -> bool {
        self.object.has("metadata.deletionTimestamp")
    }

    /// Whether a state of this generation is up to date.
    fn is_of(&self, generation: i64) -> bool {
        self.object.int("metadata.generation") == generation
    }

    /// Its status.
    pub(crate) fn status(&self) -> &Value {
        self.object.at("status")
    }

    /// The write of a status.
    pub(crate) fn write(mut self, status: Value) -> Write {
        self.object.put("status", status);
        let (table, modified) = (self.kind.table, self.entry.modified);
        Write::Subresource { table, part: "status", object: Box::new(self.object), modified }
    }

    /// The write of changed metadata.
    fn write_metadata(self) -> Write {
        Write::Object { table: self.kind.table, object: Box::new(self.object), modified: self.entry.modified }
    }
}
