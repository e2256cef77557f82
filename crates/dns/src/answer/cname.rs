//! CNAME chains of `ExternalName` Services.
//!
//! In: the first Service of the chain. Out: the CNAME records and the records of the target. A target in our zones is
//! looked up at once; for another target the forwarder is queried, then [`ZoneSnapshot::finish_cname`] writes the
//! reply. A chain that loops, points below itself or is too long gives NODATA.

use std::sync::Arc;

use super::{LookupResult, Outcome, Question, Scratch};
use crate::forward::{Lookup, Transport};
use crate::records::{Kind, Service};
use crate::snapshot::ZoneSnapshot;
use crate::wire::{HEADER, IN, Name, QUESTION, Query, Reply, rcode, rtype, write_error};
use crate::zone::Quirks;

/// Maximum length of a CNAME chain.
const MAX_CHAIN: usize = 11;

/// CNAME chain whose target is outside our zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CnameChain {
    /// Names of the chain in wire form; the last is the target.
    pub links: Vec<Box<[u8]>>,
    /// QTYPE.
    pub qtype: u16,
}

impl CnameChain {
    /// Name to resolve upstream.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.links.last().map_or(&[0], |link| link)
    }
}

/// Last name of a chain in a reply.
struct Last {
    /// Compression pointer to it.
    owner: u16,
    /// Offset of its first byte.
    at: usize,
    /// Number of bytes before its compression pointer.
    own: usize,
    /// Offset of the remaining labels.
    rest: usize,
    name: Name,
}

/// Number of trailing labels that two names share.
fn shared_labels(one: &Name, other: &Name) -> usize {
    let most = one.count().min(other.count());
    let same = |back: &usize| one.label(one.count() - back) == other.label(other.count() - back);
    (1..=most).take_while(same).count()
}

/// Where a CNAME chain ends.
enum End {
    /// In our zones.
    Ours,
    /// Outside our zones.
    External,
    /// Loop, invalid or too long.
    Loop,
}

impl ZoneSnapshot {
    /// Follows a CNAME and writes the reply.
    pub(super) fn follow(
        &self,
        mut reply: Reply<'_>,
        question: Question<'_>,
        first: Arc<Service>,
        scratch: &mut Scratch,
    ) -> Outcome {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let follows = match question.qtype {
            rtype::CNAME => false,
            rtype::A | rtype::AAAA => true,
            _ if quirks => return self.write_no_data(reply, question),
            other => other != rtype::ANY,
        };
        if !follows {
            let Kind::ExternalName(target) = &first.kind else { return self.write_no_data(reply, question) };
            reply.answer_at(question.owner(), rtype::CNAME, self.config.ttl.cluster, |out| {
                out.extend_from_slice(target);
            });
            self.finish(reply, rcode::NOERROR);
            return Outcome::Reply;
        }
        let (links, end) = self.chain(question.name, first);
        match end {
            End::Loop => self.write_no_data(reply, question),
            End::External => Outcome::FollowCname(Box::new(CnameChain { links, qtype: question.qtype })),
            End::Ours => {
                let before = reply.mark();
                let last = self.write_chain(&mut reply, question.name, &links);
                if !self.end(&mut reply, last, question.qtype, scratch) && quirks {
                    reply.rewind(before);
                    return self.write_no_data(reply, question);
                }
                self.finish(reply, rcode::NOERROR);
                Outcome::Reply
            }
        }
    }

    fn write_no_data(&self, mut reply: Reply<'_>, question: Question<'_>) -> Outcome {
        self.authority(&mut reply, question);
        self.finish(reply, rcode::NOERROR);
        Outcome::Reply
    }

    /// Collects the names of the chain.
    fn chain(&self, name: &Name, first: Arc<Service>) -> (Vec<Box<[u8]>>, End) {
        let (mut links, mut from, mut next): (Vec<Box<[u8]>>, _, _) = (Vec::new(), name.clone(), Some(first));
        while let Some(service) = next {
            let Kind::ExternalName(target) = &service.kind else { break };
            let Ok(to) = Name::parse(target) else { return (links, End::Loop) };
            let below = to.is_below(from.wire(), from.count());
            if below || links.contains(target) || to.wire() == name.wire() || links.len() == MAX_CHAIN {
                return (links, End::Loop);
            }
            links.push(target.clone());
            let Some(zone) = self.zones.of(&to) else { return (links, End::External) };
            next = self.external_name(&to, zone);
            from = to;
        }
        (links, End::Ours)
    }

    /// Writes the chain. Returns its last name, or `None` if the reply is truncated.
    fn write_chain(&self, reply: &mut Reply<'_>, qname: &Name, links: &[Box<[u8]>]) -> Option<Last> {
        let (mut owner, mut last) = (QUESTION, None);
        for link in links {
            let name = Name::parse(link).ok()?;
            let at = reply.position() + 2 + 10;
            let shared = shared_labels(&name, qname);
            let own = name.offset(name.count() - shared);
            let rest = HEADER + qname.offset(qname.count() - shared);
            let fits = reply.answer_at(owner, rtype::CNAME, self.config.ttl.cluster, |out| {
                out.extend_from_slice(&link[..own]);
                match Reply::pointer(rest).filter(|_| shared > 0) {
                    Some(pointer) => out.extend_from_slice(&pointer.to_be_bytes()),
                    None => out.push(0),
                }
            });
            owner = Reply::pointer(at).filter(|_| fits)?;
            last = Some(Last { owner, at, own, rest, name });
        }
        last
    }

    /// Writes the records of the target; false for a negative answer.
    fn end(&self, reply: &mut Reply<'_>, last: Option<Last>, qtype: u16, scratch: &mut Scratch) -> bool {
        // The reply is truncated.
        let Some(Last { owner, at, own, rest, name }) = last else { return true };
        let Some(zone) = self.zones.of(&name) else { return false };
        let offset = name.offset(name.count() - zone.labels);
        let zone_at = if offset < own { at + offset } else { rest + offset - own };
        let Some(zone_pointer) = Reply::pointer(zone_at) else { return false };
        let question = Question { name: &name, original_name: name.wire(), zone, owner, zone_pointer, qtype };
        if matches!(self.lookup_name(reply, question, scratch), LookupResult::Data) {
            return true;
        }
        self.authority(reply, question);
        false
    }

    /// Writes the reply to a query whose CNAME target was resolved upstream.
    pub fn finish_cname(
        &self,
        message: &[u8],
        transport: Transport,
        chain: &CnameChain,
        found: &Lookup,
        out: &mut Vec<u8>,
    ) {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(error) => {
                write_error(message, error, out);
                return;
            }
        };
        let mut reply = Reply::begin(out, &query, self.limit(&query, transport));
        let last = self.write_chain(&mut reply, &query.name, &chain.links);
        for record in found.records.iter().filter(|record| record.class == IN) {
            let data = |out: &mut Vec<u8>| out.extend_from_slice(&record.data);
            match last.as_ref().filter(|_| record.owner.eq_ignore_ascii_case(chain.target())) {
                Some(last) => reply.answer_at(last.owner, record.rtype, record.ttl, data),
                None => reply.answer_named(&record.owner, record.rtype, record.ttl, data),
            };
        }
        if found.truncated {
            reply.set_truncated();
        }
        self.finish(reply, rcode::NOERROR);
    }
}
