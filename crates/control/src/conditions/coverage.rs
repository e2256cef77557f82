//! What a Service needs and whether its EndpointSlices give it: a ready endpoint for every port.
//!
//! The slices decide, and not the Pods: whoever waits for a Service wants to connect to it next, and that works only when its
//! endpoints can be read by those who forward to them.

use std::sync::Arc;

use api::ip::Family;
use api::view::Protocol;
use store::Entry;

use super::stored::Stored;
use crate::controller::View;
use crate::objects::service::Service;
use crate::objects::slice::Slice;

/// An endpoint that a Service needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Need {
    /// Of this family; any of the Service's if none is named.
    pub(super) family: Option<Family>,
    /// For this of its ports; a headless Service may have none.
    pub(super) port: Option<usize>,
}

/// What a slice offers.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Offer {
    /// The family of its addresses; none for names.
    family: Option<Family>,
    /// Whether it has an endpoint.
    pub(super) any: bool,
    /// Whether it has a ready endpoint.
    pub(super) ready: bool,
    /// Names and protocols of its ports.
    pub(super) ports: Vec<(Box<str>, Option<Protocol>)>,
}

impl Offer {
    /// What a stored slice offers.
    pub(super) fn of(entry: &Arc<Entry>) -> Self {
        let slice = Slice::read(entry);
        let lives = !slice.metadata.is_deleting();
        let ports = slice.ports.into_iter().map(|port| (port.name.unwrap_or_default(), port.protocol));
        Self {
            family: Family::named(&slice.address_type),
            any: lives && !slice.endpoints.is_empty(),
            // An endpoint that says nothing of itself is ready.
            ready: lives && slice.endpoints.iter().any(|endpoint| endpoint.conditions.is_ready()),
            ports: ports.collect(),
        }
    }

    fn meets(&self, need: Need, service: &Service) -> bool {
        let Some(family) = self.family.filter(|family| service.families.contains(family)) else { return false };
        let has_port = |index: usize| {
            let wanted = &service.ports[index];
            self.ports.iter().any(|(name, protocol)| *name == wanted.name && *protocol == wanted.protocol)
        };
        need.family.is_none_or(|wanted| wanted == family) && need.port.is_none_or(has_port)
    }
}

/// Everything that a Service needs.
fn needs(service: &Service, stored: &Stored) -> Vec<Need> {
    // Who prefers two families can live with one. Endpoints made by hand are as their maker wants them.
    let strict = service.selector.is_some()
        && matches!(stored.spec.ip_family_policy.as_str(), "SingleStack" | "RequireDualStack");
    let families: Vec<Option<Family>> =
        if strict { service.families.iter().copied().map(Some).collect() } else { vec![None] };
    let ports: Vec<Option<usize>> =
        if service.ports.is_empty() { vec![None] } else { (0..service.ports.len()).map(Some).collect() };
    ports.iter().flat_map(|port| families.iter().map(|family| Need { family: *family, port: *port })).collect()
}

/// What a Service needs and does not have. When all is well one slice usually says so, and no other is read.
pub(super) fn unmet(view: &View<'_>, service: &Service, stored: &Stored) -> Vec<Need> {
    let mut needs = needs(service, stored);
    for slice in view.world.slices.of(&service.entry.key.name) {
        if needs.is_empty() {
            break;
        }
        let offer = Offer::of(slice);
        if offer.ready {
            needs.retain(|need| !offer.meets(*need, service));
        }
    }
    needs
}
