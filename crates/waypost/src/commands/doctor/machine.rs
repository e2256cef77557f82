//! The state of this machine: its Node, its proxy, kernel rules, conntrack, sysctls.
//!
//! In: the objects of the cluster, and the kernel. Out: [`Machine`]. What cannot be read, because this is not a node or not root, is
//! unmeasured, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;

use api::value::ValueExt as _;
use cli::doctor::{Cluster, Firewall, Flow, Machine, Measured, Rules, SETTINGS, Unmeasured};
use ipnet::IpNet;
use kernel::addresses::{Address, Addresses as _};
use kernel::iptables::linux::{Linux as Tables, Variant};
use kernel::iptables::{Iptables as _, Table};
use kernel::lock::Lock;
use kernel::nft::Nft as _;
use kernel::nft::foreign::Ruleset;
use kernel::nft::linux::Linux as Nft;
use kernel::sysctl::{self, Sysctl as _};
use plan::Protocol;

use super::firewall::{self, NetfilterRules};
use super::{rules, tables};
use crate::commands::proxy::LOCK;

/// The iptables chain that every proxy has.
const SERVICES: &str = "KUBE-SERVICES";

/// Reads the state.
pub(super) fn read(cluster: &Cluster, name: Option<&str>, from: Option<IpAddr>) -> Machine {
    let listed = addresses();
    let machine: BTreeSet<IpAddr> = listed.iter().map(|address| address.ip).collect();
    let held = Lock::take(LOCK).map(|lock| lock.is_none());
    let is_locked = matches!(held, Ok(true));
    let node = node(cluster, &machine, name, is_locked);
    let rootless = cluster.services.iter().any(on_loopback);
    let mut firewall = on_node(&node, || read_rules().map_err(|error| needs_root("reading rules", &error)));
    let proxy_kind = firewall.as_ref().map_or(ProxyKind::Missing, |rules| proxy_kind(rules, is_locked));
    let legacy = match &mut firewall {
        Ok(rules) if has_legacy() => read_legacy(rules),
        _ => None,
    };
    let proxy = on_node(&node, || match (&held, proxy_kind) {
        (Ok(true), _) => Ok(true),
        (_, _) if rootless => {
            Err(unmeasured("a proxy without rules holds no lock", "curl http://127.0.0.1:10256/healthz"))
        }
        (_, ProxyKind::Kube) => {
            Err(unmeasured("another proxy serves this node", "curl http://127.0.0.1:10256/healthz"))
        }
        (Ok(false), _) => Ok(false),
        (Err(error), _) => Err(needs_root("reading the lock of the proxy", error)),
    });
    let rules = on_node(&node, || {
        let name = node.as_deref().unwrap_or_default();
        firewall.as_ref().map_err(Clone::clone).and_then(|_| compare(cluster, name, &machine, proxy_kind, rootless))
    });
    Machine {
        proxy,
        rules,
        flows: on_node(&node, || flows().map_err(|error| needs_root("listing connections", &error))),
        room: on_node(&node, room),
        legacy,
        settings: settings(),
        networks: listed.iter().filter_map(|one| IpNet::new(one.ip, one.prefix_len).ok()).collect(),
        from,
        firewall: firewall.map(|rules| Arc::new(NetfilterRules(rules)) as Arc<dyn Firewall>),
        node,
    }
}

fn unmeasured(why: impl Into<String>, how: impl Into<String>) -> Unmeasured {
    Unmeasured { why: why.into(), how: how.into() }
}

fn needs_root(what: &str, error: &dyn Display) -> Unmeasured {
    unmeasured(format!("{what}: {error}"), "run `waypost doctor` as root")
}

/// Measures something that only a node has.
fn on_node<T>(node: &Measured<String>, measure: impl FnOnce() -> Measured<T>) -> Measured<T> {
    match node {
        Ok(_) => measure(),
        Err(why) => Err(why.clone()),
    }
}

fn addresses() -> Vec<Address> {
    let listed = kernel::addresses::linux::Linux::open().and_then(|mut kernel| kernel.list());
    listed.map(|list| list.into_iter().collect()).unwrap_or_default()
}

fn on_loopback(service: &serde_json::Value) -> bool {
    service.text("spec.clusterIP").parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The name of the Node of this machine.
fn node(cluster: &Cluster, machine: &BTreeSet<IpAddr>, name: Option<&str>, is_locked: bool) -> Measured<String> {
    let has = |ip: IpAddr| !ip.is_loopback() && machine.contains(&ip);
    let ours = cluster.nodes.iter().find(|node| {
        let addresses = node.items("status.addresses").iter();
        addresses.filter_map(|one| one.text("address").parse().ok()).any(has)
    });
    let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    match (name, ours) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(node)) => Ok(node.text("metadata.name").to_owned()),
        // Without an agent there may be no Node object.
        (None, None) if is_locked => Ok(host()),
        (None, None) => Err(unmeasured(
            "this machine is not a node of the cluster: no Node has one of its addresses",
            "run `waypost doctor` on a node, as root, or set --node-name",
        )),
    }
}

/// The proxy of this node, by its rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProxyKind {
    Missing,
    Nftables,
    Iptables,
    Ipvs,
    Userspace,
    Kube,
}

