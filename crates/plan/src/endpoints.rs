//! Endpoints: what is kept of a slice, and from all slices of a Service those of one port, each once.
//!
//! In: slices as they arrive. Out: small records, since a cluster may have a hundred thousand: an address, its state,
//! and a shared [`Place`], of which there are hardly more than nodes.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::view::Protocol;
use api::view::endpoint_slice::{self, EndpointPort, EndpointSlice, Named};

use crate::address::unfit_endpoint;
use crate::options::Options;
use crate::pool::Pool;
use crate::service_port::{Backend, PortKey};

/// Where an endpoint runs, and whom it should serve.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// Its node.
    pub node: Option<Box<str>>,
    /// The zones it should serve.
    pub zones: Box<[Box<str>]>,
    /// The nodes it should serve.
    pub nodes: Box<[Box<str>]>,
}

/// An endpoint, whatever its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Whether new connections should go there.
    pub ready: bool,
    /// Whether it answers.
    pub serving: bool,
    /// Whether it is about to go.
    pub terminating: bool,
    /// Whether it is on this node.
    pub local: bool,
    /// Where it runs, and whom it should serve.
    pub place: Arc<Place>,
}

impl Endpoint {
    /// Whether it is about to go and still answers: what is used when nothing better is left.
    #[must_use]
    pub const fn is_fading(&self) -> bool {
        self.serving && self.terminating
    }
}

/// An endpoint as one port of a Service sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) backend: Backend,
    pub(crate) endpoint: &'a Endpoint,
}

/// What is kept of a slice.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// `namespace/name`.
    pub(crate) name: Box<str>,
    pub(crate) endpoints: Box<[Endpoint]>,
    pub(crate) problems: Box<[String]>,
    ports: Box<[HeldPort]>,
    family: Option<Family>,
}

#[derive(PartialEq, Eq, Debug)]
struct HeldPort {
    name: Arc<str>,
    protocol: Protocol,
    number: u16,
}

/// What slices have in common.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) names: Pool<str>,
    pub(crate) places: Pool<Place>,
}

impl Held {
    /// Keeps what matters of a slice on a node.
    pub(crate) fn of(name: &str, slice: EndpointSlice, options: &Options, pools: &mut Pools) -> Self {
        let mut problems = Vec::new();
        let family = slice.family();
        let (mut ports, mut endpoints) = (Vec::new(), Vec::new());
        if let Some(family) = family {
            ports = slice.ports.into_iter().filter_map(|port| hold_port(port, name, pools, &mut problems)).collect();
            endpoints = hold_endpoints(slice.endpoints, family, options, &mut pools.places, |problem| {
                problems.push(format!("in its slice {name}, {problem}"));
            });
        } else {
            let kind = &slice.address_type;
            problems.push(format!("its slice {name} has addresses of type `{kind}`; packets cannot be sent to those"));
        }
        Self { name: name.into(), endpoints: endpoints.into(), problems: problems.into(), ports: ports.into(), family }
    }

    /// The endpoints of a port.
    fn seen<'a>(&'a self, key: &'a PortKey) -> impl Iterator<Item = Seen<'a>> {
        let ours = |port: &&HeldPort| port.name == key.port && port.protocol == key.protocol;
        let ports = self.ports.iter().filter(ours).filter(|_| self.family == Some(key.family));
        ports.flat_map(|port| {
            let seen =
                |endpoint: &'a Endpoint| Seen { backend: Backend { ip: endpoint.ip, port: port.number }, endpoint };
            self.endpoints.iter().map(seen)
        })
    }
}

fn hold_port(port: EndpointPort, slice: &str, pools: &mut Pools, problems: &mut Vec<String>) -> Option<HeldPort> {
    let number = port.number();
    let name = port.name?;
    let mut complain = |what: &str| problems.push(format!("in its slice {slice}, port `{name}` {what}"));
    match (number, port.protocol) {
        (None, _) => complain("has no number that could be used"),
        (_, None) => complain("has an unknown protocol"),
        (Some(number), Some(protocol)) => {
            return Some(HeldPort { name: pools.names.share(name), protocol, number });
        }
    }
    None
}

/// Keeps the endpoints that can be used; of those that cannot, one is named for all.
fn hold_endpoints(
    endpoints: Vec<endpoint_slice::Endpoint>,
    family: Family,
    options: &Options,
    places: &mut Pool<Place>,
    complain: impl FnOnce(String),
) -> Vec<Endpoint> {
    let (mut held, mut unfit) = (Vec::with_capacity(endpoints.len()), Vec::new());
    for endpoint in endpoints {
        let Some(text) = endpoint.addresses.first() else { continue };
        match usable(text, family, options.rootless) {
            Ok(ip) => held.push(hold(endpoint, ip, &options.node_name, places)),
            Err(why) => unfit.push((text.clone(), why)),
        }
    }
    if let Some((address, why)) = unfit.first() {
        let more = if unfit.len() > 1 { format!(" ({} others as well)", unfit.len() - 1) } else { String::new() };
        complain(format!("endpoint `{address}` {why}; it is left out{more}"));
    }
    held
}

/// The address that a text names, if packets can be sent there.
pub(crate) fn usable(text: &str, family: Family, rootless: bool) -> Result<IpAddr, &'static str> {
    let ip = parse_lenient(text).ok_or("is not an address")?;
    if Family::of(ip) != family {
        return Err("is not of the slice's own family");
    }
    unfit_endpoint(ip, rootless).map_or(Ok(ip), Err)
}

fn hold(endpoint: endpoint_slice::Endpoint, ip: IpAddr, node: &str, places: &mut Pool<Place>) -> Endpoint {
    let names = |list: Vec<Named>| list.into_iter().map(|one| one.name).collect();
    let (hints, conditions) = (endpoint.hints.unwrap_or_default(), endpoint.conditions);
    let place = Place { node: endpoint.node_name, zones: names(hints.for_zones), nodes: names(hints.for_nodes) };
    Endpoint {
        ip,
        ready: conditions.is_ready(),
        serving: conditions.is_serving(),
        terminating: conditions.is_terminating(),
        local: place.node.as_deref() == Some(node),
        place: places.share(place),
    }
}

/// The endpoints of a port, in order, each once. Two records of one address and port are of an address that is used
/// again while its last user is still going, or of an endpoint that moves from slice to slice: the one that can take
/// connections longest counts.
pub(crate) fn of_port<'a>(slices: &'a [Held], key: &'a PortKey) -> Vec<Seen<'a>> {
    let mut found: Vec<Seen<'a>> = slices.iter().flat_map(|slice| slice.seen(key)).collect();
    let rank = |seen: &Seen<'_>| {
        let endpoint = seen.endpoint;
        (seen.backend, endpoint.terminating, !endpoint.ready, !endpoint.serving)
    };
    found.sort_by(|one, other| rank(one).cmp(&rank(other)).then_with(|| one.endpoint.place.cmp(&other.endpoint.place)));
    found.dedup_by_key(|seen| seen.backend);
    found
}
