//! Records of a Service, prepared from its object and its EndpointSlices.
//!
//! In: views of a Service and its slices. Out: a [`Service`] whose records can be written without computation:
//! deduplicated addresses, and endpoints sorted so that endpoints with the same name are adjacent and found by binary
//! search. Pure; equal inputs give equal values, so that changes without effect on records are detected.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use api::view;
use api::view::endpoint_slice::{self, EndpointPort, EndpointSlice};
use api::view::service::ServicePort;

use crate::parsed_name::{address_to_label, label_to_address};
use crate::wire::{LABEL_MAX, from_text};
use crate::zone::Config;

/// Key of a Service.
#[derive(PartialEq, Eq, Hash, Debug)]
pub struct Key {
    /// Labels of Service and namespace in wire form.
    pub wire: Box<[u8]>,
    /// Small id, reused after deletion; index of per-Service counters.
    pub id: u32,
}

/// Namespace that exists or is referenced.
#[derive(Debug)]
pub struct Namespace {
    /// Label in wire form.
    pub wire: Box<[u8]>,
    /// Whether it exists and is served.
    pub visible: AtomicBool,
    /// Whether the configuration includes it, so that PTR records may name it.
    pub listed: bool,
}

impl Namespace {
    /// Whether it exists and is served.
    #[inline]
    #[must_use]
    pub fn is_visible(&self) -> bool {
        self.visible.load(Ordering::Acquire)
    }
}

/// Kind of Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Has cluster IPs.
    Cluster,
    /// Headless: has the addresses of its endpoints.
    Headless,
    /// `ExternalName`: CNAME target in wire form.
    ExternalName(Box<[u8]>),
    /// `ExternalName` that is an IP address or invalid: no records.
    NoRecords,
}

/// Protocol of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Protocol {
    /// Unspecified.
    None,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Port of a Service or an EndpointSlice.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Port {
    /// Name, lower-cased.
    pub name: Box<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port number; `None` means all ports and has no SRV record.
    pub number: Option<u16>,
}

/// Prepared records of a Service.
#[derive(Debug)]
pub struct Service {
    /// Key.
    pub key: Arc<Key>,
    /// Namespace.
    pub namespace: Arc<Namespace>,
    /// Kind.
    pub kind: Kind,
    /// Ports of the Service.
    pub ports: Arc<[Port]>,
    /// Addresses of its A records.
    pub v4: Box<[Ipv4Addr]>,
    /// Addresses of its AAAA records.
    pub v6: Box<[Ipv6Addr]>,
    /// Ready endpoints.
    pub endpoints: Arc<Endpoints>,
}

/// Ready endpoints, sorted: first those named after their address, by address; then those with a hostname, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoints {
    all: Box<[Endpoint]>,
    /// Length-prefixed labels.
    names: Box<[u8]>,
    /// Port lists of the slices.
    sets: Box<[Arc<[Port]>]>,
}

/// Ready endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Address.
    pub address: IpAddr,
    /// Index into `Endpoints::sets`.
    set: u16,
    /// Offset into `Endpoints::names`, or [`UNNAMED`].
    name: u32,
}

const UNNAMED: u32 = u32::MAX;

/// Endpoints of one EndpointSlice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Name of the slice.
    pub name: Box<str>,
    /// Ready endpoints; shared with the Service if it has one slice.
    pub endpoints: Arc<Endpoints>,
}

impl Slice {
    /// Extracts the endpoints. `share` may return an existing equal port list.
    #[must_use]
    pub fn new(form: &EndpointSlice, config: &Config, share: impl FnOnce(Arc<[Port]>) -> Arc<[Port]>) -> Self {
        let mut found: Vec<UnsortedEndpoint<'_>> = Vec::new();
        // Slices of the deprecated type FQDN have no addresses.
        let known = &*form.address_type != "FQDN";
        let ready = |endpoint: &&endpoint_slice::Endpoint| known && endpoint.conditions.is_ready();
        for endpoint in form.endpoints.iter().filter(ready) {
            let own = endpoint.hostname.as_deref();
            let pod = endpoint.target_ref.as_ref().map(|target| &*target.name).filter(|_| config.endpoint_pod_names);
            let name = [own, pod].into_iter().flatten().find(|name| is_label(name));
            let name = name.map(|name| Cow::Owned(name.as_bytes().to_ascii_lowercase()));
            let addresses = endpoint.addresses.iter().filter_map(|text| parse_address(text));
            found.extend(addresses.map(|address| UnsortedEndpoint { name: name.clone(), address, set: 0 }));
        }
        let endpoints = Endpoints::ordered(found, vec![share(ports(form.ports.iter().map(slice_port)))]);
        Self { name: form.metadata.name.clone(), endpoints: Arc::new(endpoints) }
    }
}

