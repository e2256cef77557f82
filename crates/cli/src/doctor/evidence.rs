//! The evidence: the objects of the cluster, the state of this machine, and measurements of one Service.
//!
//! In: JSON as the API sends it, and measurements or why there are none. Out: accessors that several checks share.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use api::ip::{Family, parse_lenient};
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use diagnose::{Diagnosis, Finding, Object, Objects, Snapshot};
use ipnet::IpNet;
use plan::Protocol;
use serde_json::Value;

use super::machine::Machine;
use crate::host::Announcements;

/// Why something was not measured, and how it can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmeasured {
    /// Why not.
    pub why: String,
    /// What to do to measure it; empty when there is nothing to measure.
    pub how: String,
}

/// A measurement, or why there is none.
pub type Measured<T> = Result<T, Unmeasured>;

/// The objects of the cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Namespaces.
    pub namespaces: Vec<Value>,
    /// Services.
    pub services: Vec<Value>,
    /// EndpointSlices.
    pub slices: Vec<Value>,
    /// Pods.
    pub pods: Vec<Value>,
    /// Nodes.
    pub nodes: Vec<Value>,
    /// Events of failed probes.
    pub events: Vec<Value>,
    /// Deployments, StatefulSets and DaemonSets; with their kind.
    pub workloads: Vec<Value>,
    /// ServiceCIDRs.
    pub ranges: Vec<Value>,
    /// The announcements of load-balancer addresses; none where they could not be read.
    pub announcements: Option<Arc<dyn Announcements>>,
    /// Whether the Services, slices and Pods of all namespaces are here, not only those of one.
    pub is_whole: bool,
    /// The DNS domain of the cluster.
    pub domain: String,
}

/// The result of a TCP connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Dial {
    /// It was accepted.
    Connected,
    /// It was refused at once.
    Refused,
    /// No answer before the timeout.
    Silent,
    /// It could not be sent.
    Failed(String),
}

impl Dial {
    /// As text.
    pub fn words(&self) -> String {
        match self {
            Self::Connected => "connected".to_owned(),
            Self::Refused => "refused".to_owned(),
            Self::Silent => "no answer".to_owned(),
            Self::Failed(why) => why.clone(),
        }
    }
}

/// Why a name was not resolved.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// The query failed.
    #[error("{0}")]
    Query(String),
    /// The server returned this response code.
    #[error("{0}")]
    Rcode(String),
}

/// The answer of the DNS server to a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameAnswer {
    /// The queried name.
    pub name: String,
    /// Addresses, and CNAME targets.
    pub records: Result<Vec<String>, NameError>,
    /// The Pods whose search path resolves the short name to this Service.
    pub by_search: Option<String>,
    /// Remarks for the owner.
    pub notes: Vec<String>,
}

/// Measurements of one Service.
#[derive(Clone, Debug)]
pub struct Probes {
    /// Connections to its endpoints.
    pub backends: Measured<BTreeMap<SocketAddr, Dial>>,
    /// How many more endpoints there are.
    pub left_out: usize,
    /// Addresses of endpoints to which there is no route, and why.
    pub no_route: BTreeMap<IpAddr, String>,
    /// Connections to its own addresses.
    pub frontends: Measured<BTreeMap<SocketAddr, Dial>>,
    /// The result of resolving its name.
    pub name: Measured<NameAnswer>,
}

/// The evidence about one Service.
pub struct Evidence<'a> {
    /// The namespace of the Service.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The objects.
    pub cluster: &'a Cluster,
    /// The state of this machine.
    pub machine: &'a Machine,
    /// Measurements of the Service.
    pub probes: &'a Probes,
    /// The diagnosis from objects; none where the Service does not exist, or not all objects were listed.
    pub diagnosis: Option<Diagnosis>,
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its place in the list.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
    /// Its node port.
    pub node_port: Option<u16>,
    /// A number or a name.
    pub target: Value,
}

