//! Records of a Service: addresses, endpoint addresses and SRV.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{LookupResult, Question, Scratch};
use crate::parsed_name::Part;
use crate::records::{Endpoint, Endpoints, Kind, Port, Protocol, Service};
use crate::snapshot::ZoneSnapshot;
use crate::wire::{Reply, rtype};
use crate::zone::Quirks;

/// Ports that a name selects.
#[derive(Clone, Copy)]
enum Ports<'n> {
    All,
    Named(&'n [u8], &'n [u8], Quirks),
}

impl Ports<'_> {
    fn include(self, port: &Port) -> bool {
        let Self::Named(name, protocol, quirks) = self else { return true };
        // Older versions of the specification treated an empty label as a wildcard.
        let any = quirks == Quirks::CoreDns;
        let is_named = if name.is_empty() { any } else { port.name.as_bytes() == name };
        let is_of = if protocol.is_empty() { any } else { Protocol::named(protocol) == Some(port.protocol) };
        is_named && is_of
    }
}

impl ZoneSnapshot {
    /// Writes the records of a Service.
    #[inline]
    pub(super) fn service_records(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        service: &Arc<Service>,
        part: Part<'_>,
        scratch: &mut Scratch,
    ) -> LookupResult {
        let cluster = match &service.kind {
            Kind::ExternalName(_) if part == Part::Whole => return LookupResult::Cname(service.clone()),
            Kind::ExternalName(_) | Kind::NoRecords => return LookupResult::NxDomain,
            Kind::Cluster => true,
            Kind::Headless => false,
        };
        if cluster && self.config.ignore_empty_service && service.endpoints.is_empty() {
            return LookupResult::NxDomain;
        }
        let ports = match part {
            Part::Endpoint(label) => return self.endpoint(reply, question, service, label, scratch),
            Part::Port(name, protocol) => Ports::Named(name, protocol, self.config.quirks),
            Part::Whole => Ports::All,
        };
        if cluster {
            self.cluster(reply, question, service, ports)
        } else {
            self.headless(reply, question, service, ports, scratch)
        }
    }

    #[inline]
    fn cluster(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        service: &Service,
        ports: Ports<'_>,
    ) -> LookupResult {
        if !service.ports.iter().any(|port| ports.include(port)) {
            return LookupResult::NxDomain;
        }
        let ttl = self.config.ttl.cluster;
        match question.qtype {
            rtype::A => v4(reply, question.owner(), ttl, &service.v4, 0),
            rtype::AAAA => v6(reply, question.owner(), ttl, &service.v6, 0),
            rtype::SRV => self.cluster_srv(reply, question, service, ports),
            _ => LookupResult::NoData,
        }
    }

    /// One SRV record per port number, all with the same target.
    fn cluster_srv(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        service: &Service,
        ports: Ports<'_>,
    ) -> LookupResult {
        let included = || service.ports.iter().filter(|port| ports.include(port));
        let addresses = service.v4.len() + service.v6.len();
        let (weight, ttl) = (weight(included().count() * addresses), self.config.ttl.cluster);
        let mut target = None;
        for (parse_name, port) in included().enumerate() {
            let Some(number) = port.number else { continue };
            if included().take(parse_name).any(|before| before.number == Some(number)) {
                continue;
            }
            let at = reply.position();
            let name = |out: &mut Vec<u8>| end(out, service, question);
            if srv(reply, question.owner(), ttl, weight, number, name) {
                target = target.or(Reply::pointer(at + 2 + 10 + 6));
            }
        }
        let Some(target) = target else {
            return if reply.is_truncated() { LookupResult::Data } else { LookupResult::NoData };
        };
        let own = service.v4.iter().map(|v4| IpAddr::V4(*v4)).chain(service.v6.iter().map(|v6| IpAddr::V6(*v6)));
        for address in own {
            add_address(reply, |out| out.extend_from_slice(&target.to_be_bytes()), address, ttl);
        }
        LookupResult::Data
    }

