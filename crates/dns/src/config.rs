//! Configuration of the DNS server.
//!
//! In: a Corefile parsed by [`crate::corefile`], or flags. Out: settings of the zones and the resolver. Each server
//! block answers for its zones; the block with the longest matching zone answers a query. Absent directives are off.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

mod listen;
mod name;
mod reverse;
mod zone_config;

pub use listen::BindError;
pub use name::{BadName, Name};
pub use reverse::{address_of, reverse_name, reverse_zones};

/// Complete configuration.
#[derive(Clone, Default, Debug)]
pub struct Config {
    /// Server blocks in file order.
    pub blocks: Vec<Block>,
}

/// Server block.
#[derive(Clone, Default, Debug)]
pub struct Block {
    /// Line it starts at.
    pub line: usize,
    /// Zones and ports.
    pub keys: Vec<Key>,
    /// Addresses (or interfaces) to listen on; empty for all.
    pub bind: Vec<String>,
    /// Addresses (or interfaces) not to listen on.
    pub bind_except: Vec<String>,
    /// `kubernetes`
    pub kubernetes: Option<Kubernetes>,
    /// `forward`; the first that matches the name is used.
    pub forwards: Vec<Forward>,
    /// `cache`
    pub cache: Option<Cache>,
    /// `hosts`
    pub hosts: Option<Hosts>,
    /// `loop`: detect upstreams that forward back to this server.
    pub detect_loop: bool,
    /// `rewrite`, in order.
    pub rewrites: Vec<Rewrite>,
    /// `template`, in order.
    pub templates: Vec<Template>,
    /// `autopath`
    pub autopath: Option<Autopath>,
    /// `acl`, in order.
    pub acl: Vec<Acl>,
    /// `ratelimit`
    pub rate_limit: Option<RateLimit>,
    /// `bufsize`: largest UDP reply in bytes.
    pub bufsize: Option<u16>,
    /// `log`
    pub log: Vec<Log>,
    /// `errors`: log failures.
    pub errors: bool,
    /// `/health`
    pub health: Option<Health>,
    /// `/ready`
    pub ready: Option<SocketAddr>,
    /// `/metrics`
    pub prometheus: Option<SocketAddr>,
    /// `loadbalance`: rotate address records.
    pub loadbalance: bool,
    /// `reload`
    pub reload: Option<Reload>,
}

impl Block {
    /// Names of the directives that are present.
    pub fn directives(&self) -> impl Iterator<Item = &'static str> + use<> {
        let has = [
            ("acl", !self.acl.is_empty()),
            ("autopath", self.autopath.is_some()),
            ("bind", !self.bind.is_empty()),
            ("bufsize", self.bufsize.is_some()),
            ("cache", self.cache.is_some()),
            ("errors", self.errors),
            ("forward", !self.forwards.is_empty()),
            ("health", self.health.is_some()),
            ("hosts", self.hosts.is_some()),
            ("kubernetes", self.kubernetes.is_some()),
            ("loadbalance", self.loadbalance),
            ("log", !self.log.is_empty()),
            ("loop", self.detect_loop),
            ("prometheus", self.prometheus.is_some()),
            ("ratelimit", self.rate_limit.is_some()),
            ("ready", self.ready.is_some()),
            ("reload", self.reload.is_some()),
            ("rewrite", !self.rewrites.is_empty()),
            ("template", !self.templates.is_empty()),
        ];
        has.into_iter().filter(|(_, has)| *has).map(|(name, _)| name)
    }
}

/// Zone and port of a server block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Zone.
    pub zone: Name,
    /// Port.
    pub port: u16,
}

/// `kubernetes`: the cluster zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kubernetes {
    /// Zones; address ranges are converted to reverse zones. At least one is a forward zone.
    pub zones: Vec<Name>,
    /// Which Pod names resolve.
    pub pods: Pods,
    /// Whether endpoints without a hostname are named after their Pod.
    pub endpoint_pod_names: bool,
    /// TTL of records in seconds.
    pub ttl: u32,
    /// Namespaces served; empty for all.
    pub namespaces: Vec<String>,
    /// Label selector of Services, EndpointSlices and Pods.
    pub labels: Option<String>,
    /// Label selector of Namespaces.
    pub namespace_labels: Option<String>,
    /// Names that are forwarded if they do not exist.
    pub fallthrough: Fallthrough,
    /// Whether a Service without ready endpoints does not exist.
    pub ignore_empty_service: bool,
    /// Whether EndpointSlices are not watched.
    pub noendpoints: bool,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            zones: Vec::new(),
            pods: Pods::Disabled,
            endpoint_pod_names: false,
            ttl: 5,
            namespaces: Vec::new(),
            labels: None,
            namespace_labels: None,
            fallthrough: Fallthrough::Never,
            ignore_empty_service: false,
            noendpoints: false,
        }
    }
}

