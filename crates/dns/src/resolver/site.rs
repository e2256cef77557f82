//! A block at work: its rules, its memory, its upstreams.
//!
//! In: a block of the configuration and the files read for it. Out: the parts that answer for its zones.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::sync::Semaphore;

use super::answer::{Answer, Unpacked, shortest_ttl, soa_minimum};
use super::cache::{Entry, Key, KeyRef, Table};
use super::forward::{DEFAULT_CONCURRENT, Group};
use super::hosts::HostList;
use super::ledger::Ledger;
use super::limit::Limiter;
use super::load::Config;
use super::message::{Outgoing, rcode};
use super::stats::{Counters, Uses};
use super::stream::{Secured, connector};
use super::upstream::{Upstream, Usage};
use crate::config::{self, Block, Fallthrough, Forward, Name, Server, To};

/// The type of the probe's question.
const NS: u16 = 2;

/// Where a block at work has its counts.
#[derive(Clone, Copy)]
pub(super) struct Books<'a> {
    pub(super) counters: &'a Arc<Counters>,
    pub(super) ledger: &'a Ledger,
}

/// A block at work.
pub(super) struct Site {
    pub(super) zones: Vec<Name>,
    pub(super) block: Block,
    /// The addresses at which it is asked.
    ips: Vec<IpAddr>,
    pub(super) hosts: Option<HostList>,
    pub(super) limiter: Option<Limiter>,
    pub(super) store: Option<Arc<Store>>,
    pub(super) groups: Vec<Group>,
}

impl Site {
    /// A block at work; one among `known` that asks the same upstreams for the same names passes its memory on.
    pub(super) fn new(block: &Block, config: &Config, known: &[Self], books: Books<'_>) -> Self {
        let zones: Vec<Name> = block.keys.iter().map(|key| key.zone.clone()).collect();
        let hosts = block.hosts.as_ref().map(|hosts| {
            let text = hosts.file.as_ref().and_then(|file| config.hosts.get(file));
            HostList::new(hosts, &zones, text.map_or("", String::as_str))
        });
        Self {
            hosts,
            limiter: block.rate_limit.clone().map(|limit| Limiter::new(limit, (config.clock)())),
            store: block
                .cache
                .as_ref()
                .map(|cache| kept(block, config, known).unwrap_or_else(|| Arc::new(Store::new(cache)))),
            groups: block.forwards.iter().map(|forward| group(forward, config, books)).collect(),
            ips: block.ips().unwrap_or_default(),
            block: block.clone(),
            zones,
        }
    }

    /// Whether it has rules that change what is said to a question, whoever knows the answer.
    fn has_rules(&self) -> bool {
        let block = &self.block;
        let changed = !block.rewrites.is_empty() || !block.templates.is_empty() || self.hosts.is_some();
        changed || !block.acl.is_empty() || self.limiter.is_some()
    }

    /// How many labels of its zones cover a name, of those that are asked for at a door, if that matters; the site with the most
    /// answers.
    pub(super) fn depth(&self, lower: &[u8], door: Option<SocketAddr>) -> Option<usize> {
        let is_here = |key: &&config::Key| door.is_none_or(|at| key.port == at.port() && self.ips.contains(&at.ip()));
        let zones = self.block.keys.iter().filter(is_here).map(|key| &key.zone);
        zones.filter(|zone| zone.covers(lower)).map(Name::labels).max()
    }

    /// The memory for a name, if it has one.
    pub(super) fn store(&self, lower: &[u8]) -> Option<&Store> {
        let store = self.store.as_deref()?;
        let zones = &store.config.zones;
        (zones.is_empty() || zones.iter().any(|zone| zone.covers(lower))).then_some(store)
    }

    pub(super) fn group(&self, lower: &[u8]) -> Option<&Group> {
        self.groups.iter().find(|group| group.covers(lower))
    }
}

/// The block with the cluster's own zones.
pub(super) fn cluster(sites: &[Site]) -> Option<usize> {
    sites.iter().position(|site| site.block.kubernetes.is_some())
}

/// Whether a name of the cluster's own zones may be answered otherwise than by them: by rules of their block, or because
/// another block, or none, has a part of these zones, everywhere or at one door.
pub(super) fn rules_ours(sites: &[Site], doors: &[SocketAddr]) -> bool {
    let Some(own) = cluster(sites) else { return false };
    let site = &sites[own];
    let ours = site.block.kubernetes.as_ref().map_or(&[][..], |kubernetes| &kubernetes.zones);
    let meet = |zone: &Name| ours.iter().any(|own| own.covers(zone.as_wire()) || zone.covers(own.as_wire()));
    let others = sites.iter().enumerate().filter(|(index, _)| *index != own);
    let several = if doors.len() > 1 { doors } else { &[] };
    let doors = std::iter::once(None).chain(several.iter().copied().map(Some));
    site.has_rules()
        || doors.into_iter().any(|door| ours.iter().any(|zone| site.depth(zone.as_wire(), door).is_none()))
        || others.flat_map(|(_, site)| &site.zones).any(meet)
}

/// The memory of a block that was configured in the same way.
fn kept(block: &Block, config: &Config, known: &[Site]) -> Option<Arc<Store>> {
    let is_same = |site: &&Site| {
        let upstreams = |site: &Site| -> Vec<_> {
            site.groups.iter().flat_map(|group| &group.upstreams).map(|upstream| upstream.address).collect()
        };
        // Names from files are compared as what the files said.
        let now: Vec<_> =
            block.forwards.iter().flat_map(|forward| servers(forward, config)).map(|server| server.address).collect();
        site.block.keys == block.keys
            && site.block.bind == block.bind
            && site.block.cache == block.cache
            && format!("{:?}", site.block.forwards) == format!("{:?}", block.forwards)
            && upstreams(site) == now
    };
    known.iter().find(is_same)?.store.clone()
}