fn proxy_kind(rules: &Ruleset, is_locked: bool) -> ProxyKind {
    let table = |name: &str| rules.tables.iter().any(|(_, table)| &**table == name);
    let chains = rules.chains.keys().any(|(_, chain)| &**chain == SERVICES);
    let tables = [
        (dataplane::nft::TABLE, ProxyKind::Nftables),
        (dataplane::nft::TABLE_BESIDE_IPVS, ProxyKind::Ipvs),
        (dataplane::userspace::TABLE, ProxyKind::Userspace),
        ("kube-proxy", ProxyKind::Kube),
    ];
    let by_table = tables.into_iter().find_map(|(name, proxy_kind)| table(name).then_some(proxy_kind));
    by_table.unwrap_or_else(|| match (chains, is_locked) {
        (true, true) => ProxyKind::Iptables,
        (false, _) if !has_legacy() => ProxyKind::Missing,
        (chains, _) => in_iptables(chains),
    })
}

/// The owner of iptables rules: kube-proxy uses the same chain names.
fn in_iptables(mut chains: bool) -> ProxyKind {
    for mut tables in Tables::all() {
        for saved in tables.families().into_iter().filter_map(|family| tables.save(family).ok()) {
            if dataplane::iptables::is_written(&saved) {
                return ProxyKind::Iptables;
            }
            chains |= saved.has_chain(Table::Nat, SERVICES);
        }
    }
    if chains { ProxyKind::Kube } else { ProxyKind::Missing }
}

/// Adds the rules of iptables-legacy; returns why they could not all be read.
fn read_legacy(rules: &mut Ruleset) -> Option<String> {
    let mut tables = match Tables::of(Variant::Legacy) {
        Ok(tables) => tables,
        Err(error) => return Some(error.to_string()),
    };
    for family in tables.families() {
        match tables.save(family) {
            Ok(saved) => rules.add_legacy(family, &saved),
            Err(error) => return Some(error.to_string()),
        }
    }
    let unknown = |name: &&str| Table::named(name).is_none();
    let names = legacy_names();
    let unread: Vec<&str> = names.lines().map(str::trim).filter(|name| !name.is_empty()).filter(unknown).collect();
    (!unread.is_empty()).then(|| format!("its tables {} are not evaluated", unread.join(", ")))
}

fn read_rules() -> Result<Ruleset, kernel::nft::NftError> {
    let mut nft = Nft::open()?;
    nft.generation()?;
    nft.ruleset(firewall::is_ours)
}

/// Compares the rules of this node with the plan.
fn compare(
    cluster: &Cluster,
    node: &str,
    machine: &BTreeSet<IpAddr>,
    proxy_kind: ProxyKind,
    rootless: bool,
) -> Measured<Rules> {
    let mode = |name: &str| {
        let how = "the connections below show what its rules do; those of nftables and iptables can be compared";
        Err(unmeasured(format!("rules of the mode {name} are not compared"), how))
    };
    match proxy_kind {
        ProxyKind::Nftables => {
            let mut nft = Nft::open().map_err(|error| needs_root("reading rules", &error))?;
            rules::compare(&mut nft, cluster, node, machine)
        }
        ProxyKind::Iptables => {
            let mut host = Tables::open().map_err(|error| needs_root("reading the tables of iptables", &error))?;
            tables::compare(&mut host, cluster, node, machine)
        }
        ProxyKind::Ipvs => mode("ipvs"),
        ProxyKind::Userspace => mode("userspace"),
        ProxyKind::Kube => Err(unmeasured("another proxy serves this node", "use the tools of that proxy")),
        ProxyKind::Missing if rootless => mode("userspace without rules"),
        ProxyKind::Missing => Ok(Rules { missing: true, ..Rules::default() }),
    }
}

fn flows() -> Result<Vec<Flow>, kernel::conntrack::ConntrackError> {
    let mut conntrack = kernel::conntrack::linux::Linux::open()?;
    let mut all = Vec::new();
    for family in kernel::Family::ALL {
        for protocol in Protocol::ALL {
            let flows = conntrack.flows(family, protocol.number())?.into_iter();
            all.extend(flows.map(|flow| Flow {
                protocol: flow.protocol,
                source: flow.original.source,
                destination: flow.original.destination,
                answering: flow.reply.source,
            }));
        }
    }
    Ok(all)
}

fn room() -> Measured<(u64, u64)> {
    let number = |name: &str| sysctl::Linux.read(name).ok()?.trim().parse().ok();
    let found = number("net/netfilter/nf_conntrack_count").zip(number("net/netfilter/nf_conntrack_max"));
    found.ok_or_else(|| unmeasured("the kernel has no conntrack counters", "modprobe nf_conntrack"))
}

fn has_legacy() -> bool {
    !legacy_names().trim().is_empty()
}

/// The names of the tables of iptables-legacy.
fn legacy_names() -> String {
    let paths = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

fn settings() -> BTreeMap<&'static str, String> {
    SETTINGS.iter().filter_map(|name| Some((*name, sysctl::Linux.read(name).ok()?))).collect()
}
