//! Chains that Services share: one for each way to choose among so many endpoints.

use std::fmt;

use kernel::nft::{Chain, Field, Name, Rule, Statement, Verdict};
use plan::LocalDetector;

use super::ruleset::{MARK, OWN_POD_IPS, POD_IPS};

/// Endpoints that traffic to an address may go to.
pub(super) const ENDPOINTS: &str = "endpoints";
/// Endpoints of this node that traffic to an address may go to.
pub(super) const LOCAL_ENDPOINTS: &str = "local-endpoints";
/// Endpoints that traffic to a node port may go to.
pub(super) const NODE_PORT_ENDPOINTS: &str = "node-port-endpoints";
/// Endpoints of this node that traffic to a node port may go to.
pub(super) const NODE_PORT_LOCAL_ENDPOINTS: &str = "node-port-local-endpoints";

/// Whether a frontend is an address or a node port: they are keyed differently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum At {
    /// An address and a port.
    Address,
    /// A port of the node.
    NodePort,
}

/// How endpoints are chosen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Shape {
    /// One of so many, anywhere.
    Cluster(At, u32),
    /// One of so many on this node.
    Local(At, u32),
    /// Traffic from outside: one of so many, anywhere, and the endpoint sees the node.
    Outside(At, u32),
    /// Traffic from outside that stays on this node; that of Pods and of the node itself may go anywhere.
    OutsideLocal(At, u32, u32),
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, rest) = match *self {
            Self::Cluster(at, n) => (at, format!("cluster-{n}")),
            Self::Local(at, n) => (at, format!("local-{n}")),
            Self::Outside(at, n) => (at, format!("outside-{n}")),
            Self::OutsideLocal(at, n, local) => (at, format!("outside-{n}-local-{local}")),
        };
        match at {
            At::Address => f.write_str(&rest),
            At::NodePort => write!(f, "node-port-{rest}"),
        }
    }
}

/// Chains for up to so many endpoints are made with the table: to add a rule that looks into a map, the kernel walks the whole
/// map, which costs nothing only while that is empty.
const PREPARED: u32 = 32;

impl Shape {
    /// The shapes whose chains are there before anybody needs them.
    pub(super) fn prepared() -> impl Iterator<Item = Self> {
        (1..=PREPARED).map(|n| Self::Cluster(At::Address, n))
    }

    /// Whether its chain stays when nobody needs it any more: making it again would be dear, and there are not many.
    pub(super) const fn stays(self) -> bool {
        matches!(self, Self::Cluster(..) | Self::Local(..))
    }

    /// The shape that stays whose chain has this name.
    pub(crate) fn staying(name: &str) -> Option<Self> {
        let (at, rest) = match name.strip_prefix("node-port-") {
            Some(rest) => (At::NodePort, rest),
            None => (At::Address, name),
        };
        let (kind, n) = rest.split_once('-')?;
        let n = n.parse().ok()?;
        let shape = match kind {
            "cluster" => Self::Cluster(at, n),
            "local" => Self::Local(at, n),
            _ => return None,
        };
        (*shape.name() == *name).then_some(shape)
    }

    /// The name of its chain.
    pub(super) fn name(self) -> Name {
        self.to_string().into()
    }

    /// The shapes its chain leads to.
    pub(super) fn leads_to(self) -> Vec<Self> {
        match self {
            Self::Cluster(..) | Self::Local(..) => Vec::new(),
            Self::Outside(at, n) => vec![Self::Cluster(at, n)],
            Self::OutsideLocal(at, n, 0) => vec![Self::Cluster(at, n)],
            Self::OutsideLocal(at, n, local) => vec![Self::Cluster(at, n), Self::Local(at, local)],
        }
    }

    /// Its chain.
    pub(super) fn chain(self, local: &LocalDetector) -> Chain {
        let rules = match self {
            Self::Cluster(at, n) => vec![choose(at, n, ENDPOINTS, NODE_PORT_ENDPOINTS)],
            Self::Local(at, n) => vec![choose(at, n, LOCAL_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS)],
            Self::Outside(at, n) => vec![vec![Statement::Mark(MARK), go(Self::Cluster(at, n).name())]],
            Self::OutsideLocal(at, n, here) => {
                let stay = (here > 0).then(|| Self::Local(at, here).name());
                outside_local(&Self::Cluster(at, n).name(), stay, local)
            }
        };
        Chain { base: None, rules }
    }
}

/// The rules of traffic from outside that stays on this node. What comes from a Pod or from the node itself is treated as if it
/// had left the cluster and come back, by way of any node.
pub(super) fn outside_local(anywhere: &Name, here: Option<Name>, local: &LocalDetector) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(from_pod) = from_pod(local, false) {
        if matches!(local, LocalDetector::Ranges(_)) {
            // What goes from here to the Pod's own node would be answered past us: it must see us.
            let elsewhere = Statement::In { key: vec![Field::Source], set: OWN_POD_IPS.into(), negate: true };
            rules.push(vec![from_pod.clone(), elsewhere, Statement::Mark(MARK)]);
        }
        rules.push(vec![from_pod, go(anywhere.clone())]);
    }
    rules.push(vec![Statement::LocalSource, Statement::Mark(MARK), go(anywhere.clone())]);
    rules.extend(here.map(|here| vec![go(here)]));
    rules
}

/// Whether a packet comes from a Pod (or, negated, from anybody else); nothing when Pods are not recognised.
pub(super) fn from_pod(local: &LocalDetector, negate: bool) -> Option<Statement> {
    match local {
        LocalDetector::None => None,
        LocalDetector::Ranges(_) => Some(Statement::In { key: vec![Field::Source], set: POD_IPS.into(), negate }),
        LocalDetector::Interface(name) => Some(Statement::Interface { name: name.clone(), prefix: false, negate }),
        LocalDetector::InterfacePrefix(name) => Some(Statement::Interface { name: name.clone(), prefix: true, negate }),
    }
}

pub(super) fn go(chain: Name) -> Statement {
    Statement::Go(Verdict::Goto(chain))
}

fn choose(at: At, n: u32, by_address: &str, by_node_port: &str) -> Rule {
    let (mut key, map) = match at {
        At::Address => (vec![Field::Destination, Field::Protocol, Field::DestinationPort], by_address),
        At::NodePort => (vec![Field::Protocol, Field::DestinationPort], by_node_port),
    };
    key.push(Field::Random(n));
    vec![Statement::Translate { key, map: map.into() }]
}
