//! What a Service says, prepared from its object and its slices.
//!
//! In: the views of a Service and of its EndpointSlices. Out: a [`Service`] that can be asked for any of its records
//! without computing: addresses once each, endpoints ordered by name, so that what shares a name stands together and
//! one is found by halving. Pure; equal inputs give equal values, so that a change that no name shows is no change.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::view;
use api::view::endpoint_slice::{self, EndpointPort, EndpointSlice};
use api::view::service::ServicePort;

use crate::place::{dashed, undashed};
use crate::wire::{LABEL_MAX, from_text};
use crate::zone::Config;

/// The name of a Service: its label and that of its namespace, on the wire.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// The labels.
    pub wire: Box<[u8]>,
    /// Its number, by which it is counted.
    pub number: u32,
}

/// A namespace that somebody speaks of.
#[derive(Debug)]
pub struct Namespace {
    /// Its label on the wire.
    pub wire: Box<[u8]>,
    /// Whether it exists and is shown.
    pub shown: AtomicBool,
    /// Whether its name may be shown for an address.
    pub listed: bool,
}

impl Namespace {
    /// Whether it exists and is shown.
    #[inline]
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.shown.load(Ordering::Acquire)
    }
}

/// What a Service is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It has addresses of its own.
    Cluster,
    /// It has those of its endpoints.
    Headless,
    /// It is another name, on the wire.
    Alias(Box<[u8]>),
    /// It has no records: another name that is an address.
    Nothing,
}

/// A protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// Of no port in particular.
    None,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port {
    /// Its name, in lower case.
    pub name: Box<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number; none stands for every port, and has no SRV record.
    pub number: Option<u16>,
}

/// A Service, prepared.
#[derive(Debug)]
pub struct Service {
    /// Its name.
    pub key: Arc<Key>,
    /// Its namespace.
    pub namespace: Arc<Namespace>,
    /// What it is.
    pub kind: Kind,
    /// Its own ports.
    pub ports: Arc<[Port]>,
    /// The IPv4 addresses of its name.
    pub v4: Box<[Ipv4Addr]>,
    /// The IPv6 addresses of its name.
    pub v6: Box<[Ipv6Addr]>,
    /// Its ready endpoints.
    pub endpoints: Arc<Endpoints>,
}

/// Ready endpoints, ordered: first those named after their address, by address; then the others, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoints {
    all: Box<[Endpoint]>,
    /// Labels with their lengths, one after the other.
    names: Box<[u8]>,
    /// The ports of the slices they come from.
    sets: Box<[Arc<[Port]>]>,
}

/// A ready endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Which ports it has.
    set: u16,
    /// Where its name is, unless it is named after its address.
    name: u32,
}

const UNNAMED: u32 = u32::MAX;

/// A slice in small: what is kept of it to prepare its Service again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Its name.
    pub name: Box<str>,
    /// Its ready endpoints. A Service of one slice has the same.
    pub endpoints: Arc<Endpoints>,
}

impl Slice {
    /// Takes what names are made of. Lists of ports are many and mostly equal, so that whoever has one already may give
    /// that.
    #[must_use]
    pub fn new(form: &EndpointSlice, config: &Config, share: impl FnOnce(Arc<[Port]>) -> Arc<[Port]>) -> Self {
        let mut found: Vec<Found<'_>> = Vec::new();
        // Names instead of addresses are from another time; nobody can be sent there.
        let known = &*form.address_type != "FQDN";
        let ready = |endpoint: &&endpoint_slice::Endpoint| known && endpoint.conditions.is_ready();
        for endpoint in form.endpoints.iter().filter(ready) {
            let own = endpoint.hostname.as_deref();
            let pod = endpoint.target_ref.as_ref().map(|target| &*target.name).filter(|_| config.endpoint_pod_names);
            let name = [own, pod].into_iter().flatten().find(|name| is_label(name));
            let name = name.map(|name| Cow::Owned(name.as_bytes().to_ascii_lowercase()));
            let addresses = endpoint.addresses.iter().filter_map(|text| parse_address(text));
            found.extend(addresses.map(|address| Found { name: name.clone(), address, set: 0 }));
        }
        let endpoints = Endpoints::ordered(found, vec![share(ports(form.ports.iter().map(slice_port)))]);
        Self { name: form.metadata.name.clone(), endpoints: Arc::new(endpoints) }
    }
}

/// Whether a text can be one label.
fn is_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len()) && !text.contains('.')
}

/// An address; one that says IPv4 in the clothes of IPv6 is IPv4.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    api::ip::parse_lenient(text).map(|address| address.to_canonical())
}

/// Ports, in small. No port is one port that stands for all.
fn ports(all: impl ExactSizeIterator<Item = Port>) -> Arc<[Port]> {
    if all.len() == 0 {
        return [Port { name: Box::default(), protocol: Protocol::None, number: None }].into();
    }
    all.collect()
}

