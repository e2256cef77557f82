//! Proxy modes: selection at start, and cleanup of what other modes left behind.
//!
//! One line per mode in [`open`] and in [`clean_rules`]. An explicit mode that is not available is an error; `auto`
//! selects the best available one; `ipvs` falls back to iptables, as kube-proxy did.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use dataplane::Backend;
use dataplane::iptables::{self, Iptables};
use dataplane::ipvs::{self, Config, Ipvs};
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
use kernel::sysctl::ledger_file::{self, LedgerFile};
use kernel::sysctl::{self, Sysctl as _};

use crate::config::{ProxyArguments, ProxyMode};

/// A selected mode.
pub(super) struct SelectedMode {
    /// Writes plans to the kernel.
    pub(super) backend: Box<dyn Backend>,
    /// Conntrack; none without rules that could leave stale flows.
    pub(super) conntrack: Option<Box<dyn Conntrack>>,
    /// Whether the machine is left unchanged.
    pub(super) rootless: bool,
    /// Why it was selected.
    pub(super) why: String,
}

/// Opens the requested mode, or the best available one; none with `--proxy-mode none`. `on_loopback`: Services have
/// loopback addresses, which need no rules.
pub(super) fn open(arguments: &ProxyArguments, on_loopback: bool) -> anyhow::Result<Option<SelectedMode>> {
    let refuse = |why: anyhow::Error| anyhow!("--proxy-mode {}: {why}", name(arguments.proxy_mode));
    let selected = match arguments.proxy_mode {
        ProxyMode::None => {
            tracing::info!("Services are not served on this machine: --proxy-mode none");
            return Ok(None);
        }
        ProxyMode::Auto | ProxyMode::Userspace if on_loopback => rootless(arguments),
        ProxyMode::Auto => return Ok(best()),
        ProxyMode::Nftables => open_nft().and_then(|nft| by_rules(nft, REQUESTED)).map_err(refuse)?,
        ProxyMode::Iptables => open_iptables().and_then(|tables| by_rules(tables, REQUESTED)).map_err(refuse)?,
        ProxyMode::Userspace => open_userspace(arguments).map_err(refuse)?,
        ProxyMode::Ipvs => match open_ipvs(arguments) {
            Ok(balancer) => by_rules(balancer, REQUESTED).map_err(refuse)?,
            Err(why) => {
                tracing::warn!(%why, "IPVS is not available; falling back to iptables");
                let tables = open_iptables().and_then(|tables| by_rules(tables, "IPVS is not available"));
                tables.map_err(|error| refuse(anyhow!("{why}; and iptables: {error}")))?
            }
        },
    };
    Ok(Some(selected))
}

/// Flag value of a mode.
fn name(mode: ProxyMode) -> String {
    clap::ValueEnum::to_possible_value(&mode).map(|value| value.get_name().to_owned()).unwrap_or_default()
}

const REQUESTED: &str = "requested by --proxy-mode";

/// The best mode with kernel rules.
fn best() -> Option<SelectedMode> {
    let nftables = open_nft().and_then(|nft| by_rules(nft, "available"));
    let nftables = match nftables {
        Ok(selected) => return Some(selected),
        Err(why) => why,
    };
    match open_iptables().and_then(|tables| by_rules(tables, &format!("nftables is not available ({nftables})"))) {
        Ok(selected) => Some(selected),
        Err(iptables) => {
            tracing::warn!(
                %nftables,
                %iptables,
                "Services are not served: neither nftables nor iptables can be used; run as root on a kernel that has one, or \
                 `waypost up --rootless`, which needs no rules"
            );
            None
        }
    }
}

fn log_mode(mode: &str, why: &str) {
    tracing::info!(mode, why, "proxy mode selected");
}

fn by_rules(backend: impl Backend + 'static, why: &str) -> anyhow::Result<SelectedMode> {
    let conntrack = open_conntrack()?;
    log_mode(backend.mode(), why);
    let why = why.to_owned();
    Ok(SelectedMode { backend: Box::new(backend), conntrack: Some(Box::new(conntrack)), rootless: false, why })
}

fn open_conntrack() -> anyhow::Result<kernel::conntrack::linux::Linux> {
    kernel::conntrack::linux::Linux::open().map_err(|error| anyhow!("connection tracking: {error}"))
}

fn relay_settings(arguments: &ProxyArguments) -> Settings {
    Settings { connections: arguments.proxy_max_connections, udp_idle: arguments.udp_timeout }
}

fn open_userspace(arguments: &ProxyArguments) -> anyhow::Result<SelectedMode> {
    let nft = usable_nft()?;
    let backend = Userspace::new(nft, &Relay::new(relay_settings(arguments)));
    let conntrack = backend.conntrack(open_conntrack()?);
    log_mode(backend.mode(), REQUESTED);
    tracing::warn!("userspace mode: this process relays every connection; Services stop when it does");
    let why = REQUESTED.to_owned();
    Ok(SelectedMode { backend: Box::new(backend), conntrack: Some(Box::new(conntrack)), rootless: false, why })
}

fn rootless(arguments: &ProxyArguments) -> SelectedMode {
    let why = "Services have loopback addresses, which need no rules";
    log_mode("userspace", why);
    let relay = Relay::new(relay_settings(arguments));
    SelectedMode { backend: Box::new(Rootless::new(relay)), conntrack: None, rootless: true, why: why.to_owned() }
}

