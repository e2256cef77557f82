//! A Pod: where it is, whether it is ready, and which of its ports have names.

use std::net::IpAddr;
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use serde::Deserialize;
use store::Entry;

use super::{or_default, split};

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
            finished: matches!(&*status.phase, "Succeeded" | "Failed"),
        }
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
    deletion_timestamp: Option<Box<str>>,
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
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    restart_policy: String,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<RawPort>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawPort {
    name: Box<str>,
    protocol: Box<str>,
    container_port: u16,
}

impl RawPort {
    fn named(self) -> NamedPort {
        NamedPort { name: self.name, protocol: self.protocol, number: self.container_port }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
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
    last_transition_time: Option<Box<str>>,
}
