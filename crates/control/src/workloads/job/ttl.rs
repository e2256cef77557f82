//! Finished Jobs are deleted `ttlSecondsAfterFinished` seconds later, after their Pods.

use api::options::Propagation;
use api::value::ValueExt as _;
use serde_json::Value;

use super::super::StoredObject;
use super::KIND;
use super::plan::wait;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::pod::seconds;
use crate::write::Write;

/// The controller.
pub(crate) const TTL: Controller =
    Controller { name: "ttl-after-finished", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(_: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(KIND.table) && !change.deleted {
        affected.add(change.key());
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(owner) = StoredObject::read(view, KIND.table, key) else { return Outcome::done() };
    let Some(expires) = expires_at(&owner.object).filter(|_| !owner.is_deleting()) else { return Outcome::done() };
    let left = expires.saturating_sub(view.now.as_second());
    if left > 0 {
        return Outcome { requeue_after: Some(wait(left)), ..Outcome::default() };
    }
    let (key, modified) = (owner.entry.key.clone(), owner.entry.modified);
    Outcome::write(vec![Write::Delete { key, modified, propagation: Some(Propagation::Foreground) }])
}

/// When a finished Job expires, in seconds since the epoch.
fn expires_at(owner: &Value) -> Option<i64> {
    let ttl = owner.at("spec.ttlSecondsAfterFinished").as_i64()?;
    let is_last = |condition: &&Value| {
        matches!(condition.text("type"), "Complete" | "Failed") && condition.text("status") == "True"
    };
    let finished = owner.items("status.conditions").iter().find(is_last)?;
    Some(seconds(finished.text("lastTransitionTime")).saturating_add(ttl))
}
