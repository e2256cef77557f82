//! A Pod: where it is, whether it is ready, which of its ports have names, what it takes from its node.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use serde::Deserialize;
use store::Entry;

use super::placement::{HostPort, Placement, Requests};
use super::{or_default, placement, split};

/// A Pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pod {
    /// The stored form: key and labels.
    pub entry: Arc<Entry>,
    /// Its uid.
    pub uid: Box<str>,
    /// The node it is bound to, or nothing.
    pub node: Box<str>,
    /// Its addresses.
    pub addresses: Box<[IpAddr]>,
    /// Whether it says that it is ready.
    pub ready: bool,
    /// Since when it has said so, or has not.
    pub ready_since: Option<Box<str>>,
    /// Whether it has ended for good.
    pub finished: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its host name, if it asks for one.
    pub hostname: Box<str>,
    /// The Service under whose name its host name is found.
    pub subdomain: Box<str>,
    /// Ports that have names, in the order in which they are looked up.
    pub ports: Box<[NamedPort]>,
    /// What it says it is doing.
    pub phase: Phase,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// How often its containers were started again, the most of them.
    pub restarts: u32,
    /// What it costs to delete it: the cheapest go first.
    pub deletion_cost: i32,
    /// What it takes from its node.
    pub requests: Requests,
    /// Ports of its node that it takes.
    pub host_ports: Box<[HostPort]>,
    /// Where it may go and would like to go; only while it waits for our scheduler.
    pub placement: Option<Box<Placement>>,
}

/// What a Pod says it is doing, in the order in which Pods are given up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Phase {
    /// Not all of its containers have begun.
    #[default]
    Pending,
    /// Nobody has heard of it.
    Unknown,
    /// It runs.
    Running,
    /// It has ended well.
    Succeeded,
    /// It has ended badly.
    Failed,
}

/// A port of a container that has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPort {
    /// Its name.
    pub name: Box<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Box<str>,
    /// Its number.
    pub number: u16,
}

impl Pod {
    /// Reads a stored Pod.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let Raw { metadata, spec, status } = super::read(&entry.value);
        let requests = placement::requests(&spec.containers, &spec.init_containers, &spec.overhead);
        let host_ports = placement::host_ports(&spec.containers);
        let placement = spec.placement(entry, &metadata, &status);
        let counts = status.container_statuses.iter().chain(&status.init_container_statuses);
        let restarts = counts.map(|one| one.restart_count).max().unwrap_or_default();
        let ready = status.conditions.into_iter().find(|condition| condition.kind == "Ready");
        let sidecars = spec.init_containers.into_iter().filter(|container| container.restart_policy == "Always");
        let ports = spec.containers.into_iter().chain(sidecars).flat_map(|container| container.ports);
        Self {
            entry: Arc::clone(entry),
            uid: metadata.uid,
            deleting: metadata.deletion_timestamp.is_some(),
            node: spec.node_name,
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            ports: ports.filter(|port| !port.name.is_empty()).map(RawPort::named).collect(),
            addresses: status.pod_ips.iter().filter_map(|address| parse_lenient(&address.ip)).collect(),
            ready: ready.as_ref().is_some_and(|condition| condition.status == "True"),
            ready_since: ready.and_then(|condition| condition.last_transition_time),
            finished: matches!(status.phase, Phase::Succeeded | Phase::Failed),
            phase: status.phase,
            created: metadata.creation_timestamp.map_or(0, |time| seconds(&time)),
            deletion_cost: metadata.annotations.cost.and_then(|cost| cost.parse().ok()).unwrap_or_default(),
            restarts,
            requests,
            host_ports,
            placement,
        }
    }

    /// Whether it runs or is about to: neither ended nor being deleted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.finished && !self.deleting
    }

    /// Since when it has been ready, in seconds since 1970; none when it is not.
    #[must_use]
    pub fn ready_for(&self) -> Option<i64> {
        self.ready.then(|| self.ready_since.as_deref().map_or(0, seconds))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        split(&self.entry.key.name).1
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        split(&self.entry.key.name).0
    }

    /// Its addresses of one family.
    pub fn addresses_of(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied().filter(move |address| Family::of(*address) == family)
    }

    /// The number of a named port of a protocol.
    #[must_use]
    pub fn port(&self, name: &str, protocol: &str) -> Option<u16> {
        self.ports.iter().find(|port| *port.name == *name && *port.protocol == *protocol).map(|port| port.number)
    }

    /// Whether something about it changed that endpoints show, besides which Services select it.
    #[must_use]
    pub fn differs_for_endpoints(&self, other: &Self) -> bool {
        self.ready != other.ready
            || self.deleting != other.deleting
            || self.finished != other.finished
            || self.addresses != other.addresses
            || self.node != other.node
            || self.uid != other.uid
            || self.ports != other.ports
    }

    /// Whether something about it changed that decides which Services select it, and under which name it is found.
    #[must_use]
    pub fn differs_for_selection(&self, other: &Self) -> bool {
        self.entry.facts.labels != other.entry.facts.labels
            || self.hostname != other.hostname
            || self.subdomain != other.subdomain
    }
}

