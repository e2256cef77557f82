//! The evidence: the objects of the cluster, the state of this machine, and measurements of one Service.
//!
//! In: JSON as the API sends it, and measurements or why there are none. Out: accessors that several checks share.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use api::ip::{Family, parse_lenient};
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use diagnose::{Diagnosis, Finding, Object, Objects, Snapshot};
use ipnet::IpNet;
use kernel::conntrack::Flow;
use kernel::nft::foreign::Ruleset;
use plan::Protocol;
use serde_json::Value;

use crate::commands::announced::Announced;

/// Why something was not measured, and how it can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unmeasured {
    /// Why not.
    pub(crate) why: String,
    /// What to do to measure it; empty when there is nothing to measure.
    pub(crate) how: String,
}

/// A measurement, or why there is none.
pub(crate) type Measured<T> = Result<T, Unmeasured>;

/// The objects of the cluster at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) namespaces: Vec<Value>,
    pub(crate) services: Vec<Value>,
    pub(crate) slices: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    pub(crate) nodes: Vec<Value>,
    pub(crate) events: Vec<Value>,
    /// Deployments and StatefulSets; they say their kind.
    pub(crate) workloads: Vec<Value>,
    pub(crate) ranges: Vec<Value>,
    /// Leases, peers and Events of announcements; none where they could not be read.
    pub(crate) announced: Option<Announced>,
    pub(crate) domain: String,
}

/// Differences between the kernel rules of this node and the plan.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules {
    /// The proxy mode.
    pub(crate) mode: String,
    /// Whether there is no rule at all.
    pub(crate) missing: bool,
    /// What concerns all Services.
    pub(crate) whole: Vec<String>,
    /// What concerns one, by `namespace/name`.
    pub(crate) of: BTreeMap<String, Vec<String>>,
}

/// The state of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// The name of its Node; an error where it is not a node.
    pub(crate) node: Measured<String>,
    /// Whether a proxy runs here.
    pub(crate) proxy: Measured<bool>,
    pub(crate) rules: Measured<Rules>,
    pub(crate) flows: Measured<Vec<Flow>>,
    /// The number of conntrack entries, and the limit.
    pub(crate) room: Measured<(u64, u64)>,
    /// All nftables rules.
    pub(crate) firewall: Measured<Ruleset>,
    /// Why rules of iptables-legacy, which exist besides, are not all among them.
    pub(crate) legacy: Option<String>,
    /// Settings by name, as far as they can be read.
    pub(crate) settings: BTreeMap<&'static str, String>,
    /// The networks that its interfaces are in; none when they could not be read.
    pub(crate) networks: Vec<IpNet>,
    /// The client address to check source ranges for.
    pub(crate) from: Option<IpAddr>,
}

impl Here {
    /// A node of which only the name is known.
    pub(crate) fn named(node: &str) -> Self {
        let unseen = || Unmeasured { why: "only its name is known".to_owned(), how: "waypost doctor".to_owned() };
        Self {
            node: Ok(node.to_owned()),
            proxy: Err(unseen()),
            rules: Err(unseen()),
            flows: Err(unseen()),
            room: Err(unseen()),
            firewall: Err(unseen()),
            legacy: None,
            settings: BTreeMap::new(),
            networks: Vec::new(),
            from: None,
        }
    }
}

/// The result of a TCP connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Dial {
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
    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Connected => "connected".to_owned(),
            Self::Refused => "refused".to_owned(),
            Self::Silent => "no answer".to_owned(),
            Self::Failed(why) => why.clone(),
        }
    }
}

/// The answer of the DNS server to a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NameAnswer {
    /// The queried name.
    pub(crate) name: String,
    /// Addresses, and CNAME targets.
    pub(crate) records: Result<Vec<String>, String>,
    /// The Pods whose search path resolves the short name to this Service.
    pub(crate) by_search: Option<String>,
    /// Remarks for the owner.
    pub(crate) notes: Vec<String>,
}

/// Measurements of one Service.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    /// Connections to its endpoints.
    pub(crate) backends: Measured<BTreeMap<SocketAddr, Dial>>,
    /// How many more endpoints there are.
    pub(crate) left_out: usize,
    /// Addresses of endpoints to which there is no route, and why.
    pub(crate) no_route: BTreeMap<IpAddr, String>,
    /// Connections to its own addresses.
    pub(crate) frontends: Measured<BTreeMap<SocketAddr, Dial>>,
    /// What its name leads to.
    pub(crate) name: Measured<NameAnswer>,
}

/// The evidence about one Service.
pub(crate) struct Evidence<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) cluster: &'a Cluster,
    pub(crate) here: &'a Here,
    pub(crate) tried: &'a Tried,
    /// The diagnosis from objects; none where the Service does not exist, or not all objects were listed.
    pub(crate) diagnosis: Option<Diagnosis>,
}

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    /// Its place in the list.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) number: u16,
    pub(crate) node_port: Option<u16>,
    /// A number or a name.
    pub(crate) target: Value,
}

