//! Session affinity: a client keeps its endpoint for a timeout after its last connection.
//!
//! Only Services with affinity pay for it. Each of their endpoints has a set of clients, filled by packets and expired
//! by the kernel, and each Service port has a chain that looks up these sets before it chooses. Sets are named by
//! endpoint, so they survive changes of other endpoints; chains are named by content, so a change creates a new chain.

use std::collections::BTreeMap;

use kernel::nft::{Chain, Field, Name, Set, SetValue, Statement, Type, Value, Verdict};
use plan::Backend;

use super::elements::{node_port_key, pick_key, target};
use super::fragment::Fragment;
use super::private::{PrivateChains, hash};
use super::shapes::go;

/// Adds the chain that looks up the client's endpoint or draws a slot of one, for clients that are remembered so many seconds.
pub(super) fn choose(
    chains: &PrivateChains<'_>,
    seconds: u32,
    (endpoints, slots): (&[Backend], &[Backend]),
    fragment: &mut Fragment,
) -> Name {
    let (mut rules, mut leading) = (Vec::new(), BTreeMap::new());
    for backend in endpoints {
        let (clients, chain) = endpoint(chains, seconds, *backend, fragment);
        rules.push(vec![Statement::In { key: vec![Field::Source], set: clients, negate: false }, go(chain.clone())]);
        leading.insert(*backend, chain);
    }
    let chain_of = |backend: &Backend| leading.get(backend).map(|chain| Value::Verdict(Verdict::Goto(chain.clone())));
    let picks: BTreeMap<_, _> =
        (0u32..).zip(slots).filter_map(|(slot, backend)| Some((pick_key(slot), chain_of(backend)?))).collect();
    let map: Name = format!("{}-pick-{:08x}", chains.prefix(), hash(&format!("{picks:?}"))).into();
    let set = Set {
        key: vec![Type::Random],
        value: SetValue::Verdict,
        interval: false,
        timeout: None,
        counters: false,
        elements: picks,
    };
    fragment.sets.insert(map.clone(), set);
    rules.push(vec![Statement::Dispatch { key: vec![chains.slot_field(slots)], map }]);
    chains.add("choose", rules, fragment)
}

/// The client set of an endpoint and the chain that leads to it.
fn endpoint(chains: &PrivateChains<'_>, seconds: u32, backend: Backend, fragment: &mut Fragment) -> (Name, Name) {
    let base = format!("{}-{}-{}", chains.prefix(), backend.ip.to_string().replace(':', "."), backend.port);
    let clients: Name = format!("{base}-{seconds}s").into();
    let ports: Vec<u16> = chains.numbers().collect();
    let place: Name = format!("{base}-at-{:08x}", hash(&ports)).into();
    let set = |key, value, timeout, elements| Set { key, value, interval: false, timeout, counters: false, elements };
    fragment.sets.insert(clients.clone(), set(vec![Type::Address], SetValue::Nothing, Some(seconds), BTreeMap::new()));
    // The same endpoint for every port: `nft` can list a DNAT with a port only if the map key has one.
    let at = ports.iter().map(|port| (node_port_key(chains.port.key.protocol, *port), target(backend)));
    let data = SetValue::Data(vec![Type::Address, Type::Port]);
    fragment.sets.insert(place.clone(), set(vec![Type::Protocol, Type::Port], data, None, at.collect()));
    // Two rules: when the set is full, the connection is still translated.
    let rules = vec![
        vec![Statement::Remember { set: clients.clone(), key: vec![Field::Source] }],
        vec![Statement::Translate { key: vec![Field::Protocol, Field::DestinationPort], map: place }],
    ];
    let chain: Name = format!("{base}-{seconds}s-to-{:08x}", hash(&ports)).into();
    fragment.chains.insert(chain.clone(), Chain { base: None, rules });
    (clients, chain)
}
