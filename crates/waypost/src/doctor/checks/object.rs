//! The object itself: whether it is there, and whether it can work at all.

use api::value::ValueExt as _;
use diagnose::is_similar;
use serde_json::Value;

use super::super::evidence::Evidence;
use super::super::verdict::Judged;
use super::super::words::listed;

/// Whether the Service is there, and meant to stay.
pub(super) fn exists(evidence: &Evidence<'_>) -> Judged {
    let Evidence { namespace, name, cluster, .. } = evidence;
    let Some(service) = evidence.service() else { return missing(evidence) };
    if service.has("metadata.deletionTimestamp") {
        let finalizers = listed(&service.texts("metadata.finalizers"));
        return Judged::wrong(
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
    Judged::proved(format!("{} {}{others}", evidence.kind(), addresses(evidence)))
}

fn addresses(evidence: &Evidence<'_>) -> String {
    match evidence.spec().text("externalName") {
        "" => evidence.spec().text("clusterIP").to_owned(),
        name => format!("to {name}"),
    }
}

/// What was probably meant.
fn missing(evidence: &Evidence<'_>) -> Judged {
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
        return Judged::disproved(
            format!("{saw}; there is {}", title(meant)),
            format!("waypost doctor {called} -n {of}"),
        );
    }
    if let Some(near) = known.iter().find(|one| !has_namespace && is_similar(namespace, one)) {
        return Judged::disproved(format!("{saw}; there is {near}"), format!("waypost doctor {name} -n {near}"));
    }
    let workload = cluster
        .workloads
        .iter()
        .find(|one| one.text("metadata.namespace") == *namespace && one.text("metadata.name") == *name);
    if let Some(workload) = workload {
        let kind = workload.text("kind").to_lowercase();
        let ports = workload.items("spec.template.spec.containers").iter().flat_map(|one| one.items("ports"));
        let port = ports.map(|port| port.int("containerPort")).next().unwrap_or(80);
        return Judged::disproved(
            format!("{saw}; there is a {kind} of this name that nothing exposes"),
            format!("kubectl expose {kind} {name} -n {namespace} --port={port}"),
        );
    }
    Judged::disproved(saw, "kubectl get services -A")
}

/// Whether a Service of this shape can work.
pub(super) fn shape(evidence: &Evidence<'_>) -> Judged {
    if evidence.service().is_none() {
        return Judged::moot("there is no Service");
    }
    if let Some(finding) = evidence.found("shape") {
        return finding.into();
    }
    if evidence.is_external_name() {
        return Judged::proved(format!("another name for {}", evidence.spec().text("externalName")));
    }
    let ports: Vec<String> = evidence.ports().iter().map(|port| format!("{}/{}", port.number, port.protocol)).collect();
    if evidence.is_headless() {
        return Judged::proved(format!("headless: its name leads straight to Pods; ports {}", listed(&ports)));
    }
    let ips = evidence.cluster_ips();
    let ranges = evidence.service_ranges();
    let outside = ips.iter().find(|ip| !ranges.is_empty() && !ranges.iter().any(|range| range.contains(*ip)));
    let mut saw = format!("ports {}", listed(&ports));
    if let Some(ip) = outside {
        saw.push_str(&format!("; {ip} is in no ServiceCIDR any more, and is served all the same"));
    }
    if evidence.kind() == "LoadBalancer" && evidence.balancer_ips().is_empty() {
        saw.push_str("; no load balancer has given it an address yet");
    }
    Judged::proved(saw)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::testing::{World, disproved, proved};
    use super::*;

    #[test]
    fn a_service_that_is_missing_is_looked_for_nearby() {
        let mut world = World::new();
        world.service("shop", "web", json!({"ports": [{"port": 80}]}));
        let (saw, fix) = disproved(world.judge("shop", "wbe", exists));
        assert!(saw.contains("there is shop/web"), "{saw}");
        assert_eq!(fix, "waypost doctor web -n shop");
        let (_, fix) = disproved(world.judge("default", "web", exists));
        assert_eq!(fix, "waypost doctor web -n shop");
        let (saw, _) = disproved(world.judge("shoop", "other", exists));
        assert!(saw.contains("no namespace shoop; there is shop"), "{saw}");
        world.workload("shop", "api", 1, &json!({"app": "api"}));
        let (_, fix) = disproved(world.judge("shop", "api", exists));
        assert_eq!(fix, "kubectl expose deployment api -n shop --port=8080");
    }

    #[test]
    fn an_address_is_no_external_name() {
        let mut world = World::new();
        world.service("default", "db", json!({"type": "ExternalName", "externalName": "192.0.2.1"}));
        let (saw, fix) = disproved(world.judge("default", "db", shape));
        assert!(saw.contains("192.0.2.1, an address"), "{saw}");
        assert!(fix.contains("EndpointSlice") && fix.contains(r#""externalName":null"#), "{fix}");
        world.service("default", "ok", json!({"type": "ExternalName", "externalName": "db.example.org"}));
        proved(world.judge("default", "ok", shape));
    }

    #[test]
    fn a_service_that_is_going_is_told() {
        let mut world = World::new();
        world.service("default", "web", json!({"ports": [{"port": 80}]}));
        proved(world.judge("default", "web", exists));
        world.cluster.services[0].put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
        world.cluster.services[0].put("metadata.finalizers", json!(["example.org/wait"]));
        assert!(disproved(world.judge("default", "web", exists)).0.contains("example.org/wait"));
    }
}
