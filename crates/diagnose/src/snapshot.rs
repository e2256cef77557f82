//! The objects of a cluster at one moment, as lists.
//!
//! In: lists of JSON, or entries of a store. Out: a [`Cluster`] over them, and the diagnosis of each of their Services. Services are
//! parsed at once, slices when their Service is diagnosed, and Pods when a finding concerns them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::OnceLock;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use api::view::labels::SERVICE_NAME;
use api::view::{self, Protocol, ServiceCidr};
use ipnet::IpNet;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cluster::{Cluster, Pod, Standing};
use crate::labels::{Selector, label, selects};
use crate::model::{Service, Slice, of, read};
use crate::pod_state::Detail;
use crate::service::{Diagnosis, diagnose};

/// An object of a list.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// JSON as the API sends it.
    Json(&'a Value),
    /// Bytes as a store keeps them. They may lack namespace and name, which are in the key.
    Stored {
        /// `namespace/name`, or the name alone.
        key: &'a str,
        /// Its labels.
        labels: &'a Selector,
        /// The bytes.
        bytes: &'a [u8],
    },
}

impl<'a> Object<'a> {
    /// Objects as the API lists them.
    pub fn listed(items: &'a [Value]) -> Vec<Self> {
        items.iter().map(Self::Json).collect()
    }

    pub(crate) fn namespace(self) -> &'a str {
        match self {
            Self::Json(object) => object.text("metadata.namespace"),
            Self::Stored { key, .. } => key.split_once('/').map_or("", |(namespace, _)| namespace),
        }
    }

    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Json(object) => object.text("metadata.name"),
            Self::Stored { key, .. } => key.split_once('/').map_or(key, |(_, name)| name),
        }
    }

    pub(crate) fn labels(self) -> Cow<'a, Selector> {
        match self {
            Self::Json(object) => {
                let labels = object.map("metadata.labels").into_iter().flatten();
                let labels = labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())));
                let mut labels: Vec<(Box<str>, Box<str>)> = labels.collect();
                labels.sort_unstable();
                Cow::Owned(labels)
            }
            Self::Stored { labels, .. } => Cow::Borrowed(labels),
        }
    }

    pub(crate) fn parse<T: DeserializeOwned + Default>(self) -> T {
        match self {
            Self::Json(object) => of(object),
            Self::Stored { bytes, .. } => read(bytes),
        }
    }

    fn service(self) -> Service {
        match self {
            Self::Json(object) => Service::of(object),
            Self::Stored { bytes, .. } => Service::read(bytes, self.namespace(), self.name()),
        }
    }

    fn slice(self) -> Slice {
        match self {
            Self::Json(object) => of(object),
            Self::Stored { bytes, .. } => Slice::read(bytes, self.name()),
        }
    }
}

/// The lists. One that could not be read is empty.
#[derive(Clone, Debug, Default)]
pub struct Objects<'a> {
    /// Services.
    pub services: Vec<Object<'a>>,
    /// EndpointSlices.
    pub slices: Vec<Object<'a>>,
    /// Pods.
    pub pods: Vec<Object<'a>>,
    /// Nodes.
    pub nodes: Vec<Object<'a>>,
    /// ServiceCIDRs.
    pub ranges: Vec<Object<'a>>,
    /// The domain of the cluster.
    pub domain: &'a str,
}

impl<'a> Objects<'a> {
    /// Services, EndpointSlices, Pods, Nodes and ServiceCIDRs.
    #[must_use]
    pub fn new([services, slices, pods, nodes, ranges]: [Vec<Object<'a>>; 5], domain: &'a str) -> Self {
        Self { services, slices, pods, nodes, ranges, domain }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// By `namespace/name`.
    services: BTreeMap<String, Service>,
    pods: BTreeMap<&'a str, Vec<Listed<'a>>>,
    /// By `namespace/name` of their Service.
    slices: BTreeMap<String, Vec<Object<'a>>>,
    nodes: BTreeSet<&'a str>,
    owners: BTreeMap<IpAddr, String>,
    ranges: Vec<IpNet>,
    domain: &'a str,
}

/// A Pod of a list.
#[derive(Debug)]
pub struct Listed<'a> {
    object: Object<'a>,
    labels: Cow<'a, Selector>,
    state: OnceLock<State>,
}

/// The state of a Pod, parsed on demand.
#[derive(Debug)]
struct State {
    pod: view::Pod,
    addresses: Vec<IpAddr>,
}

impl<'a> Snapshot<'a> {
    /// Indexes lists.
    #[must_use]
    pub fn new(objects: Objects<'a>) -> Self {
        let mut pods: BTreeMap<&str, Vec<Listed<'_>>> = BTreeMap::new();
        for object in objects.pods {
            let pod = Listed { object, labels: object.labels(), state: OnceLock::new() };
            pods.entry(object.namespace()).or_default().push(pod);
        }
        for here in pods.values_mut() {
            here.sort_by_key(|pod| pod.object.name());
        }
        let mut slices: BTreeMap<String, Vec<Object<'_>>> = BTreeMap::new();
        for slice in objects.slices {
            if let Some(service) = label(&slice.labels(), SERVICE_NAME) {
                slices.entry(format!("{}/{service}", slice.namespace())).or_default().push(slice);
            }
        }
        let services = objects.services.iter().map(|one| one.service());
        let services: BTreeMap<String, Service> = services.map(|one| (one.metadata.key(), one)).collect();
        let mut owners = BTreeMap::new();
        for (key, service) in &services {
            owners.extend(service.cluster_ips().filter_map(parse_lenient).map(|ip| (ip, key.clone())));
        }
        let ranges = objects.ranges.iter().flat_map(|range| range.parse::<ServiceCidr>().spec.cidrs);
        Self {
            services,
            pods,
            slices,
            nodes: objects.nodes.iter().map(|node| node.name()).collect(),
            owners,
            ranges: ranges.filter_map(|text| text.parse().ok()).collect(),
            domain: objects.domain,
        }
    }

