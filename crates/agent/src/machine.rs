//! State that all Pods of the node share: configuration, API client, network, address pool, images, Services, and the Pods themselves.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::environment;
use api::value::ValueExt as _;
use client::requests::Api;
use ipnet::IpNet;
use kernel::cgroups::Cgroups;
use kernel::pod_network::PodNetwork;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::data_dir::AgentDir;
use crate::events::EventRecorder;
use crate::images::Images;
use crate::images::backoff::PullBackoff;
use crate::images::pull::Puller;
use crate::metrics::Metrics;
use crate::object_watches::ObjectWatches;
use crate::pod_event::PodEvent;
use crate::pool::Pool;
use crate::quantities::Capacity;
use crate::settings::Settings;
use crate::workloads::PodId;

/// The parent of all control groups of Pods and shims.
pub const GROUP: &str = "waypost";

/// The shared state of an agent.
pub struct Machine {
    /// Configuration.
    pub settings: Settings,
    /// The agent's directory.
    pub dir: AgentDir,
    /// The API client.
    pub api: Arc<dyn Api>,
    /// Records Events.
    pub recorder: EventRecorder,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Bridge, veth pairs and routes.
    pub network: Mutex<Box<dyn PodNetwork>>,
    /// Allocates Pod IPs.
    pub pool: Mutex<Pool>,
    /// Control groups.
    pub groups: Cgroups,
    /// Images on this node.
    pub images: Images,
    /// Pulls images.
    pub puller: Puller,
    /// Backoff of failed pulls.
    pub pull_backoff: PullBackoff,
    /// Resources of the node.
    pub capacity: Capacity,
    /// Node addresses, the preferred one first.
    pub host: Vec<IpAddr>,
    /// The node's Pod CIDRs; empty until the Node has some.
    pub ranges: watch::Receiver<Vec<IpNet>>,
    /// Watches of ConfigMaps and Secrets that Pods mount.
    pub object_watches: ObjectWatches,
    /// Services by `namespace/name`.
    pub services: Mutex<BTreeMap<String, ServiceInfo>>,
    /// hostPorts by creation time and UID of their Pods: of two Pods with the same port, the older one keeps it.
    pub host_ports: Mutex<BTreeMap<(String, String), Vec<HostPort>>>,
    /// Adopted Pods.
    pub adopted: Mutex<BTreeMap<PodId, Arc<Value>>>,
    /// Pods that this agent runs.
    pub pods: Mutex<BTreeMap<PodId, PodSlot>>,
}

/// The IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// The IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;
const SCTP: u8 = 132;

/// A hostPort: traffic to a port of the node is translated to a port of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The IP protocol number.
    pub protocol: u8,
    /// The port of the node.
    pub host_port: u16,
    /// `hostIP`: the only address of the node with this port. `None` for all.
    pub at: Option<IpAddr>,
    /// The Pod IP.
    pub to: IpAddr,
    /// The container port.
    pub port: u16,
}

impl HostPort {
    /// The hostPorts of a Pod, once per Pod IP. A `hostIP` leads only to a Pod IP of its family.
    #[must_use]
    pub fn of(pod: &Value, addresses: &[IpAddr]) -> Vec<Self> {
        let number = |port: &Value, field: &str| u16::try_from(port.int(field)).ok().filter(|port| *port > 0);
        let ports = pod.items("spec.containers").iter().flat_map(|container| container.items("ports"));
        let wanted = ports.filter_map(|port| {
            let protocol = match port.text("protocol") {
                "UDP" => UDP,
                "SCTP" => SCTP,
                _ => TCP,
            };
            let at: Option<IpAddr> = port.text("hostIP").parse().ok();
            Some((protocol, number(port, "hostPort")?, at, number(port, "containerPort")?))
        });
        wanted
            .flat_map(|(protocol, host_port, at, port)| {
                let fitting = addresses.iter().filter(move |to| at.is_none_or(|at| at.is_ipv4() == to.is_ipv4()));
                let at = at.filter(|at| !at.is_unspecified());
                fitting.map(move |to| Self { protocol, host_port, at, to: *to, port })
            })
            .collect()
    }
}

/// The fields of a Service that Pods need.
#[derive(Clone, Debug)]
pub struct ServiceInfo {
    /// For environment variables.
    pub service: environment::Service,
    /// Cluster IPs.
    pub addresses: Vec<String>,
}

/// A Pod that this agent runs.
#[derive(Clone)]
pub struct PodSlot {
    /// The UID.
    pub uid: String,
    /// The object, as last seen.
    pub pod: Arc<Value>,
    /// The event queue of its worker.
    pub queue: mpsc::UnboundedSender<PodEvent>,
}

impl Machine {
    /// The Service environment variables of a Pod.
    #[must_use]
    pub fn service_variables(&self, pod: &Value) -> Vec<(String, String)> {
        let links = pod.at("spec.enableServiceLinks").as_bool().or(Some(true));
        let services = self.services.lock();
        let all = services.values().map(|known| &known.service);
        let found = environment::environment(all, pod.text("metadata.namespace"), links).unwrap_or_default();
        found.variables.into_iter().map(|variable| (variable.name, variable.value)).collect()
    }

    /// The cluster IPs of the DNS Service.
    #[must_use]
    pub fn dns(&self) -> Vec<String> {
        self.services.lock().get("kube-system/kube-dns").map_or_else(Vec::new, |known| known.addresses.clone())
    }

    /// The control group of a Pod.
    #[must_use]
    pub fn pod_group(uid: &str) -> String {
        format!("{GROUP}/{uid}")
    }

    /// The control group of a container.
    #[must_use]
    pub fn container_group(uid: &str, name: &str) -> String {
        format!("{GROUP}/{uid}/{name}")
    }
}

impl ServiceInfo {
    /// Reads a Service.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let addresses = object.texts("spec.clusterIPs").into_iter().filter(|ip| *ip != "None").map(str::to_owned);
        Self { service: environment::Service::read(object), addresses: addresses.collect() }
    }
}
