//! Which endpoints traffic may go to: anywhere, on this node, and when nothing better is left, those about to go.

use crate::endpoints::{Endpoint, Seen};
use crate::service_port::{Backend, ServicePort};

/// Who chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chooser<'a> {
    /// The name of the node.
    pub(crate) node: &'a str,
    /// Its zone.
    pub(crate) zone: Option<&'a str>,
}

/// How near endpoints must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nearness {
    /// For this node.
    SameNode,
    /// For the zone of this node.
    SameZone,
    /// Wherever they are.
    Anywhere,
}

/// Tells a Service port its endpoints. `found` are in order, and so are all lists that come of them.
pub(crate) fn fill(port: &mut ServicePort, found: &[Seen<'_>], chooser: Chooser<'_>) {
    let pick = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<Backend> {
        let mut picked: Vec<Backend> =
            found.iter().filter(|seen| wanted(seen.endpoint)).map(|seen| seen.backend).collect();
        picked.shrink_to_fit();
        picked
    };
    if port.uses_cluster() {
        let nearness = chooser.nearness(found);
        port.cluster = pick(&|endpoint| endpoint.ready && chooser.is_near(endpoint, nearness));
        if port.cluster.is_empty() {
            port.cluster = pick(&Endpoint::is_fading);
        }
        port.has_any = !port.cluster.is_empty();
    }
    if port.uses_local() {
        port.has_any |= found.iter().any(|seen| seen.endpoint.ready || seen.endpoint.is_fading());
        port.local = pick(&|endpoint| endpoint.local && endpoint.ready);
        if port.local.is_empty() {
            port.local = pick(&|endpoint| endpoint.local && endpoint.is_fading());
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

/// Whether an endpoint counts where load balancers ask for the node's health: those about to go still get traffic, but
/// nobody should choose a node for them.
pub(crate) const fn is_healthy(endpoint: &Endpoint) -> bool {
    endpoint.local && endpoint.ready && !endpoint.terminating
}

impl Chooser<'_> {
    /// Hints count only when every ready endpoint has some and one of them is for us: one that has none serves
    /// everybody, and leaving it out could leave somebody without.
    pub(crate) fn nearness(self, found: &[Seen<'_>]) -> Nearness {
        let ready = || found.iter().map(|seen| seen.endpoint).filter(|endpoint| endpoint.ready);
        let counts = |nearness, hints: fn(&Endpoint) -> &[Box<str>]| {
            ready().all(|endpoint| !hints(endpoint).is_empty()) && ready().any(|one| self.is_near(one, nearness))
        };
        if counts(Nearness::SameNode, |endpoint| &endpoint.place.nodes) {
            Nearness::SameNode
        } else if counts(Nearness::SameZone, |endpoint| &endpoint.place.zones) {
            Nearness::SameZone
        } else {
            Nearness::Anywhere
        }
    }

    /// Whether an endpoint is near enough.
    pub(crate) fn is_near(self, endpoint: &Endpoint, nearness: Nearness) -> bool {
        let names = |list: &[Box<str>], name: &str| list.iter().any(|one| **one == *name);
        match nearness {
            Nearness::SameNode => names(&endpoint.place.nodes, self.node),
            Nearness::SameZone => self.zone.is_some_and(|zone| names(&endpoint.place.zones, zone)),
            Nearness::Anywhere => true,
        }
    }
}
