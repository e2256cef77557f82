//! The zone itself, and this server as its name server.
//!
//! Who we are is what the cluster says of our addresses: the Services that have one of them as an endpoint. Where it
//! says nothing, we are `ns.dns` at these addresses.

use std::net::IpAddr;

use super::{Asked, NEGATIVE_MAX, Scratch, Told, service};
use crate::book::Book;
use crate::records::Kind;
use crate::wire::{Reply, rtype};
use crate::zone::{Quirks, Side};

/// A name server: its labels before the zone, and its addresses.
struct Server {
    labels: Vec<u8>,
    addresses: Vec<IpAddr>,
}

impl Book {
    pub(super) fn apex(&self, reply: &mut Reply<'_>, asked: Asked<'_>) -> Told {
        match asked.qtype {
            rtype::SOA => {
                let pointer = asked.zone_pointer.to_be_bytes();
                let ttl = self.config.ttl.negative.min(NEGATIVE_MAX);
                reply.answer_of(asked.owner(), rtype::SOA, ttl, |out| self.start_of_authority(out, pointer));
                Told::Data
            }
            rtype::NS if self.config.quirks == Quirks::CoreDns && asked.is_spelled_oddly() => Told::Nothing,
            rtype::NS => self.servers_of_zone(reply, asked),
            rtype::TXT if self.config.quirks == Quirks::CoreDns => Told::Missing,
            _ => Told::Nothing,
        }
    }

    fn servers_of_zone(&self, reply: &mut Reply<'_>, asked: Asked<'_>) -> Told {
        let (servers, ttl) = (self.servers(), self.config.ttl.cluster);
        // A server is a name; in a reverse zone it is one of the zone that has names.
        let zone: &[u8] = match asked.zone.side {
            Side::Forward => asked.zone_spelled(),
            Side::Reverse4 | Side::Reverse6 => &self.zones.primary().wire,
        };
        let mut targets = Vec::new();
        for server in &servers {
            let at = reply.position();
            let fits = reply.answer_of(asked.owner(), rtype::NS, ttl, |out| {
                out.extend_from_slice(&server.labels);
                out.extend_from_slice(zone);
            });
            targets.push(Reply::pointer(at + 2 + 10).filter(|_| fits));
        }
        for (server, target) in servers.iter().zip(targets) {
            let Some(target) = target else { continue };
            for address in &server.addresses {
                service::help(reply, |out| out.extend_from_slice(&target.to_be_bytes()), *address, ttl);
            }
        }
        if servers.is_empty() { Told::Nothing } else { Told::Data }
    }

    /// `ns.dns`: the addresses of all name servers.
    pub(super) fn name_server(&self, reply: &mut Reply<'_>, asked: Asked<'_>, scratch: &mut Scratch) -> Told {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let rtype = asked.qtype;
        match rtype {
            _ if quirks && asked.is_spelled_oddly() => return Told::Missing,
            rtype::A | rtype::AAAA => {}
            rtype::TXT | rtype::PTR if quirks => return Told::Missing,
            _ => return Told::Nothing,
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
            reply.answer_of(asked.owner(), rtype, self.config.ttl.cluster, octets);
        }
        if scratch.addresses.is_empty() { Told::Nothing } else { Told::Data }
    }

    fn servers(&self) -> Vec<Server> {
        let mut found: Vec<Server> = Vec::new();
        let mut add = |labels: Vec<u8>, addresses: Vec<IpAddr>| {
            if !addresses.is_empty() && !found.iter().any(|server| server.labels == labels) {
                found.push(Server { labels, addresses });
            }
        };
        let owners = self.config.own.iter().chain(&self.config.others).flat_map(|own| self.owners(*own));
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
                Kind::Alias(_) | Kind::Nothing => {}
            }
        }
        if found.is_empty() && !self.config.own.is_empty() {
            found.push(Server { labels: b"\x02ns\x03dns".to_vec(), addresses: self.config.own.clone() });
        }
        found
    }
}
