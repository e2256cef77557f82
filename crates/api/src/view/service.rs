//! Services.

use std::net::IpAddr;

use serde::Deserialize;
use serde::de::Deserializer;

use super::lenient::{number, or_default, protocol, tcp};
use super::{ObjectMeta, Protocol, StringMap, labels};
use crate::ip::{Family, parse_lenient};

/// `loadBalancerClass` of Services whose address is announced by layer 2.
pub const CLASS_L2: &str = "waypost.dev/l2";
/// `loadBalancerClass` of Services whose address is announced by BGP.
pub const CLASS_BGP: &str = "waypost.dev/bgp";
/// `loadBalancerClass` of Services that get the nodes' own addresses.
pub const CLASS_PROXY: &str = "waypost.dev/proxy";
/// Every `loadBalancerClass` that is implemented here; so is no class at all.
pub const CLASSES: [&str; 3] = [CLASS_L2, CLASS_BGP, CLASS_PROXY];

/// Session affinity without a timeout of its own lasts this long, in seconds.
const AFFINITY_SECONDS: i64 = 10_800;
/// The longest session affinity, in seconds.
const LONGEST_AFFINITY: i64 = 86_400;

/// A Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Service {
    /// Its metadata.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ObjectMeta,
    /// Its spec.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceSpec,
    /// Its status.
    #[serde(deserialize_with = "or_default")]
    pub status: ServiceStatus,
}

/// The spec of a Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// The labels of its Pods; empty for a Service without selector.
    #[serde(deserialize_with = "or_default")]
    pub selector: StringMap,
    /// Its first cluster IP; `None` for a headless Service.
    #[serde(rename = "clusterIP", deserialize_with = "or_default")]
    pub cluster_ip: Box<str>,
    /// All its cluster IPs.
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<Box<str>>,
    /// The families of its cluster IPs and endpoints.
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<Box<str>>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// The DNS name that an `ExternalName` Service stands for.
    #[serde(deserialize_with = "or_default")]
    pub external_name: Box<str>,
    /// Addresses outside the cluster's control that nodes accept traffic for.
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    pub external_ips: Vec<Box<str>>,
    /// The implementation of its load balancer.
    pub load_balancer_class: Option<Box<str>>,
    /// Source ranges of clients that may use its load balancer; all clients when empty.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer_source_ranges: Vec<Box<str>>,
    /// `ClientIP` or `None`.
    #[serde(deserialize_with = "or_default")]
    pub session_affinity: Box<str>,
    /// The parameters of session affinity.
    #[serde(deserialize_with = "or_default")]
    pub session_affinity_config: SessionAffinityConfig,
    /// `Local` or `Cluster`, for traffic from outside.
    pub external_traffic_policy: Option<Box<str>>,
    /// `Local` or `Cluster`, for traffic from inside.
    pub internal_traffic_policy: Option<Box<str>>,
    /// Where load balancers probe the node; 0 for none.
    #[serde(deserialize_with = "number")]
    pub health_check_node_port: u16,
    /// Whether Pods are endpoints before they are ready.
    #[serde(deserialize_with = "or_default")]
    pub publish_not_ready_addresses: bool,
    /// Which endpoints clients prefer.
    pub traffic_distribution: Option<Box<str>>,
}

/// The parameters of session affinity.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SessionAffinityConfig {
    /// Of affinity by the address of the client.
    #[serde(rename = "clientIP", deserialize_with = "or_default")]
    pub client_ip: ClientIpConfig,
}

/// The parameters of affinity by the address of the client.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    /// How long it lasts, in seconds.
    pub timeout_seconds: Option<i64>,
}

/// A port of a Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name, empty if it has none.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its protocol; none for an unknown one.
    #[serde(default = "tcp", deserialize_with = "protocol")]
    pub protocol: Option<Protocol>,
    /// The application protocol.
    pub app_protocol: Option<Box<str>>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub port: u16,
    /// The port of the Pods; none when it is the same number.
    #[serde(deserialize_with = "target_port")]
    pub target_port: Option<TargetPort>,
    /// Its number on nodes; 0 for none.
    #[serde(deserialize_with = "number")]
    pub node_port: u16,
}

/// The port of each Pod that a port of a Service leads to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetPort {
    /// This number.
    Number(u16),
    /// The port of the Pod with this name.
    Name(Box<str>),
}