/// Whether a text is a single label.
fn is_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len()) && !text.contains('.')
}

/// Parses an address; an IPv4-mapped IPv6 address becomes IPv4.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    api::ip::parse_lenient(text).map(|address| address.to_canonical())
}

/// Collects ports. An empty list means all ports.
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
    /// Protocol of a label, case-insensitive.
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
    /// Prepares the records of a Service.
    #[must_use]
    pub fn new(key: Arc<Key>, namespace: Arc<Namespace>, form: &ServiceFields, slices: &[Arc<Slice>]) -> Self {
        let endpoints = Endpoints::merged(slices);
        let (v4, v6) = match form.kind {
            Kind::Headless => split(endpoints.all.iter().map(|endpoint| endpoint.address), true),
            Kind::Cluster => split(form.addresses.iter().copied(), false),
            Kind::ExternalName(_) | Kind::NoRecords => Default::default(),
        };
        Self { key, namespace, kind: form.kind.clone(), ports: form.ports.clone(), v4, v6, endpoints }
    }

    /// Whether both have the same records.
    #[must_use]
    pub fn same_records(&self, other: &Self) -> bool {
        let own =
            |service: &Self| (service.kind.clone(), service.ports.clone(), service.v4.clone(), service.v6.clone());
        own(self) == own(other) && self.endpoints == other.endpoints
    }

    /// Whether it has an address, as cluster IP (`own`) or as endpoint address.
    #[must_use]
    pub fn has(&self, address: IpAddr, own: bool) -> bool {
        match address {
            _ if !own => self.endpoints.all.iter().any(|endpoint| endpoint.address == address),
            IpAddr::V4(v4) => self.kind == Kind::Cluster && self.v4.contains(&v4),
            IpAddr::V6(v6) => self.kind == Kind::Cluster && self.v6.contains(&v6),
        }
    }

    /// Cluster IPs and endpoint addresses, each with whether it is a cluster IP.
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

/// Fields of a Service object that its records depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceFields {
    /// Kind.
    pub kind: Kind,
    /// Cluster IPs.
    pub addresses: Box<[IpAddr]>,
    /// Ports.
    pub ports: Arc<[Port]>,
}

impl ServiceFields {
    /// Extracts the fields.
    #[must_use]
    pub fn new(form: &view::Service) -> Self {
        let addresses: Box<[IpAddr]> = form.cluster_ips().filter_map(parse_address).collect();
        let kind = if form.is_external_name() {
            external_name(&form.spec.external_name)
        } else if form.is_headless() {
            Kind::Headless
        } else {
            Kind::Cluster
        };
        Self { kind, addresses, ports: ports(form.spec.ports.iter().map(service_port)) }
    }
}

