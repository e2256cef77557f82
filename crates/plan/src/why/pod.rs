//! What a Pod says of itself, as far as it matters to somebody who asks why it gets no traffic.

use serde::Deserialize;

use crate::input::{Metadata, or_default};

/// A Pod.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Pod {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it was given.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// How it is.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// What a Pod was given.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Its node.
    #[serde(deserialize_with = "or_default")]
    pub node_name: Box<str>,
    /// Whether it has the addresses of its node.
    #[serde(deserialize_with = "or_default")]
    pub host_network: bool,
}

/// How a Pod is.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    #[serde(deserialize_with = "or_default")]
    pub phase: Box<str>,
    /// Its addresses.
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: Vec<PodIp>,
}

/// An address of a Pod.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}", self.metadata.namespace, self.metadata.name)
    }

    /// Whether its containers have ended for good.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Whether it has an address.
    pub(super) fn has(&self, address: &str) -> bool {
        self.status.pod_ips.iter().any(|one| &*one.ip == address)
    }
}

/// The Pod with an address. One that has ended may still name an address that another has by now.
pub(super) fn named(pods: &[Pod], address: &str) -> Option<String> {
    pods.iter().filter(|pod| pod.has(address)).min_by_key(|pod| pod.has_ended()).map(Pod::key)
}
