//! Server block at run time: rules, cache and upstreams.
//!
//! In: a block of the configuration and its files. Out: the components that answer for its zones.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;

use super::answer::{Answer, Unpacked, shortest_ttl, soa_minimum};
use super::cache::{Entry, Key, KeyRef, Table};
use super::hosts::HostList;
use super::load::Config;
use super::message::{Outgoing, rcode};
use super::rate_limit::Limiter;
use super::stats::{CacheCounters, Counters};
use super::tcp::{TlsParams, connector};
use super::tls::TlsError;
use super::upstream::{Upstream, UpstreamSettings};
use super::upstream_group::{DEFAULT_CONCURRENT, UpstreamGroup};
use super::upstream_metrics::UpstreamMetricsRegistry;
use crate::config::{self, Block, Fallthrough, Forward, ForwardTarget, Name, Server};

/// QTYPE of health probes.
const NS: u16 = 2;

/// Metrics that blocks write to.
#[derive(Clone, Copy)]
pub(super) struct MetricHandles<'a> {
    pub(super) counters: &'a Arc<Counters>,
    pub(super) upstream_metrics: &'a UpstreamMetricsRegistry,
}

/// Server block at run time.
pub(super) struct ServerBlock {
    pub(super) zones: Vec<Name>,
    pub(super) block: Block,
    /// Addresses it listens on.
    ips: Vec<IpAddr>,
    pub(super) hosts: Option<HostList>,
    pub(super) limiter: Option<Limiter>,
    pub(super) block_cache: Option<Arc<BlockCache>>,
    pub(super) groups: Vec<UpstreamGroup>,
}

impl ServerBlock {
    /// Creates the block; a block of `known` with the same upstreams and names passes on its cache.
    pub(super) fn new(block: &Block, config: &Config, known: &[Self], metrics: MetricHandles<'_>) -> Self {
        let zones: Vec<Name> = block.keys.iter().map(|key| key.zone.clone()).collect();
        let hosts = block.hosts.as_ref().map(|hosts| {
            let text = hosts.file.as_ref().and_then(|file| config.hosts.get(file));
            HostList::new(hosts, &zones, text.map_or("", String::as_str))
        });
        Self {
            hosts,
            limiter: block.rate_limit.clone().map(|limit| Limiter::new(limit, (config.clock)())),
            block_cache: block
                .cache
                .as_ref()
                .map(|cache| reusable_cache(block, config, known).unwrap_or_else(|| Arc::new(BlockCache::new(cache)))),
            groups: block.forwards.iter().map(|forward| group(forward, config, metrics)).collect(),
            ips: block.ips().unwrap_or_default(),
            block: block.clone(),
            zones,
        }
    }

    /// Whether it has rules that may change answers of the cluster zones.
    fn has_rules(&self) -> bool {
        let block = &self.block;
        let changed = !block.rewrites.is_empty() || !block.templates.is_empty() || self.hosts.is_some();
        changed || !block.acl.is_empty() || self.limiter.is_some()
    }

    /// Number of labels of its longest zone that covers a name, among the keys of a listener if given. The block with
    /// the most labels answers.
    pub(super) fn depth(&self, lower: &[u8], listener: Option<SocketAddr>) -> Option<usize> {
        let is_here =
            |key: &&config::Key| listener.is_none_or(|at| key.port == at.port() && self.ips.contains(&at.ip()));
        let zones = self.block.keys.iter().filter(is_here).map(|key| &key.zone);
        zones.filter(|zone| zone.covers(lower)).map(Name::labels).max()
    }

    /// Cache for a name, if any.
    pub(super) fn block_cache(&self, lower: &[u8]) -> Option<&BlockCache> {
        let block_cache = self.block_cache.as_deref()?;
        let zones = &block_cache.config.zones;
        (zones.is_empty() || zones.iter().any(|zone| zone.covers(lower))).then_some(block_cache)
    }

    pub(super) fn group(&self, lower: &[u8]) -> Option<&UpstreamGroup> {
        self.groups.iter().find(|group| group.covers(lower))
    }
}

/// Index of the block with the `kubernetes` directive.
pub(super) fn cluster(server_blocks: &[ServerBlock]) -> Option<usize> {
    server_blocks.iter().position(|server_block| server_block.block.kubernetes.is_some())
}

