//! The objects of an explanation, listed once.
//!
//! In: an API. Out: Services, slices, Pods, Nodes and ranges as typed objects. Kinds that the user may not list are noted and
//! omitted; Services and slices are required.

use anyhow::bail;
use api::view::{EndpointSlice, Node, Pod, Service, ServiceCidr};
use diagnose::{Finding, Object, Objects as Listed, Snapshot};
use plan::why::owners::Objects;
use serde_json::Value;

use crate::api_client::ApiClient;
use crate::host::AnnouncedObjects;

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const PODS: &str = "/api/v1/pods";
const NODES: &str = "/api/v1/nodes";
const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";

/// The objects.
#[derive(Debug, Default)]
pub(super) struct ClusterObjects {
    pub(super) services: Vec<Service>,
    pub(super) slices: Vec<EndpointSlice>,
    pub(super) pods: Vec<Pod>,
    pub(super) nodes: Vec<Node>,
    pub(super) cidrs: Vec<ServiceCidr>,
    /// The same as JSON.
    raw: Raw,
    /// Kinds that could not be read, and why.
    pub(super) missing: Vec<String>,
}

/// Objects as JSON.
#[derive(Debug, Default)]
struct Raw {
    services: Vec<Value>,
    slices: Vec<Value>,
    pods: Option<Vec<Value>>,
    nodes: Vec<Value>,
    ranges: Vec<Value>,
}

impl ClusterObjects {
    /// Reads them.
    pub(super) async fn read(api: &mut ApiClient) -> anyhow::Result<Self> {
        let mut missing = Vec::new();
        let raw = Raw {
            services: list(api, SERVICES).await?,
            slices: list(api, SLICES).await?,
            pods: optional(api, PODS, &mut missing).await,
            nodes: optional(api, NODES, &mut missing).await.unwrap_or_default(),
            ranges: optional(api, RANGES, &mut missing).await.unwrap_or_default(),
        };
        Ok(Self {
            services: typed(&raw.services, serde_json::from_value),
            slices: typed(&raw.slices, serde_json::from_value),
            pods: typed(raw.pods.as_deref().unwrap_or_default(), serde_json::from_value),
            nodes: typed(&raw.nodes, serde_json::from_value),
            cidrs: typed(&raw.ranges, serde_json::from_value),
            raw,
            missing,
        })
    }

    /// The objects, for a diagnosis; without Pods where these could not be listed.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let Raw { services, slices, pods, nodes, ranges } = &self.raw;
        let pods = pods.as_deref().unwrap_or_default();
        let lists = [services, slices, pods, nodes, ranges].map(Object::listed);
        Snapshot::new(Listed::new(lists, "cluster.local"))
    }

    /// Whether Pods could be listed.
    pub(super) const fn has_pods(&self) -> bool {
        self.raw.pods.is_some()
    }

    /// The findings for a Service; none where Pods could not be listed.
    pub(super) fn findings(&self, service: &Service) -> Vec<Finding> {
        if !self.has_pods() {
            return Vec::new();
        }
        let snapshot = self.snapshot();
        snapshot.diagnosis(&service.metadata.key()).map(|diagnosis| diagnosis.findings()).unwrap_or_default()
    }

    /// Services and slices for tests, without Pods.
    #[cfg(test)]
    pub(super) fn of(services: Vec<Value>, slices: Vec<Value>) -> Self {
        Self { raw: Raw { services, slices, ..Raw::default() }, ..Self::default() }
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

    /// The Pods that a Service selects.
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

    /// All objects, to find owners of addresses.
    pub(super) fn objects(&self) -> Objects<'_> {
        let Self { services, slices, pods, nodes, cidrs, .. } = self;
        Objects { services, slices, pods, nodes, cidrs }
    }
}

/// Findings as text, the details of each below it.
pub(super) fn finding_lines(findings: &[Finding]) -> impl Iterator<Item = String> {
    findings.iter().flat_map(|finding| {
        let verdict = format!("  {:<9} {}: {}", finding.level.as_str(), finding.code, finding.message);
        let evidence = finding.evidence.iter().map(|more| format!("  evidence  {more}"));
        [verdict].into_iter().chain(evidence).chain([format!("  fix       {}", finding.fix)])
    })
}

/// Services, slices and Nodes as JSON.
pub(super) async fn announced_objects(api: &mut ApiClient) -> anyhow::Result<AnnouncedObjects> {
    let (services, slices) = (list(api, SERVICES).await?, list(api, SLICES).await?);
    Ok(AnnouncedObjects { services, slices, nodes: list(api, NODES).await? })
}

async fn list(api: &mut ApiClient, path: &str) -> anyhow::Result<Vec<Value>> {
    let mut found = api.get(path).await?.unwrap_or_default();
    Ok(match found["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

/// Lists a kind that is not required.
async fn optional(api: &mut ApiClient, path: &str, missing: &mut Vec<String>) -> Option<Vec<Value>> {
    let read = list(api, path).await;
    read.inspect_err(|error| {
        let what = path.rsplit('/').next().unwrap_or_default();
        missing.push(format!("{what} could not be read: {error:#}"));
    })
    .ok()
}

/// Objects as typed views; one that cannot be parsed is omitted.
fn typed<T>(items: &[Value], read: fn(Value) -> serde_json::Result<T>) -> Vec<T> {
    items.iter().filter_map(|item| read(item.clone()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use api::value::ValueExt as _;

    use super::*;

    /// The table of faults and healthy shapes that all renderers of findings are tested with.
    const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../diagnose/tests/faults.json");

    fn findings(case: &Value) -> Vec<Finding> {
        let raw = Raw {
            services: case.items("services").to_vec(),
            slices: case.items("slices").to_vec(),
            pods: Some(case.items("pods").to_vec()),
            nodes: case.items("nodes").to_vec(),
            ranges: vec![serde_json::json!({"spec": {"cidrs": ["10.96.0.0/16"]}})],
        };
        let services = typed(&raw.services, serde_json::from_value);
        let cluster = ClusterObjects { raw, services, ..ClusterObjects::default() };
        let service = cluster.service("default", "web").expect("the Service");
        cluster.findings(service)
    }

    #[test]
    fn b13_explain_has_the_code_and_the_sentence_of_the_diagnosis() {
        let table = std::fs::read(FAULTS).expect("the table");
        let table: Value = serde_json::from_slice(&table).expect("JSON");
        for case in table.items("faults") {
            let found = findings(case).first().map(Finding::json).unwrap_or_default();
            let wanted = (case.text("code"), case.text("message"));
            assert_eq!((found.text("code"), found.text("message")), wanted, "{}", case.text("name"));
        }
        for case in table.items("healthy") {
            assert_eq!(findings(case), [], "{}", case.text("name"));
        }
    }
}
