//! The ways to serve Services: which one this machine can go, and what the others have left behind.
//!
//! One line per mode in [`open`] and in [`clean`]. Whoever is asked for a mode that cannot be gets an error; `auto` takes the best
//! that can be; `ipvs` falls back to iptables, as it always did. Each says what was chosen and why.

use std::path::Path;

use anyhow::Context as _;
use dataplane::Backend;
use dataplane::iptables::{self, Iptables};
use dataplane::ipvs::{self, Ipvs, Manner};
use dataplane::nftables::{self, Nftables};
use dataplane::userspace::loopback::LoopbackPorts;
use dataplane::userspace::relay::{Relay, Settings};
use dataplane::userspace::rootless::Rootless;
use dataplane::userspace::{self, Userspace};
use kernel::conntrack::Conntrack;
use kernel::iptables::linux::Linux as HostTables;
use kernel::ipvs::{Ipvs as _, Timeouts};
use kernel::nft::Nft as _;
use kernel::nft::linux::Linux as Nft;
use kernel::sysctl::kept::{self, Kept};
use kernel::sysctl::{self, Sysctl as _};

use crate::config::{ProxyArguments, ProxyMode};

/// A way to serve Services.
pub(super) struct Way {
    /// Who brings plans to the machine.
    pub(super) backend: Box<dyn Backend>,
    /// Who knows its flows; nobody where there are no rules that could leave stale ones.
    pub(super) conntrack: Option<Box<dyn Conntrack>>,
    /// Whether nothing of the machine is changed.
    pub(super) rootless: bool,
    /// Why this one, for people.
    pub(super) why: String,
}

/// Opens the mode that was asked for, or the one that serves best here; nothing when none is to be. `on_loopback`: Services have
/// loopback addresses, for which no rules are needed, nor possible.
pub(super) fn open(arguments: &ProxyArguments, on_loopback: bool) -> anyhow::Result<Option<Way>> {
    let refuse = |why: String| anyhow::anyhow!("--proxy-mode {}: {why}", name(arguments.proxy_mode));
    let way = match arguments.proxy_mode {
        ProxyMode::None => {
            tracing::info!("Services are not served on this machine: --proxy-mode is none");
            return Ok(None);
        }
        ProxyMode::Auto | ProxyMode::Userspace if on_loopback => rootless(arguments),
        ProxyMode::Auto => return Ok(best()),
        ProxyMode::Nftables => open_nft().and_then(|nft| by_rules(nft, AS_ASKED)).map_err(refuse)?,
        ProxyMode::Iptables => open_iptables().and_then(|tables| by_rules(tables, AS_ASKED)).map_err(refuse)?,
        ProxyMode::Userspace => open_userspace(arguments).map_err(refuse)?,
        ProxyMode::Ipvs => match open_ipvs(arguments) {
            Ok(balancer) => by_rules(balancer, AS_ASKED).map_err(refuse)?,
            Err(why) => {
                tracing::warn!(why, "IPVS cannot be used; falling back to iptables");
                let tables = open_iptables().and_then(|tables| by_rules(tables, "IPVS cannot be used"));
                tables.map_err(|error| refuse(format!("{why}; and iptables: {error}")))?
            }
        },
    };
    Ok(Some(way))
}

/// The name of a mode, as it is asked for.
fn name(mode: ProxyMode) -> String {
    clap::ValueEnum::to_possible_value(&mode).map(|value| value.get_name().to_owned()).unwrap_or_default()
}

const AS_ASKED: &str = "it was asked for";

/// The best that this machine can do with rules.
fn best() -> Option<Way> {
    let nftables = open_nft().and_then(|nft| by_rules(nft, "the kernel has it and lets us use it"));
    let nftables = match nftables {
        Ok(way) => return Some(way),
        Err(why) => why,
    };
    match open_iptables().and_then(|tables| by_rules(tables, &format!("nftables cannot be used ({nftables})"))) {
        Ok(way) => Some(way),
        Err(iptables) => {
            tracing::warn!(
                nftables,
                iptables,
                "Services are not served: neither nftables nor iptables can be used; run as root on a kernel that has one, or \
                 `waypost up --rootless`, which needs no rules"
            );
            None
        }
    }
}

