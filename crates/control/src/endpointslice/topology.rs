//! Hints for the annotation `topology-mode: Auto`: zones get endpoints in proportion to their CPU.
//!
//! Endpoints are hinted for their own zone; surplus endpoints of one zone are hinted for another. Unchanged slices keep their hints while the shares allow
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::view::endpoint_slice::{Hints, Named};

use super::draft::Drafts;
use super::hints::{is_ready, remove};
use crate::objects::node::Node;
use crate::objects::slice::Slice;

/// The overload threshold of a zone.
const OVERLOAD: f64 = 0.2;

/// Zone and CPU of a Node; `None` when it does not count.
pub(super) fn weight(node: &Node) -> Option<(Option<String>, u64)> {
    (node.ready && !node.is_control_plane()).then(|| (node.zone().map(str::to_owned), node.millicores))
}

/// The share of each zone; `None` when CPU or zone of a Node is missing, or there are fewer than two zones.
pub(super) struct Ratios(Option<BTreeMap<String, f64>>);

impl Ratios {
    /// The shares of the zones that these Nodes are in.
    #[expect(clippy::cast_precision_loss, reason = "processors are few")]
    pub(super) fn of<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>) -> Self {
        let mut zones: BTreeMap<String, u64> = BTreeMap::new();
        for (zone, millicores) in nodes.filter_map(|node| weight(node)) {
            match zone {
                Some(zone) if millicores > 0 => *zones.entry(zone).or_default() += millicores,
                _ => return Self(None),
            }
        }
        let total: u64 = zones.values().sum();
        if zones.len() < 2 {
            return Self(None);
        }
        Self(Some(zones.into_iter().map(|(zone, cores)| (zone, cores as f64 / total as f64)).collect()))
    }
}

/// The allocation of a zone.
#[derive(Clone, Copy)]
struct Share {
    desired: f64,
    maximum: usize,
}

/// Assigned hints by zone.
type AssignedHints = BTreeMap<String, usize>;

/// Why there are no hints; the messages are those of Kubernetes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoHints {
    #[error("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")]
    NodeInformation,
    #[error("Insufficient number of endpoints ({endpoints} endpoints, {zones} zones)")]
    FewEndpoints { endpoints: usize, zones: usize },
    #[error(
        "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold ({endpoints} endpoints, {zones} zones)"
    )]
    Overload { endpoints: usize, zones: usize },
    #[error("One or more endpoints do not have a zone specified")]
    NoZone,
    #[error("No hints allocated for zones")]
    NoneAllocated,
}

/// Assigns hints, or removes all and returns the reason.
pub(super) fn allocate(drafts: &mut Drafts, ratios: &Ratios) -> Result<(), NoHints> {
    let result = try_allocate(drafts, ratios);
    if result.is_err() {
        remove(drafts);
    }
    result
}