/// Which Pod names (`10-0-0-1.namespace.pod`) resolve.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Pods {
    /// None.
    #[default]
    Disabled,
    /// Every address in an existing namespace.
    Insecure,
    /// Addresses of existing Pods.
    Verified,
}

/// Names passed to the next plugin if there is no answer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Fallthrough {
    /// None.
    #[default]
    Never,
    /// All.
    Always,
    /// Names below these zones.
    Zones(Vec<Name>),
}

impl Fallthrough {
    /// Whether a lower-cased name in wire form falls through.
    #[must_use]
    pub fn covers(&self, lower: &[u8]) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Zones(zones) => zones.iter().any(|zone| zone.covers(lower)),
        }
    }
}

/// `forward`: upstreams for the names below a zone.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Zone.
    pub from: Name,
    /// Upstreams.
    pub to: Vec<ForwardTarget>,
    /// Zones that are excluded.
    pub except: Vec<Name>,
    /// Selection policy.
    pub policy: Policy,
    /// Maximum number of concurrent queries; 0 for the default.
    pub max_concurrent: usize,
    /// Interval of health probes after a failure.
    pub health_check: Duration,
    /// Name that probes query.
    pub health_domain: Name,
    /// Whether probes set the RD flag.
    pub health_recursion: bool,
    /// Consecutive failures after which an upstream is down; 0 for never.
    pub max_fails: u32,
    /// Idle timeout of connections.
    pub expire: Duration,
    /// Timeout of one attempt.
    pub read_timeout: Duration,
    /// Use TCP even if the query came by UDP.
    pub force_tcp: bool,
    /// Use UDP even if the query came by TCP.
    pub prefer_udp: bool,
    /// Fail at once if all upstreams are down.
    pub failfast: bool,
    /// TLS settings.
    pub tls: Tls,
}

impl Forward {
    /// Forwards names below `from` with default settings.
    #[must_use]
    pub fn new(from: Name, to: Vec<ForwardTarget>) -> Self {
        Self {
            from,
            to,
            except: Vec::new(),
            policy: Policy::Random,
            max_concurrent: 0,
            health_check: Duration::from_millis(500),
            health_domain: Name::root(),
            health_recursion: true,
            max_fails: 2,
            expire: Duration::from_secs(10),
            read_timeout: Duration::from_secs(2),
            force_tcp: false,
            prefer_udp: false,
            failfast: false,
            tls: Tls::default(),
        }
    }
}

/// Upstream as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ForwardTarget {
    /// Nameservers of a resolv.conf.
    File(PathBuf),
    /// Server.
    Server(Server),
}

/// Upstream server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Server {
    /// Address and port.
    pub address: SocketAddr,
    /// Whether it is queried over TLS.
    pub tls: bool,
    /// Server name for certificate verification; the IP address if `None`.
    pub server_name: Option<String>,
}

impl Server {
    /// Server without TLS.
    #[must_use]
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: false, server_name: None }
    }
}

/// TLS files of `forward`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tls {
    /// Client certificate and key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// CA bundle; the host's if `None`.
    pub authority: Option<PathBuf>,
    /// Server name for certificate verification of all upstreams.
    pub server_name: Option<String>,
}

/// Order in which upstreams are tried.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// Random, preferring lower latency.
    #[default]
    Random,
    /// Round robin.
    RoundRobin,
    /// As written.
    Sequential,
}

/// `cache`
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// Zones; empty for those of the block.
    pub zones: Vec<Name>,
    /// Positive answers.
    pub success: CacheLimits,
    /// Negative answers.
    pub denial: CacheLimits,
    /// Prefetch settings.
    pub prefetch: Option<Prefetch>,
    /// How long expired answers may be served if upstreams fail.
    pub serve_stale: Option<Duration>,
    /// Whether upstreams are queried before a stale answer is served.
    pub stale_verify: bool,
    /// TTL of cached SERVFAIL answers.
    pub servfail: Duration,
    /// Whether cached answers keep their original TTL.
    pub keep_ttl: bool,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            zones: Vec::new(),
            success: CacheLimits { capacity: 9984, max_ttl: 3600, min_ttl: 5, disabled: Fallthrough::Never },
            denial: CacheLimits { capacity: 9984, max_ttl: 1800, min_ttl: 5, disabled: Fallthrough::Never },
            prefetch: None,
            serve_stale: Some(Duration::from_secs(3600)),
            stale_verify: true,
            servfail: Duration::ZERO,
            keep_ttl: false,
        }
    }
}

/// Capacity and TTL bounds of a cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheLimits {
    /// Maximum number of answers.
    pub capacity: usize,
    /// Maximum TTL in seconds.
    pub max_ttl: u32,
    /// Minimum TTL in seconds.
    pub min_ttl: u32,
    /// Zones that are not cached.
    pub disabled: Fallthrough,
}

