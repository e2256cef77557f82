//! Addresses that cannot be endpoints: proxies leave them out.

use std::net::IpAddr;

use api::ip::parse_lenient;

use crate::cluster::Cluster;
use crate::finding::{Finding, code};
use crate::model::Service;

/// Why an address cannot be an endpoint of a Service: the code, and the end of a sentence.
pub(crate) fn why_unusable<C: Cluster>(cluster: &C, service: &Service, ip: IpAddr) -> Option<(&'static str, String)> {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if let Some(owner) = cluster.service_at(ip) {
        return Some((code::ENDPOINT_IS_CLUSTER_IP, format!("is the cluster IP of Service {owner}")));
    }
    // Where Services have addresses on loopback, so may their endpoints. The endpoint of default/kubernetes is where the API server listens:
    // one at loopback serves the clients of its machine, which do not use the cluster IP.
    let on_loopback = || service.cluster_ips().filter_map(parse_lenient).any(|ip| ip.is_loopback());
    let is_api = (service.namespace(), service.name()) == ("default", "kubernetes");
    let why = if ip.is_loopback() && !is_api && !on_loopback() {
        "is a loopback address"
    } else if link_local {
        "is a link-local address"
    } else if ip.is_unspecified() || ip.is_multicast() {
        "is not the address of one machine"
    } else if cluster.is_service_address(ip) {
        "is in a range of Service addresses, where there are no machines"
    } else {
        return None;
    };
    Some((code::ENDPOINT_NOT_ROUTABLE, why.to_owned()))
}

/// The first endpoint in the slices of a Service that proxies leave out.
#[must_use]
pub fn unusable<C: Cluster>(cluster: &C, service: &Service) -> Option<Finding> {
    for slice in cluster.slices(service).filter(|slice| !slice.is_deleting()) {
        for ip in slice.endpoints.iter().filter_map(crate::model::Endpoint::ip) {
            let Some((code, why)) = why_unusable(cluster, service, ip) else { continue };
            let message = format!("endpoint {ip} of EndpointSlice {} {why}; proxies leave it out", slice.name());
            let edit = format!("kubectl edit endpointslice {} -n {}", slice.name(), service.namespace());
            let own = format!("{}/{}", service.namespace(), service.name());
            let fix = match cluster.service_at(ip).filter(|owner| **owner != own).and_then(|one| one.split_once('/')) {
                Some((namespace, name)) => alias(service, &format!("{name}.{namespace}.svc.{}", cluster.domain())),
                None => edit,
            };
            return Some(Finding::new(code, message, fix));
        }
    }
    None
}

/// Makes the Service an alias of another.
fn alias(service: &Service, target: &str) -> String {
    let (own, place) = (service.name(), service.namespace());
    format!(
        "kubectl delete service {own} -n {place} && kubectl create service externalname {own} -n {place} \
         --external-name={target}"
    )
}
