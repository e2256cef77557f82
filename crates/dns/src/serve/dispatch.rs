//! Dispatch of a query: answered at once, or deferred.
//!
//! In: a query and the active [`Handler`] (snapshot and forwarder, replaced together). Out: a reply, or what to wait
//! for; later the reply. Used by UDP and TCP listeners, so that both behave the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::answer::{CnameChain, Outcome, Scratch};
use crate::forward::{Forwarder, Request, RuleDecision};
use crate::metrics::Observation;
use crate::snapshot::ZoneSnapshot;
use crate::wire::rcode;

/// Active snapshot and forwarder.
pub(super) struct Handler {
    snapshot: Arc<ZoneSnapshot>,
    forwarder: Arc<dyn Forwarder>,
    /// Cached [`Forwarder::has_rules`].
    has_rules: bool,
    /// Cached [`Forwarder::logs_queries`].
    pub(super) logs: bool,
}

/// Result of dispatching a query.
pub(super) enum Dispatch {
    /// The reply is written; empty if a rule drops the query.
    Reply,
    /// Not a query: no reply.
    Drop,
    /// The query must wait.
    Deferred(Wait),
}

/// What a query waits for.
pub(super) enum Wait {
    /// Forwarder.
    Forward,
    /// Forwarder, for the CNAME target outside our zones.
    FollowCname(Box<CnameChain>),
    /// Readiness of the snapshot; the SERVFAIL reply is written already.
    Ready,
}

impl Handler {
    pub(super) fn new(snapshot: Arc<ZoneSnapshot>, forwarder: Arc<dyn Forwarder>) -> Self {
        let (has_rules, logs) = (forwarder.has_rules(), forwarder.logs_queries());
        Self { snapshot, forwarder, has_rules, logs }
    }

    /// Logs a query and its reply, if query logging is enabled.
    pub(super) fn log(&self, request: &Request<'_>, reply: &[u8], duration: Duration) {
        if self.logs {
            self.forwarder.log_query(request, reply, duration);
        }
    }

    /// Answers without waiting, if possible.
    #[inline]
    pub(super) fn answer(
        &self,
        request: &Request<'_>,
        scratch: &mut Scratch,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> Dispatch {
        let outcome = self.snapshot.answer(request.message, request.transport, scratch, out);
        match &outcome {
            Outcome::Forward => return self.forward(request, now, out),
            Outcome::Drop => return Dispatch::Drop,
            // The forwarder expands the search path and applies rules to each of its names.
            Outcome::Reply if self.expands_search_path(request, out) => return Dispatch::Deferred(Wait::Forward),
            Outcome::Reply | Outcome::FollowCname(_) | Outcome::NotReady => {}
        }
        if self.has_rules && scratch.labels.zone.is_some() {
            match self.forwarder.apply_rules(request, now, out) {
                RuleDecision::Pass => {}
                RuleDecision::Reply => return Dispatch::Reply,
                RuleDecision::Forward => return self.forward(request, now, out),
            }
        }
        match outcome {
            Outcome::FollowCname(chain) => Dispatch::Deferred(Wait::FollowCname(chain)),
            Outcome::NotReady => Dispatch::Deferred(Wait::Ready),
            Outcome::Reply | Outcome::Drop | Outcome::Forward => Dispatch::Reply,
        }
    }

    fn forward(&self, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> Dispatch {
        out.clear();
        if self.forwarder.cached(request, now, out) { Dispatch::Reply } else { Dispatch::Deferred(Wait::Forward) }
    }

    /// Whether an NXDOMAIN reply is the start of a search path that is expanded here.
    fn expands_search_path(&self, request: &Request<'_>, reply: &[u8]) -> bool {
        Observation::rcode_of(reply) == rcode::NXDOMAIN && self.forwarder.expands_search_path(request)
    }

    /// Answers a deferred query. Before readiness it waits until `hold` after its arrival at most: most servers are
    /// ready sooner, and clients retry only after seconds.
    pub(super) async fn wait(
        &self,
        request: Request<'_>,
        mut wait: Wait,
        came: Instant,
        readiness_timeout: Duration,
    ) -> Vec<u8> {
        let mut out = Vec::new();
        if matches!(wait, Wait::Ready) {
            // `answer` checks readiness again.
            let _ = timeout_at((came + readiness_timeout).into(), self.snapshot.wait_ready()).await;
            let mut scratch = Scratch::new(fastrand::u32(..));
            match self.answer(&request, &mut scratch, Instant::now(), &mut out) {
                Dispatch::Reply | Dispatch::Deferred(Wait::Ready) => return out,
                Dispatch::Drop => return Vec::new(),
                Dispatch::Deferred(next) => wait = next,
            }
        }
        let Wait::FollowCname(chain) = wait else { return self.forwarder.resolve(request).await };
        let found = self.forwarder.lookup(chain.target(), chain.qtype, request.from).await;
        self.snapshot.finish_cname(request.message, request.transport, &chain, &found, &mut out);
        out
    }
}
