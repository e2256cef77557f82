//! The configuration of the DNS server, as plain values.
//!
//! In: a Corefile read by [`crate::corefile`], or flags. Out: what the zones and the resolver are told. A block answers for
//! its zones; of all blocks the one with the longest zone that covers a name answers for it. What is absent is off.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

mod name;
mod ours;
mod places;
mod reverse;

pub use name::{BadName, Name};
pub use reverse::{address_of, reverse_name, reverse_zones};

/// Everything.
#[derive(Clone, Default, Debug)]
pub struct Config {
    /// The server blocks, as written.
    pub blocks: Vec<Block>,
}

/// What is done for the names of some zones.
#[derive(Clone, Default, Debug)]
pub struct Block {
    /// The line it begins at.
    pub line: usize,
    /// The names it answers for, and on which port.
    pub keys: Vec<Key>,
    /// Addresses (or interfaces) to listen on; none for all.
    pub bind: Vec<String>,
    /// Addresses (or interfaces) not to listen on.
    pub bind_except: Vec<String>,
    /// The cluster's own zones.
    pub kubernetes: Option<Kubernetes>,
    /// Whom to ask; the first that fits does it.
    pub forwards: Vec<Forward>,
    /// Answers are remembered.
    pub cache: Option<Cache>,
    /// Addresses by hand.
    pub hosts: Option<Hosts>,
    /// Whether upstreams that lead back to us are looked for.
    pub detect_loop: bool,
    /// Changes to questions and answers, in order.
    pub rewrites: Vec<Rewrite>,
    /// Answers by rule, in order.
    pub templates: Vec<Template>,
    /// The search path is walked here.
    pub autopath: Option<Autopath>,
    /// Who may ask what, in order.
    pub acl: Vec<Acl>,
    /// How often one client is answered.
    pub rate_limit: Option<RateLimit>,
    /// The largest UDP answer.
    pub bufsize: Option<u16>,
    /// Questions are logged.
    pub log: Vec<Log>,
    /// Failures are logged.
    pub errors: bool,
    /// `/health`
    pub health: Option<Health>,
    /// `/ready`
    pub ready: Option<SocketAddr>,
    /// `/metrics`
    pub prometheus: Option<SocketAddr>,
    /// Whether addresses of an answer are shuffled.
    pub loadbalance: bool,
    /// How often the file is looked at.
    pub reload: Option<Reload>,
}

impl Block {
    /// The names of the directives that it has.
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

/// A zone and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The zone.
    pub zone: Name,
    /// The port.
    pub port: u16,
}

/// The cluster's own zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kubernetes {
    /// The zones; address ranges are already reverse zones. At least one is none.
    pub zones: Vec<Name>,
    /// Whether names of Pods resolve.
    pub pods: Pods,
    /// Whether endpoints are called after their Pods.
    pub endpoint_pod_names: bool,
    /// Seconds that records may be kept.
    pub ttl: u32,
    /// Only these namespaces; none for all.
    pub namespaces: Vec<String>,
    /// Only objects with these labels (a selector).
    pub labels: Option<String>,
    /// Only namespaces with these labels (a selector).
    pub namespace_labels: Option<String>,
    /// For which names the next one is asked when we have nothing.
    pub fallthrough: Fallthrough,
    /// Whether a Service without ready endpoints has no name.
    pub ignore_empty_service: bool,
    /// Whether endpoints are not watched at all.
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

/// Whether names of Pods (`10-0-0-1.namespace.pod`) resolve.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Pods {
    /// They do not.
    #[default]
    Disabled,
    /// Any address in the name of a namespace.
    Insecure,
    /// Addresses of Pods there are.
    Verified,
}

/// For which names the next one is asked.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Fallthrough {
    /// For none.
    #[default]
    Never,
    /// For all.
    Always,
    /// For those below.
    Zones(Vec<Name>),
}

impl Fallthrough {
    /// Whether it goes on for a lower-cased name in wire form.
    #[must_use]
    pub fn covers(&self, lower: &[u8]) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Zones(zones) => zones.iter().any(|zone| zone.covers(lower)),
        }
    }
}

