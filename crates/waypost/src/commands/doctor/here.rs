//! What this machine shows: which node it is, who serves it, its rules and those of others, its connections, its settings.
//!
//! In: the objects of the cluster. Out: [`Here`]. What cannot be read, because this is no node or because one must be root, is not
//! measured, with the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::IpAddr;

use api::value::ValueExt as _;
use ipnet::IpNet;
use kernel::addresses::{Address, Addresses as _};
use kernel::conntrack::Flow;
use kernel::iptables::linux::{Linux as Tables, Variant};
use kernel::iptables::{Iptables as _, Table};
use kernel::lock::Lock;
use kernel::nft::Nft as _;
use kernel::nft::foreign::{Ruleset, TableName};
use kernel::nft::linux::Linux as Nft;
use kernel::sysctl::{self, Sysctl as _};
use plan::Protocol;

use super::{rules, tables};
use crate::commands::proxy::LOCK;
use crate::doctor::{Cluster, Here, Measured, Rules, SETTINGS, Unmeasured};

/// The chain of iptables that every proxy has.
const SERVICES: &str = "KUBE-SERVICES";

/// Looks at this machine.
pub(super) fn look(cluster: &Cluster, name: Option<&str>, from: Option<IpAddr>) -> Here {
    let listed = addresses();
    let machine: BTreeSet<IpAddr> = listed.iter().map(|address| address.ip).collect();
    let held = Lock::take(LOCK).map(|lock| lock.is_none());
    let served = matches!(held, Ok(true));
    let node = node(cluster, &machine, name, served);
    let rootless = cluster.services.iter().any(on_loopback);
    let mut firewall = on_node(&node, || read_rules().map_err(|error| needs_root("reading rules", &error)));
    let whose = firewall.as_ref().map_or(Serving::Nobody, |rules| serving(rules, served));
    let legacy = match &mut firewall {
        Ok(rules) if has_legacy() => read_legacy(rules),
        _ => None,
    };
    let proxy = on_node(&node, || match (&held, whose) {
        (Ok(true), _) => Ok(true),
        (_, _) if rootless => {
            Err(unmeasured("a proxy without rules holds no lock", "curl http://127.0.0.1:10256/healthz"))
        }
        (_, Serving::Kube) => Err(unmeasured("another proxy serves this node", "curl http://127.0.0.1:10256/healthz")),
        (Ok(false), _) => Ok(false),
        (Err(error), _) => Err(needs_root("asking for the lock of the proxy", error)),
    });
    let rules = on_node(&node, || {
        let name = node.as_deref().unwrap_or_default();
        firewall.as_ref().map_err(Clone::clone).and_then(|_| compare(cluster, name, &machine, whose, rootless))
    });
    Here {
        proxy,
        rules,
        flows: on_node(&node, || flows().map_err(|error| needs_root("listing connections", &error))),
        room: on_node(&node, room),
        legacy,
        settings: settings(),
        networks: listed.iter().filter_map(|one| IpNet::new(one.ip, one.prefix_len).ok()).collect(),
        from,
        firewall,
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

/// Which node this machine is.
fn node(cluster: &Cluster, machine: &BTreeSet<IpAddr>, name: Option<&str>, served: bool) -> Measured<String> {
    let has = |ip: IpAddr| !ip.is_loopback() && machine.contains(&ip);
    let ours = cluster.nodes.iter().find(|node| {
        let addresses = node.items("status.addresses").iter();
        addresses.filter_map(|one| one.text("address").parse().ok()).any(has)
    });
    let host = || rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    match (name, ours) {
        (Some(name), _) => Ok(name.to_owned()),
        (None, Some(node)) => Ok(node.text("metadata.name").to_owned()),
        // There may be no Node object where nothing but a proxy runs.
        (None, None) if served => Ok(host()),
        (None, None) => Err(unmeasured(
            "this machine is no node of the cluster: no Node has one of its addresses",
            "run `waypost doctor` on a node, as root, or say --node-name",
        )),
    }
}

/// Who serves this node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Serving {
    Nobody,
    Nftables,
    Iptables,
    Ipvs,
    Userspace,
    Kube,
}

fn serving(rules: &Ruleset, served: bool) -> Serving {
    let table = |name: &str| rules.tables.iter().any(|(_, table)| &**table == name);
    let chains = rules.chains.keys().any(|(_, chain)| &**chain == SERVICES);
    let tables = [
        (dataplane::nft::TABLE, Serving::Nftables),
        (dataplane::nft::TABLE_BESIDE_IPVS, Serving::Ipvs),
        (dataplane::userspace::TABLE, Serving::Userspace),
        ("kube-proxy", Serving::Kube),
    ];
    let by_table = tables.into_iter().find_map(|(name, whose)| table(name).then_some(whose));
    by_table.unwrap_or_else(|| match (chains, served) {
        (true, true) => Serving::Iptables,
        (false, _) if !has_legacy() => Serving::Nobody,
        (chains, _) => in_iptables(chains),
    })
}

/// Whose the rules of iptables are: others use chains of the same names.
fn in_iptables(mut chains: bool) -> Serving {
    for mut tables in Tables::all() {
        for saved in tables.families().into_iter().filter_map(|family| tables.save(family).ok()) {
            if dataplane::iptables::is_written(&saved) {
                return Serving::Iptables;
            }
            chains |= saved.has_chain(Table::Nat, SERVICES);
        }
    }
    if chains { Serving::Kube } else { Serving::Nobody }
}

/// Adds the rules of the old iptables to those of everybody; why not, if they cannot be read.
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
    (!unread.is_empty()).then(|| format!("its tables {} are not looked at", unread.join(", ")))
}

