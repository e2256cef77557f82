//! Conditions of Services: people wait for them, and read in them why they wait.
//!
//! The server runs as `waypost up` runs it, with `--service-conditions`; a bare server shows none.

use std::path::PathBuf;

use testbed::{Home, Server};

use super::change::patch_status;
use super::{Bed, service};

const WEB: &str = "{selector: {app: web}, ports: [{name: web, port: 80, targetPort: http}]}";
const TIMEOUT: &str = "--timeout=60s";

/// A server that maintains conditions, with a Node called `node`.
fn bed() -> Bed {
    let bed = Bed::start_with(&["--service-conditions"]);
    bed.ok_with("create -f -", "apiVersion: v1\nkind: Node\nmetadata:\n  name: node\n");
    bed
}

/// A Pod on that node with one named port.
fn pod(bed: &Bed, name: &str, app: &str) {
    let container = "{name: c, image: example.com/web:1, ports: [{name: http, containerPort: 8080}]}";
    let metadata = format!("metadata: {{name: {name}, labels: {{app: {app}}}}}");
    let spec = format!("spec: {{nodeName: node, containers: [{container}]}}");
    bed.ok_with("create -f -", &format!("apiVersion: v1\nkind: Pod\n{metadata}\n{spec}\n"));
}

/// Sets the status of a running Pod.
fn report(bed: &Bed, name: &str, ready: &str) {
    let condition = format!(r#"{{"type":"Ready","status":"{ready}","reason":"Probe","message":"the probe says so"}}"#);
    let address = r#""podIP":"10.244.0.7","podIPs":[{"ip":"10.244.0.7"}]"#;
    let status = format!(r#"{{"status":{{"phase":"Running",{address},"conditions":[{condition}]}}}}"#);
    patch_status(bed, &format!("/api/v1/namespaces/default/pods/{name}"), &status);
}

/// The reason and the message of a condition of the Service `web`.
fn said(bed: &Bed, kind: &str) -> (String, String) {
    let path = |field: &str| format!(r#".status.conditions[?(@.type=="{kind}")].{field}"#);
    (bed.field("service/web", &path("reason")), bed.field("service/web", &path("message")))
}

#[track_caller]
fn wait(bed: &Bed, condition: &str) {
    let out = bed.ok(&format!("wait --for=condition={condition} service/web {TIMEOUT}"));
    assert_eq!(out, "service/web condition met\n");
}

#[test]
fn s19_who_waits_for_a_service_can_connect_when_the_wait_ends() {
    let bed = bed();
    bed.service("web", WEB);
    wait(&bed, "AddressAssigned");
    pod(&bed, "web-1", "web");
    wait(&bed, "PodsMatched");
    let mut waiting = bed.stream(&format!("wait --for=condition=Ready service/web {TIMEOUT}"));
    report(&bed, "web-1", "True");
    assert_eq!(waiting.next().join(" "), "service/web condition met");
    let slices = "get endpointslices -l kubernetes.io/service-name=web";
    let ready = bed.ok(&format!("{slices} -o 'jsonpath={{.items[*].endpoints[*].conditions.ready}}'"));
    assert_eq!(ready, "true", "the endpoint is there already");

    report(&bed, "web-1", "False");
    wait(&bed, "Ready=false");
    let message = "pod web-1 is not ready: Probe: the probe says so";
    assert_eq!(said(&bed, "Ready"), ("PodsNotReady".to_owned(), message.to_owned()));
    assert_eq!(bed.service("web", WEB), "service/web unchanged\n", "the status is not the manifest's business");
    bed.ok(&format!("wait --for=condition=Ready service/kubernetes {TIMEOUT}"));
}

#[test]
fn s19_a_service_that_matches_nothing_names_what_comes_nearest() {
    let bed = bed();
    for name in ["a", "b", "c"] {
        pod(&bed, name, "web2");
    }
    bed.service("web", WEB);
    // The Service may be seen before the last of the Pods; its conditions are updated then.
    let message = r#"{.status.conditions[?(@.type=="Ready")].message}"#;
    let mut watching = bed.stream(&format!("get service web -w -o 'jsonpath={message}{{\"\\n\"}}'"));
    let wanted = "selector app=web matches 0 of 3 pods in default; 3 pods have app=web2";
    while !watching.next().join(" ").contains(wanted) {}
    let (reason, message) = said(&bed, "PodsMatched");
    assert_eq!(reason, "NoPodMatches");
    assert!(message.contains(wanted), "{message}");
    assert_eq!(said(&bed, "Ready"), (reason, message));
    bed.ok("label pods --all --overwrite app=web");
    wait(&bed, "PodsMatched");
}

#[test]
fn s05_a_target_port_that_no_pod_has_is_told() {
    let bed = bed();
    pod(&bed, "nginx-1", "web");
    report(&bed, "nginx-1", "True");
    bed.service("web", &WEB.replace("http", "http-web"));
    wait(&bed, "EndpointsReady=false");
    let message = "port web: targetPort http-web is not a port of pod nginx-1; its only named port is http";
    assert_eq!(said(&bed, "EndpointsReady"), ("NoSuchTargetPort".to_owned(), message.to_owned()));
    bed.service("web", WEB);
    wait(&bed, "Ready");
}

#[test]
fn s01_a_bare_server_shows_no_conditions_and_takes_back_those_of_an_earlier_one() {
    let folder = testbed::folder();
    let home = || Home::Kept(PathBuf::from(folder.path()));
    let mut bed = Bed { server: Server::start_with(home(), &["--service-conditions"]) };
    bed.service("web", WEB);
    wait(&bed, "Ready=false");
    assert!(bed.server.terminate().success());

    let bed = Bed { server: Server::start_with(home(), &[]) };
    let mut watching = bed.stream("get service web -w -o 'jsonpath={.status.conditions[*].type}|{\"\\n\"}'");
    while watching.next() != ["|"] {}
    bed.ok_with("create -f -", &service("other", WEB));
    // The slice shows that the controllers have seen the Service.
    let mut slices = bed.stream("get endpointslices -l kubernetes.io/service-name=other -w -o name");
    slices.next();
    assert_eq!(bed.field("service/other", ".status"), r#"{"loadBalancer":{}}"#);
}
