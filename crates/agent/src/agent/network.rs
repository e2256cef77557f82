//! The network of this machine's Pods follows the Nodes: its ranges, the bridge, routes to Pods elsewhere, and how Pods speak to the
//! world beyond the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use api::value::ValueExt as _;
use client::watch::{Event, KnownKeys, Watch};
use ipnet::IpNet;
use kernel::nft::{
    Base, BaseKind, Batch, Change, Family, Field, Hook, Key, Nft as _, Part, Set, SetValue, Statement, Type,
    Value as Data,
};
use kernel::pod_network::Route;
use kernel::sysctl::kept::Kept;
use kernel::sysctl::{self, Sysctl as _};
use serde_json::Value;
use tokio::sync::watch;

use super::inputs::parse;
use super::routes::{Limits, Place, Refusal, routes};
use crate::machine::{Door, Machine};
use crate::sandbox;

/// Where settings of the machine are noted that were changed for Pods.
const SETTINGS: &str = "/run/waypost/agent";
/// The table of rules for Pods.
const TABLE: &str = "waypost-pods";

/// Objects of one kind, each as far as it concerns the network.
struct Listed<T> {
    watching: Watch,
    names: KnownKeys,
    objects: BTreeMap<String, T>,
    complete: bool,
}

impl<T: PartialEq> Listed<T> {
    fn new(watching: Watch) -> Self {
        Self { watching, names: KnownKeys::default(), objects: BTreeMap::new(), complete: false }
    }

    /// Waits for the next event, and takes it in. Says whether something is another than before.
    async fn next(&mut self, read: impl Fn(&Value) -> T) -> bool {
        let event = self.watching.next().await;
        let mut changed = false;
        for key in self.names.apply(&event) {
            changed |= self.objects.remove(&*key).is_some();
        }
        match &event {
            Event::InitApply(object) | Event::Apply(object) => {
                if let Some(value) = parse(object) {
                    let new = read(&value);
                    changed |= self.objects.get(&object.key()) != Some(&new);
                    self.objects.insert(object.key(), new);
                }
            }
            Event::Delete(object) => changed |= self.objects.remove(&object.key()).is_some(),
            Event::InitDone => changed |= !std::mem::replace(&mut self.complete, true),
            Event::Init => {}
        }
        changed
    }
}

/// The ranges of a ServiceCIDR.
fn service_ranges(object: &Value) -> Vec<IpNet> {
    object.texts("spec.cidrs").into_iter().filter_map(|range| range.parse().ok()).collect()
}

/// Follows the Nodes, and the ranges of Services, which no Node may claim.
pub(super) async fn follow(
    machine: Arc<Machine>,
    nodes: Watch,
    services: Watch,
    ranges: watch::Sender<Vec<IpNet>>,
    known: watch::Sender<bool>,
) {
    let (mut nodes, mut services) = (Listed::new(nodes), Listed::new(services));
    let mut refused = BTreeSet::new();
    loop {
        let changed = tokio::select! {
            changed = nodes.next(Place::read) => changed,
            changed = services.next(service_ranges) => changed,
        };
        // A server that has no ServiceCIDRs says nothing of them; Pods do not wait for it.
        if !nodes.complete || (!changed && *known.borrow()) {
            continue;
        }
        let nodes = &nodes.objects;
        let own = nodes.get(&machine.settings.node).cloned().unwrap_or_default();
        if *ranges.borrow() != own.ranges && !own.ranges.is_empty() {
            ranges.send_replace(own.ranges.clone());
            let machine = machine.clone();
            let _ = tokio::task::spawn_blocking(move || prepare(&machine)).await;
        }
        let services: Vec<IpNet> = services.objects.values().flatten().copied().collect();
        let (own_name, cluster) = (&machine.settings.node, &machine.settings.cluster);
        let limits = Limits { own: own_name, cluster, services: &services, host: &machine.host };
        let (wanted, now_refused) = routes(nodes, &limits);
        for Refusal { node, range, why } in now_refused.difference(&refused) {
            tracing::warn!(%node, %range, %why, "refused pod CIDR of node");
        }
        refused = now_refused;
        let machine = machine.clone();
        let _ = tokio::task::spawn_blocking(move || set_routes(&machine, &wanted)).await;
        if !own.ranges.is_empty() {
            known.send_replace(true);
        }
    }
}