/// An endpoint of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Its address and port.
    pub address: SocketAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The name of its port.
    pub port: String,
    /// Whether it accepts new connections.
    pub ready: bool,
    /// Whether it serves, although it may be terminating.
    pub serving: bool,
    /// The name of its Node.
    pub node: String,
    /// The Pod behind it.
    pub pod: String,
    /// The EndpointSlice.
    pub slice: String,
}

/// A number of an object as a port.
pub(crate) fn port_number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0)
}

/// The endpoints in slices.
pub(crate) fn endpoints<'a>(slices: impl Iterator<Item = &'a Value>) -> Vec<Endpoint> {
    let mut found = Vec::new();
    for slice in slices {
        for (port, endpoint) in
            slice.items("ports").iter().flat_map(|port| slice.items("endpoints").iter().map(move |one| (port, one)))
        {
            let ip = endpoint.items("addresses").first().and_then(Value::as_str).and_then(parse_lenient);
            let protocol = match port.text("protocol") {
                "" => Some(Protocol::Tcp),
                name => Protocol::named(name),
            };
            let (Some(ip), Some(number), Some(protocol)) = (ip, port_number(port.at("port")), protocol) else {
                continue;
            };
            let condition = |name: &str| endpoint.at("conditions").at(name).as_bool();
            let pod = if endpoint.text("targetRef.kind") == "Pod" { endpoint.text("targetRef.name") } else { "" };
            found.push(Endpoint {
                address: SocketAddr::new(ip, number),
                protocol,
                port: port.text("name").to_owned(),
                ready: condition("ready").unwrap_or(true),
                serving: condition("serving").unwrap_or(true),
                node: endpoint.text("nodeName").to_owned(),
                pod: pod.to_owned(),
                slice: slice.text("metadata.name").to_owned(),
            });
        }
    }
    found
}

impl Cluster {
    /// The objects, for a diagnosis.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let Self { services, slices, pods, nodes, ranges, domain, .. } = self;
        let lists = [services, slices, pods, nodes, ranges];
        Snapshot::new(Objects::new(lists.map(|list| Object::listed(list)), domain))
    }

    /// A Service.
    pub fn service(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.services.iter().find(|one| is(one, namespace, name))
    }

    /// The slices of a Service.
    pub fn slices_of<'a>(&'a self, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a Value> {
        self.slices.iter().filter(move |slice| {
            let service = slice.at("metadata.labels").get(SERVICE_NAME).and_then(Value::as_str);
            slice.text("metadata.namespace") == namespace && service == Some(name)
        })
    }
}

/// Whether an object has this name.
fn is(object: &Value, namespace: &str, name: &str) -> bool {
    object.text("metadata.namespace") == namespace && object.text("metadata.name") == name
}

/// Whether a Pod has all of these labels.
pub(crate) fn has_labels(object: &Value, path: &str, wanted: &serde_json::Map<String, Value>) -> bool {
    let labels = object.map(path);
    wanted.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

/// Whether a Pod has terminated.
pub(crate) fn is_over(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&pod.text("status.phase"))
}

/// Whether a Pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    pod.items("status.conditions").iter().any(|one| one.text("type") == "Ready" && one.text("status") == "True")
}

impl<'a> Evidence<'a> {
    /// Adds the diagnosis from objects.
    pub fn diagnosed(self, snapshot: &Snapshot<'_>) -> Self {
        let diagnosis = snapshot.diagnosis(&format!("{}/{}", self.namespace, self.name));
        Self { diagnosis, ..self }
    }

    /// The finding from objects that a check reports.
    pub fn found(&self, check: &str) -> Option<Finding> {
        let any_runs = self.pods().iter().any(|pod| pod.text("status.phase") == "Running");
        let all = self.diagnosis.as_ref()?.findings();
        all.into_iter().find(|finding| super::checks::check_of(&finding.code, any_runs) == check)
    }

    /// The Service in the form that commands are made from.
    pub fn typed(&self) -> diagnose::Service {
        self.service().map(diagnose::Service::of).unwrap_or_default()
    }