/// Whom to ask for the names below one.
#[derive(Clone, Debug)]
pub struct Forward {
    /// For these names.
    pub from: Name,
    /// These are asked.
    pub to: Vec<To>,
    /// Not for these names.
    pub except: Vec<Name>,
    /// Who first.
    pub policy: Policy,
    /// Questions at a time; 0 for the built-in limit.
    pub max_concurrent: usize,
    /// How often an upstream that failed is probed.
    pub health_check: Duration,
    /// The name that is asked for then.
    pub health_domain: Name,
    /// Whether the probe asks for recursion.
    pub health_recursion: bool,
    /// How often an upstream may fail before it is avoided; 0 for never.
    pub max_fails: u32,
    /// How long an idle connection is kept.
    pub expire: Duration,
    /// How long one try may take.
    pub read_timeout: Duration,
    /// TCP even when the question came by UDP.
    pub force_tcp: bool,
    /// UDP even when the question came by TCP.
    pub prefer_udp: bool,
    /// Fail at once when all upstreams are known to be down.
    pub failfast: bool,
    /// How upstreams prove who they are.
    pub tls: Tls,
}

impl Forward {
    /// Asks these for the names below `from`, with the usual settings.
    #[must_use]
    pub fn new(from: Name, to: Vec<To>) -> Self {
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

/// Somebody to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum To {
    /// The nameservers of such a file.
    File(PathBuf),
    /// This one.
    Server(Server),
}

/// A server elsewhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Server {
    /// Where.
    pub address: SocketAddr,
    /// Whether the conversation is encrypted.
    pub tls: bool,
    /// The name its certificate must have; its address when there is none.
    pub server_name: Option<String>,
}

impl Server {
    /// A plain one.
    #[must_use]
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, tls: false, server_name: None }
    }
}

/// Files for encrypted conversations.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tls {
    /// Our certificate and key, when upstreams want one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Whom we believe; the host's store when there is none.
    pub authority: Option<PathBuf>,
    /// The name every upstream must prove.
    pub server_name: Option<String>,
}

/// Which upstream is tried first.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// Any, the quick ones more often.
    #[default]
    Random,
    /// One after the other.
    RoundRobin,
    /// In the order written.
    Sequential,
}

/// Remembered answers.
#[derive(Clone, PartialEq, Debug)]
pub struct Cache {
    /// For these zones; none for those of the block.
    pub zones: Vec<Name>,
    /// Answers with data.
    pub success: Keep,
    /// Answers without.
    pub denial: Keep,
    /// Names that are asked for often are asked again before they are forgotten.
    pub prefetch: Option<Prefetch>,
    /// How long after its end an answer may still serve when nobody knows a newer one.
    pub serve_stale: Option<Duration>,
    /// Whether the stale answer waits for a new try first.
    pub stale_verify: bool,
    /// How long a failure is remembered.
    pub servfail: Duration,
    /// Whether remembered answers keep the TTL they came with.
    pub keep_ttl: bool,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            zones: Vec::new(),
            success: Keep { capacity: 9984, longest: 3600, shortest: 5, disabled: Fallthrough::Never },
            denial: Keep { capacity: 9984, longest: 1800, shortest: 5, disabled: Fallthrough::Never },
            prefetch: None,
            serve_stale: Some(Duration::from_secs(3600)),
            stale_verify: true,
            servfail: Duration::ZERO,
            keep_ttl: false,
        }
    }
}

/// How much is remembered, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Answers.
    pub capacity: usize,
    /// At most these seconds.
    pub longest: u32,
    /// At least these seconds.
    pub shortest: u32,
    /// Zones for which nothing is.
    pub disabled: Fallthrough,
}

/// Asking again before the end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prefetch {
    /// After so many hits,
    pub hits: u32,
    /// none of them so long after the last,
    pub gap: Duration,
    /// when so much of the time is left, in percent.
    pub percent: u8,
}

/// Addresses by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    /// A file like `/etc/hosts`.
    pub file: Option<PathBuf>,
    /// Lines written in the Corefile.
    pub entries: Vec<(IpAddr, Vec<Name>)>,
    /// For these zones; none for those of the block.
    pub zones: Vec<Name>,
    /// Seconds that records may be kept.
    pub ttl: u32,
    /// Whether addresses have names.
    pub reverse: bool,
    /// How often the file is looked at; zero for never.
    pub reload: Duration,
    /// For which names the next one is asked when nothing is written.
    pub fallthrough: Fallthrough,
}

