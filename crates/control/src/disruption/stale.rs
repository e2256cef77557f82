//! Resets the condition DisruptionTarget of Pods that were to be deleted and were not.

use std::time::Duration;

use api::disruption;

use super::status::DELETION_TIMEOUT;
use crate::cache::{Change, TypedChange, Versions};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::pod::Pod;
use crate::workloads::StoredObject;

/// The controller.
pub(crate) const STALE_TARGETS: Controller =
    Controller { name: "stale-disruption-target", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if let TypedChange::Pod(Versions { new: Some(pod), .. }) = &change.typed
        && let Some(left) = time_left(view, pod)
    {
        affected.add_after(change.key(), left);
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(left) = view.cache.pods.get(key).and_then(|pod| time_left(view, pod)) else { return Outcome::done() };
    if !left.is_zero() {
        return Outcome { requeue_after: Some(left), ..Outcome::done() };
    }
    let Some(pod) = StoredObject::read(view, "pods", key).filter(|pod| !pod.is_deleting()) else {
        return Outcome::done();
    };
    let mut reset = pod.object.clone();
    disruption::set_target(&mut reset, None, &view.now_text());
    Outcome::write(pod.with_status(reset).into_iter().collect())
}

/// How long the condition of a Pod is not stale yet; `None` if it does not become stale.
fn time_left(view: &View<'_>, pod: &Pod) -> Option<Duration> {
    let since = pod.disrupted_since.filter(|_| pod.is_active())?;
    let left = since.saturating_add(DELETION_TIMEOUT).saturating_sub(view.now.as_second());
    Some(Duration::from_secs(u64::try_from(left).unwrap_or_default()))
}
