//! Answers queries for the cluster zones.
//!
//! In: a query message and the [`ZoneSnapshot`]. Out: a reply in a buffer, or the decision to forward. Every listener
//! calls this for every query: it takes no lock and does not allocate for names with records once its buffers have
//! grown. Checks are done in the order header, class, zone, name.

mod apex;
mod cname;
mod service;
#[cfg(test)]
pub(crate) mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use crate::forward::Transport;
use crate::parsed_name::{ParsedName, parse_name};
use crate::records::{Kind, Service};
use crate::snapshot::ZoneSnapshot;
use crate::wire::{HEADER, IN, MESSAGE_MAX, Name, POINTER, Query, Reply, extended, flag, rcode, rtype, write_error};
use crate::zone::{Pods, Quirks, Zone, ZoneKind};

pub use cname::CnameChain;

/// Longest UDP payload in bytes.
const DATAGRAM: usize = 65507;
/// Version of the Kubernetes DNS specification (`dns-version` TXT).
const VERSION: &[u8] = b"\x051.1.0";
/// TTL of that record in seconds.
const VERSION_TTL: u32 = 28800;
/// Number of labels before a Pod name that CoreDNS ignores.
const MAX_IGNORED_LABELS: usize = 2;
/// Longest TTL of negative answers in seconds.
const NEGATIVE_MAX: u32 = 300;

/// Result of answering a query.
#[derive(Debug)]
pub enum Outcome {
    /// The reply is written.
    Reply,
    /// The snapshot is not ready; a SERVFAIL reply is written.
    NotReady,
    /// No reply is sent.
    Drop,
    /// The query must be forwarded.
    Forward,
    /// The CNAME target is outside our zones: resolve it upstream.
    FollowCname(Box<CnameChain>),
}

/// Buffers that a listener reuses between queries.
#[derive(Debug)]
pub struct Scratch {
    /// Metric labels of the last query.
    pub labels: QueryLabels,
    random: u32,
    addresses: Vec<IpAddr>,
    targets: Vec<Option<u16>>,
}

/// Metric labels of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueryLabels {
    /// Index of the zone.
    pub zone: Option<usize>,
    /// QTYPE; 0 if the message is malformed.
    pub qtype: u16,
    /// Whether the DO bit is set.
    pub dnssec: bool,
    /// Id of the Service.
    pub service: Option<u32>,
}

impl Scratch {
    /// `seed` determines the rotation of addresses.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        Self { labels: QueryLabels::default(), random: seed | 1, addresses: Vec::new(), targets: Vec::new() }
    }

    /// Pseudo-random number below `count` (xorshift).
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

/// Question, or CNAME target that is looked up in its place.
#[derive(Clone, Copy)]
struct Question<'a> {
    name: &'a Name,
    /// Name with its original case.
    original_name: &'a [u8],
    zone: &'a Zone,
    /// Compression pointer to the name.
    owner: u16,
    /// Compression pointer to the zone name.
    zone_pointer: u16,
    qtype: u16,
}

impl<'a> Question<'a> {
    /// Name that is written uncompressed at offset `at`.
    fn new(name: &'a Name, original_name: &'a [u8], zone: &'a Zone, at: u16, qtype: u16) -> Self {
        let owner = POINTER | at;
        let mut question = Self { name, original_name, zone, owner, zone_pointer: owner, qtype };
        question.zone_pointer += u16::try_from(question.zone_offset()).expect("inside of a name");
        question
    }

    /// Compression pointer to the name.
    const fn owner(&self) -> u16 {
        self.owner
    }

    fn zone_offset(&self) -> usize {
        self.name.offset(self.name.count() - self.zone.labels)
    }

    /// Zone name with the case of the query.
    fn zone_as_queried(&self) -> &[u8] {
        &self.original_name[self.zone_offset()..]
    }

    /// Whether the zone name is not all lower case.
    fn is_zone_mixed_case(&self) -> bool {
        self.zone_as_queried() != &*self.zone.wire
    }
}

/// Result of looking up a name.
enum LookupResult {
    /// Records are written.
    Data,
    /// The name exists but has no records of this type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// The Service is a CNAME (`ExternalName`).
    Cname(Arc<Service>),
}

