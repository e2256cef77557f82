//! The admission plugins LimitRanger and ResourceQuota.
//!
//! The usage of a quota is in its status. The new usage is written in the transaction that stores the object, so that concurrent requests
//! cannot exceed it; an object that cannot be stored is not counted.

use std::sync::Arc;

use api::admission::Plugin;
use api::kinds::{limitrange, pod, resourcequota};
use api::limit_range;
use api::object;
use api::quota::{self, Charge};
use api::status::Status;
use api::value::ValueExt as _;
use serde_json::Value;

use super::{Admission, Request};
use crate::{Compare, Entry, Op, Table, Txn};

impl Admission<'_> {
    /// Sets default requests and limits of a new Pod.
    pub(super) fn fill_limits(&self, request: &Request<'_>, object: &mut Value) {
        if request.is(&pod::KIND) && self.has_limits(request, None) {
            limit_range::fill_pod(&self.limit_ranges(request), object);
        }
    }

    pub(super) fn check_limits(&self, request: &Request<'_>, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        if !self.has_limits(request, old) {
            return Ok(());
        }
        let found = limit_range::check(&self.limit_ranges(request), request.kind.plural, new);
        found.map_err(|why| request.refuse(&why))
    }

    fn has_limits(&self, request: &Request<'_>, old: Option<&Value>) -> bool {
        let Request { kind, subresource, .. } = *request;
        self.runs(Plugin::LimitRanger) && limit_range::concerns(kind.group, kind.plural, subresource, old)
    }

    fn limit_ranges(&self, request: &Request<'_>) -> Vec<Value> {
        let entries = self.entries(limitrange::KIND.table, request.namespace);
        entries.iter().map(|entry| object::decode_light(&entry.value)).collect()
    }

    /// Adds a write to the usage of the quotas of its namespace, in the transaction.
    pub(super) fn charge_quotas(
        &self,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
        txn: &mut Txn,
    ) -> Result<(), Status> {
        let Request { kind, subresource, .. } = *request;
        let (group, plural) = (kind.group, kind.plural);
        let requested = quota::Request { group, plural, subresource, old, new, now: self.now };
        if !self.runs(Plugin::ResourceQuota) || !requested.concerns_quotas() {
            return Ok(());
        }
        let entries = self.entries(resourcequota::KIND.table, request.namespace);
        let mut quotas: Vec<Value> = entries.iter().map(|entry| pending(entry, txn)).collect();
        let charges = quota::check_request(&quotas, &requested).map_err(|why| request.refuse(&why))?;
        for Charge { quota, used } in charges {
            if let (Some(entry), Some(object)) = (entries.get(quota), quotas.get_mut(quota)) {
                object.put("status.used", used);
                write(entry, object, txn);
            }
        }
        Ok(())
    }

    fn entries(&self, table: &'static str, namespace: &str) -> Vec<Arc<Entry>> {
        let range = self.store.range(Table::named(table), &format!("{namespace}/"), None);
        range.map(|range| range.entries).unwrap_or_default()
    }
}

/// A quota after the transaction so far: one transaction may write several objects.
fn pending(entry: &Entry, txn: &Txn) -> Value {
    let written = txn.ops.iter().rev().find_map(|op| match op {
        Op::Put { key, value, .. } if *key == entry.key => Some(value),
        _ => None,
    });
    object::decode_bare(written.unwrap_or(&entry.value))
}

fn write(entry: &Entry, quota: &Value, txn: &mut Txn) {
    txn.ops.retain(|op| !matches!(op, Op::Put { key, .. } if *key == entry.key));
    let compare = Compare { key: entry.key.clone(), modified: entry.modified };
    if !txn.compares.contains(&compare) {
        txn.compares.push(compare);
    }
    let facts = Arc::new(resourcequota::KIND.facts(quota));
    txn.ops.push(Op::Put { key: entry.key.clone(), value: object::encode(quota), facts, ttl: None });
}
