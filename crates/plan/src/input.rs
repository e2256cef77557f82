//! Objects as they arrive: the members that matter to a proxy, read from JSON, and forgiving where the API is.
//!
//! In: JSON of any server. Out: what [`Planner::update`](crate::Planner::update) takes. Objects live only for that
//! call: the planner keeps what it needs of them in smaller forms. A null is an absent member, and a number beyond its
//! kind is 0, so that one odd member never hides the rest; the planner leaves it out and reports a
//! [`Problem`](crate::Problem).

use std::net::IpAddr;

use api::ip::{Family, parse_lenient};
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::Deserializer;

use crate::address::lenient_range;
use crate::service_port::Protocol;

/// Services with this label belong to another proxy.
pub const FOREIGN_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Slices with this label belong to Services without an address.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The label with the name of a slice's Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// When the change happened that a slice shows.
pub const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What every object says of itself.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: Box<str>,
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its uid.
    #[serde(deserialize_with = "or_default")]
    pub uid: Box<str>,
    /// Its labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: std::collections::BTreeMap<Box<str>, Box<str>>,
    /// Its annotations.
    #[serde(deserialize_with = "or_default")]
    pub annotations: std::collections::BTreeMap<Box<str>, Box<str>>,
    /// When it was deleted.
    pub deletion_timestamp: Option<Box<str>>,
}

/// A Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Service {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it asks for.
    #[serde(deserialize_with = "or_default")]
    pub spec: ServiceSpec,
    /// What it got.
    #[serde(deserialize_with = "or_default")]
    pub status: ServiceStatus,
}

/// What a Service asks for.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer`, `ExternalName`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: Box<str>,
    /// Its first address.
    #[serde(rename = "clusterIP", deserialize_with = "or_default")]
    pub cluster_ip: Box<str>,
    /// All its addresses.
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<Box<str>>,
    /// Their families.
    #[serde(deserialize_with = "or_default")]
    pub ip_families: Vec<Box<str>>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
    /// Addresses from outside that lead to it.
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    pub external_ips: Vec<Box<str>>,
    /// Who may use its load balancer.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer_source_ranges: Vec<Box<str>>,
    /// `ClientIP` or `None`.
    #[serde(deserialize_with = "or_default")]
    pub session_affinity: Box<str>,
    /// How long clients are remembered.
    #[serde(deserialize_with = "or_default")]
    pub session_affinity_config: AffinityConfig,
    /// `Local` or `Cluster`, for traffic from outside.
    pub external_traffic_policy: Option<Box<str>>,
    /// `Local` or `Cluster`, for traffic from inside.
    pub internal_traffic_policy: Option<Box<str>>,
    /// Where load balancers ask for the node's health.
    #[serde(deserialize_with = "number")]
    pub health_check_node_port: u16,
}

/// How long clients are remembered.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct AffinityConfig {
    /// By their address.
    #[serde(rename = "clientIP", deserialize_with = "or_default")]
    pub client_ip: ClientIp,
}

/// How long clients are remembered by their address.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIp {
    /// In seconds.
    pub timeout_seconds: Option<i64>,
}

/// A port of a Service.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Port {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
    /// Its protocol; none if it is an unknown one.
    #[serde(default = "tcp", deserialize_with = "protocol")]
    pub protocol: Option<Protocol>,
    /// Its number.
    #[serde(deserialize_with = "number")]
    pub port: u16,
    /// Its number on nodes.
    #[serde(deserialize_with = "number")]
    pub node_port: u16,
    /// Whether its load balancer is somebody else's business on this node. No server says so; whoever stands between it and us does.
    #[serde(rename = "waypost.dev/gateway")]
    pub at_gateway: bool,
}

/// What a Service got.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    /// From its load balancer.
    #[serde(deserialize_with = "or_default")]
    pub load_balancer: LoadBalancer,
}

/// What a load balancer gave.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct LoadBalancer {
    /// Where it can be reached.
    #[serde(deserialize_with = "or_default")]
    pub ingress: Vec<Ingress>,
}

/// Where a load balancer can be reached.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Ingress {
    /// Its address.
    #[serde(deserialize_with = "or_default")]
    pub ip: Box<str>,
    /// `VIP` (packets arrive with it) or `Proxy` (they do not).
    pub ip_mode: Option<Box<str>>,
}

/// An EndpointSlice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Slice {
    /// Who it is, and whose.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(deserialize_with = "or_default")]
    pub address_type: Box<str>,
    /// Its endpoints.
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<SliceEndpoint>,
    /// Its ports.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<SlicePort>,
}

