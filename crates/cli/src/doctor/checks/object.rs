//! The Service object: whether it exists, and whether its spec can work.

use api::value::ValueExt as _;
use diagnose::is_similar;
use serde_json::Value;

use super::super::evidence::Evidence;
use super::super::format::listed;
use super::super::verdict::CheckResult;

/// Whether the Service exists and is not being deleted.
pub(super) fn exists(evidence: &Evidence<'_>) -> CheckResult {
    let Evidence { namespace, name, cluster, .. } = evidence;
    let Some(service) = evidence.service() else { return missing(evidence) };
    if service.has("metadata.deletionTimestamp") {
        let finalizers = listed(&service.texts("metadata.finalizers"));
        return CheckResult::failed_with(
            "ServiceTerminating",
            format!("it is being deleted and waits for: {finalizers}"),
            format!("kubectl get service {name} -n {namespace} -o yaml"),
        );
    }
    let others = cluster.services.iter().filter(|one| one.text("metadata.name") == *name).count() - 1;
    let others = match others {
        0 => String::new(),
        n => format!("; {n} more of this name in other namespaces"),
    };
    CheckResult::passed(format!("{} {}{others}", evidence.kind(), addresses(evidence)))
}

fn addresses(evidence: &Evidence<'_>) -> String {
    match evidence.spec().text("externalName") {
        "" => evidence.spec().text("clusterIP").to_owned(),
        name => format!("to {name}"),
    }
}

/// What was probably intended.
fn missing(evidence: &Evidence<'_>) -> CheckResult {
    let Evidence { namespace, name, cluster, .. } = evidence;
    let title = |one: &Value| format!("{}/{}", one.text("metadata.namespace"), one.text("metadata.name"));
    let has_namespace = cluster.namespaces.iter().any(|one| one.text("metadata.name") == *namespace);
    let known: Vec<&str> = cluster.namespaces.iter().map(|one| one.text("metadata.name")).collect();
    let saw = match has_namespace || known.is_empty() {
        true => format!("there is no Service {name} in namespace {namespace}"),
        false => format!("there is no namespace {namespace}"),
    };
    let elsewhere = cluster.services.iter().find(|one| one.text("metadata.name") == *name);
    let nearly = cluster
        .services
        .iter()
        .find(|one| one.text("metadata.namespace") == *namespace && is_similar(name, one.text("metadata.name")));
    if let Some(meant) = elsewhere.or(nearly) {
        let (of, called) = (meant.text("metadata.namespace"), meant.text("metadata.name"));
        return CheckResult::failed(
            format!("{saw}; there is {}", title(meant)),
            format!("waypost doctor {called} -n {of}"),
        );
    }
    if let Some(near) = known.iter().find(|one| !has_namespace && is_similar(namespace, one)) {
        return CheckResult::failed(format!("{saw}; there is {near}"), format!("waypost doctor {name} -n {near}"));
    }
    let workload = cluster
        .workloads
        .iter()
        .find(|one| one.text("metadata.namespace") == *namespace && one.text("metadata.name") == *name);
    if let Some(workload) = workload {
        let kind = workload.text("kind").to_lowercase();
        let ports = workload.items("spec.template.spec.containers").iter().flat_map(|one| one.items("ports"));
        let port = ports.map(|port| port.int("containerPort")).next().unwrap_or(80);
        let fix = match workload.map("spec.selector.matchLabels").filter(|_| kind == "daemonset") {
            // kubectl exposes no DaemonSets.
            Some(labels) => {
                let labels = labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
                let labels: Vec<String> = labels.collect();
                format!(
                    "kubectl create service clusterip {name} -n {namespace} --tcp={port} && kubectl set selector service \
                     {name} -n {namespace} {}",
                    labels.join(",")
                )
            }
            None => format!("kubectl expose {kind} {name} -n {namespace} --port={port}"),
        };
        return CheckResult::failed(format!("{saw}; there is a {kind} of this name that nothing exposes"), fix);
    }
    CheckResult::failed(saw, "kubectl get services -A")
}