    fn headless(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        service: &Service,
        ports: Ports<'_>,
        scratch: &mut Scratch,
    ) -> LookupResult {
        let (endpoints, ttl) = (&service.endpoints, self.config.ttl.headless);
        match (question.qtype, ports) {
            _ if endpoints.is_empty() => LookupResult::NxDomain,
            (rtype::A, Ports::All) => v4(reply, question.owner(), ttl, &service.v4, scratch.below(service.v4.len())),
            (rtype::AAAA, Ports::All) => v6(reply, question.owner(), ttl, &service.v6, scratch.below(service.v6.len())),
            (rtype::A | rtype::AAAA, _) => {
                self.selected_addresses(reply, question, endpoints, endpoints.all(), ports, scratch)
            }
            (rtype::SRV, _) => {
                let count = endpoints.groups().count();
                let start = scratch.below(count);
                let turned = || endpoints.groups().skip(start).chain(endpoints.groups().take(start));
                self.endpoint_srv(reply, question, service, turned, ports, scratch)
            }
            _ if endpoints.all_ports().any(|port| ports.include(port)) => LookupResult::NoData,
            _ => LookupResult::NxDomain,
        }
    }

    /// One endpoint of a Service of any kind, or the empty non-terminal above SRV names.
    fn endpoint(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        service: &Service,
        label: &[u8],
        scratch: &mut Scratch,
    ) -> LookupResult {
        let found = service.endpoints.named(label);
        if found.is_empty() {
            return if self.is_above_ports(service, label) { LookupResult::NoData } else { LookupResult::NxDomain };
        }
        match question.qtype {
            rtype::A | rtype::AAAA => {
                self.selected_addresses(reply, question, &service.endpoints, found, Ports::All, scratch)
            }
            rtype::SRV => self.endpoint_srv(reply, question, service, || std::iter::once(found), Ports::All, scratch),
            _ => LookupResult::NoData,
        }
    }

    /// Whether the label is an empty non-terminal such as `_tcp` above SRV names.
    fn is_above_ports(&self, service: &Service, label: &[u8]) -> bool {
        let Some(protocol) = label.strip_prefix(b"_").and_then(Protocol::named) else { return false };
        let named = |port: &Port| port.protocol == protocol && !port.name.is_empty();
        let exists = match service.kind {
            Kind::Headless => !service.endpoints.is_empty() && service.endpoints.all_ports().any(named),
            _ => service.ports.iter().any(named),
        };
        exists && self.config.quirks == Quirks::None
    }

    /// Deduplicated addresses of the endpoints that have a selected port.
    fn selected_addresses(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        endpoints: &Endpoints,
        among: &[Endpoint],
        ports: Ports<'_>,
        scratch: &mut Scratch,
    ) -> LookupResult {
        let mut found = std::mem::take(&mut scratch.addresses);
        found.clear();
        let included = |endpoint: &&Endpoint| endpoints.ports(endpoint).iter().any(|port| ports.include(port));
        found.extend(among.iter().filter(included).map(|endpoint| endpoint.address));
        let exists = !found.is_empty();
        found.retain(|address| address.is_ipv4() == (question.qtype == rtype::A));
        found.sort_unstable();
        found.dedup();
        let (start, ttl) = (scratch.below(found.len()), self.config.ttl.headless);
        for address in found[start..].iter().chain(&found[..start]) {
            match address {
                IpAddr::V4(v4) => {
                    reply.answer_at(question.owner(), rtype::A, ttl, |out| out.extend_from_slice(&v4.octets()))
                }
                IpAddr::V6(v6) => {
                    reply.answer_at(question.owner(), rtype::AAAA, ttl, |out| out.extend_from_slice(&v6.octets()))
                }
            };
        }
        let result = match (exists, found.is_empty()) {
            (false, _) => LookupResult::NxDomain,
            (true, true) => LookupResult::NoData,
            (true, false) => LookupResult::Data,
        };
        scratch.addresses = found;
        result
    }