/// An endpoint of a slice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SliceEndpoint {
    /// Its addresses; only the first is used.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<Box<str>>,
    /// Its state.
    #[serde(deserialize_with = "or_default")]
    pub conditions: Conditions,
    /// Its node.
    pub node_name: Option<Box<str>>,
    /// Whom it should serve.
    #[serde(deserialize_with = "or_default")]
    pub hints: Hints,
}

/// The state of an endpoint.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Conditions {
    /// Whether new connections should go there.
    pub ready: Option<bool>,
    /// Whether it answers.
    pub serving: Option<bool>,
    /// Whether it is about to go.
    pub terminating: Option<bool>,
}

/// Whom an endpoint should serve.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Hints {
    /// Clients of these zones.
    #[serde(deserialize_with = "or_default")]
    pub for_zones: Vec<Named>,
    /// Clients on these nodes.
    #[serde(deserialize_with = "or_default")]
    pub for_nodes: Vec<Named>,
}

/// A name.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Named {
    /// The name.
    #[serde(deserialize_with = "or_default")]
    pub name: Box<str>,
}

/// A port of a slice.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: Option<Box<str>>,
    /// Its protocol; none if it is an unknown one.
    #[serde(default = "tcp", deserialize_with = "protocol")]
    pub protocol: Option<Protocol>,
    /// Its number; none would be every port, which nobody serves.
    pub port: Option<i64>,
}

/// The node.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Node {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What it was given.
    #[serde(deserialize_with = "or_default")]
    pub spec: NodeSpec,
    /// What it says.
    #[serde(deserialize_with = "or_default")]
    pub status: NodeStatus,
}

/// What a node was given.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeSpec {
    /// The addresses of its Pods.
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pub pod_cidrs: Vec<Box<str>>,
    /// Why Pods should stay away.
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

/// Why Pods should stay away.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Taint {
    /// The reason.
    #[serde(deserialize_with = "or_default")]
    pub key: Box<str>,
}

/// What a node says.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct NodeStatus {
    /// Where it can be reached.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<NodeAddress>,
}

/// Where a node can be reached.
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

/// A range of Service addresses.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct ServiceCidr {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// Which addresses.
    #[serde(deserialize_with = "or_default")]
    pub spec: CidrSpec,
}

/// Which addresses.
#[derive(Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct CidrSpec {
    /// As ranges.
    #[serde(deserialize_with = "or_default")]
    pub cidrs: Vec<Box<str>>,
}

impl Service {
    /// Its address in a family; none for headless Services and for mere names.
    #[must_use]
    pub fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        let spec = &self.spec;
        if &*spec.kind == "ExternalName" {
            return None;
        }
        let all = spec.cluster_ips.iter().chain(spec.cluster_ips.is_empty().then_some(&spec.cluster_ip));
        all.filter_map(|text| parse_lenient(text)).find(|address| Family::of(*address) == family)
    }

    /// Whether this proxy looks after it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        !self.metadata.labels.contains_key(FOREIGN_PROXY)
    }
}

impl Slice {
    /// `namespace/name` of its Service.
    #[must_use]
    pub fn service(&self) -> Option<String> {
        let name = self.metadata.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())?;
        Some(format!("{}/{name}", self.metadata.namespace))
    }

    /// Its family; none for names.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        Family::named(&self.address_type)
    }
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

    /// The addresses of its Pods; what is no range is left out.
    #[must_use]
    pub fn pod_ranges(&self) -> Vec<IpNet> {
        self.spec.pod_cidrs.iter().filter_map(|range| lenient_range(range)).collect()
    }

    /// The zone it is in.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        self.metadata.labels.get(ZONE).map(|zone| &**zone).filter(|zone| !zone.is_empty())
    }

    /// Whether load balancers may send traffic to it.
    #[must_use]
    pub fn is_eligible(&self) -> bool {
        self.metadata.deletion_timestamp.is_none()
            && !self.spec.taints.iter().any(|taint| &*taint.key == "ToBeDeletedByClusterAutoscaler")
    }
}

impl ServiceCidr {
    /// Its ranges.
    pub fn ranges(&self) -> impl Iterator<Item = IpNet> {
        self.spec.cidrs.iter().filter_map(|text| lenient_range(text))
    }
}

/// A member that may be null, which means the same as absent.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A number; one beyond what it can be is 0.
fn number<'de, D: Deserializer<'de>, T: TryFrom<i64> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<i64>::deserialize(from)?.and_then(|number| T::try_from(number).ok()).unwrap_or_default())
}

/// A protocol; absent is TCP, an unknown one is none.
fn protocol<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Protocol>, D::Error> {
    Ok(Option::<Box<str>>::deserialize(from)?.map_or_else(tcp, |text| Protocol::named(&text)))
}

const fn tcp() -> Option<Protocol> {
    Some(Protocol::Tcp)
}
