//! Services as parents of routes: why a route is not attached to one, to which ports it is, and which ports of a Service are
//! served at layer 7.
//!
//! In: a route and the [`PortPlacement`]s of one of its references, or a Service. Out: a finding where the route is not attached,
//! and items of explanations.

use std::sync::Arc;

use api::view::gateway_api::ParentRef;
use routing::cluster::ParentState;
use routing::mesh::{NotServed, PortPlacement};
use routing::model::{Clients, MeshPort, RouteId, ServicePortId};

use super::explain::Item;
use super::{Layer7, code, kubectl, name_of, namespace_of, near};
use crate::finding::Finding;
use crate::words::{count, list};

/// A port in a sentence: `http (80, appProtocol http)`.
fn describe(placement: &PortPlacement) -> String {
    let app = match &*placement.app_protocol {
        "" => String::new(),
        app => format!(", appProtocol {app}"),
    };
    let number = placement.place.port;
    if placement.name.is_empty() { format!("{number}{app}") } else { format!("{} ({number}{app})", placement.name) }
}

/// A group of clients in a sentence.
pub(super) fn describe_clients(clients: &Clients) -> String {
    match clients {
        Clients::All => "clients of all namespaces without routes of their own".to_owned(),
        Clients::Namespace(namespace) => format!("Pods of namespace {namespace}"),
    }
}

/// Why a route is not attached to a port, in a few words.
fn why(outcome: NotServed) -> String {
    match outcome {
        NotServed::Port => "the parentRef names another port".to_owned(),
        NotServed::Kind => "its appProtocol does not go with routes of this kind".to_owned(),
        NotServed::Limit => "routes of the namespace have too many Services of other namespaces as parents".to_owned(),
        NotServed::Rules => "no rule of the route is valid".to_owned(),
        NotServed::Conflict(kind) => format!("{}s have precedence there", kind.name()),
    }
}

impl Layer7<'_> {
    /// The finding for a route that is not attached to a Service; none where its rules are the reason, which have findings of
    /// their own.
    pub(super) fn service_parent_finding(
        &self,
        id: &RouteId,
        reference: &ParentRef,
        state: &ParentState,
    ) -> Option<Finding> {
        if state.accepted.holds() {
            return None;
        }
        let key = reference.key(namespace_of(&id.key));
        let edit = || kubectl("edit", id.kind.name(), &id.key);
        if !self.snapshot.services().contains_key(&*key) {
            let all = self.snapshot.services().keys().map(|key| &**key);
            let hint = match near::key(&key, all) {
                Some(near) if namespace_of(near) == namespace_of(&key) => format!("; did you mean {}?", name_of(near)),
                Some(near) => format!("; there is {near}: add namespace: {} to the parentRef", namespace_of(near)),
                None => String::new(),
            };
            let message = format!("Service {key}, its parent, does not exist{hint}");
            return Some(Finding::new(code::PARENT_MISSING, message, edit()));
        }
        let placements = self.cluster.port_placements(id, reference);
        let furthest = placements.iter().filter_map(|one| one.outcome.err()).max();
        let described = || list(&placements.iter().map(describe).collect::<Vec<_>>(), near::NAMED);
        Some(match furthest {
            Some(NotServed::Port) => {
                let message = format!("{}; there is {}", state.accepted.message, described());
                Finding::new(code::NO_MATCHING_LISTENER, message, edit())
            }
            Some(NotServed::Kind) => {
                let message = format!("no port of Service {key} takes {}s: there is {}", id.kind.name(), described());
                Finding::new(code::ROUTE_KIND_NOT_ALLOWED, message, edit())
            }
            Some(NotServed::Rules) => return None,
            Some(NotServed::Conflict(_)) => {
                Finding::new(code::ROUTE_CONFLICTED, state.accepted.message.clone(), edit())
            }
            None | Some(NotServed::Limit) => {
                Finding::new(code::PARENT_NOT_SUPPORTED, state.accepted.message.clone(), edit())
            }
        })
    }

    /// The ports of a Service that are served at layer 7, each with the routes for each group of its clients; nothing when none
    /// is.
    #[must_use]
    pub fn service_ports(&self, service: &str) -> Vec<Item> {
        let Some(config) = self.cluster.mesh(service) else { return Vec::new() };
        let group = |port: &MeshPort, clients: &Clients| {
            let service = Arc::clone(&config.service);
            let place = ServicePortId { service, port: port.number, clients: clients.clone() }.into();
            let routes: Vec<Item> = self
                .cluster
                .attached(&place)
                .map(|(route, ..)| Item::new("route", format!("{} {}", route.kind.name(), route.key), ""))
                .collect();
            let says = if routes.is_empty() { "requests go to the endpoints of the Service" } else { "" };
            Item::new("clients", describe_clients(clients), says).with(routes)
        };
        let port = |port: &Arc<MeshPort>| {
            let name = if port.name.is_empty() { String::new() } else { format!("{} ", port.name) };
            let others = (!port.places.contains_key(&Clients::All))
                .then(|| Item::new("clients", "all others", "connections go to the endpoints of the Service, unread"));
            let groups = port.places.keys().map(|clients| group(port, clients));
            Item::new("port", format!("{name}{}", port.number), "served at layer 7").with(groups.chain(others))
        };
        config.ports.iter().map(port).collect()
    }

    /// A Service that is the parent of a route, with its ports.
    pub(super) fn explain_service_parent(&self, id: &RouteId, reference: &ParentRef, name: String) -> Item {
        let placements = self.cluster.port_placements(id, reference);
        if placements.is_empty() {
            let parents = self.cluster.route(id).map(|state| &state.parents[..]).unwrap_or_default();
            let own = parents.iter().find(|parent| parent.parent_ref == *reference);
            return Item::new("parent", name, own.map(|own| own.accepted.message.clone()).unwrap_or_default());
        }
        let attached = placements.iter().filter(|one| one.outcome.is_ok()).count();
        let says = format!("attached to {attached} of {}", count(placements.len(), "TCP port"));
        let ports = placements.iter().map(|one| {
            let says = match &one.outcome {
                Ok(()) => format!("attached for {}", describe_clients(&one.place.clients)),
                Err(outcome) => format!("not attached: {}", why(*outcome)),
            };
            Item::new("port", describe(one), says)
        });
        Item::new("parent", name, says).with(ports)
    }
}