/// The upstreams that are named, by address or by file.
fn servers(forward: &Forward, config: &Config) -> Vec<Server> {
    let mut out: Vec<Server> = Vec::new();
    for to in &forward.to {
        match to {
            To::Server(server) => out.push(server.clone()),
            To::File(path) => {
                let listed = config.nameservers.get(path).into_iter().flatten();
                out.extend(listed.map(|address| Server::plain(*address)));
            }
        }
    }
    out
}

fn group(forward: &Forward, config: &Config, books: Books<'_>) -> Group {
    let usage = Usage {
        timeout: forward.read_timeout,
        force_stream: forward.force_tcp,
        max_fails: forward.max_fails,
        probe: Outgoing { recursion: forward.health_recursion, ..Outgoing::new(forward.health_domain.clone(), NS) },
        probe_interval: forward.health_check,
    };
    let upstream = |server: &Server| {
        let secured = server.tls.then(|| secured(server, forward, config));
        Upstream::new(server.address, secured, forward.expire, usage.clone(), books.ledger.of(server.address))
    };
    let concurrent = if forward.max_concurrent == 0 { DEFAULT_CONCURRENT } else { forward.max_concurrent };
    Group {
        from: forward.from.clone(),
        except: forward.except.clone(),
        upstreams: servers(forward, config).iter().map(upstream).collect(),
        policy: forward.policy,
        failfast: forward.failfast,
        turn: AtomicUsize::new(0),
        permits: Semaphore::new(concurrent.min(Semaphore::MAX_PERMITS)),
        counters: books.counters.clone(),
    }
}

fn secured(server: &Server, forward: &Forward, config: &Config) -> Result<Secured, String> {
    let client = config.tls_of(&forward.tls).ok_or("its TLS files were not read")?.clone()?;
    let name = match server.server_name.as_ref().or(forward.tls.server_name.as_ref()) {
        Some(name) => ServerName::try_from(name.clone()).map_err(|error| format!("{name}: {error}"))?,
        None => ServerName::IpAddress(IpAddr::into(server.address.ip())),
    };
    Ok(Secured { connector: connector(client), name })
}

/// What is remembered of a block's names.
pub(super) struct Store {
    pub(super) config: config::Cache,
    pub(super) success: Table,
    pub(super) denial: Table,
    pub(super) uses: Uses,
}

/// What is known of a question.
pub(super) enum Found {
    /// An answer that holds.
    Fresh(Arc<Entry>),
    /// One that does no longer, but may serve when nobody knows better.
    Stale(Arc<Entry>),
    Nothing,
}

impl Store {
    fn new(config: &config::Cache) -> Self {
        let (success, denial) = (Table::new(config.success.capacity), Table::new(config.denial.capacity));
        Self { config: config.clone(), success, denial, uses: Uses::default() }
    }

    pub(super) fn find(&self, key: KeyRef<'_>, now: Instant) -> Found {
        let success = self.success.get(key);
        if let Some(entry) = success.as_ref().filter(|entry| entry.is_fresh(now)) {
            return Found::Fresh(entry.clone());
        }
        let denial = self.denial.get(key);
        if let Some(entry) = denial.as_ref().filter(|entry| entry.is_fresh(now)) {
            return Found::Fresh(entry.clone());
        }
        let limit = self.config.serve_stale.unwrap_or_default();
        let usable = |entry: &Arc<Entry>| is_answer(&entry.answer) && entry.age(now) < entry.holds + limit;
        success.filter(usable).or_else(|| denial.filter(usable)).map_or(Found::Nothing, Found::Stale)
    }

    /// Remembers an answer, if it may be, with TTLs inside of the bounds.
    pub(super) fn remember(&self, key: &Key, mut unpacked: Unpacked, now: Instant) -> Arc<Entry> {
        let kind = kind_of(&unpacked, key.qtype);
        let holds = match kind {
            Kind::Success => bound(&mut unpacked, &self.config.success, &key.name),
            Kind::Denial => {
                limit_to_soa(&mut unpacked);
                bound(&mut unpacked, &self.config.denial, &key.name)
            }
            Kind::Failure => self.config.servfail,
            Kind::Other => Duration::ZERO,
        };
        let entry = Arc::new(Entry::new(Answer::pack(&key.name, &unpacked), now, holds));
        if !holds.is_zero() {
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

/// Whether it says that something is there, or is not; failures say neither.
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

/// An absence holds no longer than the SOA says (RFC 2308).
fn limit_to_soa(unpacked: &mut Unpacked) {
    let Some(minimum) = unpacked.soa().map(soa_minimum) else { return };
    for record in unpacked.sections.iter_mut().flatten() {
        record.ttl = record.ttl.min(minimum);
    }
}

/// Brings TTLs inside of the bounds and says how long the answer holds. Data that must not be kept (TTL 0) is not.
fn bound(unpacked: &mut Unpacked, keep: &config::Keep, lower: &[u8]) -> Duration {
    let shortest = shortest_ttl(&unpacked.sections).unwrap_or(0);
    if shortest == 0 || keep.capacity == 0 || is_disabled(&keep.disabled, lower) {
        return Duration::ZERO;
    }
    for record in unpacked.sections.iter_mut().flatten() {
        record.ttl = record.ttl.max(keep.shortest).min(keep.longest);
    }
    Duration::from_secs(u64::from(shortest.max(keep.shortest).min(keep.longest)))
}

fn is_disabled(disabled: &Fallthrough, lower: &[u8]) -> bool {
    disabled.covers(lower)
}
