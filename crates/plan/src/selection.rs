//! Selects endpoints: for any traffic, for local traffic, and terminating ones as a last resort.

use crate::endpoints::{Endpoint, Location, PortEndpoint};
use crate::service_port::{Backend, ServicePort};

/// The node for which endpoints are selected.
#[derive(Clone, Copy, Debug)]
pub struct NodeLocation<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// Its zone.
    pub zone: Option<&'a str>,
}

/// Topology hints in effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HintScope {
    /// Endpoints hinted for this node.
    SameNode,
    /// Endpoints hinted for this zone.
    SameZone,
    /// All endpoints.
    Anywhere,
}

/// Sets the endpoints of a Service port. `found` is sorted, and so are the resulting lists.
pub(crate) fn fill(port: &mut ServicePort, found: &[PortEndpoint<'_>], location: NodeLocation<'_>) {
    let pick = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<Backend> {
        let mut picked: Vec<Backend> =
            found.iter().filter(|seen| wanted(seen.endpoint)).map(|seen| seen.backend).collect();
        picked.shrink_to_fit();
        picked
    };
    if port.uses_cluster() {
        let hint_scope = location.hint_scope(&ready_locations(found));
        port.cluster = pick(&|endpoint| endpoint.ready && location.matches_hints(&endpoint.location, hint_scope));
        if port.cluster.is_empty() {
            port.cluster = pick(&Endpoint::is_serving_terminating);
        }
        port.has_any = !port.cluster.is_empty();
    }
    if port.uses_local() {
        port.has_any |= found.iter().any(|seen| seen.endpoint.can_serve());
        port.local = pick(&|endpoint| endpoint.local && endpoint.ready);
        if port.local.is_empty() {
            port.local = pick(&|endpoint| endpoint.local && endpoint.is_serving_terminating());
        }
    }
    let reached =
        |backend: &Backend| port.cluster.binary_search(backend).is_ok() || port.local.binary_search(backend).is_ok();
    port.hairpin = pick(&|endpoint| endpoint.local);
    port.hairpin.retain(reached);
    port.hairpin.shrink_to_fit();
    port.serving = pick(&|endpoint| endpoint.serving);
    let mut ready: Vec<_> = found.iter().filter(|seen| is_healthy(seen.endpoint)).map(|seen| seen.backend.ip).collect();
    ready.dedup();
    port.local_ready = ready.len();
}

/// Locations of the ready endpoints.
pub(crate) fn ready_locations<'a>(found: &[PortEndpoint<'a>]) -> Vec<&'a Location> {
    let ready = found.iter().map(|seen| seen.endpoint).filter(|endpoint| endpoint.ready);
    ready.map(|endpoint| &*endpoint.location).collect()
}

/// Whether an endpoint counts for the health check: terminating ones still get traffic, but should not attract more.
pub(crate) const fn is_healthy(endpoint: &Endpoint) -> bool {
    endpoint.local && endpoint.ready && !endpoint.terminating
}

impl NodeLocation<'_> {
    /// Which hints of ready endpoints apply. Only if every ready endpoint has some and at least one is for us: otherwise some
    /// clients could be left without endpoints.
    #[must_use]
    pub fn hint_scope(self, ready: &[&Location]) -> HintScope {
        let counts = |hint_scope, hints: fn(&Location) -> &[Box<str>]| {
            ready.iter().all(|location| !hints(location).is_empty())
                && ready.iter().any(|one| self.matches_hints(one, hint_scope))
        };
        if counts(HintScope::SameNode, |location| &location.nodes) {
            HintScope::SameNode
        } else if counts(HintScope::SameZone, |location| &location.zones) {
            HintScope::SameZone
        } else {
            HintScope::Anywhere
        }
    }

    /// Whether an endpoint is selected by its hints.
    #[must_use]
    pub fn matches_hints(self, location: &Location, hint_scope: HintScope) -> bool {
        let names = |list: &[Box<str>], name: &str| list.iter().any(|one| **one == *name);
        match hint_scope {
            HintScope::SameNode => names(&location.nodes, self.node),
            HintScope::SameZone => self.zone.is_some_and(|zone| names(&location.zones, zone)),
            HintScope::Anywhere => true,
        }
    }
}
