//! The diagnosis of layer 7: why a Gateway, a ListenerSet, a route, a BackendTLSPolicy or an Ingress does not work, and
//! which rule takes a request.
//!
//! ```text
//! lists ──▶ routing::cluster, routing::ingress ──▶ states ──▶ findings, with near misses from the objects
//!                                                    ├──▶ overview: Gateways, their rules in order of precedence
//!                                                    ├──▶ explain: parents, listeners, rules, backends, endpoints
//!                                                    └──▶ request: listener, rules, filters, backend, answer
//! ```
//! In: lists of objects, and a [`Snapshot`] of Services and Pods. Out: findings, explanations and traces. The decisions
//! are those of `routing`, with which the controllers write statuses and the gateways serve; this module adds what would
//! have worked instead.

mod attachment;
mod backends;
pub mod code;
mod explain;
mod gateways;
mod grants;
mod ingresses;
mod kind;
mod matches;
mod memo;
mod near;
mod needs;
mod objects;
mod overview;
mod policies;
pub mod request;
mod rows;
mod rules;
mod services;
mod shadows;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use routing::cluster::Cluster;
use routing::ingress::Ingresses;
use routing::model::{RouteId, Rule, ServiceTarget};
use serde::Serialize;

use crate::cluster::Cluster as _;
use crate::finding::{Finding, Level};
use crate::snapshot::Snapshot;

pub use code::LAYER7_CODES;
pub use explain::{Explanation, Item};
use memo::Memo;
pub use needs::Needs;
use objects::Objects;
pub use objects::{Kind, Lists, Material, MaterialObject, Materials, materials};
pub use overview::{Apart, Front, Judgement, Listener, Overview, Unknown};
pub use rows::{Row, Share};

/// The most endpoints that are shown of a backend.
const ENDPOINTS: usize = 20;

/// Everything that layer 7 depends on, at one moment.
#[derive(Debug)]
pub struct Layer7<'a> {
    snapshot: &'a Snapshot<'a>,
    /// Whether the Pods of the snapshot are known; without them nothing is said about them.
    has_pods: bool,
    cluster: Cluster,
    ingresses: Ingresses,
    objects: Objects<'a>,
    shadows: OnceLock<shadows::Shadows>,
    ingress_rules: OnceLock<IngressRules>,
    memo: Memo,
}

/// The rules of each Ingress with their hosts, in order of precedence.
type IngressRules = BTreeMap<Arc<str>, Vec<(Option<Arc<str>>, Arc<Rule>)>>;

/// An object of layer 7.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Subject {
    /// Its kind.
    pub kind: &'static str,
    /// `namespace/name`.
    pub key: Box<str>,
}

impl Subject {
    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        namespace_of(&self.key)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.key)
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// An endpoint of a backend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct Endpoint {
    /// Its address and port.
    pub address: String,
    /// Whether it takes new connections.
    pub ready: bool,
}

impl<'a> Layer7<'a> {
    /// Derives everything from lists. `has_pods`: whether the snapshot has the Pods of the cluster.
    #[must_use]
    pub fn new(lists: &Lists<'a>, materials: &Materials<'_>, snapshot: &'a Snapshot<'a>, has_pods: bool) -> Self {
        let objects = Objects::read(lists);
        let (cluster, ingresses) = objects.engines(lists, materials, snapshot);
        Self {
            snapshot,
            has_pods,
            cluster,
            ingresses,
            objects,
            shadows: OnceLock::new(),
            ingress_rules: OnceLock::new(),
            memo: Memo::default(),
        }
    }

    /// All objects with a problem, with their findings. Objects that other controllers implement are left out.
    #[must_use]
    pub fn findings(&self) -> Vec<(Subject, Vec<Finding>)> {
        let gateways = self.objects.gateways.keys().map(|key| (Kind::Gateway, key));
        let sets = self.objects.sets.keys().map(|key| (Kind::ListenerSet, key));
        let routes = self.objects.routes.keys().map(|id| (Kind::of_route(id.kind), &id.key));
        let policies = self.objects.policies.keys().map(|key| (Kind::BackendTlsPolicy, key));
        let ingresses = self.objects.ingresses.keys().map(|key| (Kind::Ingress, key));
        let all = gateways.chain(sets).chain(routes).chain(policies).chain(ingresses);
        let found = all.map(|(kind, key)| (kind.subject(key), self.of(kind, key)));
        let ours = found.map(|(subject, mut findings)| {
            findings.retain(|finding| !code::OF_OTHER_CONTROLLERS.contains(&&*finding.code));
            (subject, findings)
        });
        ours.filter(|(_, findings)| !findings.is_empty()).collect()
    }

