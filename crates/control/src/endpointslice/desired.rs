//! The endpoints a Service should have: from its Pods, by family and by the ports they resolve to.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::ip::Family;
use api::view::endpoint_slice::{Endpoint, EndpointConditions, EndpointPort, TargetRef};

use crate::controller::View;
use crate::objects::pod::Pod;
use crate::objects::service::Service;
use crate::selection::{hostname, is_eligible, resolve};

/// Endpoints of one family, by their ports. Ports are in one order, so that equal sets are equal.
pub(super) type Groups = BTreeMap<Vec<EndpointPort>, Vec<Endpoint>>;

/// The desired endpoints.
pub(super) struct Desired {
    /// Endpoints, for each family of the Service.
    pub(super) families: Vec<(Family, Groups)>,
    /// Skipped Pods whose address is that of a Service, with that Service.
    pub(super) looping: Vec<(String, String)>,
}

impl Desired {
    /// Computes the endpoints of Pods.
    pub(super) fn of(view: &View<'_>, service: &Service, pods: &[&Arc<Pod>]) -> Self {
        let mut families: Vec<(Family, Groups)> =
            service.families.iter().map(|family| (*family, Groups::new())).collect();
        let mut looping = Vec::new();
        for pod in pods.iter().filter(|pod| is_eligible(pod)) {
            let node = view.cache.nodes.get(&pod.node);
            let ports = ports(service, pod);
            for (family, groups) in &mut families {
                let group = groups.entry(ports.clone()).or_default();
                // A Pod on a missing Node is unreachable, unless publishNotReadyAddresses is set.
                if node.is_none() && !service.publish_not_ready {
                    continue;
                }
                let mut addresses = Vec::new();
                for address in pod.addresses_of(*family) {
                    match view.cache.services.at(address) {
                        Some(other) => looping.push((pod.name().to_owned(), other.to_owned())),
                        None => addresses.push(address.to_string().into()),
                    }
                }
                if !addresses.is_empty() {
                    let zone = node.and_then(|node| node.zone()).map(Box::from);
                    group.push(endpoint(service, pod, addresses, zone));
                }
            }
        }
        Self { families, looping }
    }
}

fn endpoint(service: &Service, pod: &Pod, mut addresses: Vec<Box<str>>, zone: Option<Box<str>>) -> Endpoint {
    addresses.sort_unstable();
    let (serving, terminating) = (pod.ready, pod.deleting);
    // A terminating Pod is never ready, unless publishNotReadyAddresses is set.
    let ready = service.publish_not_ready || (serving && !terminating);
    Endpoint {
        addresses,
        conditions: EndpointConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) },
        hostname: hostname(pod, service).map(Box::from),
        target_ref: Some(target(pod)),
        node_name: (!pod.node.is_empty()).then(|| pod.node.clone()),
        zone,
        hints: None,
    }
}

/// The reference to a Pod.
pub(crate) fn target(pod: &Pod) -> TargetRef {
    TargetRef { kind: "Pod".into(), namespace: pod.namespace().into(), name: pod.name().into(), uid: pod.uid.clone() }
}

/// The resolved ports of a Service in a Pod; unresolvable ones are skipped.
fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let resolved = service.ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone()),
            protocol: port.protocol,
            port: Some(resolve(port, pod)?.into()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    let mut ports: Vec<EndpointPort> = resolved.collect();
    ports.sort_unstable();
    ports
}