/// A time that objects write, in seconds since 1970.
pub(crate) fn seconds(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    metadata: RawMetadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawMetadata {
    uid: Box<str>,
    creation_timestamp: Option<String>,
    deletion_timestamp: Option<Box<str>>,
    #[serde(deserialize_with = "or_default")]
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "controller.kubernetes.io/pod-deletion-cost")]
    cost: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Box<str>,
    hostname: Box<str>,
    subdomain: Box<str>,
    #[serde(deserialize_with = "or_default")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    overhead: placement::Quantities,
    scheduler_name: String,
    #[serde(deserialize_with = "or_default")]
    scheduling_gates: Vec<serde::de::IgnoredAny>,
}

/// What only Pods without a node are asked; most have one, so it is read apart.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Wishing {
    spec: Wishes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wishes {
    priority: Option<i32>,
    #[serde(deserialize_with = "or_default")]
    node_selector: serde_json::Value,
    #[serde(deserialize_with = "or_default")]
    affinity: serde_json::Value,
    #[serde(deserialize_with = "or_default")]
    tolerations: Vec<serde_json::Value>,
}

impl Spec {
    /// What the scheduler must know, if it is to look at this Pod.
    fn placement(&self, entry: &Entry, metadata: &RawMetadata, status: &Status) -> Option<Box<Placement>> {
        let ours = matches!(&*self.scheduler_name, "" | placement::SCHEDULER);
        let done = matches!(status.phase, Phase::Succeeded | Phase::Failed) || metadata.deletion_timestamp.is_some();
        if !self.node_name.is_empty() || !ours || done || !self.scheduling_gates.is_empty() {
            return None;
        }
        let said = status.conditions.iter().find(|condition| condition.kind == "PodScheduled");
        let wishes = super::read::<Wishing>(&entry.value).spec;
        Some(Box::new(Placement {
            priority: wishes.priority.unwrap_or_default(),
            told: said.and_then(|condition| condition.message.clone()),
            ..Placement::read(&wishes.node_selector, &wishes.affinity, &wishes.tolerations)
        }))
    }
}

/// A container.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) restart_policy: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<RawPort>,
    #[serde(deserialize_with = "or_default")]
    pub(super) resources: Resources,
}

/// What a container takes.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Resources {
    #[serde(deserialize_with = "or_default")]
    pub(super) requests: placement::Quantities,
}

/// A port of a container.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPort {
    pub(super) name: Box<str>,
    pub(super) protocol: Box<str>,
    pub(super) container_port: u16,
    pub(super) host_port: u16,
    #[serde(rename = "hostIP")]
    pub(super) host_ip: Box<str>,
}

impl RawPort {
    fn named(self) -> NamedPort {
        NamedPort { name: self.name, protocol: self.protocol, number: self.container_port }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "phase")]
    phase: Phase,
    #[serde(deserialize_with = "or_default")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    init_container_statuses: Vec<ContainerStatus>,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pod_ips: Vec<PodIp>,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodIp {
    ip: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: Option<Box<str>>,
    last_transition_time: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    restart_count: u32,
}

/// A word that nobody knows says nothing, like no word at all.
fn phase<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Phase, D::Error> {
    let word = Option::<std::borrow::Cow<'de, str>>::deserialize(from)?;
    Ok(match word.as_deref().unwrap_or_default() {
        "Running" => Phase::Running,
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        "Unknown" => Phase::Unknown,
        _ => Phase::Pending,
    })
}
