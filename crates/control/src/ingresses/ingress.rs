//! Ingresses: the addresses in their status, and Events.

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::{class, events};
use crate::cache::{Change, INGRESSES};
use crate::controller::{AffectedKeys, Controller, Outcome, View, always};
use crate::frontend::{self, Current};
use crate::gateways::Reported;
use crate::write::MANAGER;

/// The controller.
pub(crate) const CONTROLLER: Controller =
    Controller { name: "ingress", enabled: always, affected_keys, reconcile, resync_period: None };

fn affected_keys(view: &View<'_>, change: &Change, affected: &mut AffectedKeys<'_>) {
    let ingresses = &view.cache.ingresses;
    if change.is_of(INGRESSES) && !change.deleted {
        affected.add(change.key());
    } else if change.is_of(frontend::TABLE)
        && let Some(class) = ingresses.class_of_service(change.key())
        && differs(change)
    {
        ingresses.of_class(class).for_each(|key| affected.add(key));
    }
    change.ingresses.iter().flat_map(|altered| &altered.ingresses).for_each(|key| affected.add(key));
}

/// Whether a Service has other addresses or another owner than before.
fn differs(change: &Change) -> bool {
    let Some(previous) = change.previous.as_ref().filter(|_| !change.deleted) else { return true };
    let [now, before] = [&change.entry, previous].map(|entry| api::object::decode_bare(&entry.value));
    ["status", "metadata.ownerReferences"].iter().any(|path| now.at(path) != before.at(path))
}

fn reconcile(view: &View<'_>, key: &str) -> Outcome {
    let Some(ingress) = Reported::read(view, INGRESSES, key).filter(|ingress| !ingress.is_deleting()) else {
        return Outcome::done();
    };
    // The change that leads to the state of a newer version is on its way.
    let Some(state) = view.cache.ingresses.state(key, ingress.entry.modified) else { return Outcome::done() };
    let Some(class) = &state.class else {
        return Outcome { transactions: with_addresses(ingress, Vec::new()), ..Outcome::done() };
    };
    let (addresses, pending) = addresses(view, class);
    let (events, requeue_after) = events::due(view, &ingress.object, &state.findings, pending);
    Outcome { transactions: with_addresses(ingress, addresses), events, requeue_after, ..Outcome::done() }
}

/// The addresses of a class as Ingresses have them; if there are none, why.
fn addresses(view: &View<'_>, class: &str) -> (Vec<Value>, Option<String>) {
    let Some((key, owner)) = view.cache.ingresses.service_of(class) else { return (Vec::new(), None) };
    match Current::read(view, key, owner) {
        Current::Missing => (Vec::new(), None),
        Current::Foreign(_) => (Vec::new(), Some(class::conflict(view, class))),
        Current::Owned { object, .. } => {
            let ports: Vec<Value> = object.items("spec.ports").iter().map(port).collect();
            let addresses = object.items("status.loadBalancer.ingress").iter();
            let addresses: Vec<Value> = addresses.filter_map(|address| point(address, &ports)).collect();
            let pending = frontend::why_pending(view, &object).filter(|_| addresses.is_empty());
            (addresses, pending)
        }
    }
}

fn port(port: &Value) -> Value {
    json!({"port": port.at("port"), "protocol": port.at("protocol")})
}

/// An address of a Service as an Ingress has it.
fn point(address: &Value, ports: &[Value]) -> Option<Value> {
    let member = |key: &str| Some(address.text(key)).filter(|text| !text.is_empty());
    let mut point = match (member("ip"), member("hostname")) {
        (Some(ip), _) => json!({"ip": ip}),
        (None, Some(hostname)) => json!({"hostname": hostname}),
        (None, None) => return None,
    };
    point.put("ports", ports);
    Some(point)
}

/// The transaction that gives an Ingress these addresses, if it has others. Those that others wrote are only replaced, never removed: they belong to the
/// controller that served the Ingress before, or serves it now.
fn with_addresses(ingress: Reported, addresses: Vec<Value>) -> Vec<Vec<crate::write::Write>> {
    const PATH: &str = "loadBalancer.ingress";
    let mut status = ingress.status().clone();
    if status.items(PATH) == addresses || (addresses.is_empty() && !is_ours(&ingress.object)) {
        return Vec::new();
    }
    if addresses.is_empty() {
        status.drop_path(PATH);
    } else {
        status.put(PATH, addresses);
    }
    vec![vec![ingress.write(status)]]
}

/// Whether the controllers wrote the addresses of an Ingress.
fn is_ours(ingress: &Value) -> bool {
    ingress.items("metadata.managedFields").iter().any(|owner| {
        owner.text("manager") == MANAGER
            && owner.text("subresource") == "status"
            && owner.has("fieldsV1.f:status.f:loadBalancer.f:ingress")
    })
}
