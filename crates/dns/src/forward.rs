//! Interface to whatever resolves names outside the cluster zones.
//!
//! In: a query as received. Out: a complete reply, at once from the cache or later from upstreams; or only the records
//! of a name, for a CNAME target outside our zones; or the decision of configured rules on a query for a name in our
//! zones. [`NoForwarder`] is used if forwarding is not configured.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::wire::{Query, Record, Reply, UDP_MIN, rcode, write_error};

/// Transport of a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// UDP datagram.
    Udp,
    /// TCP connection.
    Tcp,
}

/// Source of a query and the listener that received it; server blocks are selected by listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientAddr {
    /// IP address of the client.
    pub ip: IpAddr,
    /// Port of the client.
    pub port: u16,
    /// Listen address as configured, which may be unspecified (`0.0.0.0`).
    pub listener: SocketAddr,
}

impl ClientAddr {
    /// Client at `peer` that queries the listener at `at`.
    #[must_use]
    pub fn new(peer: SocketAddr, at: SocketAddr) -> Self {
        Self { ip: peer.ip().to_canonical(), port: peer.port(), listener: at }
    }
}

impl From<IpAddr> for ClientAddr {
    /// Internal query that was not received by a listener.
    fn from(ip: IpAddr) -> Self {
        Self { ip, port: 0, listener: SocketAddr::from(([0, 0, 0, 0], 0)) }
    }
}

/// Query that is forwarded, or subject to rules.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Message as received.
    pub message: &'a [u8],
    /// Client.
    pub from: ClientAddr,
    /// Transport.
    pub transport: Transport,
}

/// Result of resolving a name upstream.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// RCODE.
    pub rcode: u16,
    /// Whether records are missing.
    pub truncated: bool,
    /// Answer section.
    pub records: Vec<Record>,
}

/// Decision of rules on a query for a name in our zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleDecision {
    /// No rule applies: answer from the snapshot.
    Pass,
    /// The reply is in `out`; empty means that no reply is sent.
    Reply,
    /// Forward the query.
    Forward,
}

/// Boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Resolves names outside the cluster zones.
pub trait Forwarder: Send + Sync {
    /// Answers from the cache into `out`; false if upstreams must be queried.
    fn cached(&self, request: &Request<'_>, now: Instant, out: &mut Vec<u8>) -> bool;

    /// Resolves a query within time limits. An empty reply means that no reply is sent.
    fn resolve<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Vec<u8>>;

    /// Records of a name in wire form.
    fn lookup<'a>(&'a self, name: &'a [u8], qtype: u16, from: ClientAddr) -> BoxFuture<'a, Lookup>;

    /// Whether rules exist for names in our zones. Constant; read once.
    fn has_rules(&self) -> bool {
        false
    }

    /// Applies the rules to a query for a name in our zones, whose answer is in `out` and is replaced if a rule
    /// matches.
    fn apply_rules(&self, _question: &Request<'_>, _now: Instant, _out: &mut Vec<u8>) -> RuleDecision {
        RuleDecision::Pass
    }

    /// Whether queries are logged. Constant; read once.
    fn logs_queries(&self) -> bool {
        false
    }

    /// Logs a query and its reply (empty if there is none), if the configuration selects it.
    fn log_query(&self, _question: &Request<'_>, _reply: &[u8], _took: Duration) {}

    /// Whether the search path of the client is expanded for this query (`autopath`), so that NXDOMAIN in our zones is
    /// not final.
    fn expands_search_path(&self, _question: &Request<'_>) -> bool {
        false
    }
}

/// Refuses all queries for names outside our zones.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoForwarder;

impl Forwarder for NoForwarder {
    fn cached(&self, request: &Request<'_>, _now: Instant, out: &mut Vec<u8>) -> bool {
        match Query::parse(request.message) {
            Ok(query) => Reply::begin(out, &query, UDP_MIN).finish(rcode::REFUSED, 0),
            Err(error) => return write_error(request.message, error, out),
        }
        true
    }

    fn resolve<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Vec<u8>> {
        let mut out = Vec::new();
        self.cached(&request, Instant::now(), &mut out);
        Box::pin(std::future::ready(out))
    }

    fn lookup<'a>(&'a self, _name: &'a [u8], _qtype: u16, _from: ClientAddr) -> BoxFuture<'a, Lookup> {
        Box::pin(std::future::ready(Lookup { rcode: rcode::REFUSED, ..Lookup::default() }))
    }
}