fn set_routes(machine: &Machine, wanted: &BTreeSet<Route>) {
    match machine.network.lock().routes(wanted) {
        Ok(refused) => {
            for (route, errno) in refused {
                tracing::warn!(
                    to = %route.to, via = %route.via, %errno,
                    "no route to the Pods of a Node: it is not on a network of this machine"
                );
            }
        }
        Err(error) => tracing::warn!(%error, "routes to Pods of other Nodes could not be made"),
    }
}

/// Makes the bridge, and lets this machine forward.
fn prepare(machine: &Machine) {
    let bridge = sandbox::bridge_of(machine);
    tracing::info!(bridge = bridge.name, addresses = ?bridge.addresses, "the network of Pods");
    if let Err(error) = forward() {
        tracing::warn!(%error, "this machine may not forward packets of Pods");
    }
    if let Err(error) = machine.network.lock().bridge(&bridge) {
        tracing::warn!(%error, "the bridge of Pods could not be made");
    }
    let ports = sandbox::ports(machine);
    match machine.network.lock().guard(&ports) {
        Ok(true) => {}
        Ok(false) => tracing::warn!(
            "source addresses of Pods are not checked: this kernel has no nftables for bridges (CONFIG_NF_TABLES_BRIDGE)"
        ),
        Err(error) => tracing::warn!(%error, "source addresses of Pods cannot be checked yet; no Pod gets a network"),
    }
    if let Err(error) = write_rules(machine) {
        tracing::warn!(%error, "Pods cannot reach the world beyond the cluster, nor be reached by hostPort");
    }
}

/// Lets packets of Pods pass; what was changed is noted for `waypost cleanup`.
fn forward() -> io::Result<()> {
    let mut kept = Kept::open(Path::new(SETTINGS))?;
    let mut machine = sysctl::Linux;
    // A machine that forwards no longer learns its own way out from routers, unless it is told to.
    let forwards = machine.read("net/ipv6/conf/all/forwarding").is_ok_and(|value| value == "1");
    let links = std::fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
    for link in links.filter(|_| !forwards) {
        let name = format!("net/ipv6/conf/{}/accept_ra", link.file_name().to_string_lossy());
        if machine.read(&name).is_ok_and(|value| value == "1") && !name.contains("/all/") && !name.contains("/lo/") {
            let _ = kept.ledger.set(&mut machine, &name, "2");
        }
    }
    let v6 = kept.ledger.set(&mut machine, "net/ipv6/conf/all/forwarding", "1");
    let v4 = kept.ledger.set(&mut machine, "net/ipv4/ip_forward", "1");
    kept.save()?;
    // A machine without IPv6 has nothing to forward of it.
    let _ = v6;
    v4.map(|_| ())
}

/// Puts settings back; answers whether there were some.
///
/// # Errors
/// When one cannot be put back.
pub fn clean_settings() -> io::Result<bool> {
    let mut kept = Kept::open(Path::new(SETTINGS))?;
    let found = !kept.ledger.changed.is_empty();
    let failures = kept.ledger.restore(&mut sysctl::Linux);
    kept.save()?;
    match failures.into_iter().next() {
        Some((_, error)) => Err(error),
        None => Ok(found),
    }
}

/// Writes the rules of Pods anew, as a whole. Packets of Pods that leave the cluster get the address of this machine: nobody out there
/// knows the way to theirs. Packets to a `hostPort` of this machine go to the Pod that asked for it.
pub(crate) fn write_rules(machine: &Machine) -> io::Result<()> {
    let (own, cluster) = (machine.ranges.borrow().clone(), &machine.settings.cluster);
    let doors: BTreeSet<Door> = machine.doors.lock().values().flatten().copied().collect();
    let mut nft = kernel::nft::linux::Linux::open().map_err(io::Error::other)?;
    let mut batch = Batch::default();
    for family in Family::ALL {
        let of = |list: &[IpNet]| -> Vec<IpNet> {
            list.iter().copied().filter(|range| Family::of(range.addr()) == family).collect()
        };
        if nft.dump(family, TABLE).map_err(io::Error::other)?.is_some() {
            batch.changes.push(Change::DeleteTable(family, TABLE.into()));
        }
        let pods = of(&own);
        if !pods.is_empty() {
            table(&mut batch, family, &pods, &union(of(cluster), &pods), &doors);
        }
    }
    nft.apply(&batch).map_err(io::Error::other)
}