/// Node ports on loopback, in addition to any mode.
pub(super) fn loopback(arguments: &ProxyArguments) -> LoopbackPorts {
    LoopbackPorts::new(Relay::new(relay_settings(arguments)))
}

fn usable_nft() -> anyhow::Result<Nft> {
    let usable = Nft::open().and_then(|mut nft| nft.generation().map(|_| nft));
    usable.map_err(|error| anyhow!("{error}; run as root on a kernel that has nftables"))
}

fn open_nft() -> anyhow::Result<Nftables<Nft>> {
    let nft = usable_nft()?;
    let reader = Nft::open()?;
    Ok(Nftables::new(nft).prefetch(reader))
}

fn open_iptables() -> anyhow::Result<Iptables<HostTables>> {
    let tables = HostTables::open()?;
    // With nf_conntrack_tcp_be_liberal late packets are translated; nothing needs to be dropped.
    let liberal =
        sysctl::Linux.read("net/netfilter/nf_conntrack_tcp_be_liberal").is_ok_and(|value| value.trim() != "0");
    Ok(Iptables::new(tables, !liberal))
}

type Balancer = Ipvs<kernel::ipvs::linux::Linux, kernel::links::linux::Linux, Nft>;

fn open_ipvs(arguments: &ProxyArguments) -> anyhow::Result<Balancer> {
    let arguments = &arguments.ipvs;
    let scheduler = arguments.ipvs_scheduler;
    let mut balancer = kernel::ipvs::linux::Linux::open()?;
    let mut links = kernel::links::linux::Linux::open()?;
    ipvs::probe(&mut balancer, &mut links, scheduler)?;
    prepare(arguments.ipvs_strict_arp)?;
    let (tcp, tcp_fin, udp) = (arguments.ipvs_tcp_timeout, arguments.ipvs_tcpfin_timeout, arguments.ipvs_udp_timeout);
    balancer.set_timeouts(Timeouts { tcp, tcp_fin, udp })?;
    let nft = Nft::open()?;
    let config = Config { scheduler, resync: arguments.ipvs_sync_period };
    Ok(Ipvs::new(balancer, links, nft, config))
}

/// Sets the sysctls of IPVS and records the changes for `waypost cleanup`.
fn prepare(strict_arp: bool) -> anyhow::Result<()> {
    let mut recorded = LedgerFile::open(Path::new(ledger_file::DIRECTORY))
        .map_err(|error| anyhow!("{}: {error}", ledger_file::DIRECTORY))?;
    let prepared = ipvs::prepare(&mut sysctl::Linux, &mut recorded.ledger, strict_arp);
    for (name, (before, now)) in &recorded.ledger.changed {
        tracing::info!(name, before, now, "changed sysctl for IPVS");
    }
    if let Err(error) = recorded.save() {
        tracing::warn!(%error, "cannot write {}: `waypost cleanup` will not restore these sysctls", ledger_file::DIRECTORY);
    }
    prepared.map_err(|(name, error)| anyhow!("setting {name}: {error}"))
}

/// Restores changed sysctls; returns whether there were any.
///
/// # Errors
/// When one cannot be restored.
pub(in crate::commands) fn restore_settings() -> anyhow::Result<bool> {
    let mut recorded = LedgerFile::open(Path::new(ledger_file::DIRECTORY)).context("reading the recorded sysctls")?;
    let found = !recorded.ledger.changed.is_empty();
    let failures = recorded.ledger.restore(&mut sysctl::Linux);
    recorded.save().context("recording restored sysctls")?;
    match failures.into_iter().next() {
        Some((name, error)) => Err(error).with_context(|| format!("restoring sysctl {name}")),
        None => Ok(found),
    }
}

/// Removes the rules of all modes but this one; returns whether there were any.
///
/// # Errors
/// When rules of ours exist and cannot be removed.
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

/// Whether IPVS has open connections while another mode is active; false when that cannot be read.
pub(super) fn ipvs_has_connections(mode: &str) -> bool {
    let has_connections = || {
        let (mut balancer, mut nft) = (kernel::ipvs::linux::Linux::open().ok()?, Nft::open().ok()?);
        ipvs::has_active_connections(&mut balancer, &mut nft).ok()
    };
    mode != "ipvs" && has_connections().unwrap_or(false)
}

/// Removes the objects of the IPVS mode, unless it is the active one; returns whether there were any.
///
/// # Errors
/// When objects of ours exist and cannot be removed.
pub(in crate::commands) fn clean_ipvs(but: Option<&str>) -> anyhow::Result<bool> {
    if but == Some("ipvs") {
        return Ok(false);
    }
    let mut nft = Nft::open().context("opening nftables; run this as root")?;
    let mut links = kernel::links::linux::Linux::open().context("opening links")?;
    let mut balancer = kernel::ipvs::linux::Linux::open().ok();
    let balancer = balancer.as_mut().map(|balancer| balancer as &mut dyn kernel::ipvs::Ipvs);
    ipvs::cleanup(balancer, &mut links, &mut nft).context("removing IPVS objects")
}
