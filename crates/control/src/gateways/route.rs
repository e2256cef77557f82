//! Statuses of routes, of all kinds. The key of a route is its table, a space and its key.

use routing::model::RouteId;
use routing::status;

use super::Reported;
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::gateway_api::{route_id, table_of};

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "route", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(_view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    if let Some(id) = route_id(change.table.as_str(), change.key()) {
        add(&id, affected);
    }
    change.routing.iter().flat_map(|touched| &touched.routes).for_each(|id| add(id, affected));
}

fn add(id: &RouteId, affected: &mut AffectedKeys<'_>) {
    if let Some(table) = table_of(id.kind) {
        affected.add(&format!("{table} {}", id.key));
    }
}

fn reconcile(view: &View<'_>, queued: &str) -> Outcome {
    let Some((table, key)) = queued.split_once(' ') else { return Outcome::done() };
    let state = route_id(table, key).and_then(|id| view.cache.gateways.cluster().route(&id));
    let (Some(state), Some(route)) = (state, Reported::read(view, table, key)) else { return Outcome::done() };
    if !route.is_of(state.generation) {
        return Outcome::done();
    }
    let status = status::route(route.status(), state, &view.now_text());
    Outcome::write(status.map(|status| route.write(status)).into_iter().collect())
}
