//! Zone apex, and this server as its name server.
//!
//! NS records name the Services that have an address of this server as endpoint; without such a Service, `ns.dns` with
//! the configured addresses.

use std::net::IpAddr;

use super::{LookupResult, NEGATIVE_MAX, Question, Scratch, service};
use crate::records::Kind;
use crate::snapshot::ZoneSnapshot;
use crate::wire::{Reply, rtype};
use crate::zone::{Quirks, ZoneKind};

/// Name server: its labels relative to the zone, and its addresses.
struct Server {
    labels: Vec<u8>,
    addresses: Vec<IpAddr>,
}

impl ZoneSnapshot {
    pub(super) fn apex(&self, reply: &mut Reply<'_>, question: Question<'_>) -> LookupResult {
        match question.qtype {
            rtype::SOA => {
                let pointer = question.zone_pointer.to_be_bytes();
                let ttl = self.config.ttl.negative.min(NEGATIVE_MAX);
                reply.answer_at(question.owner(), rtype::SOA, ttl, |out| self.start_of_authority(out, pointer));
                LookupResult::Data
            }
            rtype::NS if self.config.quirks == Quirks::CoreDns && question.is_zone_mixed_case() => LookupResult::NoData,
            rtype::NS => self.servers_of_zone(reply, question),
            rtype::TXT if self.config.quirks == Quirks::CoreDns => LookupResult::NxDomain,
            _ => LookupResult::NoData,
        }
    }

    fn servers_of_zone(&self, reply: &mut Reply<'_>, question: Question<'_>) -> LookupResult {
        let (servers, ttl) = (self.servers(), self.config.ttl.cluster);
        // NS targets of a reverse zone are in the primary zone.
        let zone: &[u8] = match question.zone.kind {
            ZoneKind::Forward => question.zone_as_queried(),
            ZoneKind::Reverse4 | ZoneKind::Reverse6 => &self.zones.primary().wire,
        };
        let mut targets = Vec::new();
        for server in &servers {
            let at = reply.position();
            let fits = reply.answer_at(question.owner(), rtype::NS, ttl, |out| {
                out.extend_from_slice(&server.labels);
                out.extend_from_slice(zone);
            });
            targets.push(Reply::pointer(at + 2 + 10).filter(|_| fits));
        }
        for (server, target) in servers.iter().zip(targets) {
            let Some(target) = target else { continue };
            for address in &server.addresses {
                service::add_address(reply, |out| out.extend_from_slice(&target.to_be_bytes()), *address, ttl);
            }
        }
        if servers.is_empty() { LookupResult::NoData } else { LookupResult::Data }
    }

    /// `ns.dns`: addresses of all name servers.
    pub(super) fn name_server(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        scratch: &mut Scratch,
    ) -> LookupResult {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let rtype = question.qtype;
        match rtype {
            _ if quirks && question.is_zone_mixed_case() => return LookupResult::NxDomain,
            rtype::A | rtype::AAAA => {}
            rtype::TXT | rtype::PTR if quirks => return LookupResult::NxDomain,
            _ => return LookupResult::NoData,
        }
        scratch.addresses.clear();
        scratch.addresses.extend(self.servers().iter().flat_map(|server| server.addresses.iter().copied()));
        scratch.addresses.retain(|address| address.is_ipv4() == (rtype == rtype::A));
        scratch.addresses.sort_unstable();
        scratch.addresses.dedup();
        for address in &scratch.addresses {
            let octets = |out: &mut Vec<u8>| match address {
                IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
                IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
            };
            reply.answer_at(question.owner(), rtype, self.config.ttl.cluster, octets);
        }
        if scratch.addresses.is_empty() { LookupResult::NoData } else { LookupResult::Data }
    }

    fn servers(&self) -> Vec<Server> {
        let mut found: Vec<Server> = Vec::new();
        let mut add = |labels: Vec<u8>, addresses: Vec<IpAddr>| {
            if !addresses.is_empty() && !found.iter().any(|server| server.labels == labels) {
                found.push(Server { labels, addresses });
            }
        };
        let owners = self
            .config
            .server_addresses
            .iter()
            .chain(&self.config.wildcard_addresses)
            .flat_map(|own| self.owners(*own));
        for (_, service) in owners.filter(|(own, _)| !own) {
            let name = [&*service.key.wire, b"\x03svc"].concat();
            match service.kind {
                Kind::Cluster => {
                    let v4 = service.v4.iter().map(|v4| IpAddr::V4(*v4));
                    add(name, v4.chain(service.v6.iter().map(|v6| IpAddr::V6(*v6))).collect());
                }
                Kind::Headless => {
                    for group in service.endpoints.groups() {
                        let mut labels = Vec::new();
                        service.endpoints.write_label(&group[0], &mut labels);
                        labels.extend_from_slice(&name);
                        let mut addresses: Vec<IpAddr> = group.iter().map(|endpoint| endpoint.address).collect();
                        addresses.dedup();
                        add(labels, addresses);
                    }
                }
                Kind::ExternalName(_) | Kind::NoRecords => {}
            }
        }
        if found.is_empty() && !self.config.server_addresses.is_empty() {
            found.push(Server { labels: b"\x02ns\x03dns".to_vec(), addresses: self.config.server_addresses.clone() });
        }
        found
    }
}
