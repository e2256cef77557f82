//! Load-balancing policies: which of the endpoints of a Service port a new connection selects.
//!
//! In: the annotations of a Service ([`Requested`]), the data plane of the node. Out: the [`Balancing`] of each port, which backends
//! apply and the oracle knows, and problems. Traffic policies and topology filter endpoints first; session affinity keeps what a
//! policy selected once.
//!
//! A policy that a data plane cannot apply is refused with a reason, and the port stays with `random`. The exception is `leader`,
//! which selects among endpoints before backends see them, and works everywhere ([`crate::leader`]).

mod hash_table;
mod jhash;
mod requested;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

pub use self::hash_table::SLOTS as HASH_SLOTS;
use self::hash_table::hash_table;
pub(crate) use self::requested::Requested;
use crate::endpoints::PortEndpoint;
use crate::service_port::{Backend, ServicePort};

/// The seed with which the address of a client is hashed, on all nodes and in all releases.
pub const HASH_SEED: u32 = 0x7761_7970;
/// The largest sum of weights; larger ones are scaled down.
const MAX_WEIGHT_SLOTS: u32 = 4096;

/// A policy, by the value of the annotation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Policy {
    /// Any endpoint, each as likely as the others.
    #[default]
    Random,
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
    /// Any endpoint, as likely as its weight says.
    Weighted,
    /// The same endpoint for the same client address, by consistent hashing.
    Maglev,
    /// One endpoint at a time: the one whose Pod holds a Lease.
    Leader,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 6] =
        [Self::Random, Self::RoundRobin, Self::LeastConnections, Self::Weighted, Self::Maglev, Self::Leader];

    /// Its name, a value of the annotation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::LeastConnections => "least-connections",
            Self::Weighted => "weighted",
            Self::Maglev => "maglev",
            Self::Leader => "leader",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What carries the connections of a node: a proxy mode, as far as policies depend on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DataPlane {
    /// nftables.
    #[default]
    Nftables,
    /// iptables.
    Iptables,
    /// IPVS.
    Ipvs {
        /// Policies whose scheduler the kernel does not have.
        missing: BTreeSet<Policy>,
    },
    /// The relay.
    Userspace,
}

impl DataPlane {
    /// The data plane of a proxy mode; that of nftables for an unknown one.
    #[must_use]
    pub fn of_mode(mode: &str) -> Self {
        match mode {
            "iptables" => Self::Iptables,
            "ipvs" => Self::Ipvs { missing: BTreeSet::new() },
            "userspace" => Self::Userspace,
            _ => Self::Nftables,
        }
    }

    /// Why it cannot apply a policy.
    #[must_use]
    pub fn refusal(&self, policy: Policy) -> Option<&'static str> {
        match (self, policy) {
            (Self::Nftables | Self::Iptables, Policy::LeastConnections) => Some(
                "rules of the kernel do not know how many connections an endpoint has; the modes ipvs and userspace do",
            ),
            (Self::Iptables, Policy::Maglev) => {
                Some("iptables cannot look up an endpoint by the hash of an address; the other modes can")
            }
            (Self::Ipvs { missing }, policy) if missing.contains(&policy) => Some(
                "the kernel lacks the IPVS scheduler for it (mh, lc, wrr or rr); load its module, such as ip_vs_mh",
            ),
            _ => None,
        }
    }

    /// Whether the scheduler of the kernel selects endpoints. Its hash is another than that of the table.
    const fn has_scheduler(&self) -> bool {
        matches!(self, Self::Ipvs { .. })
    }
}

/// The endpoints that traffic may use, by traffic policy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// All endpoints.
    Cluster,
    /// Those of this node.
    Local,
}

/// How a connection selects one of the endpoints of a Service port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Balancing {
    /// As the data plane does without a policy: at random, or by its own scheduler.
    #[default]
    Random,
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
    /// At random by weight. Weights are at least 1.
    Weighted(Weights),
    /// By the hash of the client's address.
    Maglev(HashTables),
    /// The only one: its Pod holds the Lease. Established connections to others are cut.
    Leader,
}

/// The weights of endpoints, sorted by endpoint. Their sum is at most 4096, unless there are more endpoints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Weights(Box<[(Backend, u16)]>);

/// For each slot of a hash table the index of an endpoint; empty without endpoints.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HashTables {
    cluster: Box<[u16]>,
    local: Box<[u16]>,
}

impl Weights {
    /// The weight of an endpoint.
    #[must_use]
    pub fn of(&self, backend: &Backend) -> u16 {
        self.0.binary_search_by_key(backend, |(one, _)| *one).map_or(1, |index| self.0[index].1)
    }

