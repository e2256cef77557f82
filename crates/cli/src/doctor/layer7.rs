//! Gateways, routes and Ingresses: their findings, after those of Services.
//!
//! In: an API, and the objects that the doctor has read. Out: what [`diagnose::layer7`] finds, as text and as JSON. Where
//! not everything may be listed, nothing is said: what is absent may exist.

use std::fmt::Write as _;

use diagnose::Finding;
use diagnose::layer7::Subject;
use serde_json::{Value, json};

use super::evidence::{Cluster, Unmeasured};
use crate::api_client::ApiClient;
use crate::layer7::Layer7Objects;

/// The findings.
#[derive(Debug, Default)]
pub struct Routes {
    found: Vec<(Subject, Vec<Finding>)>,
    unmeasured: Option<Unmeasured>,
}

impl Routes {
    /// Reads and diagnoses the objects of a namespace, or of all.
    pub async fn read(api: &mut ApiClient, cluster: &Cluster, namespace: Option<&str>) -> Self {
        Self::find(&Layer7Objects::read(api).await, cluster, namespace)
    }

    fn find(objects: &Layer7Objects, cluster: &Cluster, namespace: Option<&str>) -> Self {
        if !objects.is_complete() || !cluster.is_whole {
            let why = objects.missing.first().cloned();
            let why = why.unwrap_or_else(|| "only one namespace could be read".to_owned());
            let how = "use the kubeconfig of a user who may list these kinds in all namespaces".to_owned();
            return Self { found: Vec::new(), unmeasured: Some(Unmeasured { why, how }) };
        }
        let snapshot = cluster.snapshot();
        let mut found = objects.layer7(&snapshot, true).findings();
        found.retain(|(subject, _)| namespace.is_none_or(|namespace| subject.namespace() == namespace));
        found.sort_by(|one, other| one.0.cmp(&other.0));
        Self { found, unmeasured: None }
    }

    /// Whether something was found.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !self.found.is_empty()
    }

    /// As text; empty when all is well.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (subject, findings) in &self.found {
            let state = findings.iter().map(|one| one.level).min().map_or("ok", diagnose::Level::as_str);
            // Writing to a string cannot fail.
            _ = writeln!(out, "\n{subject}: {}", state.to_uppercase());
            for finding in findings {
                let mut line = |name: &str, text: &str| _ = writeln!(out, "  {name:<14}  {text}");
                line("verdict", &finding.message);
                line("code", &finding.code);
                finding.evidence.iter().for_each(|more| line("evidence", more));
                line("fix", &finding.fix);
            }
        }
        if let Some(Unmeasured { why, how }) = &self.unmeasured {
            _ = writeln!(out, "not measured: Gateways, routes and Ingresses: {why} (to measure: {how})");
        }
        out
    }

    /// As JSON: a list of objects with their findings.
    #[must_use]
    pub fn json(&self) -> Value {
        let one = |(subject, findings): &(Subject, Vec<Finding>)| {
            let (namespace, name) = (subject.namespace(), subject.name());
            json!({"kind": subject.kind, "namespace": namespace, "name": name, "findings": findings})
        };
        json!(self.found.iter().map(one).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;

    fn fixture() -> (Layer7Objects, Cluster) {
        let mut fixture = Fixture::new();
        fixture.cluster.is_whole = true;
        let route = json!({"kind": "HTTPRoute", "metadata": {"name": "shop", "namespace": "shop"}, "spec": {
            "parentRefs": [{"name": "gv"}], "rules": [],
        }});
        let gateway = json!({"kind": "Gateway", "metadata": {"name": "gw", "namespace": "shop"}, "spec": {
            "gatewayClassName": "other", "listeners": [],
        }});
        let class =
            json!({"kind": "GatewayClass", "metadata": {"name": "other"}, "spec": {"controllerName": "x.io/y"}});
        (Layer7Objects::of(&[route, gateway, class]), fixture.cluster)
    }

    #[test]
    fn findings_of_routes_follow_those_of_services() {
        let (objects, cluster) = fixture();
        let routes = Routes::find(&objects, &cluster, Some("shop"));
        let wanted = "
HTTPRoute shop/shop: NOT WORKING
  verdict         Gateway shop/gv, its parent, does not exist; did you mean gw?
  code            ParentMissing
  fix             kubectl edit httproute shop -n shop
";
        assert_eq!(routes.text(), wanted);
        assert!(routes.has_failed());
        let json = routes.json();
        assert_eq!((&json[0]["kind"], &json[0]["name"]), (&json!("HTTPRoute"), &json!("shop")));
        assert_eq!(json[0]["findings"][0]["code"], "ParentMissing");
        let elsewhere = Routes::find(&objects, &cluster, Some("default"));
        assert!(!elsewhere.has_failed() && elsewhere.text().is_empty());
    }

    #[test]
    fn nothing_is_said_of_what_may_not_be_listed() {
        let (objects, mut cluster) = fixture();
        cluster.is_whole = false;
        let routes = Routes::find(&objects, &cluster, None);
        assert!(!routes.has_failed(), "{}", routes.text());
        assert!(routes.text().contains("not measured: Gateways, routes and Ingresses: only one namespace"));
        assert_eq!(routes.json(), json!([]));
    }
}
