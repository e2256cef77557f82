//! The records of a Service: its addresses, its endpoints', and how its ports are found.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{Asked, Scratch, Told};
use crate::book::Book;
use crate::place::Part;
use crate::records::{Endpoint, Endpoints, Kind, Port, Protocol, Service};
use crate::wire::{Reply, rtype};
use crate::zone::Quirks;

/// Which ports are meant.
#[derive(Clone, Copy)]
enum Ports<'n> {
    All,
    Named(&'n [u8], &'n [u8], Quirks),
}

impl Ports<'_> {
    fn include(self, port: &Port) -> bool {
        let Self::Named(name, protocol, quirks) = self else { return true };
        // An empty label meant any port, once; it never was a name.
        let any = quirks == Quirks::CoreDns;
        let is_named = if name.is_empty() { any } else { port.name.as_bytes() == name };
        let is_of = if protocol.is_empty() { any } else { Protocol::named(protocol) == Some(port.protocol) };
        is_named && is_of
    }
}

impl Book {
    /// Writes the records of a Service, or says what it is.
    #[inline]
    pub(super) fn service_records(
        &self,
        reply: &mut Reply<'_>,
        asked: Asked<'_>,
        service: &Arc<Service>,
        part: Part<'_>,
        scratch: &mut Scratch,
    ) -> Told {
        let cluster = match &service.kind {
            Kind::Alias(_) if part == Part::Whole => return Told::Alias(service.clone()),
            Kind::Alias(_) | Kind::Nothing => return Told::Missing,
            Kind::Cluster => true,
            Kind::Headless => false,
        };
        if cluster && self.config.ignore_empty_service && service.endpoints.is_empty() {
            return Told::Missing;
        }
        let ports = match part {
            Part::Endpoint(label) => return self.endpoint(reply, asked, service, label, scratch),
            Part::Port(name, protocol) => Ports::Named(name, protocol, self.config.quirks),
            Part::Whole => Ports::All,
        };
        if cluster {
            self.cluster(reply, asked, service, ports)
        } else {
            self.headless(reply, asked, service, ports, scratch)
        }
    }

    #[inline]
    fn cluster(&self, reply: &mut Reply<'_>, asked: Asked<'_>, service: &Service, ports: Ports<'_>) -> Told {
        if !service.ports.iter().any(|port| ports.include(port)) {
            return Told::Missing;
        }
        let ttl = self.config.ttl.cluster;
        match asked.qtype {
            rtype::A => v4(reply, asked.owner(), ttl, &service.v4, 0),
            rtype::AAAA => v6(reply, asked.owner(), ttl, &service.v6, 0),
            rtype::SRV => self.cluster_srv(reply, asked, service, ports),
            _ => Told::Nothing,
        }
    }

    /// One record for each port number; all lead to the same name.
    fn cluster_srv(&self, reply: &mut Reply<'_>, asked: Asked<'_>, service: &Service, ports: Ports<'_>) -> Told {
        let included = || service.ports.iter().filter(|port| ports.include(port));
        let addresses = service.v4.len() + service.v6.len();
        let (weight, ttl) = (weight(included().count() * addresses), self.config.ttl.cluster);
        let mut target = None;
        for (place, port) in included().enumerate() {
            let Some(number) = port.number else { continue };
            if included().take(place).any(|before| before.number == Some(number)) {
                continue;
            }
            let at = reply.position();
            let name = |out: &mut Vec<u8>| end(out, service, asked);
            if srv(reply, asked.owner(), ttl, weight, number, name) {
                target = target.or(Reply::pointer(at + 2 + 10 + 6));
            }
        }
        let Some(target) = target else { return if reply.is_cut() { Told::Data } else { Told::Nothing } };
        let own = service.v4.iter().map(|v4| IpAddr::V4(*v4)).chain(service.v6.iter().map(|v6| IpAddr::V6(*v6)));
        for address in own {
            help(reply, |out| out.extend_from_slice(&target.to_be_bytes()), address, ttl);
        }
        Told::Data
    }

