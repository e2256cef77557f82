//! Chains shared by all Services with the same number of endpoints and traffic policy.

use std::fmt;

use kernel::nft::{Chain, Field, Name, Rule, Statement, Verdict};
use plan::LocalDetector;

use super::ruleset::{MARK, OWN_POD_IPS, POD_IPS};

/// Endpoints of address frontends.
pub(super) const ENDPOINTS: &str = "endpoints";
/// Node-local endpoints of address frontends.
pub(super) const LOCAL_ENDPOINTS: &str = "local-endpoints";
/// Endpoints of node ports.
pub(super) const NODE_PORT_ENDPOINTS: &str = "node-port-endpoints";
/// Node-local endpoints of node ports.
pub(super) const NODE_PORT_LOCAL_ENDPOINTS: &str = "node-port-local-endpoints";

/// Kind of frontend; the two are keyed differently.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum At {
    /// Address and port.
    Address,
    /// Node port.
    NodePort,
}

/// How an endpoint is chosen. The number is the count of endpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Shape {
    /// Any endpoint.
    Cluster(At, u32),
    /// An endpoint on this node.
    Local(At, u32),
    /// External traffic, masqueraded, to any endpoint.
    Outside(At, u32),
    /// External traffic to an endpoint on this node; traffic of Pods and of the node itself to any endpoint.
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

/// Chains for up to this many endpoints are created with the table: when a rule that refers to a map is added, the
/// kernel walks the whole map, which is cheap only while it is empty.
const PREPARED: u32 = 32;

impl Shape {
    /// Shapes whose chains are created with the table.
    pub(super) fn prepared() -> impl Iterator<Item = Self> {
        (1..=PREPARED).map(|n| Self::Cluster(At::Address, n))
    }

    /// Whether its chain is kept when unused: creating it again is expensive, and there are few.
    pub(super) const fn is_kept(self) -> bool {
        matches!(self, Self::Cluster(..) | Self::Local(..))
    }

    /// The kept shape of a chain name.
    pub(crate) fn kept_from_name(name: &str) -> Option<Self> {
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

    /// Chain name.
    pub(super) fn name(self) -> Name {
        self.to_string().into()
    }

    /// Shapes that its chain refers to.
    pub(super) fn referenced(self) -> Vec<Self> {
        match self {
            Self::Cluster(..) | Self::Local(..) => Vec::new(),
            Self::Outside(at, n) => vec![Self::Cluster(at, n)],
            Self::OutsideLocal(at, n, 0) => vec![Self::Cluster(at, n)],
            Self::OutsideLocal(at, n, local) => vec![Self::Cluster(at, n), Self::Local(at, local)],
        }
    }

    /// The chain of this shape.
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

/// Rules of external traffic with the policy `Local`. Traffic of Pods and of the node itself is treated as if it had
/// left the cluster and re-entered it through any node.
pub(super) fn outside_local(anywhere: &Name, here: Option<Name>, local: &LocalDetector) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(from_pod) = from_pod(local, false) {
        if matches!(local, LocalDetector::Ranges(_)) {
            // A Pod of another node would get replies that bypass this node: masquerade.
            let elsewhere = Statement::In { key: vec![Field::Source], set: OWN_POD_IPS.into(), negate: true };
            rules.push(vec![from_pod.clone(), elsewhere, Statement::Mark(MARK)]);
        }
        rules.push(vec![from_pod, go(anywhere.clone())]);
    }
    rules.push(vec![Statement::LocalSource, Statement::Mark(MARK), go(anywhere.clone())]);
    rules.extend(here.map(|here| vec![go(here)]));
    rules
}

/// Matches packets from Pods (negated: from anywhere else); none when Pods cannot be detected.
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
