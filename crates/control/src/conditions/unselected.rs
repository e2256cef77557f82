//! Services without selector: their endpoints are made by hand or mirrored from Endpoints, and only slices tell of them.

use api::view::Protocol;
use api::view::labels::SERVICE_NAME;

use super::coverage::{Offer, unmet};
use super::list::Finding;
use super::stored::Stored;
use super::words::list;
use crate::controller::View;
use crate::objects::service::Service;

/// How many ports are named.
const NAMED: usize = 5;

/// Whether there are endpoints, and whether they serve.
pub(super) fn find(view: &View<'_>, service: &Service, stored: &Stored) -> (Finding, Finding) {
    let missing = unmet(view, service, stored);
    let matched = || Finding::good("NoSelector", "the endpoints are those of EndpointSlices made for this Service");
    if missing.is_empty() {
        return (matched(), Finding::good("EndpointsReady", super::ALL_PORTS));
    }
    let offers: Vec<Offer> = view.world.slices.of(&service.entry.key.name).map(Offer::of).collect();
    if !offers.iter().any(|offer| offer.any) {
        let name = service.name();
        let none = Finding::bad(
            "NoSelector",
            format!(
                "Service {name} has no selector and no endpoints. Create an EndpointSlice with the label \
                 {SERVICE_NAME}={name}, or give the Service a selector."
            ),
        );
        return (none.clone(), none);
    }
    if !offers.iter().any(|offer| offer.ready) {
        let none = "none of the endpoints in the EndpointSlices of this Service is ready";
        return (matched(), Finding::bad("EndpointsNotReady", none));
    }
    let mut lacking: Vec<String> =
        missing.iter().filter_map(|need| need.port).map(|port| stored.spec.ports[port].called()).collect();
    lacking.dedup();
    let ready = offers.iter().filter(|offer| offer.ready);
    let mut offered: Vec<String> = ready.flat_map(|offer| &offer.ports).map(described).collect();
    offered.sort_unstable();
    offered.dedup();
    let noun = if lacking.len() == 1 { "port" } else { "ports" };
    let offered = if offered.is_empty() { "none".to_owned() } else { list(&offered, NAMED) };
    let message = format!(
        "no ready endpoint for {noun} {}: the EndpointSlices of this Service must have a port of the same name, \
         protocol and family; theirs are {offered}",
        list(&lacking, NAMED)
    );
    (matched(), Finding::bad("NoSuchPort", message))
}

fn described((name, protocol): &(Box<str>, Option<Protocol>)) -> String {
    let protocol = protocol.map_or("?", Protocol::as_str);
    if name.is_empty() { format!("unnamed {protocol}") } else { format!("{name} {protocol}") }
}
