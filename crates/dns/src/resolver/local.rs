//! Queries that involve both rules and the cluster zones.
//!
//! In: a query for a name in the cluster zones with its answer; or the target of a rewrite, search path or CNAME. Out:
//! the decision of the rules; or the records of that name from rules, cluster zones or upstreams, in this order. Loops
//! of CNAMEs and rewrites end at a depth limit.

use std::sync::Arc;
use std::time::Instant;

use super::answer::Unpacked;
use super::cache::Key;
use super::message::{Outgoing, Query, rcode};
use super::reply::Ttl;
use super::{
    BoxFuture, LocalAnswer, Lookup, QuickResult, Request, Resolver, RuleDecision, code_of, rewrite, server_block,
};
use crate::config::Name;
use crate::forward::ClientAddr;

/// Maximum depth of CNAMEs that lead out of the cluster zones and back.
const MAX_DEPTH: u8 = 8;

impl Resolver {
    /// Applies rules to a query for a name in the cluster zones, whose answer is in `out`.
    pub(super) fn ruling(&self, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> RuleDecision {
        let Ok(query) = Query::read(request.message) else { return RuleDecision::Pass };
        let at = self.server_block(query.name.as_wire(), request.from);
        if at.is_none() || at != server_block::cluster(&self.server_blocks) {
            return RuleDecision::Forward;
        }
        match self.quick_result(&query, request) {
            QuickResult::Reply(reply) => *out = reply,
            QuickResult::Answer(answer, extended) => {
                if self.may_answer(&query, request, now, out) {
                    self.write(out, &query, request, &answer, Ttl::Aged(0), false, extended.as_ref());
                }
            }
            QuickResult::Rewrite(_) => return RuleDecision::Forward,
            QuickResult::Resolve(_) => {
                if self.may_answer(&query, request, now, out) {
                    return RuleDecision::Pass;
                }
            }
        }
        RuleDecision::Reply
    }

    /// Records of a name at CNAME depth `depth`.
    pub(super) fn lookup_from<'a>(
        self: &'a Arc<Self>,
        name: &'a [u8],
        qtype: u16,
        from: ClientAddr,
        depth: u8,
    ) -> BoxFuture<'a, Lookup> {
        Box::pin(async move {
            let code = |rcode| Lookup { rcode, truncated: false, records: Vec::new() };
            let Some(name) = Name::from_wire(name) else { return code(rcode::FORMERR) };
            if depth > MAX_DEPTH {
                return code(rcode::SERVFAIL);
            }
            let rules = self
                .server_block(name.as_wire(), from)
                .map_or(&[][..], |index| &self.server_blocks[index].block.rewrites);
            let outgoing = Outgoing::new(name, qtype);
            let unpacked = match rewrite::apply(rules, outgoing.name.as_wire()) {
                Some(rewritten) => self.resolve_rewritten(&rewritten, &outgoing, from, depth).await,
                None => self.resolve_name(&outgoing, from, depth).await,
            };
            let [records, ..] = unpacked.sections;
            Lookup { rcode: unpacked.rcode, truncated: unpacked.truncated, records }
        })
    }

    /// Resolves the rewritten name and reverts the names of the answer.
    pub(super) async fn resolve_rewritten(
        self: &Arc<Self>,
        rewritten: &rewrite::Rewritten<'_>,
        resolve_name: &Outgoing,
        from: ClientAddr,
        depth: u8,
    ) -> Unpacked {
        let outgoing = Outgoing { name: rewritten.name.clone(), ..resolve_name.clone() };
        let mut unpacked = self.resolve_name(&outgoing, from, depth).await;
        rewritten.revert(&mut unpacked);
        unpacked
    }

    /// Resolves an internal query; TTLs are current, and a failure is an RCODE.
    pub(super) async fn resolve_name(self: &Arc<Self>, outgoing: &Outgoing, from: ClientAddr, depth: u8) -> Unpacked {
        let lower = outgoing.name.as_wire();
        let code = |rcode| Unpacked { rcode, ..Unpacked::default() };
        let Some(index) = self.server_block(lower, from) else { return code(rcode::REFUSED) };
        if let Some((unpacked, _)) =
            self.static_answer(&self.server_blocks[index], lower, outgoing.qtype, outgoing.qclass)
        {
            return unpacked;
        }
        if let Some(unpacked) = self.cluster_answer(index, outgoing, from, depth).await {
            return unpacked;
        }
        let key = Key {
            name: lower.into(),
            qtype: outgoing.qtype,
            qclass: outgoing.qclass,
            dnssec: outgoing.dnssec,
            checking_disabled: outgoing.checking_disabled,
        };
        let resolved = match self.resolve_key(index, &key).await {
            Ok(resolved) => resolved,
            Err(upstream_error) => {
                self.fail(index, lower, outgoing.qtype, &upstream_error.0);
                return code(code_of(&upstream_error.0));
            }
        };
        let Ok(mut unpacked) = resolved.entry.answer.unpack(lower) else { return code(rcode::SERVFAIL) };
        for record in unpacked.sections.iter_mut().flatten() {
            record.ttl = match resolved.ttl {
                Ttl::Aged(seconds) => record.ttl.saturating_sub(seconds),
                Ttl::Fixed(seconds) => seconds,
            };
        }
        unpacked
    }

    /// Answer of the cluster zones in a block; `None` if the query must be forwarded.
    async fn cluster_answer(
        self: &Arc<Self>,
        index: usize,
        outgoing: &Outgoing,
        from: ClientAddr,
        depth: u8,
    ) -> Option<Unpacked> {
        let local = self.config.local.as_ref().filter(|_| server_block::cluster(&self.server_blocks) == Some(index))?;
        let message = outgoing.message(0, true);
        let reply = match local.answer(&message) {
            LocalAnswer::NotLocal => return None,
            LocalAnswer::Reply(reply) => reply,
            LocalAnswer::Cname(chain) => {
                let found = self.lookup_from(chain.target(), chain.qtype, from, depth + 1).await;
                local.finish_cname(&message, &chain, &found)
            }
        };
        Some(Unpacked::read(&reply).unwrap_or_else(|_| Unpacked { rcode: rcode::SERVFAIL, ..Unpacked::default() }))
    }
}
