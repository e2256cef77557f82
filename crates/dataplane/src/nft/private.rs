//! Private chains: those of Service ports whose endpoint is not just any, by session affinity or a load-balancing policy.
//!
//! Only these ports pay for them. A chain selects an endpoint for a list, [`affinity`](super::affinity) remembers it or a
//! policy alone decides; other chains lead to it as the traffic policies say. Chains are named by content, so a change creates
//! a new chain. The map of a policy keeps its name, so that a change of endpoints costs the slots that change.

use std::collections::BTreeMap;

use kernel::nft::{Chain, Field, Key, Name, Part, Set, SetValue, Statement, Type};
use plan::balancing::{HASH_SEED, HASH_SLOTS};
use plan::{Backend, Balancing, LocalDetector, Options, Scope, ServicePort};

use super::affinity;
use super::elements::target;
use super::fragment::{Fragment, Routing};
use super::ruleset::{MARK, detector};
use super::shapes::{go, outside_local};

/// Builds the private chains of one Service port.
pub(super) struct PrivateChains<'a> {
    local: &'a LocalDetector,
    pub(super) port: &'a ServicePort,
}

impl<'a> PrivateChains<'a> {
    /// The builder of a port, if it has private chains.
    pub(super) fn of(options: &'a Options, port: &'a ServicePort) -> Option<Self> {
        let has_policy =
            matches!(port.balancing, Balancing::RoundRobin | Balancing::Weighted(_) | Balancing::Maglev(_));
        let local = detector(options, port.key.family);
        (has_policy || port.affinity.is_some()).then_some(Self { local, port })
    }

    /// Adds the chain for a routing, and all that it needs, to the fragment.
    pub(super) fn chain(&self, routing: Routing<'_>, fragment: &mut Fragment) -> Name {
        match routing {
            Routing::Cluster(_) => self.choose(Scope::Cluster, fragment),
            Routing::Local(_) => self.choose(Scope::Local, fragment),
            Routing::Outside(_) => {
                let anywhere = self.choose(Scope::Cluster, fragment);
                self.add("outside", vec![vec![Statement::Mark(MARK), go(anywhere)]], fragment)
            }
            Routing::OutsideLocal(_, here) => {
                let anywhere = self.choose(Scope::Cluster, fragment);
                let here = (!here.is_empty()).then(|| self.choose(Scope::Local, fragment));
                self.add("outside-local", outside_local(&anywhere, here, self.local), fragment)
            }
            Routing::NoEndpoints | Routing::NoLocalEndpoints => self.add("nobody", Vec::new(), fragment),
        }
    }

    /// The chain that selects an endpoint.
    fn choose(&self, scope: Scope, fragment: &mut Fragment) -> Name {
        let slots = self.port.slots(scope);
        match self.port.affinity {
            Some(seconds) => affinity::choose(self, seconds, (self.port.endpoints(scope), &slots), fragment),
            None => self.draw(scope, &slots, fragment),
        }
    }

    /// The chain that selects an endpoint by the policy alone.
    fn draw(&self, scope: Scope, slots: &[Backend], fragment: &mut Fragment) -> Name {
        let what = if scope == Scope::Cluster { "cluster" } else { "local" };
        let map: Name = format!("{}-{what}", self.prefix()).into();
        let protocol = Part::Protocol(self.port.key.protocol.number());
        let mut elements = BTreeMap::new();
        // For every port of the Service port: `nft` can list a DNAT with a port only if the map key has one.
        for port in self.numbers() {
            for (slot, backend) in (0u32..).zip(slots) {
                elements.insert(Key::new(&[protocol, Part::Port(port), Part::Random(slot)]), target(*backend));
            }
        }
        let set = Set {
            key: vec![Type::Protocol, Type::Port, Type::Random],
            value: SetValue::Data(vec![Type::Address, Type::Port]),
            interval: false,
            timeout: None,
            counters: false,
            elements,
        };
        fragment.sets.insert(map.clone(), set);
        let key = vec![Field::Protocol, Field::DestinationPort, self.slot_field(slots)];
        self.add("choose", vec![vec![Statement::Translate { key, map }]], fragment)
    }

    /// How packets draw one of these slots.
    pub(super) fn slot_field(&self, slots: &[Backend]) -> Field {
        let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        match self.port.balancing {
            Balancing::RoundRobin => Field::Incremental(count),
            Balancing::Maglev(_) => Field::SourceHash { below: HASH_SLOTS, seed: HASH_SEED },
            Balancing::Random | Balancing::LeastConnections | Balancing::Weighted(_) | Balancing::Leader => {
                Field::Random(count)
            }
        }
    }

    /// The ports at which packets arrive: that of its addresses and the node port.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> {
        [self.port.port].into_iter().chain(self.port.node_port)
    }

    pub(super) fn add(&self, what: &str, rules: Vec<Vec<Statement>>, fragment: &mut Fragment) -> Name {
        let name: Name = format!("{}-{what}-{:08x}", self.prefix(), hash(&format!("{rules:?}"))).into();
        fragment.chains.insert(name.clone(), Chain { base: None, rules });
        name
    }

    /// Name prefix of this Service port: readable and unique.
    pub(super) fn prefix(&self) -> String {
        let key = &self.port.key;
        let name = key.service.rsplit('/').next().unwrap_or_default();
        let kind = if self.port.affinity.is_some() { "sticky" } else { self.port.balancing.policy().name() };
        format!("{kind}-{name}-{:08x}", hash(&(&key.service, &key.port, key.protocol)))
    }
}

/// Content hash for names; stable across processes because names outlive them.
pub(super) fn hash(content: &impl std::hash::Hash) -> u32 {
    let mut hasher = api::hash::Fnv1a32::default();
    content.hash(&mut hasher);
    hasher.0
}