fn service_port(form: &ServicePort) -> Port {
    let number = Some(form.port).filter(|number| *number > 0);
    Port { name: form.name.to_ascii_lowercase().into(), protocol: form.protocol.into(), number }
}

fn slice_port(form: &EndpointPort) -> Port {
    let name = form.name.as_deref().unwrap_or_default().to_ascii_lowercase().into();
    let number = form.port.and_then(|number| u16::try_from(number).ok());
    Port { name, protocol: form.protocol.into(), number }
}

// === impl Protocol ===

impl From<Option<view::Protocol>> for Protocol {
    fn from(protocol: Option<view::Protocol>) -> Self {
        match protocol {
            Some(view::Protocol::Tcp) => Self::Tcp,
            Some(view::Protocol::Udp) => Self::Udp,
            Some(view::Protocol::Sctp) => Self::Sctp,
            None => Self::None,
        }
    }
}

impl Protocol {
    /// The protocol of a label, in any case.
    #[must_use]
    pub fn named(label: &[u8]) -> Option<Self> {
        [(Self::Tcp, b"tcp".as_slice()), (Self::Udp, b"udp"), (Self::Sctp, b"sctp")]
            .into_iter()
            .find(|(_, name)| label.eq_ignore_ascii_case(name))
            .map(|(protocol, _)| protocol)
    }
}

// === impl Service ===

impl Service {
    /// Prepares a Service.
    #[must_use]
    pub fn new(key: Arc<Key>, namespace: Arc<Namespace>, form: &Form, slices: &[Arc<Slice>]) -> Self {
        let endpoints = Endpoints::merged(slices);
        let (v4, v6) = match form.kind {
            Kind::Headless => split(endpoints.all.iter().map(|endpoint| endpoint.address), true),
            Kind::Cluster => split(form.addresses.iter().copied(), false),
            Kind::Alias(_) | Kind::Nothing => Default::default(),
        };
        Self { key, namespace, kind: form.kind.clone(), ports: form.ports.clone(), v4, v6, endpoints }
    }

    /// Whether both say the same.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        let own =
            |service: &Self| (service.kind.clone(), service.ports.clone(), service.v4.clone(), service.v6.clone());
        own(self) == own(other) && self.endpoints == other.endpoints
    }

    /// Whether it has an address, as its own or as that of an endpoint.
    #[must_use]
    pub fn has(&self, address: IpAddr, own: bool) -> bool {
        match address {
            _ if !own => self.endpoints.all.iter().any(|endpoint| endpoint.address == address),
            IpAddr::V4(v4) => self.kind == Kind::Cluster && self.v4.contains(&v4),
            IpAddr::V6(v6) => self.kind == Kind::Cluster && self.v6.contains(&v6),
        }
    }

    /// Its addresses and those of its endpoints, each with whether it is its own.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, bool)> {
        let own = self.kind == Kind::Cluster;
        let v4 = self.v4.iter().filter(move |_| own).map(|address| (IpAddr::V4(*address), true));
        let v6 = self.v6.iter().filter(move |_| own).map(|address| (IpAddr::V6(*address), true));
        v4.chain(v6).chain(self.endpoints.all.iter().map(|endpoint| (endpoint.address, false)))
    }
}

fn split(addresses: impl Iterator<Item = IpAddr>, ordered: bool) -> (Box<[Ipv4Addr]>, Box<[Ipv6Addr]>) {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(address) => v4.push(address),
            IpAddr::V6(address) => v6.push(address),
        }
    }
    if ordered {
        v4.sort_unstable();
        v6.sort_unstable();
    }
    v4.dedup();
    v6.dedup();
    (v4.into(), v6.into())
}

/// A Service in small: what is kept of its object to prepare it again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Form {
    /// What it is.
    pub kind: Kind,
    /// Its own addresses.
    pub addresses: Box<[IpAddr]>,
    /// Its ports.
    pub ports: Arc<[Port]>,
}

impl Form {
    /// Takes what names are made of.
    #[must_use]
    pub fn new(form: &view::Service) -> Self {
        let addresses: Box<[IpAddr]> = form.cluster_ips().filter_map(parse_address).collect();
        let kind = if form.is_external_name() {
            alias(&form.spec.external_name)
        } else if form.is_headless() {
            Kind::Headless
        } else {
            Kind::Cluster
        };
        Self { kind, addresses, ports: ports(form.spec.ports.iter().map(service_port)) }
    }
}

