//! Statuses of TrafficPolicies.

use routing::status;

use super::Reported;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::gateway_api::TRAFFIC_POLICIES;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "trafficpolicy", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(_view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(TRAFFIC_POLICIES) {
        affected.add(change.key());
    }
    change.routing.iter().flat_map(|touched| &touched.traffic_policies).for_each(|key| affected.add(key));
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(state) = view.cache.gateways.cluster().traffic_policy(key) else { return Outcome::done() };
    let Some(policy) = Reported::read(view, TRAFFIC_POLICIES, key) else { return Outcome::done() };
    if policy.is_deleting() || !policy.is_of(state.generation) {
        return Outcome::done();
    }
    let status = status::traffic_policy(policy.status(), state, &view.now_text());
    Outcome::write(status.map(|status| policy.write(status)).into_iter().collect())
}
