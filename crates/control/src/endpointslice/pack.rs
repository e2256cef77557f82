//! Packs endpoints into slices so that as few slices as possible change.
//!
//! Every slice write is sent to every node, so few changes matter more than full slices. Slices that must change anyway are filled first, the fullest
//! first; then one unchanged slice if the rest fits; then new slices. Endpoints are never moved between slices.

use std::collections::{BTreeMap, HashMap};

use api::ip::Family;
use api::view::endpoint_slice::{Endpoint, EndpointPort};

use super::desired::Groups;
use super::draft::{Draft, Drafts, labels_differ};
use crate::objects::service::Service;
use crate::objects::slice::Slice;

/// The identity of an endpoint, independent of its state.
type Identity<'a> = (&'a [Box<str>], Option<&'a str>, &'a str, &'a str);

/// Packs the endpoints of one family into the slices of that family.
pub(super) fn pack(service: &Service, family: Family, existing: Vec<Slice>, desired: Groups, max: usize) -> Drafts {
    let mut drafts = Drafts::new(family, &existing);
    let mut by_ports: BTreeMap<Vec<EndpointPort>, Vec<Slice>> = BTreeMap::new();
    let count = existing.len();
    for slice in existing {
        if slice.metadata.is_owned_by("Service", &service.uid) {
            let mut ports = slice.ports.clone();
            ports.sort_unstable();
            by_ports.entry(ports).or_default().push(slice);
        } else {
            // Left over from a deleted Service of the same name.
            drafts.delete.push(slice);
        }
    }
    for (ports, endpoints) in desired {
        let slices = by_ports.remove(&ports).unwrap_or_default();
        pack_group(service, slices, &ports, &endpoints, max, &mut drafts);
    }
    drafts.delete.extend(by_ports.into_values().flatten());
    if drafts.delete.len() == count && drafts.create.is_empty() {
        place_holder(service, &mut drafts);
    }
    drafts
}

/// Packs the endpoints that share ports.
fn pack_group(
    service: &Service,
    slices: Vec<Slice>,
    ports: &[EndpointPort],
    desired: &[Endpoint],
    max: usize,
    drafts: &mut Drafts,
) {
    let wanted: HashMap<Identity<'_>, usize> =
        desired.iter().enumerate().map(|(index, endpoint)| (identity(endpoint), index)).collect();
    let mut placed = vec![false; desired.len()];
    let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
    for slice in slices {
        let before = slice.endpoints.len();
        let mut same = true;
        let kept: Vec<usize> = slice
            .endpoints
            .iter()
            .filter_map(|have| {
                let index = wanted.get(&identity(have)).copied().filter(|index| !placed[*index])?;
                placed[index] = true;
                same &= is_same(have, &desired[index]);
                Some(index)
            })
            .collect();
        if same && kept.len() == before {
            if labels_differ(&slice, service) {
                let endpoints = slice.endpoints.clone();
                changed.push(Draft { existing: Some(slice), ports: ports.to_vec(), endpoints });
            } else {
                unchanged.push(slice);
            }
        } else if kept.is_empty() {
            drafts.delete.push(slice);
        } else {
            let endpoints = kept.into_iter().map(|index| desired[index].clone()).collect();
            changed.push(Draft { existing: Some(slice), ports: ports.to_vec(), endpoints });
        }
    }
    let unplaced = desired.iter().zip(placed).filter(|(_, placed)| !placed).map(|(endpoint, _)| endpoint.clone());
    let mut left = unplaced.collect::<Vec<_>>().into_iter();
    changed.sort_by_key(|draft| std::cmp::Reverse(draft.endpoints.len()));
    for draft in &mut changed {
        fill(&mut draft.endpoints, &mut left, max);
    }
    while left.len() > 0 {
        match best_fit(&unchanged, left.len(), max) {
            Some(index) => {
                let slice = unchanged.remove(index);
                let mut endpoints = slice.endpoints.clone();
                fill(&mut endpoints, &mut left, max);
                changed.push(Draft { existing: Some(slice), ports: ports.to_vec(), endpoints });
            }
            None => {
                let mut endpoints = Vec::new();
                fill(&mut endpoints, &mut left, max);
                drafts.create.push(Draft { existing: None, ports: ports.to_vec(), endpoints });
            }
        }
    }
    drafts.update.extend(changed);
    drafts.keep.extend(unchanged);
}

fn fill(endpoints: &mut Vec<Endpoint>, from: &mut impl Iterator<Item = Endpoint>, max: usize) {
    let room = max.saturating_sub(endpoints.len());
    endpoints.extend(from.take(room));
}

/// The fullest slice that can take all of the rest.
fn best_fit(slices: &[Slice], left: usize, max: usize) -> Option<usize> {
    if left >= max {
        return None;
    }
    let fits = slices.iter().enumerate().filter(|(_, slice)| slice.endpoints.len() + left <= max);
    fits.max_by_key(|(index, slice)| (slice.endpoints.len(), std::cmp::Reverse(*index))).map(|(index, _)| index)
}

/// Every Service has a slice, to distinguish "no endpoints" from "not reconciled yet".
fn place_holder(service: &Service, drafts: &mut Drafts) {
    let is_placeholder = |slice: &Slice| {
        slice.endpoints.is_empty()
            && slice.ports.is_empty()
            && slice.metadata.is_owned_by("Service", &service.uid)
            && !labels_differ(slice, service)
    };
    if let [slice] = &drafts.delete[..]
        && is_placeholder(slice)
    {
        drafts.keep.append(&mut drafts.delete);
        return;
    }
    drafts.create.push(Draft { existing: None, ports: Vec::new(), endpoints: Vec::new() });
}

fn identity(endpoint: &Endpoint) -> Identity<'_> {
    let target = endpoint.target_ref.as_ref();
    (
        &endpoint.addresses,
        endpoint.hostname.as_deref(),
        target.map_or("", |target| &target.namespace),
        target.map_or("", |target| &target.name),
    )
}

/// Whether two endpoints of one identity are equal. Hints are compared later, over all slices.
fn is_same(have: &Endpoint, want: &Endpoint) -> bool {
    have.conditions == want.conditions
        && have.node_name == want.node_name
        && have.zone == want.zone
        && have.target_ref == want.target_ref
}