/// An endpoint of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    /// The name of its port.
    pub(crate) port: String,
    pub(crate) ready: bool,
    pub(crate) serving: bool,
    pub(crate) node: String,
    /// The Pod behind it.
    pub(crate) pod: String,
    pub(crate) slice: String,
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
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        let Self { services, slices, pods, nodes, ranges, domain, .. } = self;
        let lists = [services, slices, pods, nodes, ranges];
        Snapshot::new(Objects::new(lists.map(|list| Object::listed(list)), domain))
    }

    /// A Service.
    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.services.iter().find(|one| is(one, namespace, name))
    }

    /// The slices of a Service.
    pub(crate) fn slices_of<'a>(&'a self, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a Value> {
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

/// Whether a Pod has ended for good.
pub(crate) fn is_over(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&pod.text("status.phase"))
}

/// Whether a Pod is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    pod.items("status.conditions").iter().any(|one| one.text("type") == "Ready" && one.text("status") == "True")
}

impl<'a> Evidence<'a> {
    /// Adds the diagnosis from objects.
    pub(crate) fn diagnosed(self, snapshot: &Snapshot<'_>) -> Self {
        let diagnosis = snapshot.diagnosis(&format!("{}/{}", self.namespace, self.name));
        Self { diagnosis, ..self }
    }

    /// The finding from objects that a check reports.
    pub(crate) fn found(&self, check: &str) -> Option<Finding> {
        let any_runs = self.pods().iter().any(|pod| pod.text("status.phase") == "Running");
        let all = self.diagnosis.as_ref()?.findings();
        all.into_iter().find(|finding| super::checks::check_of(&finding.code, any_runs) == check)
    }

    /// The Service in the form that commands are made from.
    pub(crate) fn typed(&self) -> diagnose::Service {
        self.service().map(diagnose::Service::of).unwrap_or_default()
    }

    /// The Service.
    pub(crate) fn service(&self) -> Option<&'a Value> {
        self.cluster.service(self.namespace, self.name)
    }

    /// The spec of the Service; null where there is none.
    pub(crate) fn spec(&self) -> &'a Value {
        static NULL: Value = Value::Null;
        self.service().map_or(&NULL, |service| service.at("spec"))
    }

    /// `ClusterIP` and so on.
    pub(crate) fn kind(&self) -> &'a str {
        self.spec().text("type")
    }

    pub(crate) fn is_external_name(&self) -> bool {
        self.kind() == "ExternalName"
    }

    pub(crate) fn is_headless(&self) -> bool {
        self.spec().text("clusterIP") == "None"
    }

    /// Its selector; none for a Service without.
    pub(crate) fn selector(&self) -> Option<&'a serde_json::Map<String, Value>> {
        self.spec().map("selector").filter(|selector| !selector.is_empty() && !self.is_external_name())
    }

    /// The Pods of its namespace that it selects and that have not ended.
    pub(crate) fn pods(&self) -> Vec<&'a Value> {
        let Some(selector) = self.selector() else { return Vec::new() };
        let ours = |pod: &&Value| {
            pod.text("metadata.namespace") == self.namespace && has_labels(pod, "metadata.labels", selector)
        };
        self.cluster.pods.iter().filter(ours).filter(|pod| !is_over(pod)).collect()
    }

    /// Its ports.
    pub(crate) fn ports(&self) -> Vec<Port> {
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
    pub(crate) fn cluster_ips(&self) -> Vec<IpAddr> {
        let spec = self.spec();
        let all = spec.texts("clusterIPs");
        let all = if all.is_empty() { vec![spec.text("clusterIP")] } else { all };
        all.into_iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// The addresses that a load balancer has for it.
    pub(crate) fn balancer_ips(&self) -> Vec<IpAddr> {
        let ingress = self.service().map_or(&[][..], |service| service.items("status.loadBalancer.ingress"));
        ingress.iter().filter_map(|one| one.text("ip").parse().ok()).collect()
    }

    /// Its slices.
    pub(crate) fn slices(&self) -> Vec<&'a Value> {
        self.cluster.slices_of(self.namespace, self.name).collect()
    }

    /// Its endpoints in any state; none for an ExternalName Service, even if slices are left from an earlier type.
    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        let slices = self.cluster.slices_of(self.namespace, self.name);
        endpoints(slices.filter(|_| !self.is_external_name()))
    }

    /// Its endpoints that take new connections.
    pub(crate) fn ready(&self) -> Vec<Endpoint> {
        self.endpoints().into_iter().filter(|endpoint| endpoint.ready).collect()
    }

    /// The ranges of Service addresses.
    pub(crate) fn service_ranges(&self) -> Vec<IpNet> {
        let ranges = self.cluster.ranges.iter().flat_map(|range| range.texts("spec.cidrs"));
        ranges.filter_map(|text| text.parse().ok()).collect()
    }

    /// The Node of this machine.
    pub(crate) fn node(&self) -> Option<&'a Value> {
        let name = self.here.node.as_ref().ok()?;
        self.cluster.nodes.iter().find(|node| node.text("metadata.name") == name)
    }

    /// The addresses of this Node.
    pub(crate) fn node_ips(&self) -> Vec<IpAddr> {
        let all = self.node().map_or(&[][..], |node| node.items("status.addresses"));
        let ips = all.iter().filter(|one| one.text("type").ends_with("IP"));
        ips.filter_map(|one| one.text("address").parse().ok()).collect()
    }

    /// `-n NAMESPACE`, for commands.
    pub(crate) fn flag(&self) -> String {
        format!("-n {}", self.namespace)
    }
}

/// The name of a family, for sentences.
pub(crate) fn family(ip: IpAddr) -> &'static str {
    Family::of(ip).as_str()
}
