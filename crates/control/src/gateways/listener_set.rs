//! Statuses of ListenerSets.

use routing::status;
use store::Table;

use super::Reported;
use super::gateway::is_only_counts;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::gateway_api::LISTENER_SETS;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "listenerset", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(_view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if change.is_of(LISTENER_SETS) {
        affected.add(change.key());
    }
    change.routing.iter().flat_map(|touched| &touched.sets).for_each(|key| affected.add(key));
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let gateways = &view.cache.gateways;
    let Some(state) = gateways.cluster().listener_set(key) else { return Outcome::done() };
    let Some(set) = Reported::read(view, LISTENER_SETS, key) else { return Outcome::done() };
    if set.is_deleting() || !set.is_of(state.generation) {
        return Outcome::done();
    }
    let Some(status) = status::listener_set(set.status(), state, &view.now_text()) else { return Outcome::done() };
    let wait = gateways.wait(Table::named(LISTENER_SETS), key, view.instant);
    if !wait.is_zero() && is_only_counts(set.status(), &status) {
        return Outcome { requeue_after: Some(wait), ..Outcome::done() };
    }
    Outcome::write(vec![set.write(status)])
}
