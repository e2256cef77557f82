//! The objects of a cluster as lists of JSON, of one moment.
//!
//! In: lists as the API gives them. Out: a [`Cluster`] that walks them. Good for a command that looks once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::ip::parse_lenient;
use api::value::ValueExt as _;
use ipnet::IpNet;
use serde_json::Value;

use crate::cluster::{Cluster, Pod, Standing};
use crate::labels::{Selector, label, selects};
use crate::model::{Service, Slice};
use crate::pod_state::Detail;

/// The lists. One that could not be read is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objects<'a> {
    /// Services.
    pub services: &'a [Value],
    /// EndpointSlices.
    pub slices: &'a [Value],
    /// Pods.
    pub pods: &'a [Value],
    /// Nodes.
    pub nodes: &'a [Value],
    /// ServiceCIDRs.
    pub ranges: &'a [Value],
    /// The domain of the cluster.
    pub domain: &'a str,
}

/// See the module.
#[derive(Debug)]
pub struct Snapshot<'a> {
    pods: BTreeMap<&'a str, Vec<Listed<'a>>>,
    slices: BTreeMap<(String, String), Vec<&'a Value>>,
    nodes: BTreeSet<&'a str>,
    owners: BTreeMap<IpAddr, String>,
    ranges: Vec<IpNet>,
    domain: &'a str,
}

/// A Pod of a list.
#[derive(Debug)]
pub struct Listed<'a> {
    name: &'a str,
    labels: Box<Selector>,
    addresses: Vec<IpAddr>,
    object: &'a Value,
}

impl<'a> Snapshot<'a> {
    /// Indexes lists.
    #[must_use]
    pub fn new(objects: Objects<'a>) -> Self {
        let mut pods: BTreeMap<&str, Vec<Listed<'_>>> = BTreeMap::new();
        for pod in objects.pods {
            pods.entry(pod.text("metadata.namespace")).or_default().push(Listed::new(pod));
        }
        for here in pods.values_mut() {
            here.sort_by_key(|pod| pod.name);
        }
        let mut slices: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
        for object in objects.slices {
            let slice = Slice::of(object);
            if let Some(service) = slice.service() {
                slices.entry((slice.namespace().to_owned(), service.to_owned())).or_default().push(object);
            }
        }
        let mut owners = BTreeMap::new();
        for service in objects.services.iter().map(Service::of) {
            for ip in service.cluster_ips().iter().filter_map(|text| parse_lenient(text)) {
                owners.insert(ip, format!("{}/{}", service.namespace(), service.name()));
            }
        }
        let ranges = objects.ranges.iter().flat_map(|range| range.texts("spec.cidrs"));
        Self {
            pods,
            slices,
            nodes: objects.nodes.iter().map(|node| node.text("metadata.name")).collect(),
            owners,
            domain: objects.domain,
            ranges: ranges.filter_map(|text| text.parse().ok()).collect(),
        }
    }

    fn here(&self, namespace: &str) -> &[Listed<'a>] {
        self.pods.get(namespace).map_or(&[], Vec::as_slice)
    }
}

impl<'a> Listed<'a> {
    fn new(object: &'a Value) -> Self {
        let labels = object.map("metadata.labels").into_iter().flatten();
        let mut labels: Vec<(Box<str>, Box<str>)> =
            labels.filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect();
        labels.sort_unstable();
        let mut addresses: Vec<IpAddr> = Vec::new();
        let all = object.items("status.podIPs").iter().map(|one| one.text("ip"));
        for ip in all.chain([object.text("status.podIP")]).filter_map(parse_lenient) {
            if !addresses.contains(&ip) {
                addresses.push(ip);
            }
        }
        Self { name: object.text("metadata.name"), labels: labels.into(), addresses, object }
    }
}

impl Pod for Listed<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn labels(&self) -> &Selector {
        &self.labels
    }

    fn standing(&self) -> Standing<'_> {
        let ready = |one: &Value| one.text("type") == "Ready" && one.text("status") == "True";
        Standing {
            node: self.object.text("spec.nodeName"),
            addresses: &self.addresses,
            ready: self.object.items("status.conditions").iter().any(ready),
            finished: ["Succeeded", "Failed"].contains(&self.object.text("status.phase")),
            deleting: self.object.has("metadata.deletionTimestamp"),
        }
    }

    fn has_port(&self, name: &str, protocol: &str) -> bool {
        self.detail().ports().iter().any(|port| *port.name == *name && *port.protocol == *protocol)
    }

    fn detail(&self) -> Detail {
        Detail::of(self.object)
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
        let key = (service.namespace().to_owned(), service.name().to_owned());
        Box::new(self.slices.get(&key).into_iter().flatten().map(|object| Slice::of(object)))
    }
}
