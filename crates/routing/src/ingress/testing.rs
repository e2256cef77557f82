//! Ingresses for tests.

use std::sync::Arc;

use api::view::Ingress;
use http::{HeaderMap, HeaderName, Method};
use serde_json::{Value, json};

use super::{Change, Ingresses, Options};
use crate::cluster::SecretState;
use crate::http_table::RequestView;
use crate::model::{Rule, Target};

/// The class of all of them.
pub(super) const CLASS: &str = "waypost";

/// A cluster with the class and the Services `a` to `d`, each with the port 80 (`web`) and the UDP port 53 (`dns`).
pub(super) fn cluster() -> Ingresses {
    let mut all = Ingresses::new(Options::default());
    all.apply(Change::Class(CLASS.into(), Some(Arc::new(class()))));
    for name in ["a", "b", "c", "d"] {
        let service = json!({
            "metadata": {"namespace": "web", "name": name},
            "spec": {"ports": [{"name": "web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]},
        });
        all.apply(Change::Service(
            format!("web/{name}").into(),
            Some(Arc::new(serde_json::from_value(service).unwrap())),
        ));
    }
    all.apply(Change::Secret("web/tls".into(), Some(SecretState::Certificate)));
    all
}

fn class() -> api::view::IngressClass {
    serde_json::from_value(json!({"metadata": {"name": CLASS}, "spec": {"controller": super::CONTROLLER}})).unwrap()
}

/// An Ingress of the namespace `web`, created in the given minute. Annotations are without the prefix of ingress-nginx; a
/// path is `host path pathType service`, with `-` for no host and `E`, `P`, `I` for the type.
pub(super) fn ingress(name: &str, minute: u32, annotations: &[(&str, &str)], paths: &[&str]) -> Ingress {
    let annotations: serde_json::Map<_, _> = annotations
        .iter()
        .map(|(key, value)| (format!("nginx.ingress.kubernetes.io/{key}"), Value::from(*value)))
        .collect();
    let rules: Vec<_> = paths
        .iter()
        .map(|path| {
            let [host, path, kind, service] = path.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let kind = match kind {
                "E" => "Exact",
                "P" => "Prefix",
                _ => "ImplementationSpecific",
            };
            let backend = json!({"service": {"name": service, "port": {"number": 80}}});
            let paths = json!([{"path": path, "pathType": kind, "backend": backend}]);
            json!({"host": host.trim_matches('-'), "http": {"paths": paths}})
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "web", "name": name, "annotations": annotations,
            "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
        },
        "spec": {"ingressClassName": CLASS, "rules": rules},
    }))
    .unwrap()
}

/// The same with `tls` for some hosts.
pub(super) fn with_tls(mut ingress: Ingress, hosts: &[&str]) -> Ingress {
    ingress.spec.tls = serde_json::from_value(json!([{"hosts": hosts, "secretName": "tls"}])).unwrap();
    ingress
}

/// The same Ingress in another namespace.
pub(super) fn of_namespace(namespace: &str, mut ingress: Ingress) -> Ingress {
    ingress.metadata.namespace = namespace.into();
    ingress
}

/// Adds an Ingress.
pub(super) fn add(all: &mut Ingresses, ingress: Ingress) {
    all.apply(Change::Ingress(ingress.metadata.key().into(), Some(Arc::new(ingress))));
}

/// A cluster with Ingresses.
pub(super) fn with(ingresses: impl IntoIterator<Item = Ingress>) -> Ingresses {
    let mut all = cluster();
    for ingress in ingresses {
        add(&mut all, ingress);
    }
    all
}

/// Headers.
pub(super) fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap()))
        .collect()
}

/// The rule of a request.
pub(super) fn rule(all: &Ingresses, host: &str, path: &str, pairs: &[(&str, &str)]) -> Option<Arc<Rule>> {
    let headers = headers(pairs);
    let request = RequestView { method: &Method::GET, host, path, query: None, headers: &headers };
    let table = &all.gateway(CLASS).unwrap().table;
    let found = table.find(&request);
    let explained = table.explain(&request).into_iter().find(|one| one.failed.is_none());
    assert_eq!(explained.map(|one| one.rule), found, "{host}{path}");
    found.cloned()
}

/// The Services of a request, with their weights when there are several; `404` without a rule.
pub(super) fn goes(all: &Ingresses, host: &str, path: &str, pairs: &[(&str, &str)]) -> String {
    let Some(rule) = rule(all, host, path, pairs) else { return "404".to_owned() };
    let name = |target: &Target| match target {
        Target::Service(service) => service.service.trim_start_matches("web/").to_owned(),
        Target::Invalid(why) => format!("{why:?}"),
    };
    match &rule.backends[..] {
        [one] => name(&one.target),
        all => all.iter().map(|one| format!("{}={}", name(&one.target), one.weight)).collect::<Vec<_>>().join(" "),
    }
}

/// The findings of an Ingress of the namespace `web`, as `reason: message`.
pub(super) fn findings(all: &Ingresses, name: &str) -> Vec<String> {
    let found = all.state(&format!("web/{name}")).unwrap().findings;
    found.iter().map(|finding| format!("{}: {}", finding.reason.as_str(), finding.message)).collect()
}
