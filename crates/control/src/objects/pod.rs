//! A reduced Pod.

use std::net::IpAddr;
use std::sync::Arc;

use api::disruption;
use api::ip::{Family, parse_lenient};
use api::view::annotations::POD_DELETION_COST;
use api::view::pod::ContainerPort;
use api::view::{self, Protocol};
use serde::Deserialize;
use store::Entry;

use super::job_pod::JobPod;
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
    /// The Ready condition.
    pub ready: bool,
    /// The transition time of the Ready condition.
    pub ready_since: Option<Box<str>>,
    /// Whether its phase is Succeeded or Failed.
    pub finished: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// `spec.hostname`
    pub hostname: Box<str>,
    /// `spec.subdomain`
    pub subdomain: Box<str>,
    /// Named ports, in lookup order.
    pub ports: Box<[NamedPort]>,
    /// The phase.
    pub phase: Phase,
    /// The creation time, in seconds since the epoch.
    pub created: i64,
    /// The highest restart count of its containers.
    pub restarts: u32,
    /// The deletion cost; Pods with lower cost are deleted first.
    pub deletion_cost: i32,
    /// Resource requests.
    pub requests: Requests,
    /// hostPorts.
    pub host_ports: Box<[HostPort]>,
    /// Since when the condition DisruptionTarget is true, in seconds since the epoch; `None` where the agent set it.
    pub disrupted_since: Option<i64>,
    /// Scheduling constraints, while it waits for the scheduler.
    pub placement: Option<Box<Placement>>,
    /// What the Job controller reads, for Pods of Jobs.
    pub job: Option<Box<JobPod>>,
}

/// The phase of a Pod, in the order in which Pods are deleted on scale-down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// The node does not report it.
    Unknown,
    /// Running.
    Running,
    /// All containers exited with 0.
    Succeeded,
    /// A container failed.
    Failed,
}

/// A port of a container that has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPort {
    /// Its name.
    pub name: Box<str>,
    /// Its protocol; none for an unknown one.
    pub protocol: Option<Protocol>,
    /// Its number.
    pub number: u16,
}

impl Phase {
    /// The phase with this name; an unknown one counts as Pending.
    fn named(name: &str) -> Self {
        match name {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }
}

impl From<&ContainerPort> for NamedPort {
    fn from(port: &ContainerPort) -> Self {
        Self { name: port.name.clone(), protocol: port.protocol, number: port.container_port }
    }
}

impl Pod {
    /// Reads a stored Pod.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let pod: view::Pod = super::read(&entry.value);
        let (requests, host_ports) = (placement::requests(&pod.spec), placement::host_ports(&pod.spec.containers));
        let placement = placement(&pod, entry);
        let job = JobPod::of(&pod, entry).map(Box::new);
        let ready = pod.condition("Ready");
        let (is_ready, ready_since) =
            (ready.is_some_and(view::Condition::is_true), ready.and_then(|one| one.last_transition_time.clone()));
        let finished = pod.has_ended();
        let disrupted_since = disrupted_since(&pod);
        let view::Pod { metadata, spec, status } = pod;
        let counts = status.container_statuses.iter().chain(&status.init_container_statuses);
        let ports = spec.running_containers().flat_map(|container| &container.ports);
        Self {
            entry: Arc::clone(entry),
            deleting: metadata.is_deleting(),
            created: seconds(&metadata.creation_timestamp),
            deletion_cost: metadata.annotations.get(POD_DELETION_COST).and_then(|cost| cost.parse().ok()).unwrap_or(0),
            uid: metadata.uid,
            ports: ports.filter(|port| !port.name.is_empty()).map(NamedPort::from).collect(),
            node: spec.node_name,
            hostname: spec.hostname,
            subdomain: spec.subdomain,
            addresses: status.pod_ips.iter().filter_map(|address| parse_lenient(&address.ip)).collect(),
            ready: is_ready,
            ready_since,
            finished,
            phase: Phase::named(&status.phase),
            restarts: counts.map(|one| one.restart_count).max().unwrap_or_default(),
            requests,
            host_ports,
            disrupted_since,
            placement,
            job,
        }
    }

    /// Whether it has neither terminated nor is being deleted.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.finished && !self.deleting
    }

    /// When it became ready, in seconds since the epoch; `None` when it is not ready.
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
    pub fn port(&self, name: &str, protocol: Option<Protocol>) -> Option<u16> {
        self.ports.iter().find(|port| *port.name == *name && port.protocol == protocol).map(|port| port.number)
    }

    /// Whether a field differs that endpoints contain.
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

    /// Whether labels, host name or subdomain differ.
    #[must_use]
    pub fn differs_for_selection(&self, other: &Self) -> bool {
        self.entry.facts.labels != other.entry.facts.labels
            || self.hostname != other.hostname
            || self.subdomain != other.subdomain
    }
}

/// Since when a Pod is the target of a disruption. A node that ends a Pod itself may need some time until the Pod is deleted.
fn disrupted_since(pod: &view::Pod) -> Option<i64> {
    let condition = pod.condition(disruption::TARGET).filter(|condition| condition.is_true())?;
    let by_node = &*condition.reason == "TerminationByKubelet";
    (!by_node).then(|| condition.last_transition_time.as_deref().map_or(0, seconds))
}

/// A metav1.Time in seconds since the epoch.
pub(crate) fn seconds(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

/// Fields that only the scheduler needs; parsed for unscheduled Pods only.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SchedulingFields {
    spec: SchedulingSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SchedulingSpec {
    priority: Option<i32>,
    #[serde(deserialize_with = "or_default")]
    node_selector: serde_json::Value,
    #[serde(deserialize_with = "or_default")]
    affinity: serde_json::Value,
    #[serde(deserialize_with = "or_default")]
    tolerations: Vec<serde_json::Value>,
}

/// The scheduling constraints, if this scheduler is responsible for the Pod.
fn placement(pod: &view::Pod, entry: &Entry) -> Option<Box<Placement>> {
    let spec = &pod.spec;
    let ours = matches!(&*spec.scheduler_name, "" | placement::SCHEDULER);
    let done = pod.has_ended() || pod.metadata.is_deleting();
    if !spec.node_name.is_empty() || !ours || done || !spec.scheduling_gates.is_empty() {
        return None;
    }
    let scheduling = super::read::<SchedulingFields>(&entry.value).spec;
    Some(Box::new(Placement {
        priority: scheduling.priority.unwrap_or_default(),
        last_message: pod.condition("PodScheduled").and_then(|condition| condition.message.clone()),
        ..Placement::read(&scheduling.node_selector, &scheduling.affinity, &scheduling.tolerations)
    }))
}