fn is_ours(table: &TableName) -> bool {
    table.1.starts_with(dataplane::nft::TABLE)
}

fn read_rules() -> Result<Ruleset, kernel::nft::NftError> {
    let mut nft = Nft::open()?;
    nft.generation()?;
    nft.ruleset(is_ours)
}

/// The rules of this node beside the plan.
fn compare(
    cluster: &Cluster,
    node: &str,
    machine: &BTreeSet<IpAddr>,
    whose: Serving,
    rootless: bool,
) -> Measured<Rules> {
    let mode = |name: &str| {
        let how = "the connections below show what its rules do; those of nftables and iptables can be compared";
        Err(unmeasured(format!("rules of the mode {name} are not compared"), how))
    };
    match whose {
        Serving::Nftables => {
            let mut nft = Nft::open().map_err(|error| needs_root("reading rules", &error))?;
            rules::compare(&mut nft, cluster, node, machine)
        }
        Serving::Iptables => {
            let mut host = Tables::open().map_err(|error| needs_root("reading the tables of iptables", &error))?;
            tables::compare(&mut host, cluster, node, machine)
        }
        Serving::Ipvs => mode("ipvs"),
        Serving::Userspace => mode("userspace"),
        Serving::Kube => Err(unmeasured("another proxy serves this node", "use the means of that proxy")),
        Serving::Nobody if rootless => mode("userspace without rules"),
        Serving::Nobody => Ok(Rules { missing: true, ..Rules::default() }),
    }
}

fn flows() -> Result<Vec<Flow>, kernel::conntrack::ConntrackError> {
    let mut conntrack = kernel::conntrack::linux::Linux::open()?;
    let mut all = Vec::new();
    for family in kernel::Family::ALL {
        for protocol in Protocol::ALL {
            all.extend(conntrack.flows(family, protocol.number())?);
        }
    }
    Ok(all)
}

fn room() -> Measured<(u64, u64)> {
    let number = |name: &str| sysctl::Linux.read(name).ok()?.trim().parse().ok();
    let found = number("net/netfilter/nf_conntrack_count").zip(number("net/netfilter/nf_conntrack_max"));
    found
        .ok_or_else(|| unmeasured("the kernel does not say how many connections it remembers", "modprobe nf_conntrack"))
}

fn has_legacy() -> bool {
    !legacy_names().trim().is_empty()
}

/// The names of the tables of the old iptables.
fn legacy_names() -> String {
    let paths = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
    paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

fn settings() -> BTreeMap<&'static str, String> {
    SETTINGS.iter().filter_map(|name| Some((*name, sysctl::Linux.read(name).ok()?))).collect()
}
