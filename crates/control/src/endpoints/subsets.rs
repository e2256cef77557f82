//! Subsets: addresses that share ports, in one canonical order.

use std::collections::BTreeMap;

use api::view::endpoints::{Address, Port, Subset};

/// An address with its ports.
pub(crate) struct AddressPorts {
    /// The address.
    pub(crate) address: Address,
    /// Whether it is ready.
    pub(crate) ready: bool,
    /// Its ports; may be empty.
    pub(crate) ports: Vec<Port>,
}

/// The identity of an address: Pods on the host network share addresses.
type Identity = (Box<str>, Box<str>);

/// Groups addresses by their ports. Not ready wins over ready.
pub(crate) fn repack(places: impl Iterator<Item = AddressPorts>) -> Vec<Subset> {
    let mut addresses: BTreeMap<Identity, Address> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<Port>, BTreeMap<Identity, bool>> = BTreeMap::new();
    for AddressPorts { address, ready, ports } in places {
        let uid = address.target_ref.as_ref().map_or_else(Box::default, |target| target.uid.clone());
        let identity = (address.ip.clone(), uid);
        let ports = if ports.is_empty() { vec![None] } else { ports.into_iter().map(Some).collect() };
        for port in ports {
            let state = by_port.entry(port).or_default().entry(identity.clone()).or_insert(ready);
            *state &= ready;
        }
        addresses.entry(identity).or_insert(address);
    }
    let mut by_addresses: BTreeMap<BTreeMap<Identity, bool>, Vec<Port>> = BTreeMap::new();
    for (port, states) in by_port {
        by_addresses.entry(states).or_default().extend(port);
    }
    let mut subsets: Vec<Subset> = by_addresses
        .into_iter()
        .map(|(states, ports)| {
            let pick = |wanted: bool| {
                let of_state = states.iter().filter(|(_, ready)| **ready == wanted);
                of_state.filter_map(|(identity, _)| addresses.get(identity).cloned()).collect()
            };
            Subset { addresses: pick(true), not_ready_addresses: pick(false), ports }
        })
        .collect();
    subsets.sort_by(|a, b| (&a.ports, &a.addresses).cmp(&(&b.ports, &b.addresses)));
    subsets
}

/// Subsets in canonical order.
pub(crate) fn canonical(subsets: Vec<Subset>) -> Vec<Subset> {
    repack(subsets.into_iter().flat_map(|Subset { addresses, not_ready_addresses, ports }| {
        let ready = addresses.into_iter().map(|address| (address, true));
        let not_ready = not_ready_addresses.into_iter().map(|address| (address, false));
        let place = move |(address, ready)| AddressPorts { address, ready, ports: ports.clone() };
        ready.chain(not_ready).map(place)
    }))
}

/// Truncates to at most `max` addresses, unready ones first; subsets keep their proportions. True when truncated.
pub(crate) fn truncate(mut subsets: Vec<Subset>, max: usize) -> (Vec<Subset>, bool) {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let not_ready: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + not_ready <= max {
        return (subsets, false);
    }
    let only_ready = ready > max;
    let (total, room) = if only_ready { (ready, max) } else { (not_ready, max - ready) };
    let mut left = room;
    for subset in &mut subsets {
        if only_ready {
            subset.not_ready_addresses.clear();
        }
        let list = if only_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (list.len() * room).div_ceil(total).min(left);
        list.truncate(share);
        left -= list.len();
    }
    subsets.retain(|subset| !subset.addresses.is_empty() || !subset.not_ready_addresses.is_empty());
    (subsets, true)
}

#[cfg(test)]
mod tests {
    use api::view::Protocol;

    use super::*;

    fn place(ip: &str, ready: bool, ports: &[u16]) -> AddressPorts {
        let port = |port: &u16| Port { port: *port, protocol: Some(Protocol::Tcp), ..Port::default() };
        let address = Address { ip: ip.into(), ..Address::default() };
        AddressPorts { address, ready, ports: ports.iter().map(port).collect() }
    }

    fn summary(subsets: &[Subset]) -> Vec<(Vec<&str>, Vec<&str>, Vec<u16>)> {
        let ips = |list: &'_ [Address]| list.iter().map(|address| address.ip.to_string()).collect::<Vec<_>>();
        let leak = |list: Vec<String>| list.into_iter().map(|ip| &*ip.leak()).collect();
        let one = |subset: &Subset| {
            let ports = subset.ports.iter().map(|port| port.port).collect();
            (leak(ips(&subset.addresses)), leak(ips(&subset.not_ready_addresses)), ports)
        };
        subsets.iter().map(one).collect()
    }

    #[test]
    fn addresses_that_share_ports_share_a_subset() {
        let places = [place("2", true, &[80, 81]), place("1", true, &[81, 80]), place("3", false, &[80])];
        let subsets = repack(places.into_iter());
        assert_eq!(
            summary(&subsets),
            [(vec!["1", "2"], vec!["3"], vec![80]), (vec!["1", "2"], vec![], vec![81])],
            "port 80 leads to three, port 81 to two"
        );
        assert_eq!(canonical(subsets.clone()), subsets);
    }

    #[test]
    fn not_ready_wins_and_an_empty_port_set_is_a_subset() {
        let places = [place("1", true, &[80]), place("1", false, &[80]), place("2", true, &[])];
        assert_eq!(summary(&repack(places.into_iter())), [(vec!["2"], vec![], vec![]), (vec![], vec!["1"], vec![80])]);
    }

    #[test]
    fn unready_addresses_are_truncated_first() {
        let many = |count: usize, ready| (0..count).map(move |n| place(&format!("{ready}{n:04}"), ready, &[80]));
        let (subsets, truncated) = truncate(repack(many(6, true).chain(many(6, false))), 10);
        assert!(truncated);
        assert_eq!((subsets[0].addresses.len(), subsets[0].not_ready_addresses.len()), (6, 4));
        let (subsets, _) = truncate(repack(many(12, true).chain(many(6, false))), 10);
        assert_eq!((subsets[0].addresses.len(), subsets[0].not_ready_addresses.len()), (10, 0));
        assert!(!truncate(repack(many(10, true)), 10).1);
    }

    #[test]
    fn subsets_keep_their_proportions() {
        let of = |from: usize, count: usize, port: u16| {
            (from..from + count).map(move |n| place(&format!("{n:04}"), true, &[port]))
        };
        let (subsets, _) = truncate(repack(of(0, 30, 80).chain(of(100, 10, 81))), 20);
        let sizes: Vec<usize> = subsets.iter().map(|subset| subset.addresses.len()).collect();
        assert_eq!(sizes, [15, 5]);
    }
}
