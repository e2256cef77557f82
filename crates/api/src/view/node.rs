//! Nodes.

use std::net::IpAddr;

use serde::Deserialize;

use super::condition::{self, Condition};
use super::lenient::or_default;
use super::{ObjectMeta, StringMap, labels, taints};
use crate::ip::parse_lenient;

/// A Node.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Node {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// Its status.
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// The spec of a Node.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeSpec {
    /// The prefixes of its Pods.
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pub pod_cidrs: Box<[Box<str>]>,
    /// Whether it is cordoned.
    #[serde(deserialize_with = "or_default")]
    pub unschedulable: bool,
    /// Its taints.
    #[serde(deserialize_with = "or_default")]
    pub taints: Box<[Taint]>,
}

/// A taint: Pods that do not tolerate it stay away.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Its key.
    #[serde(deserialize_with = "or_default")]
    pub key: Box<str>,
    /// Its value.
    #[serde(deserialize_with = "or_default")]
    pub value: Box<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(deserialize_with = "or_default")]
    pub effect: Box<str>,
    /// When it was added, RFC 3339.
    pub time_added: Option<Box<str>>,
}

/// The status of a Node.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeStatus {
    /// Where it can be reached.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Box<[NodeAddress]>,
    /// Its conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// Quantities that Pods may use, by resource.
    #[serde(deserialize_with = "or_default")]
    pub allocatable: StringMap,
}

/// Where a Node can be reached.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeAddress {
    /// `InternalIP`, `ExternalIP`, `Hostname`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// The address.
    #[serde(deserialize_with = "or_default")]
    pub address: Box<str>,
}

impl Node {
    /// Its own addresses, the internal ones first, each once.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for kind in ["InternalIP", "ExternalIP"] {
            for address in self.status.addresses.iter().filter(|address| &*address.kind == kind) {
                found.extend(parse_lenient(&address.address).filter(|ip| !found.contains(ip)));
            }
        }
        found
    }

    /// The zone it is in.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.metadata.labels.get(labels::ZONE).filter(|zone| !zone.is_empty())
    }

    /// Its `Ready` condition.
    #[must_use]
    pub fn ready(&self) -> Option<&Condition> {
        condition::find(&self.status.conditions, "Ready")
    }

    /// Whether load balancers may send traffic to it: it is neither being deleted nor about to be.
    #[must_use]
    pub fn is_eligible(&self) -> bool {
        !self.metadata.is_deleting() && !self.spec.taints.iter().any(|taint| &*taint.key == taints::TO_BE_DELETED)
    }
}