    fn headless(
        &self,
        reply: &mut Reply<'_>,
        asked: Asked<'_>,
        service: &Service,
        ports: Ports<'_>,
        scratch: &mut Scratch,
    ) -> Told {
        let (endpoints, ttl) = (&service.endpoints, self.config.ttl.headless);
        match (asked.qtype, ports) {
            _ if endpoints.is_empty() => Told::Missing,
            (rtype::A, Ports::All) => v4(reply, asked.owner(), ttl, &service.v4, scratch.below(service.v4.len())),
            (rtype::AAAA, Ports::All) => v6(reply, asked.owner(), ttl, &service.v6, scratch.below(service.v6.len())),
            (rtype::A | rtype::AAAA, _) => {
                self.some_addresses(reply, asked, endpoints, endpoints.all(), ports, scratch)
            }
            (rtype::SRV, _) => {
                let count = endpoints.groups().count();
                let start = scratch.below(count);
                let turned = || endpoints.groups().skip(start).chain(endpoints.groups().take(start));
                self.endpoint_srv(reply, asked, service, turned, ports, scratch)
            }
            _ if endpoints.all_ports().any(|port| ports.include(port)) => Told::Nothing,
            _ => Told::Missing,
        }
    }

    /// One endpoint, whatever kind its Service is; or the empty place above the names of ports.
    fn endpoint(
        &self,
        reply: &mut Reply<'_>,
        asked: Asked<'_>,
        service: &Service,
        label: &[u8],
        scratch: &mut Scratch,
    ) -> Told {
        let found = service.endpoints.named(label);
        if found.is_empty() {
            return if self.is_above_ports(service, label) { Told::Nothing } else { Told::Missing };
        }
        match asked.qtype {
            rtype::A | rtype::AAAA => self.some_addresses(reply, asked, &service.endpoints, found, Ports::All, scratch),
            rtype::SRV => self.endpoint_srv(reply, asked, service, || std::iter::once(found), Ports::All, scratch),
            _ => Told::Nothing,
        }
    }

    /// Whether names of ports stand below `_tcp` and the like.
    fn is_above_ports(&self, service: &Service, label: &[u8]) -> bool {
        let Some(protocol) = label.strip_prefix(b"_").and_then(Protocol::named) else { return false };
        let named = |port: &Port| port.protocol == protocol && !port.name.is_empty();
        let exists = match service.kind {
            Kind::Headless => !service.endpoints.is_empty() && service.endpoints.all_ports().any(named),
            _ => service.ports.iter().any(named),
        };
        exists && self.config.quirks == Quirks::None
    }

    /// The addresses of those endpoints that have such a port, each once.
    fn some_addresses(
        &self,
        reply: &mut Reply<'_>,
        asked: Asked<'_>,
        endpoints: &Endpoints,
        among: &[Endpoint],
        ports: Ports<'_>,
        scratch: &mut Scratch,
    ) -> Told {
        let mut found = std::mem::take(&mut scratch.addresses);
        found.clear();
        let included = |endpoint: &&Endpoint| endpoints.ports(endpoint).iter().any(|port| ports.include(port));
        found.extend(among.iter().filter(included).map(|endpoint| endpoint.address));
        let exists = !found.is_empty();
        found.retain(|address| address.is_ipv4() == (asked.qtype == rtype::A));
        found.sort_unstable();
        found.dedup();
        let (start, ttl) = (scratch.below(found.len()), self.config.ttl.headless);
        for address in found[start..].iter().chain(&found[..start]) {
            match address {
                IpAddr::V4(v4) => {
                    reply.answer_of(asked.owner(), rtype::A, ttl, |out| out.extend_from_slice(&v4.octets()))
                }
                IpAddr::V6(v6) => {
                    reply.answer_of(asked.owner(), rtype::AAAA, ttl, |out| out.extend_from_slice(&v6.octets()))
                }
            };
        }
        let told = match (exists, found.is_empty()) {
            (false, _) => Told::Missing,
            (true, true) => Told::Nothing,
            (true, false) => Told::Data,
        };
        scratch.addresses = found;
        told
    }