/// The status of a Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// The state of its load balancer.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer: LoadBalancerStatus,
}

/// The state of a load balancer.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// Where it can be reached.
    #[serde(deserialize_with = "or_default")]
    pub ingress: Vec<LoadBalancerIngress>,
}

/// Where a load balancer can be reached.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    /// Its address, empty if it has a name instead.
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
    /// `VIP` (packets reach nodes with this destination) or `Proxy` (they do not); absent is `VIP`.
    pub ip_mode: Option<Box<str>>,
}

impl Service {
    /// Whether it is only a DNS alias.
    #[must_use]
    pub fn is_external_name(&self) -> bool {
        &*self.spec.kind == "ExternalName"
    }

    /// Whether it has a load balancer.
    #[must_use]
    pub fn is_load_balancer(&self) -> bool {
        &*self.spec.kind == "LoadBalancer"
    }

    /// Whether its ports may have node ports.
    #[must_use]
    pub fn has_node_ports(&self) -> bool {
        matches!(&*self.spec.kind, "NodePort" | "LoadBalancer")
    }

    /// Whether it has no cluster IP on purpose.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ips().any(|text| text == "None")
    }

    /// Its cluster IPs as they are written, `None` of a headless Service among them. Objects of older servers have only
    /// the first.
    pub fn cluster_ips(&self) -> impl Iterator<Item = &str> + Clone {
        let spec = &self.spec;
        let first = Some(&spec.cluster_ip).filter(|text| spec.cluster_ips.is_empty() && !text.is_empty());
        spec.cluster_ips.iter().chain(first).map(|text| &**text)
    }

    /// Its cluster IP of a family; none for headless Services and aliases.
    #[must_use]
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        let mut all = self.cluster_ips().filter(|_| !self.is_external_name()).filter_map(parse_lenient);
        all.find(|address| Family::of(*address) == family)
    }

    /// The proxy that serves it, if it is not the one of the cluster.
    #[must_use]
    pub fn proxy_name(&self) -> Option<&str> {
        self.metadata.labels.get(labels::SERVICE_PROXY_NAME)
    }

    /// The load-balancer addresses that packets reach nodes with.
    pub fn vips(&self) -> impl Iterator<Item = &str> {
        let is_vip = |ingress: &&LoadBalancerIngress| {
            !ingress.ip.is_empty() && ingress.ip_mode.as_deref().is_none_or(|mode| mode == "VIP")
        };
        self.status.load_balancer.ingress.iter().filter(is_vip).map(|ingress| &*ingress.ip)
    }

    /// Whether traffic from outside stays on the node it arrives at.
    #[must_use]
    pub fn is_external_local(&self) -> bool {
        self.spec.external_traffic_policy.as_deref() == Some("Local")
    }

    /// Whether traffic from inside stays on the node it comes from.
    #[must_use]
    pub fn is_internal_local(&self) -> bool {
        self.spec.internal_traffic_policy.as_deref() == Some("Local")
    }

    /// How long a client keeps its endpoint, in seconds (1 to 86400); none without session affinity.
    #[must_use]
    pub fn affinity_timeout(&self) -> Option<u32> {
        let seconds = self.spec.session_affinity_config.client_ip.timeout_seconds.unwrap_or(AFFINITY_SECONDS);
        let seconds = u32::try_from(seconds.clamp(1, LONGEST_AFFINITY)).ok();
        seconds.filter(|_| &*self.spec.session_affinity == "ClientIP")
    }
}

impl ServicePort {
    /// Whether it is a TCP port.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.protocol == Some(Protocol::Tcp)
    }

    /// The port of each Pod that it leads to.
    #[must_use]
    pub fn target(&self) -> TargetPort {
        self.target_port.clone().unwrap_or(TargetPort::Number(self.port))
    }
}

/// A number or a name; 0, a number outside the range of ports and an empty name are none.
fn target_port<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TargetPort>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(i64),
        Name(Box<str>),
    }
    Ok(match Option::deserialize(from)? {
        Some(Written::Number(number)) => u16::try_from(number).ok().filter(|port| *port > 0).map(TargetPort::Number),
        Some(Written::Name(name)) => Some(name).filter(|name| !name.is_empty()).map(TargetPort::Name),
        None => None,
    })
}
