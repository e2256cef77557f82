//! From the bytes of a question to the bytes of its answer.
//!
//! In: a message, and the [`Book`]. Out: a reply written into a buffer, or who else is to be asked. This is what every
//! listener calls for every question: it takes no lock, and once its buffers have grown it allocates nothing for names
//! that have records. The order of checks is that of the rules: header, class, zone, then the place that the name is.

mod alias;
mod apex;
mod service;
#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use crate::beyond::Transport;
use crate::book::Book;
use crate::place::{Place, place};
use crate::records::{Kind, Service};
use crate::wire::{HEADER, IN, LONGEST, Name, POINTER, Query, Reply, extended, flag, rcode, refuse, rtype};
use crate::zone::{Pods, Quirks, Side, Zone};

pub use alias::Chase;

/// The longest datagram.
const DATAGRAM: usize = 65507;
/// The version of the rules that names follow.
const VERSION: &[u8] = b"\x051.1.0";
/// How long that may be kept.
const VERSION_TTL: u32 = 28800;
/// How many labels before the name of a Pod CoreDNS does not look at.
const MOST_IGNORED: usize = 2;
/// The longest that an answer about nothing may be kept.
const NEGATIVE_MAX: u32 = 300;

/// What came of a question.
#[derive(Debug)]
pub enum Outcome {
    /// The reply is written.
    Reply,
    /// Nothing is known yet; a reply that says so is written.
    Unready,
    /// Nothing is to be said.
    Silent,
    /// Somebody else is to be asked.
    Beyond,
    /// Somebody else is to be asked where an alias leads.
    Chase(Box<Chase>),
}

/// What a listener keeps between questions, so that nothing has to be made anew.
#[derive(Debug)]
pub struct Scratch {
    /// What the last question was about.
    pub seen: Seen,
    random: u32,
    addresses: Vec<IpAddr>,
    targets: Vec<Option<u16>>,
}

/// What a question was about, for those who count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// The zone it is in, by its place among all.
    pub zone: Option<usize>,
    /// The type asked for; 0 when it could not be read.
    pub qtype: u16,
    /// Whether signatures were asked for.
    pub dnssec: bool,
    /// The number of the Service.
    pub service: Option<u32>,
}

impl Scratch {
    /// With a seed for the order of addresses.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        Self { seen: Seen::default(), random: seed | 1, addresses: Vec::new(), targets: Vec::new() }
    }

    /// A number below another, different each time.
    fn below(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random as usize % count
    }
}

/// A name that is asked for, and where it stands in the reply.
#[derive(Clone, Copy)]
struct Asked<'a> {
    name: &'a Name,
    /// The same as it was spelled.
    spelled: &'a [u8],
    zone: &'a Zone,
    /// The pointer to it.
    owner: u16,
    /// The pointer to the name of its zone.
    zone_pointer: u16,
    qtype: u16,
}

impl<'a> Asked<'a> {
    /// A name that stands there in full.
    fn new(name: &'a Name, spelled: &'a [u8], zone: &'a Zone, at: u16, qtype: u16) -> Self {
        let owner = POINTER | at;
        let mut asked = Self { name, spelled, zone, owner, zone_pointer: owner, qtype };
        asked.zone_pointer += u16::try_from(asked.zone_offset()).expect("inside of a name");
        asked
    }

    /// The pointer to it.
    const fn owner(&self) -> u16 {
        self.owner
    }

    fn zone_offset(&self) -> usize {
        self.name.offset(self.name.count() - self.zone.labels)
    }

    /// The name of its zone, spelled as it was asked for.
    fn zone_spelled(&self) -> &[u8] {
        &self.spelled[self.zone_offset()..]
    }

    /// Whether its zone is not spelled in lower case.
    fn is_spelled_oddly(&self) -> bool {
        self.zone_spelled() != &*self.zone.wire
    }
}

/// What there is to say of a name.
enum Told {
    /// It is written.
    Data,
    /// The name exists, and has nothing of this type.
    Nothing,
    /// There is no such name.
    Missing,
    /// It is another name.
    Alias(Arc<Service>),
}

