//! Names that are not ours: whoever knows them is asked, and the answers are remembered.
//!
//! In: questions as they came. Out: whole answers, always, and in time: when nobody answers, SERVFAIL with the reason. A question
//! passes, in the order of CoreDNS: who may ask → other name → search path → by rule → by hand → the cluster's own names → from
//! memory → from upstreams. What takes no waiting happens in [`Resolver::cached`], on the threads that serve the cluster's own
//! names; the rest in [`Resolver::resolve`]. Questions for these names come here only when there are rules for them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::beyond::{Ends, Later, Ruling};
use crate::config::{Action, Name};
use answer::{Answer, Unpacked};
use cache::{Entry, Key, KeyRef};
use circle::Circles;
use flight::Waiting;
use ledger::Ledger;
use limit::Verdict;
use message::{Extended, Outgoing, Query, flag, rcode};
use reply::{Manner, Ttl};
use site::{Books, Found, Site};
use stats::{Counters, count};

mod answer;
mod autopath;
mod beyond;
mod cache;
mod circle;
mod datagram;
mod figures;
mod flight;
mod forward;
mod hosts;
mod ledger;
mod limit;
mod load;
mod log;
mod message;
mod own;
mod reply;
mod rewrite;
mod rules;
mod secure;
mod site;
mod stats;
mod stream;
#[cfg(test)]
mod tests;
mod upstream;

pub use crate::beyond::{Lookup, Question, Transport};
pub use crate::wire::Record;
pub use beyond::Ours;
pub use load::{Clock, Config, Known, LoadError, Local};
pub use stats::{Stats, UpstreamStats};

/// Answers for names that are not ours.
pub struct Resolver {
    me: Weak<Self>,
    config: Config,
    sites: Vec<Site>,
    /// Where blocks are asked.
    doors: Vec<SocketAddr>,
    /// Whether names of the cluster may be answered otherwise than by the cluster.
    rules_ours: bool,
    /// Whether search paths are walked.
    walks: bool,
    /// Whether any block has its questions logged.
    logs: bool,
    flights: Mutex<HashMap<(usize, Key), Waiting>>,
    circles: Circles,
    counters: Arc<Counters>,
    ledger: Arc<Ledger>,
    runtime: Handle,
}

/// An answer and how it is given.
struct Given {
    entry: Arc<Entry>,
    ttl: Ttl,
    remembered: bool,
    extended: Option<Extended>,
}

impl Given {
    fn fresh(entry: Arc<Entry>, extended: Option<Extended>) -> Self {
        Self { entry, ttl: Ttl::Aged(0), remembered: false, extended }
    }
}

