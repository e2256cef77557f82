//! A reduced Service.

use std::sync::Arc;

use api::facts::Facts;
use api::ip::{Family, parse_lenient};
use api::view::annotations::{TOPOLOGY_AWARE_HINTS, TOPOLOGY_MODE};
use api::view::service::{ServicePort, ServiceSpec, TargetPort};
use api::view::{self, Protocol, StringMap};
use store::Entry;

use super::split;

/// A Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// The stored form: key and labels.
    pub entry: Arc<Entry>,
    /// Its uid.
    pub uid: Box<str>,
    /// The creation timestamp.
    pub created: Box<str>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The selector, sorted; `None` without a selector.
    pub selector: Option<Selector>,
    /// Whether its type is ExternalName.
    pub is_external_name: bool,
    /// Cluster IPs; the text `None` for a headless Service.
    pub cluster_ips: Box<[Box<str>]>,
    /// IP families.
    pub families: Box<[Family]>,
    /// Its ports.
    pub ports: Box<[Port]>,
    /// `publishNotReadyAddresses`
    pub publish_not_ready: bool,
    /// `trafficDistribution`
    pub distribution: Option<Box<str>>,
    /// Whether the topology mode annotation requests zone hints.
    pub has_topology_hints: bool,
}

/// Labels that a Pod must have.
pub type Selector = Box<[(Box<str>, Box<str>)]>;

/// A port of a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Its name, empty if it has none.
    pub name: Box<str>,
    /// Its protocol; none for an unknown one.
    pub protocol: Option<Protocol>,
    /// `appProtocol`
    pub app_protocol: Option<Box<str>>,
    /// The target port.
    pub target: TargetPort,
}

impl From<ServicePort> for Port {
    fn from(port: ServicePort) -> Self {
        let target = port.target();
        Self { name: port.name, protocol: port.protocol, app_protocol: port.app_protocol, target }
    }
}

/// Whether a selector matches labels.
#[must_use]
pub fn selects(selector: &[(Box<str>, Box<str>)], facts: &Facts) -> bool {
    selector.iter().all(|(key, value)| facts.label(key) == Some(value))
}

impl Service {
    /// Reads a stored Service.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let view::Service { metadata, spec, .. } = super::read(&entry.value);
        let families = families(&spec);
        Self {
            entry: Arc::clone(entry),
            uid: metadata.uid,
            created: metadata.creation_timestamp,
            deleting: metadata.deletion_timestamp.is_some(),
            has_topology_hints: wants_hints(&metadata.annotations),
            selector: Some(spec.selector).filter(|labels| !labels.is_empty()).map(Into::into),
            is_external_name: &*spec.kind == "ExternalName",
            cluster_ips: if spec.cluster_ips.is_empty() && !spec.cluster_ip.is_empty() {
                [spec.cluster_ip].into()
            } else {
                spec.cluster_ips.into()
            },
            families,
            ports: spec.ports.into_iter().map(Port::from).collect(),
            publish_not_ready: spec.publish_not_ready_addresses,
            distribution: spec.traffic_distribution,
        }
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

    /// Whether it is headless.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        self.cluster_ips.first().is_none_or(|address| &**address == "None" || address.is_empty())
    }

    /// Whether a field differs that endpoints depend on.
    #[must_use]
    pub fn differs_for_endpoints(&self, other: &Self) -> bool {
        let labels = |service: &Self| Arc::clone(&service.entry.facts);
        let same = Self { entry: Arc::clone(&self.entry), ..other.clone() };
        *self != same || labels(self).labels != labels(other).labels
    }

    /// Its selector, if its endpoints are managed by the controller.
    #[must_use]
    pub fn managed_selector(&self) -> Option<&Selector> {
        self.selector.as_ref().filter(|_| !self.is_external_name)
    }
}

fn families(spec: &ServiceSpec) -> Box<[Family]> {
    let named: Box<[Family]> = spec.ip_families.iter().filter_map(|name| Family::named(name)).collect();
    if !named.is_empty() {
        return named;
    }
    // Objects from before dual-stack have no ipFamilies: use the family of the cluster IP, or both.
    match parse_lenient(&spec.cluster_ip) {
        Some(address) => [Family::of(address)].into(),
        None => [Family::V4, Family::V6].into(),
    }
}

/// The deprecated key takes precedence.
fn wants_hints(annotations: &StringMap) -> bool {
    let mode = annotations.get(TOPOLOGY_AWARE_HINTS).or_else(|| annotations.get(TOPOLOGY_MODE));
    matches!(mode, Some("Auto" | "auto"))
}
