//! Endpoint records: what is kept of a slice, and the deduplicated endpoints of a port.
//!
//! In: slices. Out: small records, since a cluster may have a hundred thousand: an address, its state, and a shared
//! location, of which there are hardly more than nodes.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::view::Protocol;
use api::view::endpoint_slice::{self, EndpointPort, EndpointSlice, Named};

use crate::address::endpoint_error;
use crate::leader::PodName;
use crate::options::Options;
use crate::pool::Pool;
use crate::service_port::{Backend, PortKey};

/// Location and hints of an endpoint.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Location {
    /// Its node.
    pub node: Option<Box<str>>,
    /// Its zone.
    pub zone: Option<Box<str>>,
    /// Zone hints.
    pub zones: Box<[Box<str>]>,
    /// Node hints.
    pub nodes: Box<[Box<str>]>,
}

/// An endpoint without port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// The `ready` condition.
    pub ready: bool,
    /// The `serving` condition.
    pub serving: bool,
    /// The `terminating` condition.
    pub terminating: bool,
    /// Whether it is on this node.
    pub local: bool,
    /// Location and hints.
    pub location: Arc<Location>,
    /// Its Pod.
    pub(crate) pod: Option<PodName>,
}

impl Endpoint {
    /// Whether it is terminating but still serving: used when no ready endpoint is left.
    #[must_use]
    pub const fn is_serving_terminating(&self) -> bool {
        self.serving && self.terminating
    }

    /// Whether it gets traffic, if only as a last resort.
    pub(crate) const fn can_serve(&self) -> bool {
        self.ready || self.is_serving_terminating()
    }
}

/// An endpoint of a Service port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortEndpoint<'a> {
    pub(crate) backend: Backend,
    pub(crate) endpoint: &'a Endpoint,
}

/// Record of a slice.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct SliceRecord {
    /// `namespace/name`.
    pub(crate) name: Box<str>,
    pub(crate) endpoints: Box<[Endpoint]>,
    pub(crate) problems: Box<[String]>,
    ports: Box<[SlicePort]>,
    family: Option<Family>,
}

#[derive(PartialEq, Eq, Debug)]
struct SlicePort {
    name: Arc<str>,
    protocol: Protocol,
    number: u16,
}

/// Interned values of all slices.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) names: Pool<str>,
    pub(crate) locations: Pool<Location>,
}

impl SliceRecord {
    /// The record of a slice.
    pub(crate) fn of(name: &str, slice: EndpointSlice, options: &Options, pools: &mut Pools) -> Self {
        let mut problems = Vec::new();
        let family = slice.family();
        let (mut ports, mut endpoints) = (Vec::new(), Vec::new());
        if let Some(family) = family {
            ports = slice.ports.into_iter().filter_map(|port| record_port(port, name, pools, &mut problems)).collect();
            endpoints = record_endpoints(slice.endpoints, family, options, &mut pools.locations, |problem| {
                problems.push(format!("in its slice {name}, {problem}"));
            });
        } else {
            let kind = &slice.address_type;
            problems.push(format!("its slice {name} has the unsupported address type `{kind}`"));
        }
        Self { name: name.into(), endpoints: endpoints.into(), problems: problems.into(), ports: ports.into(), family }
    }

    /// Endpoints of a port.
    fn seen<'a>(&'a self, key: &'a PortKey) -> impl Iterator<Item = PortEndpoint<'a>> {
        let ours = |port: &&SlicePort| port.name == key.port && port.protocol == key.protocol;
        let ports = self.ports.iter().filter(ours).filter(|_| self.family == Some(key.family));
        ports.flat_map(|port| {
            let seen = |endpoint: &'a Endpoint| PortEndpoint {
                backend: Backend { ip: endpoint.ip, port: port.number },
                endpoint,
            };
            self.endpoints.iter().map(seen)
        })
    }
}

fn record_port(port: EndpointPort, slice: &str, pools: &mut Pools, problems: &mut Vec<String>) -> Option<SlicePort> {
    let number = port.number();
    let name = port.name?;
    let mut complain = |what: &str| problems.push(format!("in its slice {slice}, port `{name}` {what}"));
    match (number, port.protocol) {
        (None, _) => complain("has no valid number"),
        (_, None) => complain("has an unknown protocol"),
        (Some(number), Some(protocol)) => {
            return Some(SlicePort { name: pools.names.share(name), protocol, number });
        }
    }
    None
}

/// Keeps the valid endpoints; of the invalid ones, one is named for all.
fn record_endpoints(
    endpoints: Vec<endpoint_slice::Endpoint>,
    family: Family,
    options: &Options,
    locations: &mut Pool<Location>,
    complain: impl FnOnce(String),
) -> Vec<Endpoint> {
    let (mut valid, mut invalid) = (Vec::with_capacity(endpoints.len()), Vec::new());
    for endpoint in endpoints {
        let Some(text) = endpoint.addresses.first() else { continue };
        match usable(text, family, options.rootless) {
            Ok(ip) => valid.push(endpoint_record(endpoint, ip, &options.node_name, locations)),
            Err(why) => invalid.push((text.clone(), why)),
        }
    }
    if let Some((address, why)) = invalid.first() {
        let more = if invalid.len() > 1 { format!(" ({} others as well)", invalid.len() - 1) } else { String::new() };
        complain(format!("endpoint `{address}` {why}; ignored{more}"));
    }
    valid
}

/// Parses an endpoint address.
pub(crate) fn usable(text: &str, family: Family, rootless: bool) -> Result<IpAddr, &'static str> {
    let ip = parse_lenient(text).ok_or("is not an address")?;
    if Family::of(ip) != family {
        return Err("is not of the slice's family");
    }
    endpoint_error(ip, rootless).map_or(Ok(ip), Err)
}

fn endpoint_record(
    endpoint: endpoint_slice::Endpoint,
    ip: IpAddr,
    node: &str,
    locations: &mut Pool<Location>,
) -> Endpoint {
    let names = |list: Vec<Named>| list.into_iter().map(|one| one.name).collect();
    let (hints, conditions) = (endpoint.hints.unwrap_or_default(), endpoint.conditions);
    let pod = endpoint.target_ref.filter(|target| &*target.kind == "Pod").map(|target| PodName::new(&target.name));
    let location = Location {
        node: endpoint.node_name,
        zone: endpoint.zone,
        zones: names(hints.for_zones),
        nodes: names(hints.for_nodes),
    };
    Endpoint {
        ip,
        ready: conditions.is_ready(),
        serving: conditions.is_serving(),
        terminating: conditions.is_terminating(),
        local: location.node.as_deref() == Some(node),
        location: locations.share(location),
        pod,
    }
}

/// Endpoints of a port, sorted and deduplicated. The same address and port can occur twice when an address is reused
/// while its last user terminates, or when an endpoint moves between slices: the one that can take connections longest
/// wins.
pub(crate) fn of_port<'a>(slices: &'a [SliceRecord], key: &'a PortKey) -> Vec<PortEndpoint<'a>> {
    let mut found: Vec<PortEndpoint<'a>> = slices.iter().flat_map(|slice| slice.seen(key)).collect();
    let rank = |seen: &PortEndpoint<'_>| {
        let endpoint = seen.endpoint;
        (seen.backend, endpoint.terminating, !endpoint.ready, !endpoint.serving)
    };
    found.sort_by(|one, other| {
        rank(one).cmp(&rank(other)).then_with(|| one.endpoint.location.cmp(&other.endpoint.location))
    });
    found.dedup_by_key(|seen| seen.backend);
    found
}
