//! The end of namespaces: all that is in one goes, and then the namespace itself (S01).
//!
//! In: a namespace that is being deleted and everything stored in it. Out: deletions, in portions; conditions on the namespace
//! that say what it still waits for; and at last the removal of the finalizer that keeps it. Pods go first, so that their
//! Services lead to them for as long as they take to end.

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

use self::conditions::Remains;
use crate::controller::{Controller, Verdict, View, Wakes, always};
use crate::objects::{ownership, split};
use crate::world::Change;
use crate::write::Write;

/// How many objects are deleted in one transaction.
const TOGETHER: usize = 250;
/// How many objects are deleted before other work has its turn.
const AT_ONCE: usize = 2000;
/// What is left in a namespace goes in crowds; the namespace is looked at once for each.
const CROWD: Duration = Duration::from_millis(100);

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "namespace", enabled: always, concerns, reconcile, every: None };

fn concerns(view: &View<'_>, change: &Change, wakes: &mut Wakes<'_>) {
    if change.is_of(namespace::KIND.table) {
        if change.metadata.is_deleting() && !change.deleted {
            wakes.add(change.key());
        }
    } else if !view.world.terminating.is_empty() {
        let (namespace, _) = split(change.key());
        if view.world.terminating.contains(namespace) {
            wakes.add_after(namespace, CROWD);
        }
    }
}

fn reconcile(view: &View<'_>, name: &str) -> Verdict {
    let key = Key::new(Table::named(namespace::KIND.table), name);
    let Some(entry) = view.store.get(&key) else { return Verdict::settled() };
    if !ownership(&entry.value).is_deleting() {
        return Verdict::settled();
    }
    let content = Content::of(view, name);
    if content.unmarked.is_empty() {
        return Verdict::write(conclude(view, &entry, &content.remains).into_iter().collect());
    }
    let deletions: Vec<Write> = content.unmarked.iter().map(delete).collect();
    let transactions = deletions.chunks(TOGETHER).map(<[Write]>::to_vec).collect();
    // What is left after this decides how it goes on.
    Verdict { transactions, again: Some(Duration::ZERO), ..Verdict::settled() }
}

/// What is in a namespace that is being deleted.
#[derive(Default)]
struct Content {
    /// Objects to be deleted now.
    unmarked: Vec<Arc<Entry>>,
    /// Objects that are deleted and held by something.
    remains: Remains,
}

impl Content {
    /// Looks through the Pods and, when there are none, through everything else.
    fn of(view: &View<'_>, namespace: &str) -> Self {
        let mut content = Self::default();
        for kind in tables() {
            if !content.look(view, kind, namespace) || (kind.plural == "pods" && !content.is_empty()) {
                break;
            }
        }
        content
    }

    /// Looks through one kind, and answers whether there is room for more.
    fn look(&mut self, view: &View<'_>, kind: &Kind, namespace: &str) -> bool {
        let Ok(range) = view.store.range(Table::named(kind.table), &format!("{namespace}/"), None) else { return true };
        for entry in range.entries {
            if self.unmarked.len() == AT_ONCE {
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

/// The kinds that namespaces hold, each table once, Pods first.
fn tables() -> impl Iterator<Item = &'static Kind> {
    let first = |kind: &Kind| kinds::by_table(kind.table).is_some_and(|first| std::ptr::eq(first, kind));
    let held = KINDS.iter().copied().filter(move |kind| kind.namespaced && first(kind));
    let (pods, others): (Vec<_>, Vec<_>) = held.partition(|kind| kind.plural == "pods");
    pods.into_iter().chain(others)
}

fn delete(entry: &Arc<Entry>) -> Write {
    let Entry { key, modified, .. } = &**entry;
    Write::Delete { key: key.clone(), modified: *modified, propagation: Some(Propagation::Background) }
}

/// The namespace when all in it has been told to go: it says what is left, or is let go itself.
fn conclude(view: &View<'_>, entry: &Entry, remains: &Remains) -> Option<Write> {
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
    remains.tell(&mut after, &view.now_text());
    let changed = before != after;
    changed.then(|| Write::Object { table: namespace::KIND.table, object: Box::new(after), modified: entry.modified })
}
