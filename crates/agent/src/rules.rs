//! nftables rules of the node's Pods: masquerading of traffic that leaves the cluster, and hostPorts.

use std::collections::BTreeMap;
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
    let host_ports: Vec<HostPort> = machine.host_ports.lock().values().flatten().copied().collect();
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

fn table(batch: &mut Batch, family: Family, pods: &[IpNet], cluster: &[IpNet], host_ports: &[HostPort]) {
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
    host_port_maps(batch, family, host_ports);
}

/// The maps of hostPorts, each with its lookup: the ports of one address come before those of all.
///
/// Those of a loopback address are looked up for packets of this machine only: a neighbour could send packets to such an address, which the
/// kernel would drop only if they still had it when they are routed.
fn host_port_maps(batch: &mut Batch, family: Family, host_ports: &[HostPort]) {
    let own = || host_ports.iter().filter(|port| Family::of(port.to) == family);
    let is_loopback = |port: &&HostPort| port.at.is_some_and(|at| at.is_loopback());
    let maps = [
        ("loopback-host-ports", elements_of(own().filter(is_loopback))),
        ("address-host-ports", elements_of(own().filter(|port| port.at.is_some() && !is_loopback(port)))),
        ("host-ports", elements_of(own().filter(|port| port.at.is_none()))),
    ];
    let (mut prerouting, mut output) = (Vec::new(), Vec::new());
    for (name, elements) in maps.into_iter().filter(|(_, elements)| !elements.is_empty()) {
        let mut key = vec![Field::Protocol, Field::DestinationPort];
        if name != "host-ports" {
            key.insert(0, Field::Destination);
        }
        let value = SetValue::Data(vec![Type::Address, Type::Port]);
        let map = Set { key: key.iter().map(|field| field.kind()).collect(), value, ..Set::default() };
        let rule = vec![Statement::LocalDestination, Statement::Translate { key, map: name.into() }];
        if name != "loopback-host-ports" {
            prerouting.push(rule.clone());
        }
        output.push(rule);
        batch.changes.extend([
            Change::AddSet(family, TABLE.into(), name.into(), map),
            Change::AddElements(family, TABLE.into(), name.into(), elements),
        ]);
    }
    for (name, hook, rules) in [("prerouting", Hook::Prerouting, prerouting), ("output", Hook::Output, output)] {
        if !rules.is_empty() {
            // After the Service rules: node ports take precedence.
            let base = Base { kind: BaseKind::Nat, hook, priority: -90 };
            batch.changes.extend([
                Change::AddChain(family, TABLE.into(), name.into(), Some(base)),
                Change::AddRules(family, TABLE.into(), name.into(), rules),
            ]);
        }
    }
}

/// The elements of a map. If several Pods request the same port of an address, one gets it: the kernel rejects duplicates with the whole batch.
fn elements_of<'a>(host_ports: impl Iterator<Item = &'a HostPort>) -> Vec<(Key, Data)> {
    let mut out: BTreeMap<_, Data> = BTreeMap::new();
    for mapping in host_ports {
        let data = || Data::data(&[Part::Address(mapping.to), Part::Port(mapping.port)]);
        out.entry((mapping.at, mapping.protocol, mapping.host_port)).or_insert_with(data);
    }
    let key = |(at, protocol, port): (Option<IpAddr>, u8, u16)| {
        let parts: Vec<Part> =
            at.map(Part::Address).into_iter().chain([Part::Protocol(protocol), Part::Port(port)]).collect();
        Key::new(&parts)
    };
    out.into_iter().map(|(at, data)| (key(at), data)).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The number of rules by chain, and the elements by map.
    type Written = (BTreeMap<String, usize>, BTreeMap<String, Vec<(Key, Data)>>);

    /// The rules of a hook and the elements of a map, after the hostPorts of these Pods were written.
    fn written(pods: &[(serde_json::Value, &str)]) -> Written {
        let of = |(ports, to): &(serde_json::Value, &str)| {
            let pod = json!({"spec": {"containers": [{"ports": ports}]}});
            HostPort::of(&pod, &[to.parse().expect("an address"), "fd00::7".parse().expect("an address")])
        };
        let mut batch = Batch::default();
        host_port_maps(&mut batch, Family::Ip, &pods.iter().flat_map(of).collect::<Vec<_>>());
        let (mut rules, mut elements) = (BTreeMap::new(), BTreeMap::new());
        for change in batch.changes {
            match change {
                Change::AddRules(_, _, chain, list) => drop(rules.insert(chain.to_string(), list.len())),
                Change::AddElements(_, _, map, list) => drop(elements.insert(map.to_string(), list)),
                _ => {}
            }
        }
        (rules, elements)
    }

    fn element(at: Option<&str>, protocol: u8, port: u16, to: &str) -> (Key, Data) {
        let address = |text: &str| Part::Address(text.parse().expect("an address"));
        let key: Vec<Part> = at.map(address).into_iter().chain([Part::Protocol(protocol), Part::Port(port)]).collect();
        (Key::new(&key), Data::data(&[address(to), Part::Port(8080)]))
    }

    #[test]
    fn a_port_may_be_that_of_one_address() {
        let port = |at: &str, protocol: &str| json!([{"containerPort": 8080, "hostPort": 80, "hostIP": at, "protocol": protocol}]);
        let (rules, elements) = written(&[
            (port("127.0.0.1", "TCP"), "10.0.0.1"),
            (port("192.0.2.1", "TCP"), "10.0.0.2"),
            (port("192.0.2.1", "UDP"), "10.0.0.3"),
            (port("0.0.0.0", "TCP"), "10.0.0.4"),
            (port("2001:db8::1", "TCP"), "10.0.0.5"),
        ]);
        assert_eq!(elements["loopback-host-ports"], [element(Some("127.0.0.1"), 6, 80, "10.0.0.1")]);
        let addressed = [element(Some("192.0.2.1"), 6, 80, "10.0.0.2"), element(Some("192.0.2.1"), 17, 80, "10.0.0.3")];
        assert_eq!(elements["address-host-ports"], addressed);
        assert_eq!(elements["host-ports"], [element(None, 6, 80, "10.0.0.4")]);
        assert_eq!(
            rules,
            [("output".to_owned(), 3), ("prerouting".to_owned(), 2)].into(),
            "loopback is not open to neighbours"
        );
    }

    #[test]
    fn of_two_pods_with_one_port_the_first_has_it() {
        let port = || json!([{"containerPort": 8080, "hostPort": 80}]);
        let (_, elements) = written(&[(port(), "10.0.0.2"), (port(), "10.0.0.1")]);
        assert_eq!(elements["host-ports"], [element(None, 6, 80, "10.0.0.2")]);
        assert_eq!(written(&[]), (BTreeMap::new(), BTreeMap::new()));
    }
}
