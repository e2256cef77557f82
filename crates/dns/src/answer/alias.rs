//! Services that are other names, followed to where they lead.
//!
//! In: the first alias. Out: the chain of CNAME records, then what its end has to say. An end that is ours is looked up
//! at once; one that is not is left to whoever stands beyond, and the reply is written when that is known. A chain that
//! comes back to itself, leads below itself, or is longer than anybody needs is as if it had no records.

use std::sync::Arc;

use super::{Asked, Outcome, Scratch, Told};
use crate::beyond::{Lookup, Transport};
use crate::book::Book;
use crate::records::{Kind, Service};
use crate::wire::{HEADER, IN, Name, QUESTION, Query, Reply, rcode, refuse, rtype};
use crate::zone::Quirks;

/// The longest chain.
const LONGEST: usize = 11;

/// A chain of ours that leads out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chase {
    /// The names it goes through, on the wire; the last is to be asked for.
    pub links: Vec<Box<[u8]>>,
    /// The type asked for.
    pub qtype: u16,
}

impl Chase {
    /// The name to be asked for.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.links.last().map_or(&[0], |link| link)
    }
}

/// The last name of a chain, as it stands in a reply.
struct Last {
    /// The pointer to it.
    owner: u16,
    /// Where it begins.
    at: usize,
    /// How many bytes of it stand there.
    own: usize,
    /// Where the rest of it stands.
    rest: usize,
    name: Name,
}

/// With how many equal labels two names end.
fn shared_labels(one: &Name, other: &Name) -> usize {
    let most = one.count().min(other.count());
    let same = |back: &usize| one.label(one.count() - back) == other.label(other.count() - back);
    (1..=most).take_while(same).count()
}

/// Where a chain ends.
enum End {
    /// At a name of ours that is no alias.
    Ours,
    /// Elsewhere.
    Out,
    /// Nowhere.
    Circle,
}

impl Book {
    /// Follows an alias and writes what comes of it.
    pub(super) fn follow(
        &self,
        mut reply: Reply<'_>,
        asked: Asked<'_>,
        first: Arc<Service>,
        scratch: &mut Scratch,
    ) -> Outcome {
        let quirks = self.config.quirks == Quirks::CoreDns;
        let chased = match asked.qtype {
            rtype::CNAME => false,
            rtype::A | rtype::AAAA => true,
            _ if quirks => return self.nothing(reply, asked),
            other => other != rtype::ANY,
        };
        if !chased {
            let Kind::Alias(target) = &first.kind else { return self.nothing(reply, asked) };
            reply.answer_of(asked.owner(), rtype::CNAME, self.config.ttl.cluster, |out| out.extend_from_slice(target));
            self.finish(reply, rcode::NOERROR);
            return Outcome::Reply;
        }
        let (links, end) = self.chain(asked.name, first);
        match end {
            End::Circle => self.nothing(reply, asked),
            End::Out => Outcome::Chase(Box::new(Chase { links, qtype: asked.qtype })),
            End::Ours => {
                let before = reply.mark();
                let last = self.write_chain(&mut reply, asked.name, &links);
                if !self.end(&mut reply, last, asked.qtype, scratch) && quirks {
                    reply.rewind(before);
                    return self.nothing(reply, asked);
                }
                self.finish(reply, rcode::NOERROR);
                Outcome::Reply
            }
        }
    }

    fn nothing(&self, mut reply: Reply<'_>, asked: Asked<'_>) -> Outcome {
        self.authority(&mut reply, asked);
        self.finish(reply, rcode::NOERROR);
        Outcome::Reply
    }

    /// The names that an alias leads through, and where that ends.
    fn chain(&self, name: &Name, first: Arc<Service>) -> (Vec<Box<[u8]>>, End) {
        let (mut links, mut from, mut next): (Vec<Box<[u8]>>, _, _) = (Vec::new(), name.clone(), Some(first));
        while let Some(service) = next {
            let Kind::Alias(target) = &service.kind else { break };
            let Ok(to) = Name::parse(target) else { return (links, End::Circle) };
            let below = to.is_below(from.wire(), from.count());
            if below || links.contains(target) || to.wire() == name.wire() || links.len() == LONGEST {
                return (links, End::Circle);
            }
            links.push(target.clone());
            let Some(zone) = self.zones.of(&to) else { return (links, End::Out) };
            next = self.alias(&to, zone);
            from = to;
        }
        (links, End::Ours)
    }

    /// Writes the chain; where its last name stands, unless something did not fit.
    fn write_chain(&self, reply: &mut Reply<'_>, question: &Name, links: &[Box<[u8]>]) -> Option<Last> {
        let (mut owner, mut last) = (QUESTION, None);
        for link in links {
            let name = Name::parse(link).ok()?;
            let at = reply.position() + 2 + 10;
            let shared = shared_labels(&name, question);
            let own = name.offset(name.count() - shared);
            let rest = HEADER + question.offset(question.count() - shared);
            let fits = reply.answer_of(owner, rtype::CNAME, self.config.ttl.cluster, |out| {
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

    /// Writes what the end of a chain has to say; false when that is nothing.
    fn end(&self, reply: &mut Reply<'_>, last: Option<Last>, qtype: u16, scratch: &mut Scratch) -> bool {
        // A chain that did not fit says so.
        let Some(Last { owner, at, own, rest, name }) = last else { return true };
        let Some(zone) = self.zones.of(&name) else { return false };
        let offset = name.offset(name.count() - zone.labels);
        let zone_at = if offset < own { at + offset } else { rest + offset - own };
        let Some(zone_pointer) = Reply::pointer(zone_at) else { return false };
        let asked = Asked { name: &name, spelled: name.wire(), zone, owner, zone_pointer, qtype };
        if matches!(self.tell(reply, asked, scratch), Told::Data) {
            return true;
        }
        self.authority(reply, asked);
        false
    }

    /// Writes the reply to a question whose alias led out, now that it is known what is there.
    pub fn chased(&self, message: &[u8], transport: Transport, chase: &Chase, found: &Lookup, out: &mut Vec<u8>) {
        let query = match Query::parse(message) {
            Ok(query) => query,
            Err(refusal) => {
                refuse(message, refusal, out);
                return;
            }
        };
        let mut reply = Reply::begin(out, &query, self.limit(&query, transport));
        let last = self.write_chain(&mut reply, &query.name, &chase.links);
        for record in found.records.iter().filter(|record| record.class == IN) {
            let data = |out: &mut Vec<u8>| out.extend_from_slice(&record.data);
            match last.as_ref().filter(|_| record.owner.eq_ignore_ascii_case(chase.target())) {
                Some(last) => reply.answer_of(last.owner, record.rtype, record.ttl, data),
                None => reply.answer_named(&record.owner, record.rtype, record.ttl, data),
            };
        }
        if found.truncated {
            reply.cut();
        }
        self.finish(reply, rcode::NOERROR);
    }
}
