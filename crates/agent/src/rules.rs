//! nftables rules of the node's Pods: masquerading of traffic that leaves the cluster, and hostPorts.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use ipnet::IpNet;
use kernel::nft::{
    Base, BaseKind, Batch, Change, Family, Field, Hook, Key, Nft as _, Part, Set, SetValue, Statement, Type,
    Value as Data,
};

use crate::machine::{HostPort, Machine};

/// The nftables table of these rules.
const TABLE: &str = "waypost-pods";

/// Replaces the table. Traffic of Pods to destinations outside the cluster is masqueraded, because Pod IPs are not routable there.
/// Traffic to a hostPort of this node is translated to the Pod.
pub(crate) fn sync(machine: &Machine) -> io::Result<()> {
    let (own, cluster) = (machine.ranges.borrow().clone(), &machine.settings.cluster);
    let host_ports: BTreeSet<HostPort> = machine.host_ports.lock().values().flatten().copied().collect();
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
            table(&mut batch, family, &pods, &union(of(cluster), &pods), &host_ports);
        }
    }
    nft.apply(&batch).map_err(io::Error::other)
}

fn table(batch: &mut Batch, family: Family, pods: &[IpNet], cluster: &[IpNet], host_ports: &BTreeSet<HostPort>) {
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
    let own = host_ports.iter().filter(|port| Family::of(port.to) == family);
    let elements: Vec<(Key, Data)> = own
        .map(|mapping| {
            let key = Key::new(&[Part::Protocol(mapping.protocol), Part::Port(mapping.host_port)]);
            (key, Data::data(&[Part::Address(mapping.to), Part::Port(mapping.port)]))
        })
        .collect();
    if elements.is_empty() {
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
        Change::AddElements(family, name(), "doors".into(), elements),
        // After the Service rules: node ports take precedence.
        Change::AddChain(family, name(), "prerouting".into(), nat(Hook::Prerouting, -90)),
        Change::AddRules(family, name(), "prerouting".into(), vec![into.clone()]),
        Change::AddChain(family, name(), "output".into(), nat(Hook::Output, -90)),
        Change::AddRules(family, name(), "output".into(), vec![into]),
    ]);
}

/// The union of the CIDRs without overlaps.
fn union(mut ranges: Vec<IpNet>, more: &[IpNet]) -> Vec<IpNet> {
    ranges.extend(more);
    IpNet::aggregate(&ranges)
}

fn elements(ranges: &[IpNet]) -> Vec<(Key, Data)> {
    let part = |ip: IpAddr| [Part::Address(ip)];
    let key = |range: &IpNet| Key::range(&part(range.network()), &part(range.broadcast()));
    ranges.iter().map(|range| (key(range), Data::Nothing)).collect()
}

/// Removes the table; true when it existed.
///
/// # Errors
/// When it cannot be removed.
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