    /// Its Services, by `namespace/name`.
    #[must_use]
    pub const fn services(&self) -> &BTreeMap<String, Service> {
        &self.services
    }

    /// The diagnosis of the Service `namespace/name`; none where there is no such Service.
    #[must_use]
    pub fn diagnosis(&self, key: &str) -> Option<Diagnosis> {
        self.services.get(key).map(|service| diagnose(self, service))
    }

    fn here(&self, namespace: &str) -> &[Listed<'a>] {
        self.pods.get(namespace).map_or(&[], Vec::as_slice)
    }
}

impl Listed<'_> {
    fn state(&self) -> &State {
        self.state.get_or_init(|| {
            let pod: view::Pod = self.object.parse();
            let mut addresses: Vec<IpAddr> = Vec::new();
            for ip in pod.addresses().filter_map(parse_lenient) {
                if !addresses.contains(&ip) {
                    addresses.push(ip);
                }
            }
            State { pod, addresses }
        })
    }
}

impl Pod for Listed<'_> {
    fn name(&self) -> &str {
        self.object.name()
    }

    fn labels(&self) -> &Selector {
        &self.labels
    }

    fn standing(&self) -> Standing<'_> {
        let State { pod, addresses } = self.state();
        Standing {
            node: &pod.spec.node_name,
            addresses,
            ready: pod.condition("Ready").is_some_and(view::Condition::is_true),
            finished: pod.has_ended(),
            deleting: pod.metadata.is_deleting(),
        }
    }

    fn has_port(&self, name: &str, protocol: Option<Protocol>) -> bool {
        let mut ports = self.state().pod.spec.running_containers().flat_map(|container| &container.ports);
        ports.any(|port| *port.name == *name && port.protocol == protocol)
    }

    fn detail(&self) -> Detail {
        self.object.parse()
    }
}

impl<'a> Cluster for Snapshot<'a> {
    type Pod = Listed<'a>;

    fn count(&self, namespace: &str) -> usize {
        self.here(namespace).len()
    }

    fn matching(&self, namespace: &str, selector: &Selector) -> Vec<&Listed<'a>> {
        self.here(namespace).iter().filter(|pod| selects(selector, &pod.labels)).collect()
    }

    fn any(&self, namespace: &str, selector: &Selector) -> Option<&Listed<'a>> {
        self.here(namespace).iter().find(|pod| selects(selector, &pod.labels))
    }

    fn values(&self, namespace: &str, key: &str) -> Vec<(&str, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for value in self.here(namespace).iter().filter_map(|pod| label(&pod.labels, key)) {
            *counts.entry(value).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    fn keys(&self, namespace: &str) -> Vec<&str> {
        let keys = self.here(namespace).iter().flat_map(|pod| pod.labels.iter().map(|(key, _)| &**key));
        keys.collect::<BTreeSet<&str>>().into_iter().collect()
    }

    fn namespaces(&self) -> Vec<&str> {
        self.pods.keys().copied().collect()
    }

    fn has_node(&self, name: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(name)
    }

    fn service_at(&self, address: IpAddr) -> Option<&str> {
        self.owners.get(&address).map(String::as_str)
    }

    fn is_service_address(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    fn domain(&self) -> &str {
        self.domain
    }

    fn slices<'b>(&'b self, service: &'b Service) -> Box<dyn Iterator<Item = Slice> + 'b> {
        Box::new(self.slices.get(&service.metadata.key()).into_iter().flatten().map(|object| object.slice()))
    }
}
