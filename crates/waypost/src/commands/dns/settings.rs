//! The configuration of the DNS server: a Corefile, or flags, which are converted to the same configuration.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use dns::config::{Block, Cache, Config, Fallthrough, Forward, ForwardTarget, Key, Kubernetes, Name, Pods, Server};
use dns::reload::Content;
use dns::serve::ClientLimits;
use dns::zone::Quirks;

use crate::config::{DnsArguments, DnsPods, DnsQuirks};

/// The port of DNS.
pub(super) const PORT: u16 = 53;
/// The resolver configuration of this machine.
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// TTL of records of our zones, in seconds.
const TTL: u32 = 30;

impl From<DnsQuirks> for Quirks {
    fn from(quirks: DnsQuirks) -> Self {
        match quirks {
            DnsQuirks::None => Self::None,
            DnsQuirks::Coredns => Self::CoreDns,
        }
    }
}

/// The configuration from the Corefile, or else from flags.
pub(super) fn config(corefile: Option<&Content>, arguments: &DnsArguments, domain: &str) -> anyhow::Result<Config> {
    match corefile {
        Some(content) => content.config.as_ref().cloned().map_err(|error| anyhow::Error::msg(error.to_string())),
        None => Ok(Config { blocks: vec![block(arguments, domain)?] }),
    }
}

/// Limits per client. They protect the server, not a zone, so they hold with a Corefile, too.
pub(super) fn client_limits(arguments: &DnsArguments) -> ClientLimits {
    let (queries, forwards) = (arguments.dns_client_qps, arguments.dns_client_forward_qps);
    ClientLimits { queries, forwards, ..ClientLimits::default() }
}

/// The server block of the flags.
fn block(arguments: &DnsArguments, domain: &str) -> anyhow::Result<Block> {
    let name = |text: &str| Name::parse(text).map_err(|error| anyhow::anyhow!("{text}: {error}"));
    let reverse = vec![name("in-addr.arpa")?, name("ip6.arpa")?];
    let zones = std::iter::once(name(domain).context("--cluster-domain")?).chain(reverse.clone()).collect();
    let pods = match arguments.dns_pods {
        DnsPods::Disabled => Pods::Disabled,
        DnsPods::Insecure => Pods::Insecure,
        DnsPods::Verified => Pods::Verified,
    };
    let fallthrough = Fallthrough::Zones(reverse);
    let to = upstreams(&arguments.dns_upstream)?;
    Ok(Block {
        keys: vec![Key { zone: Name::root(), port: PORT }],
        kubernetes: Some(Kubernetes { zones, pods, ttl: TTL, fallthrough, ..Kubernetes::default() }),
        forwards: if to.is_empty() { Vec::new() } else { vec![Forward::new(Name::root(), to)] },
        cache: Some(Cache::default()),
        detect_loop: true,
        loadbalance: true,
        errors: true,
        ..Block::default()
    })
}

/// The upstreams; those of this machine by default, none for `none`.
fn upstreams(named: &[String]) -> anyhow::Result<Vec<ForwardTarget>> {
    match named {
        [] => Ok(vec![ForwardTarget::File(PathBuf::from(RESOLV_CONF))]),
        [none] if none == "none" => Ok(Vec::new()),
        named => named.iter().map(|text| upstream(text).map(ForwardTarget::Server)).collect(),
    }
}

/// `IP`, `IP:PORT`, or `tls://IP[:PORT][#NAME]`.
fn upstream(text: &str) -> anyhow::Result<Server> {
    let (tls, rest) = text.strip_prefix("tls://").map_or((false, text), |rest| (true, rest));
    let (place, server_name) =
        rest.split_once('#').map_or((rest, None), |(place, name)| (place, Some(name.to_owned())));
    let port = if tls { 853 } else { PORT };
    let address = place.parse().or_else(|_| place.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)));
    let Ok(address) = address else {
        bail!("--dns-upstream {text}: expected IP, IP:PORT, tls://IP#NAME or none");
    };
    Ok(Server { address, tls, server_name })
}