/// Whether rules may change answers for names in the cluster zones: rules of their block, or another block (or none)
/// for a part of these zones, on all listeners or on one.
pub(super) fn has_cluster_rules(server_blocks: &[ServerBlock], listeners: &[SocketAddr]) -> bool {
    let Some(own) = cluster(server_blocks) else { return false };
    let server_block = &server_blocks[own];
    let cluster_zones = server_block.block.kubernetes.as_ref().map_or(&[][..], |kubernetes| &kubernetes.zones);
    let meet = |zone: &Name| cluster_zones.iter().any(|own| own.covers(zone.as_wire()) || zone.covers(own.as_wire()));
    let others = server_blocks.iter().enumerate().filter(|(index, _)| *index != own);
    let several = if listeners.len() > 1 { listeners } else { &[] };
    let listeners = std::iter::once(None).chain(several.iter().copied().map(Some));
    server_block.has_rules()
        || listeners
            .into_iter()
            .any(|listener| cluster_zones.iter().any(|zone| server_block.depth(zone.as_wire(), listener).is_none()))
        || others.flat_map(|(_, server_block)| &server_block.zones).any(meet)
}

/// Cache of a block with the same configuration.
fn reusable_cache(block: &Block, config: &Config, known: &[ServerBlock]) -> Option<Arc<BlockCache>> {
    let is_same = |server_block: &&ServerBlock| {
        let upstreams = |server_block: &ServerBlock| -> Vec<_> {
            server_block.groups.iter().flat_map(|group| &group.upstreams).map(|upstream| upstream.address).collect()
        };
        // Nameservers of files are compared by address.
        let now: Vec<_> =
            block.forwards.iter().flat_map(|forward| servers(forward, config)).map(|server| server.address).collect();
        server_block.block.keys == block.keys
            && server_block.block.bind == block.bind
            && server_block.block.cache == block.cache
            && format!("{:?}", server_block.block.forwards) == format!("{:?}", block.forwards)
            && upstreams(server_block) == now
    };
    known.iter().find(is_same)?.block_cache.clone()
}

/// Upstreams, by address or from files.
fn servers(forward: &Forward, config: &Config) -> Vec<Server> {
    let mut out: Vec<Server> = Vec::new();
    for to in &forward.to {
        match to {
            ForwardTarget::Server(server) => out.push(server.clone()),
            ForwardTarget::File(path) => {
                let listed = config.nameservers.get(path).into_iter().flatten();
                out.extend(listed.map(|address| Server::plain(*address)));
            }
        }
    }
    out
}

fn group(forward: &Forward, config: &Config, metrics: MetricHandles<'_>) -> UpstreamGroup {
    let usage = UpstreamSettings {
        timeout: forward.read_timeout,
        force_stream: forward.force_tcp,
        max_fails: forward.max_fails,
        probe: Outgoing { recursion: forward.health_recursion, ..Outgoing::new(forward.health_domain.clone(), NS) },
        probe_interval: forward.health_check,
    };
    let upstream = |server: &Server| {
        let secured = server.tls.then(|| secured(server, forward, config));
        Upstream::new(
            server.address,
            secured,
            forward.expire,
            usage.clone(),
            metrics.upstream_metrics.for_upstream(server.address),
        )
    };
    let concurrent = if forward.max_concurrent == 0 { DEFAULT_CONCURRENT } else { forward.max_concurrent };
    UpstreamGroup {
        from: forward.from.clone(),
        except: forward.except.clone(),
        upstreams: servers(forward, config).iter().map(upstream).collect(),
        policy: forward.policy,
        failfast: forward.failfast,
        turn: AtomicUsize::new(0),
        permits: Semaphore::new(concurrent.min(Semaphore::MAX_PERMITS)),
        counters: metrics.counters.clone(),
    }
}

fn secured(server: &Server, forward: &Forward, config: &Config) -> Result<TlsParams, Arc<TlsError>> {
    let client = config.tls_of(&forward.tls).ok_or(TlsError::NotLoaded)?.clone()?;
    let name = match server.server_name.as_ref().or(forward.tls.server_name.as_ref()) {
        Some(name) => ServerName::try_from(name.clone()).map_err(|error| TlsError::ServerName(name.clone(), error))?,
        None => ServerName::IpAddress(IpAddr::into(server.address.ip())),
    };
    Ok(TlsParams { connector: connector(client), name })
}

/// Cache of a server block.
pub(super) struct BlockCache {
    pub(super) config: config::Cache,
    pub(super) success: Table,
    pub(super) denial: Table,
    pub(super) counters: CacheCounters,
}

