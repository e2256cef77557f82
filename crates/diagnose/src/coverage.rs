//! What a Service needs and whether its EndpointSlices provide it: a ready endpoint for every port.
//!
//! The slices decide, not the Pods: a client that waits for a Service connects to it next, which works only when proxies
//! can read its endpoints.

use api::ip::Family;
use api::view::Protocol;

use crate::cluster::Cluster;
use crate::endpoints::why_unusable;
use crate::model::{Endpoint, Service, Slice};

/// An endpoint that a Service needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Need {
    /// Of this family; any of the Service's if none is named.
    pub(crate) family: Option<Family>,
    /// For the port of this index; a headless Service may have none.
    pub(crate) port: Option<usize>,
}

/// What a slice offers.
#[derive(PartialEq, Eq, Debug)]
pub struct Offer {
    /// The family of its addresses; none for names.
    family: Option<Family>,
    /// Whether it has an endpoint.
    pub(crate) any: bool,
    /// Whether it has a ready endpoint.
    pub(crate) ready: bool,
    /// Names and protocols of its ports.
    pub(crate) ports: Vec<(Box<str>, Option<Protocol>)>,
}

impl Offer {
    /// What a slice offers if all its addresses can be used.
    #[must_use]
    pub fn of(slice: &Slice) -> Self {
        Self::of_usable(slice, |_| true)
    }

    /// What a slice offers with those of its ready endpoints that can be used.
    pub(crate) fn within<C: Cluster>(slice: &Slice, cluster: &C, service: &Service) -> Self {
        Self::of_usable(slice, |ip| why_unusable(cluster, service, ip).is_none())
    }

    fn of_usable(slice: &Slice, usable: impl Fn(std::net::IpAddr) -> bool) -> Self {
        let lives = !slice.is_deleting();
        let ready = |endpoint: &Endpoint| endpoint.conditions.is_ready() && endpoint.ip().is_none_or(&usable);
        Self {
            family: slice.family(),
            any: lives && !slice.endpoints.is_empty(),
            ready: lives && slice.endpoints.iter().any(ready),
            ports: slice.ports.iter().map(|port| (port.name.clone().unwrap_or_default(), port.protocol)).collect(),
        }
    }

    fn meets(&self, need: Need, service: &Service) -> bool {
        let Some(family) = self.family.filter(|family| service.families().contains(family)) else { return false };
        let has_port = |index: usize| {
            let Some(wanted) = service.ports().get(index) else { return false };
            self.ports.iter().any(|(name, protocol)| *name == wanted.name && *protocol == wanted.protocol)
        };
        need.family.is_none_or(|wanted| wanted == family) && need.port.is_none_or(has_port)
    }
}

/// Everything that a Service needs.
fn needs(service: &Service) -> Vec<Need> {
    // `PreferDualStack` also works with one family. Manually created endpoints are as their author intended.
    let strict = service.selector().is_some() && service.needs_every_family();
    let families: Vec<Option<Family>> =
        if strict { service.families().into_iter().map(Some).collect() } else { vec![None] };
    let ports: Vec<Option<usize>> =
        if service.ports().is_empty() { vec![None] } else { (0..service.ports().len()).map(Some).collect() };
    ports.iter().flat_map(|port| families.iter().map(|family| Need { family: *family, port: *port })).collect()
}

/// The unmet needs of a Service. In a healthy Service one slice usually meets all of them, and no other is read.
pub(crate) fn unmet<C: Cluster>(cluster: &C, service: &Service) -> Vec<Need> {
    let mut needs = needs(service);
    for slice in cluster.slices(service) {
        if needs.is_empty() {
            break;
        }
        let offer = Offer::within(&slice, cluster, service);
        if offer.ready {
            needs.retain(|need| !offer.meets(*need, service));
        }
    }
    needs
}