impl Book {
    /// Answers a message.
    pub fn answer(&self, message: &[u8], transport: Transport, scratch: &mut Scratch, out: &mut Vec<u8>) -> Outcome {
        scratch.seen = Seen::default();
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(refusal) if refuse(message, refusal, out) => return Outcome::Reply,
            Err(_) => return Outcome::Silent,
        };
        scratch.seen.qtype = query.qtype;
        scratch.seen.dnssec = query.edns.is_some_and(|edns| edns.dnssec);
        let limit = self.limit(&query, transport);
        let code = |out: &mut Vec<u8>, code: u16| {
            Reply::begin(out, &query, limit).finish(code, 0);
            Outcome::Reply
        };
        if query.edns.is_some_and(|edns| edns.version != 0) {
            return code(out, rcode::BADVERS);
        }
        if matches!(query.qtype, rtype::AXFR | rtype::IXFR) {
            return code(out, rcode::REFUSED);
        }
        let Some(zone) = self.zones.of(&query.name) else { return Outcome::Beyond };
        scratch.seen.zone = Some(zone.index);
        // Another class is another world; CoreDNS forgets that when it forwards.
        if query.qclass != IN && !(self.config.quirks == Quirks::CoreDns && self.config.recursion) {
            return code(out, rcode::REFUSED);
        }
        let start = u16::try_from(HEADER).expect("a short header");
        let asked = Asked::new(&query.name, query.spelled(), zone, start, query.qtype);
        let mut reply = Reply::begin(out, &query, limit);
        if !self.is_ready() {
            reply.explain(extended::NOT_READY);
            self.authority(&mut reply, asked);
            self.finish(reply, rcode::SERVFAIL);
            return Outcome::Unready;
        }
        let (told, quirks) = (self.tell(&mut reply, asked, scratch), self.config.quirks);
        match told {
            Told::Data => self.finish(reply, rcode::NOERROR),
            Told::Missing if !(quirks == Quirks::CoreDns && query.qtype == rtype::SOA) => {
                if self.zones.falls(zone, &query.name) {
                    return Outcome::Beyond;
                }
                self.authority(&mut reply, asked);
                self.finish(reply, rcode::NXDOMAIN);
            }
            Told::Nothing | Told::Missing => {
                self.authority(&mut reply, asked);
                self.finish(reply, rcode::NOERROR);
            }
            Told::Alias(first) => return self.follow(reply, asked, first, scratch),
        }
        Outcome::Reply
    }

    /// Writes what there is of a name.
    #[inline]
    fn tell(&self, reply: &mut Reply<'_>, asked: Asked<'_>, scratch: &mut Scratch) -> Told {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let absent = |is_quirk: bool| if quirks && is_quirk { Told::Missing } else { Told::Nothing };
        match place(asked.name, asked.zone, self.config.quirks) {
            Place::Service { key, part } => {
                let at = self.services.at(key);
                let shard = self.services.load(at);
                let Some(service) = shard.find(at).find(|service| *service.key.wire == *key) else {
                    return Told::Missing;
                };
                if !service.namespace.is_shown() {
                    return Told::Missing;
                }
                scratch.seen.service = Some(service.key.number);
                self.service_records(reply, asked, service, part, scratch)
            }
            Place::Apex => self.apex(reply, asked),
            Place::Tree => absent(asked.qtype == rtype::TXT),
            Place::Dns => absent(true),
            Place::NameServer => self.name_server(reply, asked, scratch),
            Place::Version if asked.qtype == rtype::TXT => {
                reply.answer_of(asked.owner(), rtype::TXT, VERSION_TTL, |out| out.extend_from_slice(VERSION));
                Told::Data
            }
            Place::Version => absent(true),
            Place::Namespace { label, pods } if self.is_shown(label) => {
                absent(asked.qtype == rtype::TXT || pods && self.config.pods == Pods::Disabled)
            }
            Place::Pod { namespace, address, before, plain } => {
                let unseen = self.config.pods == Pods::Verified && !plain;
                let refused = if quirks { unseen || before > MOST_IGNORED } else { before > 0 };
                if refused { Told::Missing } else { self.pod(reply, asked, namespace, address, before) }
            }
            Place::Address(address) if asked.qtype == rtype::PTR => self.pointers(reply, asked, address),
            // CoreDNS knows no other type in reverse zones.
            Place::Address(address) if !quirks && !self.listed_owners(address).is_empty() => Told::Nothing,
            Place::Namespace { .. } | Place::Address(_) | Place::Nowhere => Told::Missing,
        }
    }

    fn pod(&self, reply: &mut Reply<'_>, asked: Asked<'_>, namespace: &[u8], address: IpAddr, before: usize) -> Told {
        let exists = match self.config.pods {
            Pods::Disabled => false,
            Pods::Insecure => self.is_shown(namespace),
            Pods::Verified => self.is_shown(namespace) && self.has_pod(namespace, address),
        };
        if !exists {
            return Told::Missing;
        }
        let ttl = self.config.ttl.headless;
        match (asked.qtype, address) {
            (rtype::A, IpAddr::V4(v4)) => {
                reply.answer_of(asked.owner(), rtype::A, ttl, |out| out.extend_from_slice(&v4.octets()))
            }
            (rtype::AAAA, IpAddr::V6(v6)) => {
                reply.answer_of(asked.owner(), rtype::AAAA, ttl, |out| out.extend_from_slice(&v6.octets()))
            }
            (rtype::SRV, _) if self.config.quirks == Quirks::CoreDns => {
                // The name of the Pod alone, without what stands before it.
                let own = asked.name.offset(before);
                let srv = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&[0, 0, 0, 100, 0, 0]);
                    out.extend_from_slice(&asked.spelled[own..]);
                };
                reply.answer_of(asked.owner(), rtype::SRV, ttl, srv);
                let pointer = asked.owner() + u16::try_from(own).unwrap_or_default();
                service::help(reply, |out| out.extend_from_slice(&pointer.to_be_bytes()), address, ttl)
            }
            _ => return Told::Nothing,
        };
        Told::Data
    }

    /// The names of an address: of the Service that has it, or else of every endpoint.
    fn pointers(&self, reply: &mut Reply<'_>, asked: Asked<'_>, address: IpAddr) -> Told {
        let found = self.listed_owners(address);
        let (zone, ttl) = (&self.zones.primary().wire, self.config.ttl.cluster);
        let end = |out: &mut Vec<u8>, service: &Service| {
            out.extend_from_slice(&service.key.wire);
            out.extend_from_slice(b"\x03svc");
            out.extend_from_slice(zone);
        };
        if let Some((_, service)) = found.iter().find(|(own, _)| *own) {
            reply.answer_of(asked.owner(), rtype::PTR, ttl, |out| end(out, service));
            return Told::Data;
        }
        let mut told = Told::Missing;
        for (_, service) in &found {
            for group in service.endpoints.groups().filter(|group| group.iter().any(|one| one.address == address)) {
                told = Told::Data;
                reply.answer_of(asked.owner(), rtype::PTR, ttl, |out| {
                    service.endpoints.write_label(&group[0], out);
                    end(out, service);
                });
            }
        }
        told
    }

    /// The Services whose names an address has, and whether it is their own. Empty: the reverse name does not exist.
    fn listed_owners(&self, address: IpAddr) -> Vec<(bool, Arc<Service>)> {
        let mut found = self.owners(address);
        found.retain(|(_, service)| service.namespace.listed);
        found
    }

    /// Writes the record that goes with an answer about nothing.
    #[inline]
    fn authority(&self, reply: &mut Reply<'_>, asked: Asked<'_>) {
        let pointer = asked.zone_pointer.to_be_bytes();
        let ttl = self.config.ttl.negative.min(NEGATIVE_MAX);
        let data = |out: &mut Vec<u8>| self.start_of_authority(out, pointer);
        reply.authority(|out| out.extend_from_slice(&pointer), rtype::SOA, ttl, data);
    }

    fn start_of_authority(&self, out: &mut Vec<u8>, zone: [u8; 2]) {
        out.extend_from_slice(b"\x02ns\x03dns");
        out.extend_from_slice(&zone);
        out.extend_from_slice(b"\x0ahostmaster");
        out.extend_from_slice(&zone);
        for number in [self.serial(), 7200, 1800, 86400, self.config.ttl.negative] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    /// How long the reply may be.
    fn limit(&self, query: &Query<'_>, transport: Transport) -> usize {
        match transport {
            Transport::Udp => query.udp_limit().min(usize::from(self.config.largest)).min(DATAGRAM),
            Transport::Tcp => LONGEST,
        }
    }

    fn finish(&self, mut reply: Reply<'_>, code: u16) {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let recursion = if self.config.recursion && !quirks { flag::RA } else { 0 };
        if quirks && reply.lacks_help() {
            reply.cut();
        }
        reply.finish(code, flag::AA | recursion);
    }

    /// Whether a name is another name, and which Service says so.
    fn alias(&self, name: &Name, zone: &Zone) -> Option<Arc<Service>> {
        let Place::Service { key, part: crate::place::Part::Whole } = place(name, zone, self.config.quirks) else {
            return None;
        };
        let service = self.service(key).filter(|_| zone.side == Side::Forward)?;
        (service.namespace.is_shown() && matches!(service.kind, Kind::Alias(_))).then_some(service)
    }
}

/// What the fuzzer calls: whatever the bytes are, the reply is a message that can be read, has the number and the
/// question of the one that came, and is no longer than was allowed.
pub fn fuzz(book: &Book, message: &[u8]) {
    let (mut scratch, mut out) = (Scratch::new(1), Vec::new());
    for transport in [Transport::Udp, Transport::Tcp] {
        let outcome = book.answer(message, transport, &mut scratch, &mut out);
        if let Outcome::Chase(chase) = &outcome {
            book.chased(message, transport, chase, &crate::beyond::Lookup::default(), &mut out);
        }
        if matches!(outcome, Outcome::Silent | Outcome::Beyond) {
            continue;
        }
        let reply = crate::wire::Message::read(&out).expect("a message");
        assert_eq!((out[..2].to_vec(), reply.flags() & flag::QR), (message[..2].to_vec(), flag::QR));
        assert_eq!(reply.end(), Ok(out.len()), "every record is whole, and nothing follows");
        if let Ok(query) = Query::parse(message) {
            assert_eq!(out[HEADER..query.question_end()], message[HEADER..query.question_end()]);
            assert!(out.len() <= book.limit(&query, transport), "{} bytes", out.len());
        }
    }
}
