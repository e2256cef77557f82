//! The diagnosis of one Service: the stages that it needs, in the order of cause and effect.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::endpoints::unusable;
use crate::finding::{Finding, Level, Stage, code, healthy};
use crate::labels::{Selector, selector_text};
use crate::model::Service;
use crate::{address, app_protocols, coverage, near_miss, protocols, selected, unselected};

/// The message when every port has an endpoint.
pub(crate) const ALL_PORTS: &str = "every port has a ready endpoint";

/// The findings for a Service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnosis {
    /// Whether it has an address.
    pub address: Stage,
    /// Whether there is a backend.
    pub pods: Stage,
    /// Whether every port has a ready endpoint; none while the Pods are ready and their slices are not up to date yet.
    pub endpoints: Option<Stage>,
    /// Problems besides those of the stages.
    pub degraded: Vec<Finding>,
}

impl Diagnosis {
    /// All findings, each once, the causes first.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let unpublished = not_published();
        let endpoints = self.endpoints.as_ref().map_or(Some(&unpublished), |stage| stage.as_ref().err());
        let mut found: Vec<Finding> = Vec::new();
        let stages = [self.address.as_ref().err(), self.pods.as_ref().err(), endpoints];
        for finding in stages.into_iter().flatten().chain(&self.degraded) {
            if !found.contains(finding) {
                found.push(finding.clone());
            }
        }
        found
    }

    /// Whether the only problem is that a load balancer with a cluster IP has no address yet.
    fn awaits_load_balancer(&self, service: &Service) -> bool {
        service.is_load_balancer()
            && service.cluster_ips().any(|ip| !ip.is_empty())
            && self.address.is_err()
            && matches!(self.endpoints, Some(Ok(_)))
    }

    /// The state of the Service in a word: `ok`, `degraded`, `pending` (only the load balancer is missing) or `not working`.
    #[must_use]
    pub fn state(&self, service: &Service) -> &'static str {
        match self.verdict() {
            None => "ok",
            Some(finding) if finding.level == Level::Degraded => finding.level.as_str(),
            Some(_) if self.awaits_load_balancer(service) => "pending",
            Some(finding) => finding.level.as_str(),
        }
    }

    /// As JSON: each stage and all findings.
    #[must_use]
    pub fn json(&self) -> Value {
        let stage = |stage: &Stage| match stage {
            Ok(healthy) => json!({"ok": true, "code": healthy.reason, "message": healthy.message}),
            Err(finding) => finding.json(),
        };
        let endpoints = self.endpoints.clone().unwrap_or_else(|| Err(not_published()));
        let findings: Vec<Value> = self.findings().iter().map(Finding::json).collect();
        json!({
            "address": stage(&self.address), "pods": stage(&self.pods), "endpoints": stage(&endpoints), "findings": findings,
        })
    }

    /// The most important problem, if there is one.
    #[must_use]
    pub fn verdict(&self) -> Option<Finding> {
        self.findings().into_iter().next()
    }
}

/// The Pods are ready, but not in the slices.
#[must_use]
pub fn not_published() -> Finding {
    let message = "the pods are ready; their endpoints are being published";
    Finding::new(code::NOT_PUBLISHED, message, "systemctl restart waypost")
}

/// Diagnoses a Service.
#[must_use]
pub fn diagnose<C: Cluster>(cluster: &C, service: &Service) -> Diagnosis {
    let address = address::find(service);
    let (pods, endpoints) = if service.is_external_name() {
        let none = healthy("ExternalName", "an ExternalName Service needs no pods");
        (none.clone(), Some(none))
    } else if let Some(selector) = service.selector() {
        with_selector(cluster, service, selector)
    } else if let Some(gateway) = service.gateway() {
        let who = match service.ingress_class() {
            Some(class) => format!("the Ingresses of class {class}"),
            None => format!("the routes of Gateway {gateway}"),
        };
        let none = healthy("Gateway", format!("{who} say where its connections go"));
        (none.clone(), Some(none))
    } else {
        let (pods, endpoints) = unselected::find(cluster, service);
        (pods, Some(endpoints))
    };
    let mut degraded: Vec<Finding> =
        address::sources(service).into_iter().chain(app_protocols::find(service)).collect();
    degraded.extend(match service.selector() {
        _ if service.is_external_name() => None,
        Some(selector) if matches!(endpoints, Some(Ok(_))) => protocols::find(cluster, service, selector),
        // The addresses of Pods are checked when slices are created; those of other endpoints may be anything.
        _ => unusable(cluster, service).map(|finding| finding.at(Level::Degraded)),
    });
    // A problem that is reported already is not repeated.
    if let Some(Err(finding)) = &endpoints {
        degraded.retain(|other| other.code != finding.code);
    }
    Diagnosis { address, pods, endpoints, degraded }
}

fn with_selector<C: Cluster>(cluster: &C, service: &Service, selector: &Selector) -> (Stage, Option<Stage>) {
    let namespace = service.namespace();
    let pods = match cluster.any(namespace, selector) {
        Some(_) => healthy("PodsMatched", format!("selector {} matches pods in {namespace}", selector_text(selector))),
        None => Err(near_miss::find(cluster, service, selector)),
    };
    let unmet = coverage::unmet(cluster, service);
    let endpoints = match &pods {
        _ if unmet.is_empty() => Some(healthy("EndpointsReady", ALL_PORTS)),
        Ok(_) => selected::explain(cluster, service, &cluster.matching(namespace, selector), &unmet).map(Err),
        Err(finding) => Some(Err(finding.clone())),
    };
    (pods, endpoints)
}