    /// The weights of endpoints by zone, in lowest terms.
    fn by_zone(requested: &Requested, found: &[PortEndpoint<'_>]) -> Self {
        let weight = |seen: &PortEndpoint<'_>| requested.zone_weight(seen.endpoint.location.zone.as_deref());
        let all: Vec<(Backend, u16)> = found.iter().map(|seen| (seen.backend, weight(seen))).collect();
        let divisor = all.iter().fold(0, |divisor, (_, weight)| gcd(divisor, *weight)).max(1);
        let sum: u32 = all.iter().map(|(_, weight)| u32::from(weight / divisor)).sum();
        let scaled = |weight: u16| {
            let weight = u32::from(weight / divisor);
            let fitting = if sum > MAX_WEIGHT_SLOTS { weight * MAX_WEIGHT_SLOTS / sum } else { weight };
            u16::try_from(fitting.max(1)).unwrap_or(u16::MAX)
        };
        Self(all.into_iter().map(|(backend, weight)| (backend, scaled(weight))).collect())
    }
}

const fn gcd(one: u16, other: u16) -> u16 {
    if other == 0 { one } else { gcd(other, one % other) }
}

impl Balancing {
    /// The policy that is applied.
    #[must_use]
    pub const fn policy(&self) -> Policy {
        match self {
            Self::Random => Policy::Random,
            Self::RoundRobin => Policy::RoundRobin,
            Self::LeastConnections => Policy::LeastConnections,
            Self::Weighted(_) => Policy::Weighted,
            Self::Maglev(_) => Policy::Maglev,
            Self::Leader => Policy::Leader,
        }
    }

    /// Whether connections to endpoints that are no longer selected are cut.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        matches!(self, Self::Leader)
    }
}

impl Requested {
    /// The balancing of a port whose endpoints are set, and why it is not the one that was requested. `found` are its
    /// endpoints, sorted.
    pub(crate) fn balancing(
        &self,
        port: &ServicePort,
        found: &[PortEndpoint<'_>],
        data_plane: &DataPlane,
    ) -> (Balancing, Option<String>) {
        let refused = |why: &str| {
            let what =
                format!("its traffic policy `{}` is not applied: {why}; endpoints are selected at random", self.policy);
            (Balancing::Random, Some(what))
        };
        if let Some(why) = data_plane.refusal(self.policy) {
            return refused(why);
        }
        let balancing = match self.policy {
            Policy::Random => Balancing::Random,
            Policy::RoundRobin => Balancing::RoundRobin,
            Policy::LeastConnections => Balancing::LeastConnections,
            Policy::Weighted => Balancing::Weighted(Weights::by_zone(self, found)),
            Policy::Leader => Balancing::Leader,
            Policy::Maglev if port.cluster.len().max(port.local.len()) > HASH_SLOTS as usize => {
                return refused(&format!("it has more than {HASH_SLOTS} endpoints"));
            }
            Policy::Maglev => {
                Balancing::Maglev(HashTables { cluster: hash_table(&port.cluster), local: hash_table(&port.local) })
            }
        };
        (balancing, None)
    }
}

impl ServicePort {
    /// The endpoints of a scope, sorted.
    #[must_use]
    pub fn endpoints(&self, scope: Scope) -> &[Backend] {
        match scope {
            Scope::Cluster => &self.cluster,
            Scope::Local => &self.local,
        }
    }

    /// The endpoint of each slot: a connection draws a slot at random, in turn, or by hash, as its balancing says. Endpoints
    /// with a weight have that many.
    #[must_use]
    pub fn slots(&self, scope: Scope) -> Cow<'_, [Backend]> {
        let list = self.endpoints(scope);
        match (&self.balancing, scope) {
            (Balancing::Maglev(tables), Scope::Cluster) => Cow::Owned(of_slots(list, &tables.cluster)),
            (Balancing::Maglev(tables), Scope::Local) => Cow::Owned(of_slots(list, &tables.local)),
            (Balancing::Weighted(weights), _) => {
                let repeated = list.iter().flat_map(|one| std::iter::repeat_n(*one, weights.of(one).into()));
                Cow::Owned(repeated.collect())
            }
            _ => Cow::Borrowed(list),
        }
    }

    /// The endpoint that the hash of a client's address selects; none for other policies.
    #[must_use]
    pub fn hashed(&self, scope: Scope, client: IpAddr) -> Option<Backend> {
        let Balancing::Maglev(tables) = &self.balancing else { return None };
        let table = if scope == Scope::Cluster { &tables.cluster } else { &tables.local };
        let slot = client_slot(client, HASH_SLOTS);
        self.endpoints(scope).get(usize::from(*table.get(slot as usize)?)).copied()
    }

    /// The endpoint that this client gets if only one is possible under the policy.
    pub(crate) fn only_choice(&self, scope: Scope, client: IpAddr, data_plane: &DataPlane) -> Option<Backend> {
        self.hashed(scope, client).filter(|_| !data_plane.has_scheduler())
    }
}

/// The slot that a client's address selects in a table of so many: the same in rules of the kernel, in the relay and here.
#[must_use]
pub fn client_slot(client: IpAddr, slots: u32) -> u32 {
    jhash::slot(client, HASH_SEED, slots)
}

fn of_slots(list: &[Backend], table: &[u16]) -> Vec<Backend> {
    table.iter().filter_map(|index| list.get(usize::from(*index)).copied()).collect()
}
