//! Names of the cluster, as far as rules have a part in them, and names that stand for others.
//!
//! In: a question for a name of the cluster, with the answer that it has without rules; or a name that a rewrite, a search
//! path or an alias leads to. Out: what the rules say; or the records of that name, from rules, from the cluster or from
//! others, in this order. A chain of aliases and rewrites that leads in a circle ends after a few turns.

use std::sync::Arc;
use std::time::Instant;

use super::answer::Unpacked;
use super::cache::Key;
use super::message::{Outgoing, Query, rcode};
use super::reply::Ttl;
use super::{Known, Later, Lookup, Question, Quick, Resolver, Ruling, code_of, rewrite, site};
use crate::beyond::Ends;
use crate::config::Name;

/// How often an alias of the cluster may lead out and back.
const DEEPEST: u8 = 8;

impl Resolver {
    /// What rules say to a question for a name of the cluster, whose answer is in `out`.
    pub(super) fn ruling(&self, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> Ruling {
        let Ok(query) = Query::read(question.message) else { return Ruling::Pass };
        let at = self.site(query.name.as_wire(), question.ends);
        if at.is_none() || at != site::cluster(&self.sites) {
            return Ruling::Beyond;
        }
        match self.quick(&query, question) {
            Quick::Say(reply) => *out = reply,
            Quick::Give(answer, extended) => {
                if self.may_answer(&query, question, now, out) {
                    self.write(out, &query, question, &answer, Ttl::Aged(0), false, extended.as_ref());
                }
            }
            Quick::Rewrite(_) => return Ruling::Beyond,
            Quick::Ask(_) => {
                if self.may_answer(&query, question, now, out) {
                    return Ruling::Pass;
                }
            }
        }
        Ruling::Said
    }

    /// The records of a name, so many aliases away from the one that was asked for.
    pub(super) fn lookup_from<'a>(
        self: &'a Arc<Self>,
        name: &'a [u8],
        qtype: u16,
        ends: Ends,
        depth: u8,
    ) -> Later<'a, Lookup> {
        Box::pin(async move {
            let code = |rcode| Lookup { rcode, truncated: false, records: Vec::new() };
            let Some(name) = Name::from_wire(name) else { return code(rcode::FORMERR) };
            if depth > DEEPEST {
                return code(rcode::SERVFAIL);
            }
            let rules = self.site(name.as_wire(), ends).map_or(&[][..], |index| &self.sites[index].block.rewrites);
            let outgoing = Outgoing::new(name, qtype);
            let unpacked = match rewrite::apply(rules, outgoing.name.as_wire()) {
                Some(rewritten) => self.renamed(&rewritten, &outgoing, ends, depth).await,
                None => self.asked(&outgoing, ends, depth).await,
            };
            let [records, ..] = unpacked.sections;
            Lookup { rcode: unpacked.rcode, truncated: unpacked.truncated, records }
        })
    }

    /// Asks under another name, and changes the answer back.
    pub(super) async fn renamed(
        self: &Arc<Self>,
        rewritten: &rewrite::Rewritten<'_>,
        asked: &Outgoing,
        ends: Ends,
        depth: u8,
    ) -> Unpacked {
        let outgoing = Outgoing { name: rewritten.name.clone(), ..asked.clone() };
        let mut unpacked = self.asked(&outgoing, ends, depth).await;
        rewritten.revert(&mut unpacked);
        unpacked
    }

    /// The answer to a question of our own, with TTLs as of now; a failure is a code.
    pub(super) async fn asked(self: &Arc<Self>, outgoing: &Outgoing, ends: Ends, depth: u8) -> Unpacked {
        let lower = outgoing.name.as_wire();
        let code = |rcode| Unpacked { rcode, ..Unpacked::default() };
        let Some(index) = self.site(lower, ends) else { return code(rcode::REFUSED) };
        if let Some((unpacked, _)) = self.by_rule(&self.sites[index], lower, outgoing.qtype, outgoing.qclass) {
            return unpacked;
        }
        if let Some(unpacked) = self.of_cluster(index, outgoing, ends, depth).await {
            return unpacked;
        }
        let key = Key {
            name: lower.into(),
            qtype: outgoing.qtype,
            qclass: outgoing.qclass,
            dnssec: outgoing.dnssec,
            checking_disabled: outgoing.checking_disabled,
        };
        let given = match self.ask(index, &key).await {
            Ok(given) => given,
            Err(nobody) => {
                self.fail(index, lower, outgoing.qtype, &nobody.0);
                return code(code_of(&nobody.0));
            }
        };
        let Ok(mut unpacked) = given.entry.answer.unpack(lower) else { return code(rcode::SERVFAIL) };
        for record in unpacked.sections.iter_mut().flatten() {
            record.ttl = match given.ttl {
                Ttl::Aged(seconds) => record.ttl.saturating_sub(seconds),
                Ttl::Fixed(seconds) => seconds,
            };
        }
        unpacked
    }

    /// What the cluster says to a question in the name of a block; nothing when it is for others to answer.
    async fn of_cluster(
        self: &Arc<Self>,
        index: usize,
        outgoing: &Outgoing,
        ends: Ends,
        depth: u8,
    ) -> Option<Unpacked> {
        let local = self.config.local.as_ref().filter(|_| site::cluster(&self.sites) == Some(index))?;
        let message = outgoing.message(0, true);
        let reply = match local.answer(&message) {
            Known::Nothing => return None,
            Known::All(reply) => reply,
            Known::Alias(chase) => {
                let found = self.lookup_from(chase.target(), chase.qtype, ends, depth + 1).await;
                local.followed(&message, &chase, &found)
            }
        };
        Some(Unpacked::read(&reply).unwrap_or_else(|_| Unpacked { rcode: rcode::SERVFAIL, ..Unpacked::default() }))
    }
}