    /// One SRV record per endpoint name and port number, and the addresses of the names.
    fn endpoint_srv<'s, I: Iterator<Item = &'s [Endpoint]>>(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        service: &'s Service,
        groups: impl Fn() -> I,
        ports: Ports<'_>,
        scratch: &mut Scratch,
    ) -> LookupResult {
        let (endpoints, ttl) = (&service.endpoints, self.config.ttl.headless);
        let included =
            |endpoint: &'s Endpoint| endpoints.ports(endpoint).iter().filter(move |port| ports.include(port));
        let candidates: usize = groups().flatten().map(|endpoint| included(endpoint).count()).sum();
        if candidates == 0 {
            return LookupResult::NxDomain;
        }
        let weight = weight(candidates);
        scratch.targets.clear();
        for group in groups() {
            let numbers = || group.iter().flat_map(included).filter_map(|port| port.number);
            let mut target = None;
            for (parse_name, number) in numbers().enumerate() {
                if numbers().take(parse_name).any(|before| before == number) {
                    continue;
                }
                let at = reply.position();
                let name = |out: &mut Vec<u8>| {
                    endpoints.write_label(&group[0], out);
                    end(out, service, question);
                };
                if srv(reply, question.owner(), ttl, weight, number, name) {
                    target = target.or(Reply::pointer(at + 2 + 10 + 6));
                }
            }
            scratch.targets.push(target);
        }
        if reply.is_truncated() {
            return LookupResult::Data;
        }
        let is_addressed = |endpoint: &&'s Endpoint| included(endpoint).any(|port| port.number.is_some());
        let mut written = false;
        for (group, target) in groups().zip(&scratch.targets) {
            let Some(target) = target else { continue };
            written = true;
            let mut last = None;
            for endpoint in group.iter().filter(is_addressed) {
                // Equal addresses of one name are adjacent.
                if last.replace(endpoint.address) != Some(endpoint.address) {
                    add_address(reply, |out| out.extend_from_slice(&target.to_be_bytes()), endpoint.address, ttl);
                }
            }
        }
        if written { LookupResult::Data } else { LookupResult::NoData }
    }
}

/// SRV weight of each of `count` records.
fn weight(count: usize) -> u16 {
    u16::try_from((100 / count.max(1)).max(1)).unwrap_or(1)
}

/// Writes the name of a Service, its zone with the case of the query.
fn end(out: &mut Vec<u8>, service: &Service, question: Question<'_>) {
    out.extend_from_slice(&service.key.wire);
    out.extend_from_slice(b"\x03svc");
    out.extend_from_slice(question.zone_as_queried());
}

fn srv(reply: &mut Reply<'_>, owner: u16, ttl: u32, weight: u16, port: u16, name: impl FnOnce(&mut Vec<u8>)) -> bool {
    reply.answer_at(owner, rtype::SRV, ttl, |out| {
        let ([w1, w0], [p1, p0]) = (weight.to_be_bytes(), port.to_be_bytes());
        out.extend_from_slice(&[0, 0, w1, w0, p1, p0]);
        name(out);
    })
}

/// Writes an address record into the additional section.
pub(super) fn add_address(reply: &mut Reply<'_>, owner: impl FnOnce(&mut Vec<u8>), address: IpAddr, ttl: u32) -> bool {
    match address {
        IpAddr::V4(v4) => reply.additional(owner, rtype::A, ttl, |out| out.extend_from_slice(&v4.octets())),
        IpAddr::V6(v6) => reply.additional(owner, rtype::AAAA, ttl, |out| out.extend_from_slice(&v6.octets())),
    }
}

#[inline]
fn v4(reply: &mut Reply<'_>, owner: u16, ttl: u32, addresses: &[Ipv4Addr], start: usize) -> LookupResult {
    for address in addresses[start..].iter().chain(&addresses[..start]) {
        reply.answer_at(owner, rtype::A, ttl, |out| out.extend_from_slice(&address.octets()));
    }
    if addresses.is_empty() { LookupResult::NoData } else { LookupResult::Data }
}

#[inline]
fn v6(reply: &mut Reply<'_>, owner: u16, ttl: u32, addresses: &[Ipv6Addr], start: usize) -> LookupResult {
    for address in addresses[start..].iter().chain(&addresses[..start]) {
        reply.answer_at(owner, rtype::AAAA, ttl, |out| out.extend_from_slice(&address.octets()));
    }
    if addresses.is_empty() { LookupResult::NoData } else { LookupResult::Data }
}