/// Prefetching of popular answers before they expire.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prefetch {
    /// Number of hits required,
    pub hits: u32,
    /// at most this far apart,
    pub gap: Duration,
    /// when this percentage of the TTL is left.
    pub percent: u8,
}

/// `hosts`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// File in the format of `/etc/hosts`.
    pub file: Option<PathBuf>,
    /// Inline entries.
    pub entries: Vec<(IpAddr, Vec<Name>)>,
    /// Zones; empty for those of the block.
    pub zones: Vec<Name>,
    /// TTL of records in seconds.
    pub ttl: u32,
    /// Whether PTR queries are answered.
    pub reverse: bool,
    /// Reload interval of the file; zero for never.
    pub reload: Duration,
    /// Names that fall through if there is no entry.
    pub fallthrough: Fallthrough,
}

/// `rewrite`: change of queries and of their answers.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Whether later rules apply to the changed query (`continue`).
    pub continues: bool,
    /// The change.
    pub change: Change,
}

/// Change of a rewrite rule.
#[derive(Clone, Debug)]
pub enum Change {
    /// Query name.
    Name {
        /// Names it applies to.
        matching: NameMatch,
        /// New name (with `{1}` for groups of a regex), prefix, suffix or substring.
        to: String,
        /// Rewrite of names in the answer.
        answer: AnswerRewrite,
    },
    /// TTL of answers.
    Ttl {
        /// Names it applies to.
        matching: NameMatch,
        /// Minimum in seconds.
        min: u32,
        /// Maximum in seconds.
        max: u32,
    },
}

/// Condition on a name.
#[derive(Clone, Debug)]
pub enum NameMatch {
    /// Equal.
    Exact(Name),
    /// Prefix.
    Prefix(String),
    /// Suffix.
    Suffix(String),
    /// Substring.
    Substring(String),
    /// Regular expression.
    Regex(regex::Regex),
}

/// Rewrite of names in an answer.
#[derive(Clone, Debug, Default)]
pub enum AnswerRewrite {
    /// Restore the query name as owner name only.
    #[default]
    Question,
    /// Apply the reverse of the rule to all names.
    Auto,
    /// Explicit rules, in order.
    Rules(Vec<AnswerRule>),
}

/// Rewrite rule for names in an answer.
#[derive(Clone, Debug)]
pub struct AnswerRule {
    /// Names it applies to.
    pub from: regex::Regex,
    /// New name, with `{1}` for groups.
    pub to: String,
    /// Whether it applies to names in RDATA (CNAME, SRV, …) instead of owner names.
    pub value: bool,
}

/// `template`: fixed answer.
#[derive(Clone, Debug)]
pub struct Template {
    /// Class; `None` for any.
    pub class: Option<u16>,
    /// Type; `None` for any.
    pub qtype: Option<u16>,
    /// Zones; empty for those of the block.
    pub zones: Vec<Name>,
    /// Name patterns, one of which must match; empty for all.
    pub matching: Vec<regex::Regex>,
    /// RCODE of the answer.
    pub rcode: u8,
    /// Extended DNS error of the answer.
    pub extended_error: Option<(u16, String)>,
    /// Names that fall through if no pattern matches.
    pub fallthrough: Fallthrough,
}

/// `autopath`: server-side search path expansion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Autopath {
    /// Zones; empty for those of the block.
    pub zones: Vec<Name>,
    /// resolv.conf with the search path; `None` to derive it from the client's Pod.
    pub file: Option<PathBuf>,
}

/// `acl` rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    /// Zones; empty for those of the block.
    pub zones: Vec<Name>,
    /// Action.
    pub action: Action,
    /// Query types; empty for all.
    pub qtypes: Vec<u16>,
    /// Client networks; empty for all.
    pub networks: Vec<IpNet>,
}

/// `ratelimit`: UDP response rate limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Replies per second to one client (an IPv4 address or an IPv6 /64).
    pub per_second: u32,
    /// Burst.
    pub burst: u32,
    /// Exempt networks.
    pub exempt: Vec<IpNet>,
}

/// Action of an `acl` rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Answer.
    Allow,
    /// REFUSED.
    Block,
    /// Empty NOERROR reply.
    Filter,
    /// No reply.
    Drop,
}

/// `log`: queries that are logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// Zones.
    pub names: Vec<Name>,
    /// Result classes.
    pub classes: Vec<LogClass>,
}

/// Result class of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogClass {
    /// All.
    All,
    /// Answers with data.
    Success,
    /// NODATA and NXDOMAIN.
    Denial,
    /// Failures.
    Error,
}

/// `health`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Listen address.
    pub address: SocketAddr,
    /// How long queries are answered after a termination signal.
    pub lameduck: Duration,
}

/// `reload`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reload {
    /// Interval.
    pub interval: Duration,
    /// Maximum deviation from the interval.
    pub jitter: Duration,
}
