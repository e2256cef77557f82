//! Session affinity: a client keeps its endpoint for a timeout after its last connection.
//!
//! Only Services with affinity pay for it. Each of their endpoints has a set of clients, filled by packets and expired
//! by the kernel, and each Service port has a chain that looks up these sets before it chooses. Sets are named by
//! endpoint, so they survive changes of other endpoints; chains are named by content, so a change creates a new chain.

use std::collections::BTreeMap;

use kernel::nft::{Chain, Field, Name, Set, SetValue, Statement, Type, Value, Verdict};
use plan::{Backend, LocalDetector, Options, ServicePort};

use super::elements::{node_port_key, pick_key, target};
use super::fragment::{Fragment, Routing};
use super::ruleset::{MARK, detector};
use super::shapes::{go, outside_local};

/// Builds the affinity chains of one Service port.
pub(super) struct AffinityChains<'a> {
    local: &'a LocalDetector,
    port: &'a ServicePort,
    seconds: u32,
}

impl<'a> AffinityChains<'a> {
    pub(super) fn new(options: &'a Options, port: &'a ServicePort, seconds: u32) -> Self {
        Self { local: detector(options, port.key.family), port, seconds }
    }

    /// Adds the chain for a routing, and all that it needs, to the fragment.
    pub(super) fn chain(&self, routing: Routing<'_>, fragment: &mut Fragment) -> Name {
        match routing {
            Routing::Cluster(list) | Routing::Local(list) => self.choose(list, fragment),
            Routing::Outside(list) => {
                let anywhere = self.choose(list, fragment);
                self.add("outside", vec![vec![Statement::Mark(MARK), go(anywhere)]], fragment)
            }
            Routing::OutsideLocal(list, here) => {
                let anywhere = self.choose(list, fragment);
                let here = (!here.is_empty()).then(|| self.choose(here, fragment));
                self.add("outside-local", outside_local(&anywhere, here, self.local), fragment)
            }
            Routing::NoEndpoints | Routing::NoLocalEndpoints => self.add("nobody", Vec::new(), fragment),
        }
    }

    /// The chain that looks up the client's endpoint or chooses one.
    fn choose(&self, list: &[Backend], fragment: &mut Fragment) -> Name {
        let mut rules = Vec::new();
        let mut picks = BTreeMap::new();
        for (slot, backend) in (0u32..).zip(list) {
            let (clients, endpoint) = self.endpoint(*backend, fragment);
            rules.push(vec![
                Statement::In { key: vec![Field::Source], set: clients, negate: false },
                go(endpoint.clone()),
            ]);
            picks.insert(pick_key(slot), Value::Verdict(Verdict::Goto(endpoint)));
        }
        let count = u32::try_from(list.len()).unwrap_or(u32::MAX);
        let map: Name = format!("{}-pick-{:08x}", self.prefix(), hash(&format!("{picks:?}"))).into();
        let set = Set {
            key: vec![Type::Random],
            value: SetValue::Verdict,
            interval: false,
            timeout: None,
            counters: false,
            elements: picks,
        };
        fragment.sets.insert(map.clone(), set);
        rules.push(vec![Statement::Dispatch { key: vec![Field::Random(count)], map }]);
        self.add("choose", rules, fragment)
    }

    /// The client set of an endpoint and the chain that leads to it.
    fn endpoint(&self, backend: Backend, fragment: &mut Fragment) -> (Name, Name) {
        let base = format!("{}-{}-{}", self.prefix(), backend.ip.to_string().replace(':', "."), backend.port);
        let clients: Name = format!("{base}-{}s", self.seconds).into();
        let ports: Vec<u16> = [self.port.port].into_iter().chain(self.port.node_port).collect();
        let place: Name = format!("{base}-at-{:08x}", hash(&ports)).into();
        let set =
            |key, value, timeout, elements| Set { key, value, interval: false, timeout, counters: false, elements };
        fragment
            .sets
            .insert(clients.clone(), set(vec![Type::Address], SetValue::Nothing, Some(self.seconds), BTreeMap::new()));
        // The same endpoint for every port: `nft` can list a DNAT with a port only if the map key has one.
        let at = ports.iter().map(|port| (node_port_key(self.port.key.protocol, *port), target(backend)));
        let data = SetValue::Data(vec![Type::Address, Type::Port]);
        fragment.sets.insert(place.clone(), set(vec![Type::Protocol, Type::Port], data, None, at.collect()));
        // Two rules: when the set is full, the connection is still translated.
        let rules = vec![
            vec![Statement::Remember { set: clients.clone(), key: vec![Field::Source] }],
            vec![Statement::Translate { key: vec![Field::Protocol, Field::DestinationPort], map: place }],
        ];
        let chain: Name = format!("{base}-{}s-to-{:08x}", self.seconds, hash(&ports)).into();
        fragment.chains.insert(chain.clone(), Chain { base: None, rules });
        (clients, chain)
    }

    fn add(&self, what: &str, rules: Vec<Vec<Statement>>, fragment: &mut Fragment) -> Name {
        let name: Name = format!("{}-{what}-{:08x}", self.prefix(), hash(&format!("{rules:?}"))).into();
        fragment.chains.insert(name.clone(), Chain { base: None, rules });
        name
    }

    /// Name prefix of this Service port: readable and unique.
    fn prefix(&self) -> String {
        let key = &self.port.key;
        let name = key.service.rsplit('/').next().unwrap_or_default();
        format!("sticky-{name}-{:08x}", hash(&(&key.service, &key.port, key.protocol)))
    }
}

/// Content hash for names; stable across processes because names outlive them.
fn hash(content: &impl std::hash::Hash) -> u32 {
    let mut hasher = api::hash::Fnv1a32::default();
    content.hash(&mut hasher);
    hasher.0
}