fn table(batch: &mut Batch, family: Family, pods: &[IpNet], cluster: &[IpNet], doors: &BTreeSet<Door>) {
    let name = || TABLE.into();
    let set = Set { key: vec![Type::Address], interval: true, ..Set::default() };
    let out = vec![
        Statement::In { key: vec![Field::Source], set: "pods".into(), negate: false },
        Statement::In { key: vec![Field::Destination], set: "cluster".into(), negate: true },
        Statement::Masquerade,
    ];
    let nat = |hook, priority| Some(Base { kind: BaseKind::Nat, hook, priority });
    batch.changes.extend([
        Change::AddTable(family, name(), "1".to_owned()),
        Change::AddSet(family, name(), "pods".into(), set.clone()),
        Change::AddSet(family, name(), "cluster".into(), set),
        Change::AddElements(family, name(), "pods".into(), elements(pods)),
        Change::AddElements(family, name(), "cluster".into(), elements(cluster)),
        Change::AddChain(family, name(), "postrouting".into(), nat(Hook::Postrouting, 100)),
        Change::AddRules(family, name(), "postrouting".into(), vec![out]),
    ]);
    let own = doors.iter().filter(|door| Family::of(door.to) == family);
    let found: Vec<(Key, Data)> = own
        .map(|door| {
            let key = Key::new(&[Part::Protocol(door.protocol), Part::Port(door.host_port)]);
            (key, Data::data(&[Part::Address(door.to), Part::Port(door.port)]))
        })
        .collect();
    if found.is_empty() {
        return;
    }
    let map = Set {
        key: vec![Type::Protocol, Type::Port],
        value: SetValue::Data(vec![Type::Address, Type::Port]),
        ..Set::default()
    };
    let key = vec![Field::Protocol, Field::DestinationPort];
    let into = vec![Statement::LocalDestination, Statement::Translate { key, map: "doors".into() }];
    batch.changes.extend([
        Change::AddSet(family, name(), "doors".into(), map),
        Change::AddElements(family, name(), "doors".into(), found),
        // After those of Services, which own their ports.
        Change::AddChain(family, name(), "prerouting".into(), nat(Hook::Prerouting, -90)),
        Change::AddRules(family, name(), "prerouting".into(), vec![into.clone()]),
        Change::AddChain(family, name(), "output".into(), nat(Hook::Output, -90)),
        Change::AddRules(family, name(), "output".into(), vec![into]),
    ]);
}

/// All of the ranges, none inside another.
fn union(mut ranges: Vec<IpNet>, more: &[IpNet]) -> Vec<IpNet> {
    ranges.extend(more);
    IpNet::aggregate(&ranges)
}

fn elements(ranges: &[IpNet]) -> Vec<(Key, Data)> {
    let part = |ip: IpAddr| [Part::Address(ip)];
    let key = |range: &IpNet| Key::range(&part(range.network()), &part(range.broadcast()));
    ranges.iter().map(|range| (key(range), Data::Nothing)).collect()
}

/// Removes the rules of Pods; answers whether there were some.
///
/// # Errors
/// When they are there and cannot be removed.
pub fn remove_table() -> io::Result<bool> {
    let mut nft = kernel::nft::linux::Linux::open().map_err(io::Error::other)?;
    let mut batch = Batch::default();
    for family in Family::ALL {
        if nft.dump(family, TABLE).map_err(io::Error::other)?.is_some() {
            batch.changes.push(Change::DeleteTable(family, TABLE.into()));
        }
    }
    let found = !batch.changes.is_empty();
    if found {
        nft.apply(&batch).map_err(io::Error::other)?;
    }
    Ok(found)
}