/// Kind of an `ExternalName` Service. An IP address is not a valid CNAME target.
fn external_name(text: &str) -> Kind {
    if text.parse::<IpAddr>().is_ok() {
        return Kind::NoRecords;
    }
    match from_text(text) {
        Ok(wire) if wire.len() > 1 => Kind::ExternalName(wire.to_ascii_lowercase().into()),
        _ => Kind::NoRecords,
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// Merges the endpoints of several slices.
    #[must_use]
    pub fn merged(slices: &[Arc<Slice>]) -> Arc<Self> {
        if let [one] = slices {
            return one.endpoints.clone();
        }
        let mut sets: Vec<Arc<[Port]>> = Vec::new();
        let mut found: Vec<UnsortedEndpoint<'_>> = Vec::new();
        for endpoints in slices.iter().map(|slice| &slice.endpoints) {
            for endpoint in &endpoints.all {
                let ports = &endpoints.sets[usize::from(endpoint.set)];
                let set = sets.iter().position(|set| set == ports).unwrap_or_else(|| {
                    sets.push(ports.clone());
                    sets.len() - 1
                });
                let Ok(set) = u16::try_from(set) else { continue };
                let name = (endpoint.name != UNNAMED).then(|| Cow::Borrowed(endpoints.own_name(endpoint)));
                found.push(UnsortedEndpoint { name, address: endpoint.address, set });
            }
        }
        Arc::new(Self::ordered(found, sets))
    }

    fn ordered(mut found: Vec<UnsortedEndpoint<'_>>, sets: Vec<Arc<[Port]>>) -> Self {
        share_names(&mut found);
        found.sort_unstable();
        let (mut names, mut all) = (Vec::new(), Vec::with_capacity(found.len()));
        let mut last: Option<(&[u8], u32)> = None;
        for UnsortedEndpoint { name, address, set } in &found {
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

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All endpoints.
    #[must_use]
    pub fn all(&self) -> &[Endpoint] {
        &self.all
    }

    /// Ports of an endpoint.
    #[must_use]
    pub fn ports(&self, endpoint: &Endpoint) -> &[Port] {
        &self.sets[usize::from(endpoint.set)]
    }

    /// Ports of all slices.
    pub fn all_ports(&self) -> impl Iterator<Item = &Port> {
        self.sets.iter().flat_map(|set| set.iter())
    }

    /// Endpoints grouped by name.
    pub fn groups(&self) -> impl Iterator<Item = &[Endpoint]> {
        self.all.chunk_by(|a, b| a.name == b.name && (a.name != UNNAMED || a.address == b.address))
    }

    /// Endpoints with this name.
    #[must_use]
    pub fn named(&self, label: &[u8]) -> &[Endpoint] {
        let split = self.all.partition_point(|endpoint| endpoint.name == UNNAMED);
        let (unnamed, named) = self.all.split_at(split);
        let from = named.partition_point(|endpoint| self.own_name(endpoint) < label);
        let same = named[from..].partition_point(|endpoint| self.own_name(endpoint) == label);
        if same > 0 {
            return &named[from..from + same];
        }
        let Some(address) = label_to_address(label) else { return &[] };
        let from = unnamed.partition_point(|endpoint| endpoint.address < address);
        let same = unnamed[from..].partition_point(|endpoint| endpoint.address == address);
        &unnamed[from..from + same]
    }

    fn own_name(&self, endpoint: &Endpoint) -> &[u8] {
        let at = endpoint.name as usize;
        &self.names[at + 1..at + 1 + usize::from(self.names[at])]
    }

    /// Writes the length-prefixed label of an endpoint.
    pub fn write_label(&self, endpoint: &Endpoint, out: &mut Vec<u8>) {
        if endpoint.name == UNNAMED {
            let mut buffer = [0; 63];
            let len = address_to_label(endpoint.address, &mut buffer);
            out.push(u8::try_from(len).expect("a label"));
            out.extend_from_slice(&buffer[..len]);
        } else {
            let at = endpoint.name as usize;
            out.extend_from_slice(&self.names[at..=at + usize::from(self.names[at])]);
        }
    }
}

/// Endpoint before sorting.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct UnsortedEndpoint<'f> {
    name: Option<Cow<'f, [u8]>>,
    address: IpAddr,
    set: u16,
}

/// Appends a length-prefixed name and returns its offset.
fn intern(names: &mut Vec<u8>, name: &[u8]) -> u32 {
    let at = u32::try_from(names.len()).expect("names of one Service fit");
    names.push(u8::try_from(name.len()).expect("a label"));
    names.extend_from_slice(name);
    at
}

/// If a hostname equals the address label of another endpoint, that endpoint gets the label as hostname, so that both
/// are adjacent.
fn share_names(found: &mut [UnsortedEndpoint<'_>]) {
    let hostname_addresses: Vec<IpAddr> = found.iter().filter_map(|one| label_to_address(one.name.as_ref()?)).collect();
    if hostname_addresses.is_empty() {
        return;
    }
    for one in found.iter_mut().filter(|one| one.name.is_none() && hostname_addresses.contains(&one.address)) {
        let mut buffer = [0; 63];
        let len = address_to_label(one.address, &mut buffer);
        one.name = Some(Cow::Owned(buffer[..len].to_vec()));
    }
}

#[cfg(test)]
mod tests;