    /// The findings for an object, the causes first.
    #[must_use]
    pub fn of(&self, kind: Kind, key: &str) -> Vec<Finding> {
        let found = match (kind, kind.route(key)) {
            (Kind::Gateway, _) => self.gateway_findings(key),
            (Kind::ListenerSet, _) => self.set_findings(key),
            (Kind::BackendTlsPolicy, _) => self.policy_findings(key),
            (Kind::Ingress, _) => self.ingress_findings(key),
            (_, Some(id)) => self.route_findings(&id),
            _ => Vec::new(),
        };
        unique(found)
    }

    /// The findings for a route: at its parents, in its rules, at its backends.
    fn route_findings(&self, id: &RouteId) -> Vec<Finding> {
        let Some(route) = self.objects.routes.get(id) else { return Vec::new() };
        let mut found = self.attachment_findings(id, route);
        if self.cluster.route(id).is_some_and(|state| !state.parents.is_empty()) {
            found.extend(self.rule_findings(id, route));
            found.extend(self.backend_findings(id, route));
            found.extend(self.shadow_findings(id));
        }
        found
    }

    /// The rules of an Ingress, as they are served.
    fn rules_of_ingress(&self, key: &str) -> &[(Option<Arc<str>>, Arc<Rule>)] {
        let index = || {
            let mut all = IngressRules::new();
            for gateway in self.ingresses.gateways() {
                for (host, _, rule) in gateway.table.rules() {
                    all.entry(rule.route.key.clone()).or_default().push((host.cloned(), rule.clone()));
                }
            }
            all
        };
        self.ingress_rules.get_or_init(index).get(key).map(Vec::as_slice).unwrap_or_default()
    }

    /// The endpoints of a target, sorted, each once.
    fn endpoints(&self, target: &ServiceTarget) -> Vec<Endpoint> {
        let Some(service) = self.snapshot.services().get(&*target.service) else { return Vec::new() };
        let mut all = BTreeMap::new();
        for slice in self.snapshot.slices(service).filter(|slice| !slice.is_deleting()) {
            let is_port = |name: Option<&str>| name.unwrap_or_default() == &*target.port_name;
            for port in slice.ports.iter().filter(|port| is_port(port.name.as_deref())) {
                let Some(number) = port.port.and_then(|number| u16::try_from(number).ok()) else { continue };
                for endpoint in &slice.endpoints {
                    let Some(ip) = endpoint.ip() else { continue };
                    let address = std::net::SocketAddr::new(ip, number).to_string();
                    *all.entry(address).or_insert(false) |= endpoint.conditions.ready != Some(false);
                }
            }
        }
        all.into_iter().map(|(address, ready)| Endpoint { address, ready }).collect()
    }

    fn has_ready(&self, target: &ServiceTarget) -> bool {
        self.memo.ready(target, || self.endpoints(target).iter().any(|endpoint| endpoint.ready))
    }
}

/// Each finding once, those that keep something from working first.
fn unique(found: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::with_capacity(found.len());
    for finding in found {
        if !all.iter().any(|one| one.code == finding.code && one.message == finding.message) {
            all.push(finding);
        }
    }
    all.sort_by_key(|finding| Reverse(finding.level == Level::NotWorking));
    all
}

/// The state of an object with these findings, in a word.
fn state(findings: &[Finding]) -> &'static str {
    findings.iter().map(|finding| finding.level).min().map_or("ok", Level::as_str)
}

/// The namespace in `namespace/name`.
fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// The name in `namespace/name`.
fn name_of(key: &str) -> &str {
    key.split_once('/').map_or(key, |(_, name)| name)
}

/// `kubectl VERB KIND NAME -n NAMESPACE`.
fn kubectl(verb: &str, kind: &str, key: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    match key.split_once('/') {
        Some((namespace, name)) => format!("kubectl {verb} {kind} {name} -n {namespace}"),
        None => format!("kubectl {verb} {kind} {key}"),
    }
}