    /// The Service.
    pub fn service(&self) -> Option<&'a Value> {
        self.cluster.service(self.namespace, self.name)
    }

    /// The spec of the Service; null where there is none.
    pub fn spec(&self) -> &'a Value {
        static NULL: Value = Value::Null;
        self.service().map_or(&NULL, |service| service.at("spec"))
    }

    /// `ClusterIP` and so on.
    pub fn kind(&self) -> &'a str {
        self.spec().text("type")
    }

    /// Whether its type is ExternalName.
    pub fn is_external_name(&self) -> bool {
        self.kind() == "ExternalName"
    }

    /// Whether it has no cluster IP by intention.
    pub fn is_headless(&self) -> bool {
        self.spec().text("clusterIP") == "None"
    }

    /// Its selector; none for a Service without.
    pub fn selector(&self) -> Option<&'a serde_json::Map<String, Value>> {
        self.spec().map("selector").filter(|selector| !selector.is_empty() && !self.is_external_name())
    }

    /// The Pods of its namespace that it selects and that have not ended.
    pub fn pods(&self) -> Vec<&'a Value> {
        let Some(selector) = self.selector() else { return Vec::new() };
        let ours = |pod: &&Value| {
            pod.text("metadata.namespace") == self.namespace && has_labels(pod, "metadata.labels", selector)
        };
        self.cluster.pods.iter().filter(ours).filter(|pod| !is_over(pod)).collect()
    }

    /// Its ports.
    pub fn ports(&self) -> Vec<Port> {
        let read = |(index, port): (usize, &Value)| {
            Some(Port {
                index,
                name: port.text("name").to_owned(),
                protocol: Protocol::named(port.text("protocol")).unwrap_or(Protocol::Tcp),
                number: port_number(port.at("port"))?,
                node_port: port_number(port.at("nodePort")),
                target: port.at("targetPort").clone(),
            })
        };
        self.spec().items("ports").iter().enumerate().filter_map(read).collect()
    }

    /// Its cluster IPs.
    pub fn cluster_ips(&self) -> Vec<IpAddr> {
        let spec = self.spec();
        let all = spec.texts("clusterIPs");
        let all = if all.is_empty() { vec![spec.text("clusterIP")] } else { all };
        all.into_iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// The addresses that a load balancer has for it.
    pub fn balancer_ips(&self) -> Vec<IpAddr> {
        let ingress = self.service().map_or(&[][..], |service| service.items("status.loadBalancer.ingress"));
        ingress.iter().filter_map(|one| one.text("ip").parse().ok()).collect()
    }

    /// Its slices.
    pub fn slices(&self) -> Vec<&'a Value> {
        self.cluster.slices_of(self.namespace, self.name).collect()
    }

    /// Its endpoints in any state; none for an ExternalName Service, even if slices are left from an earlier type.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let slices = self.cluster.slices_of(self.namespace, self.name);
        endpoints(slices.filter(|_| !self.is_external_name()))
    }

    /// Its endpoints that accept new connections.
    pub fn ready(&self) -> Vec<Endpoint> {
        self.endpoints().into_iter().filter(|endpoint| endpoint.ready).collect()
    }

    /// The ranges of Service addresses.
    pub fn service_ranges(&self) -> Vec<IpNet> {
        let ranges = self.cluster.ranges.iter().flat_map(|range| range.texts("spec.cidrs"));
        ranges.filter_map(|text| text.parse().ok()).collect()
    }

    /// The Node of this machine.
    pub fn node(&self) -> Option<&'a Value> {
        let name = self.machine.node.as_ref().ok()?;
        self.cluster.nodes.iter().find(|node| node.text("metadata.name") == name)
    }

    /// The addresses of this Node.
    pub fn node_ips(&self) -> Vec<IpAddr> {
        let all = self.node().map_or(&[][..], |node| node.items("status.addresses"));
        let ips = all.iter().filter(|one| one.text("type").ends_with("IP"));
        ips.filter_map(|one| one.text("address").parse().ok()).collect()
    }

    /// `-n NAMESPACE`, for commands.
    pub fn flag(&self) -> String {
        format!("-n {}", self.namespace)
    }
}

/// The name of a family, for sentences.
pub(crate) fn family(ip: IpAddr) -> &'static str {
    Family::of(ip).as_str()
}