/// Whether a Service with this spec can work.
pub(super) fn shape(evidence: &Evidence<'_>) -> CheckResult {
    if evidence.service().is_none() {
        return CheckResult::not_applicable("there is no Service");
    }
    if let Some(finding) = evidence.found("shape") {
        return finding.into();
    }
    if evidence.is_external_name() {
        return CheckResult::passed(format!("another name for {}", evidence.spec().text("externalName")));
    }
    let ports: Vec<String> = evidence.ports().iter().map(|port| format!("{}/{}", port.number, port.protocol)).collect();
    if evidence.is_headless() {
        return CheckResult::passed(format!("headless: its name resolves to Pods; ports {}", listed(&ports)));
    }
    let ips = evidence.cluster_ips();
    let ranges = evidence.service_ranges();
    let outside = ips.iter().find(|ip| !ranges.is_empty() && !ranges.iter().any(|range| range.contains(*ip)));
    let mut saw = format!("ports {}", listed(&ports));
    if let Some(ip) = outside {
        saw.push_str(&format!("; {ip} is in no ServiceCIDR any more, and still works"));
    }
    if evidence.kind() == "LoadBalancer" && evidence.balancer_ips().is_empty() {
        saw.push_str("; it has no load-balancer address yet");
    }
    CheckResult::passed(saw)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{Fixture, failed, passed};
    use super::*;

    #[test]
    fn a_service_that_is_missing_is_looked_for_nearby() {
        let mut fixture = Fixture::new();
        fixture.service("shop", "web", json!({"ports": [{"port": 80}]}));
        let (saw, fix) = failed(fixture.check("shop", "wbe", exists));
        assert!(saw.contains("there is shop/web"), "{saw}");
        assert_eq!(fix, "waypost doctor web -n shop");
        let (_, fix) = failed(fixture.check("default", "web", exists));
        assert_eq!(fix, "waypost doctor web -n shop");
        let (saw, _) = failed(fixture.check("shoop", "other", exists));
        assert!(saw.contains("no namespace shoop; there is shop"), "{saw}");
        fixture.workload("shop", "api", 1, &json!({"app": "api"}));
        let (_, fix) = failed(fixture.check("shop", "api", exists));
        assert_eq!(fix, "kubectl expose deployment api -n shop --port=8080");
        fixture.cluster.workloads[0].put("kind", "DaemonSet");
        fixture.cluster.workloads[0].put("spec.selector.matchLabels", json!({"app": "api"}));
        let (_, fix) = failed(fixture.check("shop", "api", exists));
        let create = "kubectl create service clusterip api -n shop --tcp=8080";
        assert_eq!(fix, format!("{create} && kubectl set selector service api -n shop app=api"));
    }

    #[test]
    fn an_address_is_no_external_name() {
        let mut fixture = Fixture::new();
        fixture.service("default", "db", json!({"type": "ExternalName", "externalName": "192.0.2.1"}));
        let (saw, fix) = failed(fixture.check("default", "db", shape));
        assert!(saw.contains("192.0.2.1, an address"), "{saw}");
        assert!(fix.contains("EndpointSlice") && fix.contains(r#""externalName":null"#), "{fix}");
        fixture.service("default", "ok", json!({"type": "ExternalName", "externalName": "db.example.org"}));
        passed(fixture.check("default", "ok", shape));
    }

    #[test]
    fn a_service_that_is_going_is_reported() {
        let mut fixture = Fixture::new();
        fixture.service("default", "web", json!({"ports": [{"port": 80}]}));
        passed(fixture.check("default", "web", exists));
        fixture.cluster.services[0].put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
        fixture.cluster.services[0].put("metadata.finalizers", json!(["example.org/wait"]));
        assert!(failed(fixture.check("default", "web", exists)).0.contains("example.org/wait"));
    }
}