/// A change to questions (and to their answers on the way back).
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Whether later rules see the changed question.
    pub go_on: bool,
    /// What is changed.
    pub change: Change,
}

/// What a rewrite changes.
#[derive(Clone, Debug)]
pub enum Change {
    /// The name that is asked for.
    Name {
        /// Which names.
        matching: Matching,
        /// The new name (for `Regex` with `{1}` for groups), prefix, suffix or part.
        to: String,
        /// Whether names in the answer are changed back.
        answer: Answer,
    },
    /// The TTL of the answers.
    Ttl {
        /// Of which names.
        matching: Matching,
        /// At least.
        least: u32,
        /// At most.
        most: u32,
    },
}

/// How a rule says which names it means.
#[derive(Clone, Debug)]
pub enum Matching {
    /// This one.
    Exact(Name),
    /// Text it begins with.
    Prefix(String),
    /// Text it ends with.
    Suffix(String),
    /// Text in it.
    Substring(String),
    /// An expression.
    Regex(regex::Regex),
}

/// What a name rule does to answers.
#[derive(Clone, Debug, Default)]
pub enum Answer {
    /// The asked name stands where the other one did; nothing else changes.
    #[default]
    Question,
    /// Every name that has the new form gets the old one back.
    Auto,
    /// Names of records: an expression and what it becomes, in order; with whether targets change, too.
    Rules(Vec<AnswerRule>),
}

/// One change to names in an answer.
#[derive(Clone, Debug)]
pub struct AnswerRule {
    /// Which names.
    pub from: regex::Regex,
    /// The new name, with `{1}` for groups.
    pub to: String,
    /// Whether targets (CNAME, SRV, …) are meant instead of owners.
    pub value: bool,
}

/// An answer by rule.
#[derive(Clone, Debug)]
pub struct Template {
    /// Of this class; none for any.
    pub class: Option<u16>,
    /// Of this type; none for any.
    pub qtype: Option<u16>,
    /// For these zones; none for those of the block.
    pub zones: Vec<Name>,
    /// For names that one of these fits; none for all.
    pub matching: Vec<regex::Regex>,
    /// The answer.
    pub rcode: u8,
    /// The extended error that goes with it.
    pub extended_error: Option<(u16, String)>,
    /// For which names that do not match the next one is asked.
    pub fallthrough: Fallthrough,
}

/// Where the search path of a client comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Autopath {
    /// For these zones; none for those of the block.
    pub zones: Vec<Name>,
    /// From its Pod, or from a file.
    pub file: Option<PathBuf>,
}

/// Who may ask what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl {
    /// For these zones; none for those of the block.
    pub zones: Vec<Name>,
    /// What happens.
    pub action: Action,
    /// To questions of these types; none for all.
    pub qtypes: Vec<u16>,
    /// From these networks; none for all.
    pub networks: Vec<IpNet>,
}

/// How much is too much.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Answers per second to one client (an IPv4 address, a /64 of IPv6).
    pub per_second: u32,
    /// Answers at once after a pause.
    pub burst: u32,
    /// Clients without a limit.
    pub exempt: Vec<IpNet>,
}

/// What happens to a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is answered.
    Allow,
    /// It is refused.
    Block,
    /// It gets an empty answer.
    Filter,
    /// It gets none.
    Drop,
}

/// Which questions are logged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Log {
    /// Below these names.
    pub names: Vec<Name>,
    /// With such results.
    pub classes: Vec<LogClass>,
}

/// Kinds of results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogClass {
    /// All.
    All,
    /// Data.
    Success,
    /// None there.
    Denial,
    /// Failures.
    Error,
}

/// Whether we live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Where that is said.
    pub address: SocketAddr,
    /// How long we go on answering after we were told to end.
    pub lameduck: Duration,
}

/// Looking at the file again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reload {
    /// How often.
    pub interval: Duration,
    /// More or less.
    pub jitter: Duration,
}
