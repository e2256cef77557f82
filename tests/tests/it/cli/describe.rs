//! `waypost describe` and `waypost explain`.

use serde_json::json;

use super::Desk;

#[test]
fn a_service_is_described_with_its_endpoints_and_events() {
    let desk = Desk::start();
    desk.service("web", "{selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-x", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": true}},
                      {"addresses": ["10.244.0.10"], "conditions": {"ready": false}}]});
    desk.ok_with("apply -f -", &slice.to_string());
    let uid = desk.ok("get svc web -o jsonpath={.metadata.uid}");
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "default"},
        "involvedObject": {"kind": "Service", "name": "web", "namespace": "default", "uid": uid},
        "type": "Warning", "reason": "Tested", "message": "as it should be", "source": {"component": "it"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1});
    desk.ok_with("apply -f -", &event.to_string());
    let told = desk.ok("describe service web");
    for line in [
        "Name:  ",
        "Selector:  ",
        "app=web",
        "10.244.0.9:8080",
        "10.244.0.10:8080",
        "Events:",
        "Tested",
        "as it should be",
    ] {
        assert!(told.contains(line), "no {line:?} in\n{told}");
    }
    let ip = desk.ok("get svc web -o jsonpath={.spec.clusterIP}");
    assert!(told.contains(&ip), "{told}");
    let events_last = told.find("Events:").expect("events") > told.find("Session Affinity:").expect("affinity");
    assert!(events_last, "{told}");
    assert!(!desk.ok("describe svc/web --show-events=false").contains("Events:"));
}

#[test]
fn other_kinds_are_described_and_secrets_keep_theirs() {
    let desk = Desk::start();
    desk.pod("web", "{app: web}");
    desk.ok_with("apply -f -", &super::deployment("api"));
    desk.ok_with("apply -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n");
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n";
    desk.ok_with("apply -f -", secret);
    let pod = desk.ok("describe pod web");
    for part in ["Status:", "Pending", "Image:", "example.com/web:1", "8080/TCP", "Events:"] {
        assert!(pod.contains(part), "no {part:?} in\n{pod}");
    }
    let deployment = desk.ok("describe deployment api");
    for part in ["2 desired", "RollingUpdate", "Pod Template:", "image:1", "NewReplicaSet:"] {
        assert!(deployment.contains(part), "no {part:?} in\n{deployment}");
    }
    assert!(desk.ok("describe rs -l app=api").contains("Controlled By:"));
    assert!(desk.ok("describe node n1").contains("Allocatable:"));
    let secret = desk.ok("describe secret s");
    assert!(secret.contains("7 bytes") && !secret.contains("hunter2") && !secret.contains("aHVudGVyMg"), "{secret}");
    assert!(desk.ok("describe ns default").contains("Active"));
    assert!(desk.fails("describe svc nope").contains("not found"));
}

#[test]
fn fields_are_explained_and_near_misses_named() {
    let desk = Desk::start();
    let told = desk.ok("explain service.spec.sessionAffinity");
    for part in ["KIND:       Service", "VERSION:    v1", "FIELD: sessionAffinity <string>", "DESCRIPTION:"] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    assert!(desk.ok("explain deploy.spec").contains("replicas\t<integer>"));
    let deep = desk.ok("explain pod.spec.containers --recursive");
    assert!(
        deep.contains("  ports\t<[]ContainerPort>") && deep.contains("    containerPort\t<integer> -required-"),
        "{deep}"
    );
    let said = desk.fails("explain service.spec.sesionAffinity");
    assert!(said.contains("did you mean \"sessionAffinity\"?"), "{said}");
    let said = desk.fails("explain nosuch");
    assert!(said.contains("Service"), "{said}");
}