/// What can be said without waiting.
enum Quick {
    /// This, which may be nothing at all.
    Say(Vec<u8>),
    /// This answer.
    Give(Answer, Option<Extended>),
    /// Nothing: somebody must be asked, in the name of this block, under another name or with other TTLs.
    Rewrite(usize),
    /// Nothing: somebody must be asked, in the name of this block.
    Ask(usize),
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Resolver {
    /// A resolver; its tasks run on `runtime` and end when it is dropped.
    #[must_use]
    pub fn new(config: Config, runtime: Handle) -> Arc<Self> {
        Self::build(config, runtime, None)
    }

    /// A resolver in the place of another one: blocks that ask the same upstreams keep what they remember.
    #[must_use]
    pub fn replacing(old: &Self, config: Config) -> Arc<Self> {
        Self::build(config, old.runtime.clone(), Some(old))
    }

    fn build(config: Config, runtime: Handle, old: Option<&Self>) -> Arc<Self> {
        let known: &[Site] = old.map_or(&[], |old| &old.sites);
        let counters = old.map(|old| old.counters.clone()).unwrap_or_default();
        let ledger = old.map(|old| old.ledger.clone()).unwrap_or_default();
        let books = Books { counters: &counters, ledger: &ledger };
        let sites: Vec<Site> =
            config.server.blocks.iter().map(|block| Site::new(block, &config, known, books)).collect();
        // A server does not begin with places that it cannot listen on.
        let doors = config.server.places().unwrap_or_default();
        let resolver = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            rules_ours: site::rules_ours(&sites, &doors),
            walks: sites.iter().any(|site| site.block.autopath.is_some()),
            logs: sites.iter().any(|site| !site.block.log.is_empty()),
            sites,
            doors,
            flights: Mutex::default(),
            circles: Circles::default(),
            counters,
            ledger,
            config,
            runtime,
        });
        circle::watch(&resolver);
        resolver.follow_hosts();
        resolver
    }

    /// From memory, at once: `true` when `out` has the answer (an empty one means to say nothing), `false` when somebody
    /// must be asked.
    pub fn cached(&self, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> bool {
        out.clear();
        let query = match Query::read(question.message) {
            Ok(query) => query,
            Err(odd) => {
                out.extend(reply::odd(odd));
                return true;
            }
        };
        match self.quick(&query, question) {
            Quick::Say(reply) => out.extend(reply),
            Quick::Give(answer, extended) => {
                if self.may_answer(&query, question, now, out) {
                    self.write(out, &query, question, &answer, Ttl::Aged(0), false, extended.as_ref());
                }
            }
            Quick::Rewrite(_) => return false,
            Quick::Ask(index) => {
                let site = &self.sites[index];
                let lower = query.name.as_wire();
                if self.walk(site, lower, query.qtype, question.ends.client).is_some() {
                    return false;
                }
                let Some(store) = site.store(lower) else { return false };
                let Found::Fresh(entry) = store.find(KeyRef::of(&query), now) else { return false };
                self.note_hit(index, KeyRef::of(&query), &entry, now);
                if self.may_answer(&query, question, now, out) {
                    let seconds = if store.config.keep_ttl { 0 } else { entry.seconds(now) };
                    self.write(out, &query, question, &entry.answer, Ttl::Aged(seconds), true, None);
                }
            }
        }
        true
    }

    /// Asks whoever knows; always answers, within the time limits. An empty answer means to say nothing.
    pub async fn resolve(self: &Arc<Self>, question: Question<'_>) -> Vec<u8> {
        let query = match Query::read(question.message) {
            Ok(query) => query,
            Err(odd) => return reply::odd(odd),
        };
        let mut out = Vec::new();
        let quick = self.quick(&query, &question);
        if let Quick::Say(reply) = quick {
            return reply;
        }
        if !self.may_answer(&query, &question, (self.config.clock)(), &mut out) {
            return out;
        }
        match quick {
            Quick::Say(reply) => reply,
            Quick::Give(answer, extended) => {
                self.write(&mut out, &query, &question, &answer, Ttl::Aged(0), false, extended.as_ref());
                out
            }
            Quick::Rewrite(site) | Quick::Ask(site) => self.slow(site, &query, &question).await,
        }
    }

    /// Whether the answer to a question depends on the search path of who asks; then [`Self::resolve`] walks it, also for
    /// names of the cluster that are not there.
    #[must_use]
    pub fn has_search_path(&self, question: &Question<'_>) -> bool {
        let Ok(query) = Query::read(question.message) else { return false };
        let lower = query.name.as_wire();
        let site = self.site(lower, question.ends).map(|index| &self.sites[index]);
        site.is_some_and(|site| self.walk(site, lower, query.qtype, question.ends.client).is_some())
    }

    /// The records of a name and a type, for whoever follows an alias.
    pub async fn lookup(self: &Arc<Self>, name: &[u8], qtype: u16, ends: Ends) -> Lookup {
        self.lookup_from(name, qtype, ends, 0).await
    }

    /// The block for a name, among those that belong where it was asked for. When there is only one place, or when questions come
    /// from elsewhere than blocks say (flags decided), all do.
    fn site(&self, lower: &[u8], ends: Ends) -> Option<usize> {
        let door = Some(ends.at).filter(|at| self.doors.len() > 1 && self.doors.contains(at));
        let depths = self.sites.iter().enumerate().filter_map(|(index, site)| Some((site.depth(lower, door)?, index)));
        depths.max_by_key(|(depth, index)| (*depth, std::cmp::Reverse(*index))).map(|(_, index)| index)
    }

    /// What can be said without memory and without others.
    fn quick(&self, query: &Query<'_>, question: &Question<'_>) -> Quick {
        if let Some(reply) = reply::special(query) {
            return Quick::Say(reply);
        }
        let lower = query.name.as_wire();
        let refuse = |text: &str| {
            let extended = Extended::new(Extended::NOT_AUTHORITATIVE, text);
            Quick::Say(reply::code(query, rcode::REFUSED, Some(&extended)))
        };
        if self.circles.came_back(lower, query.qtype) {
            return refuse("this question came from here");
        }
        let Some(index) = self.site(lower, question.ends) else { return refuse("this name is not served here") };
        let site = &self.sites[index];
        let action = rules::admission(&site.block.acl, &site.zones, query, question.ends.client);
        if action != Action::Allow {
            count(&self.counters.denied);
            let denial = rules::denial(action);
            return Quick::Say(denial.map_or_else(Vec::new, |(rcode, why)| reply::code(query, rcode, Some(&why))));
        }
        if rewrite::apply(&site.block.rewrites, lower).is_some() {
            return Quick::Rewrite(index);
        }
        match self.by_rule(site, lower, query.qtype, query.qclass) {
            Some((unpacked, extended)) => Quick::Give(Answer::pack(lower, &unpacked), extended),
            None => Quick::Ask(index),
        }
    }

    /// Templates and names by hand.
    fn by_rule(&self, site: &Site, lower: &[u8], qtype: u16, qclass: u16) -> Option<(Unpacked, Option<Extended>)> {
        if let Some(ruled) = rules::template(&site.block.templates, &site.zones, lower, qtype, qclass) {
            let rules::Ruled { rcode, extended, zone } = ruled;
            if let Some(zone) = zone {
                self.counters.by_template(zone, qclass, qtype);
            }
            return Some((Unpacked { rcode, authoritative: true, ..Unpacked::default() }, extended));
        }
        let unpacked = site.hosts.as_ref()?.answer(lower, qtype)?;
        let failed = unpacked.rcode == rcode::SERVFAIL;
        let why = || Extended::new(Extended::OTHER, "`hosts` has no such name, and no fallthrough");
        Some((unpacked, failed.then(why)))
    }

    /// Whether a client may have an answer now; if not, `out` has what it gets instead.
    fn may_answer(&self, query: &Query<'_>, question: &Question<'_>, now: Instant, out: &mut Vec<u8>) -> bool {
        let site = self.site(query.name.as_wire(), question.ends).map(|index| &self.sites[index]);
        let limiter = site.and_then(|site| site.limiter.as_ref()).filter(|_| question.transport == Transport::Udp);
        let Some(limiter) = limiter else { return true };
        match limiter.visit(question.ends.client, now) {
            Verdict::Answer => return true,
            Verdict::Slip => {
                *out = reply::code(query, rcode::NOERROR, None);
                out[2] |= u8::try_from(flag::TC >> 8).expect("a bit of the first byte");
            }
            Verdict::Nothing => out.clear(),
        }
        count(&self.counters.limited);
        false
    }

    /// Everything that may take time.
    async fn slow(self: &Arc<Self>, index: usize, query: &Query<'_>, question: &Question<'_>) -> Vec<u8> {
        let site = &self.sites[index];
        let mut out = Vec::new();
        let lower = query.name.as_wire();
        if let Some(rewritten) = rewrite::apply(&site.block.rewrites, lower) {
            let outgoing = Outgoing::of(query, &rewritten.name);
            let unpacked = self.renamed(&rewritten, &outgoing, question.ends, 0).await;
            let answer = Answer::pack(lower, &unpacked);
            self.write(&mut out, query, question, &answer, Ttl::Aged(0), false, None);
            return out;
        }
        if let Some(walk) = self.walk(site, lower, query.qtype, question.ends.client)
            && let Some(unpacked) = self.walked(&walk, query, question.ends).await
        {
            count(&self.counters.walked);
            let answer = Answer::pack(lower, &unpacked);
            self.write(&mut out, query, question, &answer, Ttl::Aged(0), false, None);
            return out;
        }
        match self.ask(index, &KeyRef::of(query).to_key()).await {
            Ok(given) => {
                let Given { entry, ttl, remembered, extended } = given;
                self.write(&mut out, query, question, &entry.answer, ttl, remembered, extended.as_ref());
                out
            }
            Err(nobody) => {
                self.fail(index, lower, query.qtype, &nobody.0);
                reply::code(query, code_of(&nobody.0), Some(&nobody.0))
            }
        }
    }

    /// Counts a failure, and says it when the block wants to know.
    fn fail(&self, site: usize, lower: &[u8], qtype: u16, why: &Extended) {
        count(&self.counters.failed);
        if self.sites[site].block.errors {
            let name = Name::from_wire(lower).map(|name| name.to_string()).unwrap_or_default();
            tracing::warn!(name, qtype, reason = why.text, "a question has no answer");
        }
    }

    /// Counts a hit, and asks anew when the answer is popular and near its end.
    fn note_hit(&self, site: usize, key: KeyRef<'_>, entry: &Entry, now: Instant) {
        let Some(store) = &self.sites[site].store else { return };
        let has_data = entry.answer.rcode == rcode::NOERROR && entry.answer.counts[0] > 0;
        let hits = if has_data { &store.uses.success } else { &store.uses.denial };
        hits.count();
        let Some(prefetch) = store.config.prefetch else { return };
        let millis = entry.millis(now);
        let gap = millis.saturating_sub(entry.last.swap(millis, Ordering::Relaxed));
        let hits = if u128::from(gap) > prefetch.gap.as_millis() {
            entry.hits.store(1, Ordering::Relaxed);
            1
        } else {
            entry.hits.fetch_add(1, Ordering::Relaxed) + 1
        };
        let left = entry.holds.saturating_sub(entry.age(now));
        if hits >= prefetch.hits && left * 100 <= entry.holds * u32::from(prefetch.percent) {
            // The next ones wait for a new count, so one journey is enough.
            entry.hits.store(0, Ordering::Relaxed);
            count(&store.uses.prefetched);
            drop(self.journey(site, &key.to_key()));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what is said, to whom, and how: each is one thing")]
    fn write(
        &self,
        out: &mut Vec<u8>,
        query: &Query<'_>,
        question: &Question<'_>,
        answer: &Answer,
        ttl: Ttl,
        remembered: bool,
        extended: Option<&Extended>,
    ) {
        let site = self.site(query.name.as_wire(), question.ends).map(|index| &self.sites[index].block);
        let limit = reply::limit(question.transport, query.edns, site.and_then(|block| block.bufsize));
        let rotate = if site.is_some_and(|block| block.loadbalance) { fastrand::usize(..) } else { 0 };
        reply::write(out, query, answer, Manner { ttl, limit, remembered, rotate, extended });
    }

    /// Looks at hosts files while the resolver lives.
    fn follow_hosts(self: &Arc<Self>) {
        for (index, site) in self.sites.iter().enumerate() {
            let Some((path, interval)) = site.hosts.as_ref().and_then(hosts::HostList::file) else { continue };
            let me = self.me.clone();
            let mut text = self.config.hosts.get(&path).cloned().unwrap_or_default();
            self.runtime.spawn(async move {
                loop {
                    tokio::time::sleep(interval).await;
                    let Some(resolver) = me.upgrade() else { return };
                    let Ok(new) = tokio::fs::read_to_string(&path).await else { continue };
                    if new != text
                        && let Some(hosts) = &resolver.sites[index].hosts
                    {
                        hosts.load(&new);
                        text = new;
                    }
                }
            });
        }
    }
}

/// A name that nobody is named for is refused; any other failure is one.
fn code_of(extended: &Extended) -> u16 {
    if extended.code == Extended::NOT_AUTHORITATIVE { rcode::REFUSED } else { rcode::SERVFAIL }
}