impl ZoneSnapshot {
    /// Answers a query.
    pub fn answer(&self, message: &[u8], transport: Transport, scratch: &mut Scratch, out: &mut Vec<u8>) -> Outcome {
        scratch.labels = QueryLabels::default();
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(error) if write_error(message, error, out) => return Outcome::Reply,
            Err(_) => return Outcome::Drop,
        };
        scratch.labels.qtype = query.qtype;
        scratch.labels.dnssec = query.edns.is_some_and(|edns| edns.dnssec);
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
        let Some(zone) = self.zones.of(&query.name) else { return Outcome::Forward };
        scratch.labels.zone = Some(zone.index);
        // Only class IN has data; CoreDNS ignores the class if it forwards.
        if query.qclass != IN && !(self.config.quirks == Quirks::CoreDns && self.config.recursion) {
            return code(out, rcode::REFUSED);
        }
        let start = u16::try_from(HEADER).expect("a short header");
        let question = Question::new(&query.name, query.original_name(), zone, start, query.qtype);
        let mut reply = Reply::begin(out, &query, limit);
        if !self.is_ready() {
            reply.set_extended_error(extended::NOT_READY);
            self.authority(&mut reply, question);
            self.finish(reply, rcode::SERVFAIL);
            return Outcome::NotReady;
        }
        let (result, quirks) = (self.lookup_name(&mut reply, question, scratch), self.config.quirks);
        match result {
            LookupResult::Data => self.finish(reply, rcode::NOERROR),
            LookupResult::NxDomain if !(quirks == Quirks::CoreDns && query.qtype == rtype::SOA) => {
                if self.zones.falls_through(zone, &query.name) {
                    return Outcome::Forward;
                }
                self.authority(&mut reply, question);
                self.finish(reply, rcode::NXDOMAIN);
            }
            LookupResult::NoData | LookupResult::NxDomain => {
                self.authority(&mut reply, question);
                self.finish(reply, rcode::NOERROR);
            }
            LookupResult::Cname(first) => return self.follow(reply, question, first, scratch),
        }
        Outcome::Reply
    }

    /// Looks up a name and writes its records.
    #[inline]
    fn lookup_name(&self, reply: &mut Reply<'_>, question: Question<'_>, scratch: &mut Scratch) -> LookupResult {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let absent = |is_quirk: bool| if quirks && is_quirk { LookupResult::NxDomain } else { LookupResult::NoData };
        match parse_name(question.name, question.zone, self.config.quirks) {
            ParsedName::Service { key, part } => {
                let at = self.services.at(key);
                let shard = self.services.load(at);
                let Some(service) = shard.find(at).find(|service| *service.key.wire == *key) else {
                    return LookupResult::NxDomain;
                };
                if !service.namespace.is_visible() {
                    return LookupResult::NxDomain;
                }
                scratch.labels.service = Some(service.key.id);
                self.service_records(reply, question, service, part, scratch)
            }
            ParsedName::Apex => self.apex(reply, question),
            ParsedName::SvcOrPod => absent(question.qtype == rtype::TXT),
            ParsedName::Dns => absent(true),
            ParsedName::NameServer => self.name_server(reply, question, scratch),
            ParsedName::Version if question.qtype == rtype::TXT => {
                reply.answer_at(question.owner(), rtype::TXT, VERSION_TTL, |out| out.extend_from_slice(VERSION));
                LookupResult::Data
            }
            ParsedName::Version => absent(true),
            ParsedName::Namespace { label, pods } if self.is_visible(label) => {
                absent(question.qtype == rtype::TXT || pods && self.config.pods == Pods::Disabled)
            }
            ParsedName::Pod { namespace, address, before, plain } => {
                let noncanonical = self.config.pods == Pods::Verified && !plain;
                let rejected = if quirks { noncanonical || before > MAX_IGNORED_LABELS } else { before > 0 };
                if rejected { LookupResult::NxDomain } else { self.pod(reply, question, namespace, address, before) }
            }
            ParsedName::Address(address) if question.qtype == rtype::PTR => self.ptr_records(reply, question, address),
            // CoreDNS returns NXDOMAIN for other types in reverse zones.
            ParsedName::Address(address) if !quirks && !self.listed_owners(address).is_empty() => LookupResult::NoData,
            ParsedName::Namespace { .. } | ParsedName::Address(_) | ParsedName::Invalid => LookupResult::NxDomain,
        }
    }

    fn pod(
        &self,
        reply: &mut Reply<'_>,
        question: Question<'_>,
        namespace: &[u8],
        address: IpAddr,
        before: usize,
    ) -> LookupResult {
        let exists = match self.config.pods {
            Pods::Disabled => false,
            Pods::Insecure => self.is_visible(namespace),
            Pods::Verified => self.is_visible(namespace) && self.has_pod(namespace, address),
        };
        if !exists {
            return LookupResult::NxDomain;
        }
        let ttl = self.config.ttl.headless;
        match (question.qtype, address) {
            (rtype::A, IpAddr::V4(v4)) => {
                reply.answer_at(question.owner(), rtype::A, ttl, |out| out.extend_from_slice(&v4.octets()))
            }
            (rtype::AAAA, IpAddr::V6(v6)) => {
                reply.answer_at(question.owner(), rtype::AAAA, ttl, |out| out.extend_from_slice(&v6.octets()))
            }
            (rtype::SRV, _) if self.config.quirks == Quirks::CoreDns => {
                // Target is the Pod name without the labels before it.
                let own = question.name.offset(before);
                let srv = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&[0, 0, 0, 100, 0, 0]);
                    out.extend_from_slice(&question.original_name[own..]);
                };
                reply.answer_at(question.owner(), rtype::SRV, ttl, srv);
                let pointer = question.owner() + u16::try_from(own).unwrap_or_default();
                service::add_address(reply, |out| out.extend_from_slice(&pointer.to_be_bytes()), address, ttl)
            }
            _ => return LookupResult::NoData,
        };
        LookupResult::Data
    }

    /// PTR records: the Service with this cluster IP, otherwise all endpoints with this address.
    fn ptr_records(&self, reply: &mut Reply<'_>, question: Question<'_>, address: IpAddr) -> LookupResult {
        let found = self.listed_owners(address);
        let (zone, ttl) = (&self.zones.primary().wire, self.config.ttl.cluster);
        let end = |out: &mut Vec<u8>, service: &Service| {
            out.extend_from_slice(&service.key.wire);
            out.extend_from_slice(b"\x03svc");
            out.extend_from_slice(zone);
        };
        if let Some((_, service)) = found.iter().find(|(own, _)| *own) {
            reply.answer_at(question.owner(), rtype::PTR, ttl, |out| end(out, service));
            return LookupResult::Data;
        }
        let mut result = LookupResult::NxDomain;
        for (_, service) in &found {
            for group in service.endpoints.groups().filter(|group| group.iter().any(|one| one.address == address)) {
                result = LookupResult::Data;
                reply.answer_at(question.owner(), rtype::PTR, ttl, |out| {
                    service.endpoints.write_label(&group[0], out);
                    end(out, service);
                });
            }
        }
        result
    }

    /// Services with an address whose namespace is served. Empty: the reverse name does not exist.
    fn listed_owners(&self, address: IpAddr) -> Vec<(bool, Arc<Service>)> {
        let mut found = self.owners(address);
        found.retain(|(_, service)| service.namespace.listed);
        found
    }

    /// Writes the SOA record of a negative answer.
    #[inline]
    fn authority(&self, reply: &mut Reply<'_>, question: Question<'_>) {
        let pointer = question.zone_pointer.to_be_bytes();
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

    /// Size limit of the reply in bytes.
    fn limit(&self, query: &Query<'_>, transport: Transport) -> usize {
        match transport {
            Transport::Udp => query.udp_limit().min(usize::from(self.config.max_udp_size)).min(DATAGRAM),
            Transport::Tcp => MESSAGE_MAX,
        }
    }

    fn finish(&self, mut reply: Reply<'_>, code: u16) {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let recursion = if self.config.recursion && !quirks { flag::RA } else { 0 };
        if quirks && reply.omitted_additional() {
            reply.set_truncated();
        }
        reply.finish(code, flag::AA | recursion);
    }

    /// `ExternalName` Service of a name.
    fn external_name(&self, name: &Name, zone: &Zone) -> Option<Arc<Service>> {
        let ParsedName::Service { key, part: crate::parsed_name::Part::Whole } =
            parse_name(name, zone, self.config.quirks)
        else {
            return None;
        };
        let service = self.service(key).filter(|_| zone.kind == ZoneKind::Forward)?;
        (service.namespace.is_visible() && matches!(service.kind, Kind::ExternalName(_))).then_some(service)
    }
}

/// Fuzz entry point: for any input the reply is well-formed, has the id and question of the query, and respects the
/// size limit.
#[cfg(any(test, fuzzing))]
pub fn fuzz(snapshot: &ZoneSnapshot, message: &[u8]) {
    let (mut scratch, mut out) = (Scratch::new(1), Vec::new());
    for transport in [Transport::Udp, Transport::Tcp] {
        let outcome = snapshot.answer(message, transport, &mut scratch, &mut out);
        if let Outcome::FollowCname(chain) = &outcome {
            snapshot.finish_cname(message, transport, chain, &crate::forward::Lookup::default(), &mut out);
        }
        if matches!(outcome, Outcome::Drop | Outcome::Forward) {
            continue;
        }
        let reply = crate::wire::Message::read(&out).expect("a message");
        assert_eq!((out[..2].to_vec(), reply.flags() & flag::QR), (message[..2].to_vec(), flag::QR));
        assert_eq!(reply.end(), Ok(out.len()), "every record is complete, and nothing follows");
        if let Ok(query) = Query::parse(message) {
            assert_eq!(out[HEADER..query.question_end()], message[HEADER..query.question_end()]);
            assert!(out.len() <= snapshot.limit(&query, transport), "{} bytes", out.len());
        }
    }
}
