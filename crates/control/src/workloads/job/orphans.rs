//! Pods that have the tracking finalizer and no Job that could count them: without owner, or with a Job that is gone or has finished.
//!
//! In: Pods, by key. Out: the same Pods without the finalizer, so that they can be deleted.

use std::sync::Arc;

use api::kinds::job;
use api::object;
use api::value::ValueExt as _;
use api::view::metadata::controller_of;
use store::{Key, Table};

use super::{KIND, is_external, release};
use crate::cache::{Change, TypedChange};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::pod::Pod;

/// The controller.
pub(crate) const ORPHANS: Controller =
    Controller { name: "job-orphans", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    match &change.typed {
        TypedChange::Pod(versions) if versions.new.as_ref().is_some_and(|pod| is_orphan(view, pod)) => {
            affected.add(change.key());
        }
        _ if change.is_of(KIND.table) && change.deleted => {
            let dependents = view.cache.owners.dependents_of(&change.metadata.uid);
            for pod in dependents.filter(|one| one.key.table.as_str() == "pods") {
                affected.add(&pod.key.name);
            }
        }
        _ => {}
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let pod = view.cache.pods.get(key).filter(|pod| is_orphan(view, pod));
    Outcome::write(pod.and_then(release).into_iter().collect())
}

fn is_orphan(view: &View<'_>, pod: &Arc<Pod>) -> bool {
    if !pod.job.as_ref().is_some_and(|job| job.tracked) {
        return false;
    }
    let Some(owner) = controller_of(view.cache.owners.of(&pod.entry.key)) else { return true };
    if !KIND.is(owner) {
        return false;
    }
    let key = Key::new(Table::named(KIND.table), format!("{}/{}", pod.namespace(), owner.name));
    let Some(entry) = view.store.get(&key) else { return true };
    let found = object::decode_bare(&entry.value);
    found.text("metadata.uid") != &*owner.uid || (job::is_finished(&found) && !is_external(&found))
}
