//! Endpoints and Pods of a Service that belong to no port: wrong family, wrong port, no address, not in a slice.
//!
//! In: the objects and the planned ports. Out: each once, with its reason.

use std::collections::BTreeSet;

use api::ip::Family;
use api::view::endpoint_slice::{Endpoint, EndpointPort, EndpointSlice};
use api::view::{Pod, Protocol};

use super::{Candidate, EndpointTraffic, ExclusionReason, Port, Subject, TrafficPath, Unassigned, pod};
use crate::endpoints::usable;
use crate::reasons::Reason;
use crate::service_port::{PortKey, ServicePort};

/// Endpoints of a port's family whose slices lack the port.
pub(super) fn without_port(
    planned: &ServicePort,
    subject: &Subject<'_>,
    reasons: &[Reason],
    paths: &[TrafficPath],
    rootless: bool,
) -> Vec<Candidate> {
    let key = &planned.key;
    let mut seen: BTreeSet<_> = reasons.iter().map(|reason| reason.backend.ip).collect();
    let mut found = Vec::new();
    let lacking = subject
        .slices
        .iter()
        .filter(|slice| slice.family() == Some(key.family) && !slice.is_headless() && !has_port(slice, key));
    for slice in lacking {
        for endpoint in &slice.endpoints {
            let fit = address(endpoint).and_then(|text| usable(text, key.family, rootless).ok());
            let Some(ip) = fit.filter(|ip| seen.insert(*ip)) else { continue };
            let out = ExclusionReason::NoSuchPort(port_names(slice));
            found.push(Candidate {
                address: ip.to_string(),
                port: None,
                node: endpoint.node_name.clone(),
                pod: pod::named(subject.pods, &ip.to_string()),
                traffic: vec![EndpointTraffic::Excluded(out); paths.len()],
            });
        }
    }
    found
}

fn has_port(slice: &EndpointSlice, key: &PortKey) -> bool {
    slice.ports.iter().any(|port| {
        let is_usable = port.number().is_some();
        is_usable && port.name.as_deref() == Some(&*key.port) && port.protocol == Some(key.protocol)
    })
}

/// Ports of a slice as `name/protocol`.
fn port_names(slice: &EndpointSlice) -> Vec<String> {
    let name = |port: &EndpointPort| {
        let protocol = port.protocol.map_or("?", Protocol::as_str);
        let number = port.port.map(|number| format!(" {number}")).unwrap_or_default();
        format!("`{}`{number}/{protocol}", port.name.as_deref().unwrap_or_default())
    };
    slice.ports.iter().map(name).collect()
}

fn address(endpoint: &Endpoint) -> Option<&str> {
    endpoint.addresses.first().map(|text| &**text)
}

/// Endpoints and Pods that belong to no port.
pub(super) fn unassigned(ports: &[Port], subject: &Subject<'_>, rootless: bool) -> Vec<Unassigned> {
    if ports.is_empty() {
        return Vec::new();
    }
    let has = |family: Family| {
        ports.iter().map(|port| &port.planned.key).any(|key| key.family == family && key.redirected.is_none())
    };
    let mut found = Vec::new();
    for slice in subject.slices {
        for endpoint in &slice.endpoints {
            let Some(text) = address(endpoint) else { continue };
            if let Some(out) = unusable(slice, text, rootless, has) {
                let name = slice.metadata.key();
                found.push(Unassigned {
                    what: text.to_owned(),
                    pod: pod::named(subject.pods, text),
                    slice: Some(name),
                    out,
                });
            }
        }
    }
    found.extend(subject.pods.iter().filter_map(|pod| unlisted(pod, subject.slices)));
    found
}

/// Why an endpoint belongs to no port.
fn unusable(
    slice: &EndpointSlice,
    text: &str,
    rootless: bool,
    has: impl Fn(Family) -> bool,
) -> Option<ExclusionReason> {
    let Some(family) = slice.family() else { return Some(ExclusionReason::AddressType(slice.address_type.clone())) };
    if slice.is_headless() {
        return Some(ExclusionReason::HeadlessSlice);
    }
    if let Err(why) = usable(text, family, rootless) {
        return Some(ExclusionReason::Unfit(why));
    }
    (!has(family)).then(|| ExclusionReason::OtherFamily(family.as_str()))
}

/// Why no slice contains a Pod.
fn unlisted(pod: &Pod, slices: &[EndpointSlice]) -> Option<Unassigned> {
    let addresses = slices.iter().flat_map(|slice| &slice.endpoints).flat_map(|endpoint| &endpoint.addresses);
    if !pod.has_ended() && addresses.into_iter().any(|address| pod::has(pod, address)) {
        return None;
    }
    let out = if pod.has_ended() {
        ExclusionReason::PodEnded(pod.status.phase.clone())
    } else if pod.status.pod_ips.is_empty() {
        let waits = if pod.spec.node_name.is_empty() { "for a node" } else { "on its node for its start" };
        ExclusionReason::PodPending(waits.to_owned())
    } else {
        ExclusionReason::NotInSlice
    };
    let what = pod.status.pod_ips.first().map_or_else(|| pod.metadata.key(), |one| one.ip.to_string());
    Some(Unassigned { what, pod: Some(pod.metadata.key()), slice: None, out })
}
