//! Services without selector: their endpoints are created manually or mirrored from Endpoints; only slices have them.

use api::view::Protocol;
use api::view::labels::SERVICE_NAME;

use crate::cluster::Cluster;
use crate::coverage::{Offer, unmet};
use crate::endpoints::unusable;
use crate::finding::{Finding, Stage, code, healthy};
use crate::model::{Service, port_name, protocol_name};
use crate::service::ALL_PORTS;
use crate::words::list;

/// How many ports are named.
const NAMED: usize = 5;

/// Whether there are endpoints, and whether they are ready.
pub(crate) fn find<C: Cluster>(cluster: &C, service: &Service) -> (Stage, Stage) {
    let missing = unmet(cluster, service);
    let matched = || healthy("NoSelector", "the endpoints are those of EndpointSlices made for this Service");
    if missing.is_empty() {
        return (matched(), healthy("EndpointsReady", ALL_PORTS));
    }
    let offers: Vec<Offer> = cluster.slices(service).map(|slice| Offer::within(&slice, cluster, service)).collect();
    let (name, namespace) = (service.name(), service.namespace());
    if !offers.iter().any(|offer| offer.any) {
        let message = format!(
            "Service {name} has no selector and no endpoints. Create an EndpointSlice with the label \
             {SERVICE_NAME}={name}, or give the Service a selector."
        );
        let none = Finding::new(code::NO_SELECTOR, message, service.set_selector(&[("app".into(), name.into())]));
        return (Err(none.clone()), Err(none));
    }
    let look = format!("kubectl get endpointslices -n {namespace} -l {SERVICE_NAME}={name} -o yaml");
    if !offers.iter().any(|offer| offer.ready) {
        let none = "none of the endpoints in the EndpointSlices of this Service is ready";
        let none = || Finding::new(code::ENDPOINTS_NOT_READY, none, look);
        return (matched(), Err(unusable(cluster, service).unwrap_or_else(none)));
    }
    let mut lacking: Vec<usize> = missing.iter().filter_map(|need| need.port).collect();
    lacking.dedup();
    let names: Vec<String> = lacking.iter().filter_map(|port| service.ports().get(*port)).map(port_name).collect();
    let mut offered: Vec<&(Box<str>, Option<Protocol>)> =
        offers.iter().filter(|offer| offer.ready).flat_map(|offer| &offer.ports).collect();
    offered.sort_unstable();
    offered.dedup();
    let noun = if names.len() == 1 { "port" } else { "ports" };
    let theirs: Vec<String> = offered.iter().map(|port| described(port)).collect();
    let theirs = if theirs.is_empty() { "none".to_owned() } else { list(&theirs, NAMED) };
    let message = format!(
        "no ready endpoint for {noun} {}: the EndpointSlices of this Service must have a port of the same name, \
         protocol and family; theirs are {theirs}",
        list(&names, NAMED)
    );
    // With one port on either side the mapping is unambiguous.
    let fix = match (&lacking[..], &offered[..], service.ports()) {
        ([index], [(name, protocol)], [port]) if *protocol == port.protocol && !name.is_empty() => {
            let member = if port.name.is_empty() { "add" } else { "replace" };
            service.rename_port(*index, member, name)
        }
        _ => look,
    };
    (matched(), Err(Finding::new(code::NO_SUCH_PORT, message, fix)))
}

fn described((name, protocol): &(Box<str>, Option<Protocol>)) -> String {
    format!("{} {}", if name.is_empty() { "unnamed" } else { name }, protocol_name(*protocol))
}
