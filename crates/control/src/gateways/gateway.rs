//! Gateways: the Service with their addresses, and their statuses.
//!
//! The first change of a status is written at once. Counts of routes that change soon after another change of the status wait, so that a thousand
//! routes do not cause a thousand writes of their Gateway ([`Gateways::wait`](crate::cache::Gateways::wait)).

use std::borrow::Cow;

use api::value::ValueExt as _;
use api::view::gateway_api::Gateway;
use routing::cluster::{GatewayState, Verdict};
use routing::status;
use serde_json::Value;
use store::Table;

use super::Reported;
use super::service::{self, Current};
use crate::cache::Change;
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::objects::gateway_api::{GATEWAYS, kind_of, service_key};
use crate::objects::read;
use crate::write::Write;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "gateway", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let gateways = &view.cache.gateways;
    if change.is_of(GATEWAYS) {
        affected.add(change.key());
    } else if change.is_of(service::TABLE)
        && let Some(gateway) = gateways.gateway_of(change.key())
    {
        affected.add(gateway);
    }
    let Some(touched) = &change.routing else { return };
    touched.configs.iter().for_each(|key| affected.add(key));
    let is_route = kind_of(change.table.as_str()).is_some();
    for key in &touched.gateways {
        if is_route {
            affected.add_after(key, gateways.wait(Table::named(GATEWAYS), key, view.instant));
        } else {
            affected.add(key);
        }
    }
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let gateways = &view.cache.gateways;
    // The garbage collector deletes the Service of a deleted Gateway.
    let Some(gateway) = Reported::read(view, GATEWAYS, key).filter(|gateway| !gateway.is_deleting()) else {
        return Outcome::done();
    };
    let current = Current::read(view, &service_key(key), gateway.object.text("metadata.uid"));
    let Some(state) = gateways.cluster().gateway(key) else {
        // Its class is not ours, or no longer.
        return Outcome::write(current.deletion().into_iter().collect());
    };
    if !gateway.is_of(state.generation) {
        return Outcome::done();
    }
    let spec: Gateway = read(&gateway.entry.value);
    let config = gateways.cluster().config(key);
    let service = service::write(key, &spec, (config.as_deref(), view.settings.gateway_http3), &current);
    let mut transactions: Vec<Vec<Write>> = service.into_iter().map(|write| vec![write]).collect();
    let state = explained(view, key, state, &current);
    let mut requeue_after = None;
    if let Some(status) = status::gateway(gateway.status(), &state, &view.now_text()) {
        let wait = gateways.wait(Table::named(GATEWAYS), key, view.instant);
        if !wait.is_zero() && is_only_counts(gateway.status(), &status) {
            requeue_after = Some(wait);
        } else {
            transactions.push(vec![gateway.write(status)]);
        }
    }
    Outcome { transactions, requeue_after, ..Outcome::done() }
}

/// Whether two statuses differ in counts only: of routes, and of ListenerSets.
pub(super) fn is_only_counts(before: &Value, after: &Value) -> bool {
    let without_counts = |status: &Value| {
        let mut status = status.clone();
        status.drop_path("attachedListenerSets");
        for listener in status.items_mut("listeners") {
            listener.drop_path("attachedRoutes");
        }
        status
    };
    without_counts(before) == without_counts(after)
}

/// The state with the reason why the Gateway has no address, which the load balancer of its Service knows.
fn explained<'a>(view: &View<'_>, key: &str, state: &'a GatewayState, current: &Current) -> Cow<'a, GatewayState> {
    let waits = ["AddressNotAssigned", "AddressNotUsable"].contains(&state.programmed.reason);
    let (reason, message) = match current {
        Current::Foreign(name) => {
            let (namespace, _) = crate::objects::split(key);
            let fix = format!("kubectl delete service -n {namespace} {name}");
            ("NoResources", format!("Service {name} exists and does not belong to this Gateway; delete it: {fix}"))
        }
        Current::Owned { object, .. } if waits => {
            let Some(why) = service::why_pending(view, object) else { return Cow::Borrowed(state) };
            (state.programmed.reason, why)
        }
        _ => return Cow::Borrowed(state),
    };
    let mut state = state.clone();
    if matches!(current, Current::Foreign(_)) {
        state.addresses.clear();
        state.addresses_assigned = Verdict::bad("NotAssigned", message.as_str());
    }
    if !state.addresses_assigned.holds() {
        state.addresses_assigned.message.clone_from(&message);
    }
    state.programmed = Verdict::bad(reason, message);
    Cow::Owned(state)
}