/// Another name. What is written as an address is not a name, and there is no record for it.
fn alias(text: &str) -> Kind {
    if text.parse::<IpAddr>().is_ok() {
        return Kind::Nothing;
    }
    match from_text(text) {
        Ok(wire) if wire.len() > 1 => Kind::Alias(wire.to_ascii_lowercase().into()),
        _ => Kind::Nothing,
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// Those of several slices; those of one are the same thing.
    #[must_use]
    pub fn merged(slices: &[Arc<Slice>]) -> Arc<Self> {
        if let [one] = slices {
            return one.endpoints.clone();
        }
        let mut sets: Vec<Arc<[Port]>> = Vec::new();
        let mut found: Vec<Found<'_>> = Vec::new();
        for endpoints in slices.iter().map(|slice| &slice.endpoints) {
            for endpoint in &endpoints.all {
                let ports = &endpoints.sets[usize::from(endpoint.set)];
                let set = sets.iter().position(|set| set == ports).unwrap_or_else(|| {
                    sets.push(ports.clone());
                    sets.len() - 1
                });
                let Ok(set) = u16::try_from(set) else { continue };
                let name = (endpoint.name != UNNAMED).then(|| Cow::Borrowed(endpoints.own_name(endpoint)));
                found.push(Found { name, address: endpoint.address, set });
            }
        }
        Arc::new(Self::ordered(found, sets))
    }

    fn ordered(mut found: Vec<Found<'_>>, sets: Vec<Arc<[Port]>>) -> Self {
        share_names(&mut found);
        found.sort_unstable();
        let (mut names, mut all) = (Vec::new(), Vec::with_capacity(found.len()));
        let mut last: Option<(&[u8], u32)> = None;
        for Found { name, address, set } in &found {
            let name = match (name.as_deref(), last) {
                (None, _) => UNNAMED,
                (Some(name), Some((before, at))) if before == name => at,
                (Some(name), _) => intern(&mut names, name),
            };
            all.push(Endpoint { address: *address, set: *set, name });
            last = found[all.len() - 1].name.as_deref().map(|text| (text, name));
        }
        Self { all: all.into(), names: names.into(), sets: sets.into() }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Endpoint] {
        &self.all
    }

    /// The ports of one.
    #[must_use]
    pub fn ports(&self, endpoint: &Endpoint) -> &[Port] {
        &self.sets[usize::from(endpoint.set)]
    }

    /// The ports of all slices.
    pub fn all_ports(&self) -> impl Iterator<Item = &Port> {
        self.sets.iter().flat_map(|set| set.iter())
    }

    /// Those that share a name, name by name.
    pub fn groups(&self) -> impl Iterator<Item = &[Endpoint]> {
        self.all.chunk_by(|a, b| a.name == b.name && (a.name != UNNAMED || a.address == b.address))
    }

    /// Those that have this name.
    #[must_use]
    pub fn named(&self, label: &[u8]) -> &[Endpoint] {
        let split = self.all.partition_point(|endpoint| endpoint.name == UNNAMED);
        let (unnamed, named) = self.all.split_at(split);
        let from = named.partition_point(|endpoint| self.own_name(endpoint) < label);
        let same = named[from..].partition_point(|endpoint| self.own_name(endpoint) == label);
        if same > 0 {
            return &named[from..from + same];
        }
        let Some(address) = undashed(label) else { return &[] };
        let from = unnamed.partition_point(|endpoint| endpoint.address < address);
        let same = unnamed[from..].partition_point(|endpoint| endpoint.address == address);
        &unnamed[from..from + same]
    }

    fn own_name(&self, endpoint: &Endpoint) -> &[u8] {
        let at = endpoint.name as usize;
        &self.names[at + 1..at + 1 + usize::from(self.names[at])]
    }

    /// Writes the label of one, with its length.
    pub fn write_label(&self, endpoint: &Endpoint, out: &mut Vec<u8>) {
        if endpoint.name == UNNAMED {
            let mut buffer = [0; 63];
            let len = dashed(endpoint.address, &mut buffer);
            out.push(u8::try_from(len).expect("a label"));
            out.extend_from_slice(&buffer[..len]);
        } else {
            let at = endpoint.name as usize;
            out.extend_from_slice(&self.names[at..=at + usize::from(self.names[at])]);
        }
    }
}

/// An endpoint on its way into the order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Found<'f> {
    name: Option<Cow<'f, [u8]>>,
    address: IpAddr,
    set: u16,
}

/// Keeps a name.
fn intern(names: &mut Vec<u8>, name: &[u8]) -> u32 {
    let at = u32::try_from(names.len()).expect("names of one Service fit");
    names.push(u8::try_from(name.len()).expect("a label"));
    names.extend_from_slice(name);
    at
}

/// A name may be that which another endpoint has from its address. Then that one gets it as its own, so that both stand
/// together.
fn share_names(found: &mut [Found<'_>]) {
    let taken: Vec<IpAddr> = found.iter().filter_map(|one| undashed(one.name.as_ref()?)).collect();
    if taken.is_empty() {
        return;
    }
    for one in found.iter_mut().filter(|one| one.name.is_none() && taken.contains(&one.address)) {
        let mut buffer = [0; 63];
        let len = dashed(one.address, &mut buffer);
        one.name = Some(Cow::Owned(buffer[..len].to_vec()));
    }
}

#[cfg(test)]
mod tests;
