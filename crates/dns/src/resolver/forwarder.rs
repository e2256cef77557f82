//! [`Forwarder`] implementation of the resolver, and the cluster zones as the resolver's [`LocalZones`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LocalAnswer, LocalZones, Resolver};
use crate::answer::{CnameChain, Outcome, Scratch};
use crate::config::Name;
use crate::forward::{BoxFuture, ClientAddr, Forwarder, Lookup, Request, RuleDecision, Transport};
use crate::snapshot::ZoneSnapshot;
use crate::wire::rcode;

impl Forwarder for Resolver {
    fn cached(&self, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> bool {
        Self::cached(self, request, now, out)
    }

    fn resolve<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Vec<u8>> {
        let me = self.me.upgrade();
        Box::pin(async move {
            match me {
                Some(me) => Self::resolve(&me, request).await,
                // The resolver is being dropped.
                None => Vec::new(),
            }
        })
    }

    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, from: ClientAddr) -> BoxFuture<'a, Lookup> {
        let me = self.me.upgrade();
        Box::pin(async move {
            match me {
                Some(me) => Self::lookup(&me, name, qtype, from).await,
                None => Lookup { rcode: rcode::SERVFAIL, ..Lookup::default() },
            }
        })
    }

    fn has_rules(&self) -> bool {
        self.has_cluster_rules
    }

    fn apply_rules(&self, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> RuleDecision {
        self.ruling(request, now, out)
    }

    fn logs_queries(&self) -> bool {
        self.logs
    }

    fn log_query(&self, request: &Request<'_>, reply: &[u8], record_latency: Duration) {
        self.log_question(request, reply, record_latency);
    }

    fn expands_search_path(&self, request: &Request<'_>) -> bool {
        self.expands_search_path && self.has_search_path(request)
    }
}

/// Cluster zones, for rewrite targets and search paths.
pub struct ClusterZones {
    /// Records.
    pub snapshot: Arc<ZoneSnapshot>,
    /// Domains after the namespace of a Pod in its search path: those of the cluster, then those of the host.
    pub domains: Vec<Name>,
}

impl LocalZones for ClusterZones {
    fn answer(&self, message: &[u8]) -> LocalAnswer {
        let (mut scratch, mut out) = (Scratch::new(fastrand::u32(..)), Vec::new());
        // Unlimited size: the reply is truncated when it is sent.
        match self.snapshot.answer(message, Transport::Tcp, &mut scratch, &mut out) {
            Outcome::Reply | Outcome::NotReady => LocalAnswer::Reply(out),
            Outcome::FollowCname(chain) => LocalAnswer::Cname(chain),
            Outcome::Drop | Outcome::Forward => LocalAnswer::NotLocal,
        }
    }

    fn finish_cname(&self, message: &[u8], chain: &CnameChain, found: &Lookup) -> Vec<u8> {
        let mut out = Vec::new();
        self.snapshot.finish_cname(message, Transport::Tcp, chain, found, &mut out);
        out
    }

    fn search_path(&self, client: IpAddr) -> Option<Vec<Name>> {
        let namespace = self.snapshot.namespace_of(client)?;
        let zone = self.domains.first()?;
        let own = Name::parse(&format!("{namespace}.svc.{zone}")).ok()?;
        let services = Name::parse(&format!("svc.{zone}")).ok()?;
        Some([own, services].into_iter().chain(self.domains.iter().cloned()).collect())
    }
}
