//! Attachment of routes to Services: to which ports a reference leads, and why to none.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::gateway_api::ParentRef;

use super::{Claim, Mesh, PortView, clients_of, takes};
use crate::cluster::Verdict;
use crate::model::{RouteId, RouteKind, ServicePortId};

/// What becomes of a route at one TCP port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortPlacement {
    /// The port, for the clients to which the route applies.
    pub place: ServicePortId,
    /// Its name; empty for an unnamed port.
    pub name: Arc<str>,
    /// Its application protocol; empty for none.
    pub app_protocol: Box<str>,
    /// Why the route is not attached there, if it is not.
    pub outcome: Result<(), NotServed>,
}

/// Why a route is not attached to a port of a Service: the first condition that does not hold, in the order in which they
/// count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NotServed {
    /// The reference names another port.
    Port,
    /// The application protocol of the port does not go with routes of this kind.
    Kind,
    /// The routes of the namespace have too many Services of other namespaces as parents.
    Limit,
    /// No rule of the route is valid.
    Rules,
    /// Routes of this kind have precedence.
    Conflict(RouteKind),
}

/// What becomes of a route at each TCP port of a Service; nothing when the Service cannot be a parent.
pub(crate) fn placements(
    mesh: &Mesh,
    service: &Arc<str>,
    reference: &ParentRef,
    route: &RouteId,
    is_refused: bool,
) -> Vec<PortPlacement> {
    let clients = clients_of(service, route);
    let none = BTreeMap::new();
    let kinds = mesh.kinds.get(&clients).unwrap_or(&none);
    let claim = Claim { section: reference.section_name.clone(), port: reference.port };
    let outcome = |port: &PortView| {
        if !claim.covers(port) {
            return Err(NotServed::Port);
        }
        if !takes(&port.app_protocol, route.kind) {
            return Err(NotServed::Kind);
        }
        if is_refused {
            return Err(NotServed::Rules);
        }
        // A valid route has taken part in the contest unless the namespace has too many.
        match kinds.get(&port.number) {
            None => Err(NotServed::Limit),
            Some(kind) if *kind == route.kind => Ok(()),
            Some(kind) => Err(NotServed::Conflict(*kind)),
        }
    };
    let placement = |port: &PortView| PortPlacement {
        place: ServicePortId { service: Arc::clone(service), port: port.number, clients: clients.clone() },
        name: Arc::clone(&port.name),
        app_protocol: port.app_protocol.clone(),
        outcome: outcome(port),
    };
    mesh.view.ports.iter().map(placement).collect()
}

/// Judges one reference to a Service.
///
/// # Errors
/// The condition `Accepted` when no port is left. `refusal` is that of a route without valid rules.
pub(crate) fn judge(
    mesh: &Mesh,
    service: &Arc<str>,
    reference: &ParentRef,
    route: &RouteId,
    refusal: Option<&Verdict>,
) -> Result<Vec<ServicePortId>, Verdict> {
    if let Some(refusal) = &mesh.view.refusal {
        return Err(refusal.clone());
    }
    if route.kind == RouteKind::Udp {
        return Err(Verdict::bad("NotAllowedByListeners", "UDPRoutes cannot be attached to a Service"));
    }
    let all = placements(mesh, service, reference, route, refusal.is_some());
    let furthest = all.iter().filter_map(|one| one.outcome.err().map(|why| (why, one))).max_by_key(|(why, _)| *why);
    let (why, port) = furthest.map_or((NotServed::Port, None), |(why, port)| (why, Some(port)));
    let served: Vec<_> = all.iter().filter(|one| one.outcome.is_ok()).map(|one| one.place.clone()).collect();
    if !served.is_empty() {
        return Ok(served);
    }
    let number = port.map_or(0, |port| port.place.port);
    let kind = route.kind.name();
    Err(match why {
        NotServed::Port => Verdict::bad("NoMatchingParent", no_port(service, reference)),
        NotServed::Kind => {
            let app = port.map(|port| &*port.app_protocol).unwrap_or_default();
            let port = format!("Port {number} of Service \"{service}\" has appProtocol \"{app}\"");
            Verdict::bad("NotAllowedByListeners", format!("{port}, which does not go with {kind}s"))
        }
        NotServed::Limit => {
            let most = super::MOST_CONSUMED;
            let message = format!(
                "Routes of a namespace can have {most} Services of other namespaces as parents; \"{service}\" is beyond them"
            );
            Verdict::bad("TooManyServices", message)
        }
        NotServed::Rules => refusal.cloned().unwrap_or_else(|| Verdict::bad("UnsupportedValue", "No rule is valid")),
        NotServed::Conflict(other) => {
            let other = other.name();
            let message = format!("{other}s have precedence over {kind}s at port {number} of Service \"{service}\"");
            Verdict::bad("Conflicted", message)
        }
    })
}

fn no_port(service: &str, reference: &ParentRef) -> String {
    let parent = format!("Service \"{service}\" has no TCP port");
    match (&reference.section_name, reference.port) {
        (Some(name), Some(port)) => format!("{parent} \"{name}\" with number {port}"),
        (Some(name), None) => format!("{parent} \"{name}\""),
        (None, Some(port)) => format!("{parent} {port}"),
        (None, None) => parent,
    }
}