fn say(mode: &str, why: &str) {
    tracing::info!(mode, why, "how Services are served");
}

fn by_rules(backend: impl Backend + 'static, why: &str) -> Result<Way, String> {
    let conntrack = open_conntrack()?;
    say(backend.mode(), why);
    let why = why.to_owned();
    Ok(Way { backend: Box::new(backend), conntrack: Some(Box::new(conntrack)), rootless: false, why })
}

fn open_conntrack() -> Result<kernel::conntrack::linux::Linux, String> {
    kernel::conntrack::linux::Linux::open().map_err(|error| format!("connection tracking: {error}"))
}

fn relay_settings(arguments: &ProxyArguments) -> Settings {
    Settings { connections: arguments.proxy_max_connections, udp_idle: arguments.udp_timeout }
}

fn open_userspace(arguments: &ProxyArguments) -> Result<Way, String> {
    let nft = usable_nft()?;
    let backend = Userspace::new(nft, &Relay::new(relay_settings(arguments)));
    let conntrack = backend.flows(open_conntrack()?);
    say(backend.mode(), AS_ASKED);
    tracing::warn!("in the userspace mode this program carries every connection: Services stop when it does");
    let why = AS_ASKED.to_owned();
    Ok(Way { backend: Box::new(backend), conntrack: Some(Box::new(conntrack)), rootless: false, why })
}

fn rootless(arguments: &ProxyArguments) -> Way {
    let why = "Services have loopback addresses: a program that listens there needs no rules";
    say("userspace", why);
    let relay = Relay::new(relay_settings(arguments));
    Way { backend: Box::new(Rootless::new(relay)), conntrack: None, rootless: true, why: why.to_owned() }
}

/// Node ports on loopback, to be beside any way.
pub(super) fn loopback(arguments: &ProxyArguments) -> LoopbackPorts {
    LoopbackPorts::new(Relay::new(relay_settings(arguments)))
}

fn usable_nft() -> Result<Nft, String> {
    let usable = Nft::open().and_then(|mut nft| nft.generation().map(|_| nft));
    usable.map_err(|error| format!("{error}; run as root on a kernel that has nftables"))
}

fn open_nft() -> Result<Nftables<Nft>, String> {
    let nft = usable_nft()?;
    let reader = Nft::open().map_err(|error| error.to_string())?;
    Ok(Nftables::new(nft).read_ahead(reader))
}

fn open_iptables() -> Result<Iptables<HostTables>, String> {
    let tables = HostTables::open().map_err(|error| error.to_string())?;
    // A kernel that is told to be liberal lets late packets pass translated; there is then nothing to drop.
    let liberal =
        sysctl::Linux.read("net/netfilter/nf_conntrack_tcp_be_liberal").is_ok_and(|value| value.trim() != "0");
    Ok(Iptables::new(tables, !liberal))
}

type Balancer = Ipvs<kernel::ipvs::linux::Linux, kernel::links::linux::Linux, Nft>;

fn open_ipvs(arguments: &ProxyArguments) -> Result<Balancer, String> {
    let arguments = &arguments.ipvs;
    let scheduler = arguments.ipvs_scheduler;
    let mut balancer = kernel::ipvs::linux::Linux::open().map_err(|error| error.to_string())?;
    let mut links = kernel::links::linux::Linux::open().map_err(|error| error.to_string())?;
    ipvs::probe(&mut balancer, &mut links, scheduler).map_err(|error| error.to_string())?;
    prepare(arguments.ipvs_strict_arp)?;
    let (tcp, tcp_fin, udp) = (arguments.ipvs_tcp_timeout, arguments.ipvs_tcpfin_timeout, arguments.ipvs_udp_timeout);
    balancer.set_timeouts(Timeouts { tcp, tcp_fin, udp }).map_err(|error| error.to_string())?;
    let nft = Nft::open().map_err(|error| error.to_string())?;
    let manner = Manner { scheduler, resync: arguments.ipvs_sync_period };
    Ok(Ipvs::new(balancer, links, nft, manner))
}

