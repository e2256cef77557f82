//! The objects that an answer is made of, read once from the API.
//!
//! In: an API. Out: Services, slices, Pods, Nodes and ranges as typed objects. What this user may not read is noted and
//! left out; without Services and slices there is no answer.

use announce::inputs::Lists;
use anyhow::bail;
use api::view::{EndpointSlice, Node, Pod, Service, ServiceCidr};
use plan::why::who::Objects;
use serde_json::Value;

use crate::commands::reach::Api;

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// The objects.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) services: Vec<Service>,
    pub(super) slices: Vec<EndpointSlice>,
    pub(super) pods: Vec<Pod>,
    pub(super) nodes: Vec<Node>,
    pub(super) cidrs: Vec<ServiceCidr>,
    /// What could not be read, and why.
    pub(super) missing: Vec<String>,
}

impl World {
    /// Reads them.
    pub(super) async fn read(api: &mut Api) -> anyhow::Result<Self> {
        let mut world = Self {
            services: forms(list(api, SERVICES).await?, serde_json::from_value),
            slices: forms(list(api, SLICES).await?, serde_json::from_value),
            ..Self::default()
        };
        world.pods = forms(optional(api, PODS, &mut world.missing).await, serde_json::from_value);
        world.nodes = forms(optional(api, NODES, &mut world.missing).await, serde_json::from_value);
        world.cidrs = forms(optional(api, RANGES, &mut world.missing).await, serde_json::from_value);
        Ok(world)
    }

    /// A Service.
    pub(super) fn service(&self, namespace: &str, name: &str) -> anyhow::Result<&Service> {
        let named = || self.services.iter().filter(|one| &*one.metadata.name == name);
        if let Some(found) = named().find(|one| &*one.metadata.namespace == namespace) {
            return Ok(found);
        }
        if let Some(other) = named().next() {
            let there = &other.metadata.namespace;
            bail!("there is no Service {namespace}/{name}, but there is {there}/{name}; add `-n {there}`");
        }
        bail!("there is no Service {namespace}/{name}; `waypost get services -A` lists those there are")
    }

    /// The slices of a Service.
    pub(super) fn slices_of(&self, service: &Service) -> Vec<EndpointSlice> {
        let key = service.metadata.key();
        self.slices.iter().filter(|slice| slice.service().as_deref() == Some(&*key)).cloned().collect()
    }

    /// The Pods that a Service looks for.
    pub(super) fn pods_of(&self, service: &Service) -> Vec<Pod> {
        let wanted = &service.spec.selector;
        let matches = |pod: &&Pod| {
            let has = |(name, value): &(Box<str>, Box<str>)| pod.metadata.labels.get(name) == Some(value);
            !wanted.is_empty() && pod.metadata.namespace == service.metadata.namespace && wanted.iter().all(has)
        };
        self.pods.iter().filter(matches).cloned().collect()
    }

    /// The Pod with an address that does not use the network of its node, as `namespace/name`.
    pub(super) fn pod_at(&self, address: &str) -> Option<String> {
        let has = |pod: &&Pod| pod.status.pod_ips.iter().any(|one| &*one.ip == address) && !pod.has_ended();
        self.pods.iter().find(has).map(|pod| pod.metadata.key())
    }

    /// All of it, to look for owners in.
    pub(super) fn objects(&self) -> Objects<'_> {
        let Self { services, slices, pods, nodes, cidrs, .. } = self;
        Objects { services, slices, pods, nodes, cidrs }
    }
}

/// Services, slices and Nodes as they are, for those who read them in another way.
pub(super) async fn lists(api: &mut Api) -> anyhow::Result<Lists> {
    let (services, slices) = (list(api, SERVICES).await?, list(api, SLICES).await?);
    Ok(Lists { services, slices, nodes: list(api, NODES).await?, ..Lists::default() })
}

async fn list(api: &mut Api, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut found = api.get(path).await?.unwrap_or_default();
    Ok(match found["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

/// What can be done without.
async fn optional(api: &mut Api, path: &str, missing: &mut Vec<String>) -> Vec<Value> {
    list(api, path).await.unwrap_or_else(|error| {
        let what = path.rsplit('/').next().unwrap_or_default();
        missing.push(format!("{what} could not be read: {error:#}"));
        Vec::new()
    })
}

/// Objects in their forms; one that cannot be read is none.
fn forms<T>(items: Vec<Value>, read: fn(Value) -> serde_json::Result<T>) -> Vec<T> {
    items.into_iter().filter_map(|item| read(item).ok()).collect()
}
