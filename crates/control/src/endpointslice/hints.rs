//! Hints for `trafficDistribution`: every ready endpoint is hinted for its own zone or node.

use api::view::endpoint_slice::{Endpoint, Hints, Named};

use super::draft::Drafts;
use crate::objects::slice::Slice;

/// Sets the hints of a distribution, or removes hints without one.
pub(super) fn prefer(drafts: &mut Drafts, distribution: Option<&str>) {
    let by_node = match distribution {
        Some("PreferSameNode") => true,
        Some("PreferClose" | "PreferSameZone") => false,
        _ => return remove(drafts),
    };
    let is_right = |endpoint: &Endpoint| !is_ready(endpoint) || endpoint.hints == close(endpoint, by_node);
    drafts.touch(|slice| !slice.endpoints.iter().all(is_right));
    for endpoint in drafts.written().filter(|endpoint| is_ready(endpoint)) {
        endpoint.hints = close(endpoint, by_node);
    }
}

/// Removes the hints of all endpoints.
pub(super) fn remove(drafts: &mut Drafts) {
    drafts.touch(|slice: &Slice| slice.endpoints.iter().any(|endpoint| endpoint.hints.is_some()));
    for endpoint in drafts.written() {
        endpoint.hints = None;
    }
}

pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.ready == Some(true)
}

/// Hints for the endpoint's own zone and node.
fn close(endpoint: &Endpoint, by_node: bool) -> Option<Hints> {
    let named = |name: &Option<Box<str>>| name.iter().map(|name| Named { name: name.clone() }).collect();
    let for_nodes = if by_node { named(&endpoint.node_name) } else { Vec::new() };
    let hints = Hints { for_zones: named(&endpoint.zone), for_nodes };
    (hints != Hints::default()).then_some(hints)
}