/// Sets this machine up for IPVS, and notes what was changed for `waypost cleanup`.
fn prepare(strict_arp: bool) -> Result<(), String> {
    let mut kept = Kept::open(Path::new(kept::FOLDER)).map_err(|error| format!("{}: {error}", kept::FOLDER))?;
    let prepared = ipvs::prepare(&mut sysctl::Linux, &mut kept.ledger, strict_arp);
    for (name, (before, now)) in &kept.ledger.changed {
        tracing::info!(name, before, now, "a setting of this machine was changed for IPVS");
    }
    if let Err(error) = kept.save() {
        tracing::warn!(%error, "{} cannot be written: `waypost cleanup` will leave these settings", kept::FOLDER);
    }
    prepared.map_err(|(name, error)| format!("setting {name}: {error}"))
}

/// Puts settings of this machine back; answers whether there were some.
///
/// # Errors
/// When one cannot be put back.
pub(in crate::commands) fn restore_settings() -> anyhow::Result<bool> {
    let mut kept = Kept::open(Path::new(kept::FOLDER)).context("reading which settings were changed")?;
    let found = !kept.ledger.changed.is_empty();
    let failures = kept.ledger.restore(&mut sysctl::Linux);
    kept.save().context("noting that settings were put back")?;
    match failures.into_iter().next() {
        Some((name, error)) => Err(error).with_context(|| format!("putting back the setting {name}")),
        None => Ok(found),
    }
}

/// Removes the rules that modes other than this one have left; answers whether there were some. With no mode, all of them go.
///
/// # Errors
/// When something of ours is there and cannot be removed.
pub(in crate::commands) fn clean_rules(but: Option<&str>) -> anyhow::Result<bool> {
    let mut found = false;
    let unless = |mode: &str| but != Some(mode);
    let mut nft = Nft::open().context("opening nftables; run this as root")?;
    if unless("nftables") {
        found |= nftables::cleanup(&mut nft).context("removing rules of nftables")?;
    }
    if unless("userspace") {
        found |= userspace::cleanup(&mut nft).context("removing rules of the userspace mode")?;
    }
    if unless("iptables") {
        for mut tables in HostTables::all() {
            found |= iptables::cleanup(&mut tables).context("removing rules of iptables")?;
        }
    }
    Ok(found)
}

/// Whether IPVS still carries connections while this other mode serves. What cannot be asked is not waited for.
pub(super) fn ipvs_carries(mode: &str) -> bool {
    let carries = || {
        let (mut balancer, mut nft) = (kernel::ipvs::linux::Linux::open().ok()?, Nft::open().ok()?);
        ipvs::carries(&mut balancer, &mut nft).ok()
    };
    mode != "ipvs" && carries().unwrap_or(false)
}

/// Removes what the mode ipvs has left, unless it is this one; answers whether there was something.
///
/// # Errors
/// When something of ours is there and cannot be removed.
pub(in crate::commands) fn clean_ipvs(but: Option<&str>) -> anyhow::Result<bool> {
    if but == Some("ipvs") {
        return Ok(false);
    }
    let mut nft = Nft::open().context("opening nftables; run this as root")?;
    let mut links = kernel::links::linux::Linux::open().context("opening links")?;
    let mut balancer = kernel::ipvs::linux::Linux::open().ok();
    let balancer = balancer.as_mut().map(|balancer| balancer as &mut dyn kernel::ipvs::Ipvs);
    ipvs::cleanup(balancer, &mut links, &mut nft).context("removing what IPVS needed")
}