/// Result of a cache lookup.
pub(super) enum CacheLookup {
    /// Answer within its TTL.
    Fresh(Arc<Entry>),
    /// Expired answer that may be served if upstreams fail.
    Stale(Arc<Entry>),
    Miss,
}

impl BlockCache {
    fn new(config: &config::Cache) -> Self {
        let (success, denial) = (Table::new(config.success.capacity), Table::new(config.denial.capacity));
        Self { config: config.clone(), success, denial, counters: CacheCounters::default() }
    }

    pub(super) fn find(&self, key: KeyRef<'_>, now: Instant) -> CacheLookup {
        let success = self.success.get(key);
        if let Some(entry) = success.as_ref().filter(|entry| entry.is_fresh(now)) {
            return CacheLookup::Fresh(entry.clone());
        }
        let denial = self.denial.get(key);
        if let Some(entry) = denial.as_ref().filter(|entry| entry.is_fresh(now)) {
            return CacheLookup::Fresh(entry.clone());
        }
        let limit = self.config.serve_stale.unwrap_or_default();
        let usable = |entry: &Arc<Entry>| is_answer(&entry.answer) && entry.age(now) < entry.ttl + limit;
        success.filter(usable).or_else(|| denial.filter(usable)).map_or(CacheLookup::Miss, CacheLookup::Stale)
    }

    /// Caches an answer if allowed, with TTLs within bounds.
    pub(super) fn insert(&self, key: &Key, mut unpacked: Unpacked, now: Instant) -> Arc<Entry> {
        let kind = kind_of(&unpacked, key.qtype);
        let ttl = match kind {
            Kind::Success => bound(&mut unpacked, &self.config.success, &key.name),
            Kind::Denial => {
                limit_to_soa(&mut unpacked);
                bound(&mut unpacked, &self.config.denial, &key.name)
            }
            Kind::Failure => self.config.servfail,
            Kind::Other => Duration::ZERO,
        };
        let entry = Arc::new(Entry::new(Answer::pack(&key.name, &unpacked), now, ttl));
        if !ttl.is_zero() {
            let (into, other) = match kind {
                Kind::Success => (&self.success, Some(&self.denial)),
                Kind::Denial => (&self.denial, Some(&self.success)),
                Kind::Failure | Kind::Other => (&self.denial, None),
            };
            into.insert(key.clone(), entry.clone());
            if let Some(other) = other {
                other.remove(key.as_ref());
            }
        }
        entry
    }
}

/// Whether it is a positive or negative answer rather than a failure.
pub(super) fn is_answer(answer: &Answer) -> bool {
    matches!(answer.rcode, rcode::NOERROR | rcode::NXDOMAIN)
}

enum Kind {
    Success,
    Denial,
    Failure,
    Other,
}

fn kind_of(unpacked: &Unpacked, qtype: u16) -> Kind {
    match unpacked.rcode {
        _ if unpacked.truncated => Kind::Other,
        rcode::NOERROR if unpacked.has_data(qtype) => Kind::Success,
        rcode::NOERROR | rcode::NXDOMAIN if unpacked.soa().is_some() => Kind::Denial,
        rcode::SERVFAIL | rcode::NOTIMP => Kind::Failure,
        _ => Kind::Other,
    }
}

/// Limits the TTL of a negative answer to the SOA MINIMUM (RFC 2308).
fn limit_to_soa(unpacked: &mut Unpacked) {
    let Some(minimum) = unpacked.soa().map(soa_minimum) else { return };
    for record in unpacked.sections.iter_mut().flatten() {
        record.ttl = record.ttl.min(minimum);
    }
}

/// Applies TTL bounds and returns how long the answer may be cached. Answers with TTL 0 are not cached.
fn bound(unpacked: &mut Unpacked, keep: &config::CacheLimits, lower: &[u8]) -> Duration {
    let min_ttl = shortest_ttl(&unpacked.sections).unwrap_or(0);
    if min_ttl == 0 || keep.capacity == 0 || is_disabled(&keep.disabled, lower) {
        return Duration::ZERO;
    }
    for record in unpacked.sections.iter_mut().flatten() {
        record.ttl = record.ttl.max(keep.min_ttl).min(keep.max_ttl);
    }
    Duration::from_secs(u64::from(min_ttl.max(keep.min_ttl).min(keep.max_ttl)))
}

fn is_disabled(disabled: &Fallthrough, lower: &[u8]) -> bool {
    disabled.covers(lower)
}