fn try_allocate(drafts: &mut Drafts, ratios: &Ratios) -> Result<(), NoHints> {
    let ready = drafts.all().filter(|endpoint| is_ready(endpoint)).count();
    let shares = shares(ratios, ready)?;
    let mut assigned = AssignedHints::new();
    drafts.touch(|slice| match hints_of(slice, &assigned, &shares) {
        Some(hints) => {
            for (zone, count) in hints {
                *assigned.entry(zone).or_default() += count;
            }
            false
        }
        None => true,
    });
    for endpoint in drafts.written() {
        endpoint.hints = None;
        if is_ready(endpoint) {
            let zone = endpoint.zone.clone().ok_or(NoHints::NoZone)?;
            *assigned.entry(zone.to_string()).or_default() += 1;
            endpoint.hints = Some(for_zone(zone));
        }
    }
    let (giving, receiving) = moves(&shares, &assigned);
    redistribute(drafts, giving, receiving);
    if assigned.is_empty() {
        return Err(NoHints::NoneAllocated);
    }
    Ok(())
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
fn shares(ratios: &Ratios, ready: usize) -> Result<BTreeMap<String, Share>, NoHints> {
    let ratios = ratios.0.as_ref().ok_or(NoHints::NodeInformation)?;
    let (endpoints, zones) = (ready, ratios.len());
    if zones > ready {
        return Err(NoHints::FewEndpoints { endpoints, zones });
    }
    let minimum = |ratio: f64| (ratio * ready as f64 / (1.0 + OVERLOAD)).ceil() as usize;
    let least: usize = ratios.values().map(|ratio| minimum(*ratio)).sum();
    let spare = ready.checked_sub(least).ok_or(NoHints::Overload { endpoints, zones })?;
    let share = |ratio: f64| Share {
        desired: (ratio * ready as f64).max(minimum(ratio) as f64),
        maximum: minimum(ratio) + spare,
    };
    Ok(ratios.iter().map(|(zone, ratio)| (zone.clone(), share(*ratio))).collect())
}

/// The hints of a slice by zone; `None` when they cannot be kept.
fn hints_of(slice: &Slice, assigned: &AssignedHints, shares: &BTreeMap<String, Share>) -> Option<AssignedHints> {
    let mut here = AssignedHints::new();
    for endpoint in slice.endpoints.iter().filter(|endpoint| is_ready(endpoint)) {
        let zones = endpoint.hints.as_ref().map(|hints| &hints.for_zones).filter(|zones| !zones.is_empty())?;
        for zone in zones {
            *here.entry(zone.name.to_string()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        shares.get(zone).is_some_and(|share| count + assigned.get(zone).copied().unwrap_or_default() <= share.maximum)
    };
    here.iter().all(fits).then_some(here)
}

/// How many hints each zone gives and receives.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn moves(shares: &BTreeMap<String, Share>, assigned: &AssignedHints) -> (AssignedHints, AssignedHints) {
    let surplus = |(zone, share): (&String, &Share)| {
        (zone.clone(), assigned.get(zone).copied().unwrap_or_default() as f64 - share.desired)
    };
    let mut left: BTreeMap<String, f64> = shares.iter().map(surplus).collect();
    let (mut giving, mut receiving) = (AssignedHints::new(), AssignedHints::new());
    while let (Some((from, most)), Some((to, least))) = (extreme(&left, 1.0), extreme(&left, -1.0)) {
        if (most < 1.0 && least < 1.0) || most < 0.5 || least < 0.5 {
            break;
        }
        left.entry(from.clone()).and_modify(|rest| *rest -= 1.0);
        left.entry(to.clone()).and_modify(|rest| *rest += 1.0);
        *giving.entry(from).or_default() += 1;
        *receiving.entry(to).or_default() += 1;
    }
    (giving, receiving)
}

/// The zone with the largest surplus (sign 1) or deficit (sign -1).
fn extreme(left: &BTreeMap<String, f64>, sign: f64) -> Option<(String, f64)> {
    let signed = left.iter().map(|(zone, rest)| (zone, rest * sign)).filter(|(_, rest)| *rest > 0.0);
    signed.max_by(|a, b| a.1.total_cmp(&b.1).then_with(|| b.0.cmp(a.0))).map(|(zone, rest)| (zone.clone(), rest))
}

fn redistribute(drafts: &mut Drafts, mut giving: AssignedHints, mut receiving: AssignedHints) {
    for endpoint in drafts.written().filter(|endpoint| is_ready(endpoint)) {
        let Some(zone) = endpoint.zone.as_deref() else { continue };
        let Some(rest) = giving.get_mut(zone).filter(|rest| **rest > 0) else { continue };
        let Some((to, wanted)) = receiving.iter_mut().find(|(_, wanted)| **wanted > 0) else { return };
        *rest -= 1;
        *wanted -= 1;
        endpoint.hints = Some(for_zone(to.as_str().into()));
    }
}

fn for_zone(zone: Box<str>) -> Hints {
    Hints { for_zones: vec![Named { name: zone }], for_nodes: Vec::new() }
}
