//! Namespace deletion (S01): deletes the content, then the namespace.
//!
//! In: a namespace that is being deleted and its objects. Out: deletions in batches; conditions about remaining content; finally the removal of the
//! finalizer. Pods are deleted first, so that Services route to them while they terminate.

mod conditions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use api::kind::Kind;
use api::kinds::namespace::{self, FINALIZER};
use api::kinds::{self, KINDS};
use api::object;
use api::options::Propagation;
use api::value::ValueExt as _;
use serde_json::Value;
use store::{Entry, Key, Table};

use self::conditions::RemainingContent;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::{ownership, split};
use crate::write::Write;

/// The most deletions in one transaction.
const TRANSACTION_SIZE: usize = 250;
/// The most deletions in one reconcile.
const BATCH_SIZE: usize = 2000;
/// The debounce interval for changes of remaining objects.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "namespace", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(namespace::KIND.table) {
        if change.metadata.is_deleting() && !change.deleted {
            affected.add(change.key());
        }
    } else if !view.cache.terminating.is_empty() {
        let (namespace, _) = split(change.key());
        if view.cache.terminating.contains(namespace) {
            affected.add_after(namespace, DEBOUNCE);
        }
    }
}

fn reconcile(view: &View<'_>, name: &str) -> Outcome {
    let key = Key::new(Table::named(namespace::KIND.table), name);
    let Some(entry) = view.store.get(&key) else { return Outcome::done() };
    if !ownership(&entry.value).is_deleting() {
        return Outcome::done();
    }
    let content = Content::of(view, name);
    if content.unmarked.is_empty() {
        return Outcome::write(conclude(view, &entry, &content.remains).into_iter().collect());
    }
    let deletions: Vec<Write> = content.unmarked.iter().map(delete).collect();
    let transactions = deletions.chunks(TRANSACTION_SIZE).map(<[Write]>::to_vec).collect();
    // Reconcile again with what remains.
    Outcome { transactions, requeue_after: Some(Duration::ZERO), ..Outcome::done() }
}

/// The content of a namespace that is being deleted.
#[derive(Default)]
struct Content {
    /// Objects to delete.
    unmarked: Vec<Arc<Entry>>,
    /// Objects that are being deleted and still exist.
    remains: RemainingContent,
}

impl Content {
    /// Lists the Pods and, when there are none, everything else.
    fn of(view: &View<'_>, namespace: &str) -> Self {
        let mut content = Self::default();
        for kind in tables(view) {
            if !content.inspect(view, kind, namespace) || (kind.plural == "pods" && !content.is_empty()) {
                break;
            }
        }
        content
    }

    /// Lists one kind; false when the batch is full.
    fn inspect(&mut self, view: &View<'_>, kind: &Kind, namespace: &str) -> bool {
        let Ok(range) = view.store.range(Table::named(kind.table), &format!("{namespace}/"), None) else { return true };
        for entry in range.entries {
            if self.unmarked.len() == BATCH_SIZE {
                return false;
            }
            let metadata = ownership(&entry.value);
            if metadata.is_deleting() {
                self.remains.add(kind, &metadata.finalizers);
            } else {
                self.unmarked.push(entry);
            }
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.unmarked.is_empty() && self.remains.is_empty()
    }
}

/// The namespaced kinds, each table once, Pods first.
fn tables(view: &View<'_>) -> impl Iterator<Item = &'static Kind> {
    let first = |kind: &Kind| kinds::by_table(kind.table).is_some_and(|first| std::ptr::eq(first, kind));
    let held = KINDS.iter().copied().filter(move |kind| kind.namespaced && first(kind));
    let (pods, others): (Vec<_>, Vec<_>) = held.partition(|kind| kind.plural == "pods");
    let custom: Vec<_> = view.cache.kinds.kinds().custom_tables().filter(|kind| kind.namespaced).collect();
    pods.into_iter().chain(others).chain(custom)
}

fn delete(entry: &Arc<Entry>) -> Write {
    let Entry { key, modified, .. } = &**entry;
    Write::Delete { key: key.clone(), modified: *modified, propagation: Some(Propagation::Background) }
}

/// Updates conditions, or removes the finalizer when nothing remains.
fn conclude(view: &View<'_>, entry: &Entry, remains: &RemainingContent) -> Option<Write> {
    let before = object::decode_bare(&entry.value);
    let mut after = before.clone();
    if remains.is_empty() {
        let finalizers = before.items("spec.finalizers").iter();
        let kept: Vec<Value> = finalizers.filter(|name| name.as_str() != Some(FINALIZER)).cloned().collect();
        if kept.is_empty() {
            after.drop_path("spec.finalizers");
        } else {
            after.put("spec.finalizers", kept);
        }
    }
    remains.write_conditions(&mut after, &view.now_text());
    let changed = before != after;
    changed.then(|| Write::Object { table: namespace::KIND.table, object: Box::new(after), modified: entry.modified })
}