    /// One record for each name and port number, and the addresses of the names.
    fn endpoint_srv<'s, I: Iterator<Item = &'s [Endpoint]>>(
        &self,
        reply: &mut Reply<'_>,
        asked: Asked<'_>,
        service: &'s Service,
        groups: impl Fn() -> I,
        ports: Ports<'_>,
        scratch: &mut Scratch,
    ) -> Told {
        let (endpoints, ttl) = (&service.endpoints, self.config.ttl.headless);
        let included =
            |endpoint: &'s Endpoint| endpoints.ports(endpoint).iter().filter(move |port| ports.include(port));
        let candidates: usize = groups().flatten().map(|endpoint| included(endpoint).count()).sum();
        if candidates == 0 {
            return Told::Missing;
        }
        let weight = weight(candidates);
        scratch.targets.clear();
        for group in groups() {
            let numbers = || group.iter().flat_map(included).filter_map(|port| port.number);
            let mut target = None;
            for (place, number) in numbers().enumerate() {
                if numbers().take(place).any(|before| before == number) {
                    continue;
                }
                let at = reply.position();
                let name = |out: &mut Vec<u8>| {
                    endpoints.write_label(&group[0], out);
                    end(out, service, asked);
                };
                if srv(reply, asked.owner(), ttl, weight, number, name) {
                    target = target.or(Reply::pointer(at + 2 + 10 + 6));
                }
            }
            scratch.targets.push(target);
        }
        if reply.is_cut() {
            return Told::Data;
        }
        let is_addressed = |endpoint: &&'s Endpoint| included(endpoint).any(|port| port.number.is_some());
        let mut written = false;
        for (group, target) in groups().zip(&scratch.targets) {
            let Some(target) = target else { continue };
            written = true;
            let mut last = None;
            for endpoint in group.iter().filter(is_addressed) {
                // Equal addresses of one name stand together.
                if last.replace(endpoint.address) != Some(endpoint.address) {
                    help(reply, |out| out.extend_from_slice(&target.to_be_bytes()), endpoint.address, ttl);
                }
            }
        }
        if written { Told::Data } else { Told::Nothing }
    }
}

/// The weight of each of so many.
fn weight(count: usize) -> u16 {
    u16::try_from((100 / count.max(1)).max(1)).unwrap_or(1)
}

/// The name of a Service, its zone spelled as it was asked for.
fn end(out: &mut Vec<u8>, service: &Service, asked: Asked<'_>) {
    out.extend_from_slice(&service.key.wire);
    out.extend_from_slice(b"\x03svc");
    out.extend_from_slice(asked.zone_spelled());
}

fn srv(reply: &mut Reply<'_>, owner: u16, ttl: u32, weight: u16, port: u16, name: impl FnOnce(&mut Vec<u8>)) -> bool {
    reply.answer_of(owner, rtype::SRV, ttl, |out| {
        let ([w1, w0], [p1, p0]) = (weight.to_be_bytes(), port.to_be_bytes());
        out.extend_from_slice(&[0, 0, w1, w0, p1, p0]);
        name(out);
    })
}

/// Writes an address that helps.
pub(super) fn help(reply: &mut Reply<'_>, owner: impl FnOnce(&mut Vec<u8>), address: IpAddr, ttl: u32) -> bool {
    match address {
        IpAddr::V4(v4) => reply.additional(owner, rtype::A, ttl, |out| out.extend_from_slice(&v4.octets())),
        IpAddr::V6(v6) => reply.additional(owner, rtype::AAAA, ttl, |out| out.extend_from_slice(&v6.octets())),
    }
}

#[inline]
fn v4(reply: &mut Reply<'_>, owner: u16, ttl: u32, addresses: &[Ipv4Addr], start: usize) -> Told {
    for address in addresses[start..].iter().chain(&addresses[..start]) {
        reply.answer_of(owner, rtype::A, ttl, |out| out.extend_from_slice(&address.octets()));
    }
    if addresses.is_empty() { Told::Nothing } else { Told::Data }
}

#[inline]
fn v6(reply: &mut Reply<'_>, owner: u16, ttl: u32, addresses: &[Ipv6Addr], start: usize) -> Told {
    for address in addresses[start..].iter().chain(&addresses[..start]) {
        reply.answer_of(owner, rtype::AAAA, ttl, |out| out.extend_from_slice(&address.octets()));
    }
    if addresses.is_empty() { Told::Nothing } else { Told::Data }
}
