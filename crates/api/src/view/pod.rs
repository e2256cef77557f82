//! Pods.

use serde::Deserialize;

use super::condition::{self, Condition};
use super::endpoint_slice::Named;
use super::lenient::{number, or_default, protocol, tcp};
use super::{ObjectMeta, Protocol, StringMap};

/// A Pod.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Pod {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: PodSpec,
    /// Its status.
    #[serde(deserialize_with = "or_default")]
    pub status: PodStatus,
}

/// The spec of a Pod.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub node_name: Box<str>,
    /// Whether it uses the network of its node.
    #[serde(deserialize_with = "or_default")]
    pub host_network: bool,
    /// The requested host name; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub hostname: Box<str>,
    /// The Service in whose DNS domain its host name is found; empty for none.
    #[serde(deserialize_with = "or_default")]
    pub subdomain: Box<str>,
    /// Its containers.
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, sidecars among them.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
    /// Quantities that it takes beside its containers, by resource.
    #[serde(deserialize_with = "or_default")]
    pub overhead: StringMap,
    /// The scheduler that binds it; empty for the default one.
    #[serde(deserialize_with = "or_default")]
    pub scheduler_name: Box<str>,
    /// What must be removed before it is scheduled.
    #[serde(deserialize_with = "or_default")]
    pub scheduling_gates: Vec<Named>,
}

/// A container.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "or_default")]
    pub restart_policy: Box<str>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ContainerPort>,
    /// Its resources.
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
}

/// The resources of a container.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Resources {
    /// Quantities that it takes from its node, by resource.
    #[serde(deserialize_with = "or_default")]
    pub requests: StringMap,
}

/// A port of a container.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Its name, empty if it has none.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its protocol; none for an unknown one.
    #[serde(default = "tcp", deserialize_with = "protocol")]
    pub protocol: Option<Protocol>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub container_port: u16,
    /// Its number on the node; 0 for none.
    #[serde(deserialize_with = "number")]
    pub host_port: u16,
    /// The address of the node that it is bound to; empty for all.
    #[serde(rename = "hostIP", deserialize_with = "or_default")]
    pub host_ip: Box<str>,
}

/// The status of a Pod.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub phase: Box<str>,
    /// Its first address.
    #[serde(rename = "podIP", deserialize_with = "or_default")]
    pub pod_ip: Box<str>,
    /// All its addresses.
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: Vec<PodIp>,
    /// Its conditions.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
    /// The state of its containers.
    #[serde(deserialize_with = "or_default")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The state of its init containers.
    #[serde(deserialize_with = "or_default")]
    pub init_container_statuses: Vec<ContainerStatus>,
}

/// An address of a Pod.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct PodIp {
    /// The address.
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
}

/// The state of a container.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    /// The name of the container.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// How often it was restarted.
    #[serde(deserialize_with = "number")]
    pub restart_count: u32,
    /// What it does now.
    #[serde(deserialize_with = "or_default")]
    pub state: ContainerState,
}

/// What a container does now.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ContainerState {
    /// Why it waits.
    #[serde(deserialize_with = "or_default")]
    pub waiting: Waiting,
    /// How it ended; none while it has not.
    #[serde(deserialize_with = "or_default")]
    pub terminated: Option<Terminated>,
}

/// How a container ended.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct Terminated {}

/// Why a container waits.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Waiting {
    /// `ImagePullBackOff`, …; empty when it does not wait.
    #[serde(deserialize_with = "or_default")]
    pub reason: Box<str>,
}

impl Pod {
    /// Whether its containers have ended for good.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(&*self.status.phase, "Succeeded" | "Failed")
    }

    /// Whether one of its containers may run: not all of them are known to have ended.
    #[must_use]
    pub fn may_run(&self) -> bool {
        let all = &self.status.container_statuses;
        all.is_empty() || all.iter().any(|container| container.state.terminated.is_none())
    }

    /// Its addresses as they are written. Objects of older servers have only the first.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        let status = &self.status;
        let first = Some(&status.pod_ip).filter(|text| status.pod_ips.is_empty() && !text.is_empty());
        status.pod_ips.iter().map(|one| &one.ip).chain(first).map(|text| &**text)
    }

    /// Its condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        condition::find(&self.status.conditions, kind)
    }
}

impl PodSpec {
    /// Its containers that run all the time: the ordinary ones, then sidecars.
    pub fn running_containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().chain(self.init_containers.iter().filter(|container| container.is_sidecar()))
    }
}

impl Container {
    /// Whether an init container keeps running beside the others (a sidecar).
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        &*self.restart_policy == "Always"
    }
}
