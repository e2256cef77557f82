//! `kubectl describe`, and events.

use super::{Bed, MINOR, cells, said, service};

/// The endpoints of the Service `web`, in both forms: kubectl reads slices since 1.31, Endpoints before.
const ENDPOINTS: &str = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
- {addresses: [10.0.0.1], conditions: {ready: true}}
- {addresses: [10.0.0.2], conditions: {ready: true}}
- {addresses: [10.0.0.3], conditions: {ready: false}}
---
apiVersion: v1
kind: Endpoints
metadata: {name: web, labels: {endpointslice.kubernetes.io/skip-mirror: 'true'}}
subsets:
- ports: [{name: http, port: 8080}]
  addresses: [{ip: 10.0.0.1}, {ip: 10.0.0.2}]
  notReadyAddresses: [{ip: 10.0.0.3}]
";

/// An event about the Service `web`.
fn event(bed: &Bed, name: &str, reason: &str, kind: &str) {
    let uid = bed.field("service/web", ".metadata.uid");
    let about = format!("{{apiVersion: v1, kind: Service, name: web, namespace: default, uid: {uid}}}");
    let event = format!(
        "apiVersion: v1\nkind: Event\nmetadata: {{name: {name}}}\ninvolvedObject: {about}\nreason: {reason}\n\
         type: {kind}\nmessage: it was so\ncount: 2\nfirstTimestamp: '2020-01-01T00:00:00Z'\n\
         lastTimestamp: '2020-01-01T00:00:00Z'\n\
         source: {{component: tester}}\n"
    );
    bed.ok_with("create -f -", &event);
}

#[test]
fn s38_describe_shows_a_service_with_its_endpoints_and_events() {
    let bed = Bed::start();
    let ports = "ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080}]";
    bed.service("web", &format!("{{type: NodePort, clusterIP: 10.96.0.20, {ports}}}"));
    bed.ok("label service web team=blue");
    bed.ok_with("create -f -", ENDPOINTS);
    event(&bed, "web.1", "Tested", "Normal");
    let out = bed.ok("describe service web");
    for (name, value) in [
        ("Name", "web"),
        ("Namespace", "default"),
        ("Labels", "team=blue"),
        ("Selector", "<none>"),
        ("Type", "NodePort"),
        ("IP Family Policy", "SingleStack"),
        ("IP Families", "IPv4"),
        ("IP", "10.96.0.20"),
        ("IPs", "10.96.0.20"),
        ("Port", "http  80/TCP"),
        ("TargetPort", "8080/TCP"),
        ("NodePort", "http  30080/TCP"),
        ("Endpoints", "10.0.0.1:8080,10.0.0.2:8080"),
        ("Session Affinity", "None"),
        ("External Traffic Policy", "Cluster"),
    ] {
        assert_eq!(said(&out, name), value, "{name} in\n{out}");
    }
    let row = out.lines().last().expect("an event");
    assert!(row.contains("Normal") && row.contains("Tested") && row.ends_with("tester  it was so"), "{row}");
}

#[test]
fn s50_describe_shows_all_of_a_load_balancer() {
    let bed = Bed::start();
    let ports = "ports: [{name: a, port: 53, protocol: UDP}, {name: b, port: 53, protocol: TCP}]";
    let more =
        "loadBalancerSourceRanges: [10.0.0.0/8, 192.168.0.0/16], loadBalancerIP: 192.0.2.8, sessionAffinity: ClientIP";
    let families = "externalTrafficPolicy: Local, ipFamilyPolicy: PreferDualStack";
    bed.service("web", &format!("{{type: LoadBalancer, {families}, {more}, {ports}}}"));
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.8"},{"hostname":"lb.example.com"}]}}}"#;
    super::change::patch_status(&bed, "/api/v1/namespaces/default/services/web", status);
    let out = bed.ok("describe service web");
    assert_eq!(said(&out, "LoadBalancer Source Ranges"), "10.0.0.0/8,192.168.0.0/16");
    assert!(said(&out, "LoadBalancer Ingress").starts_with("192.0.2.8"), "{out}");
    assert!(said(&out, "LoadBalancer Ingress").contains("lb.example.com"), "{out}");
    assert_eq!(said(&out, "External Traffic Policy"), "Local");
    assert_eq!(said(&out, "HealthCheck NodePort"), bed.field("service/web", ".spec.healthCheckNodePort"));
    assert_eq!(said(&out, "IP Families"), "IPv4,IPv6");
    assert_eq!(said(&out, "IPs").split(',').count(), 2, "{out}");
    assert_eq!(said(&out, "Session Affinity"), "ClientIP");
    assert_eq!(out.matches("\nPort:").count(), 2, "{out}");
}

#[test]
fn s01_events_are_listed_filtered_and_belong_to_their_object() {
    let bed = Bed::start();
    bed.service("web", "{ports: [{port: 80}]}");
    event(&bed, "web.1", "Made", "Normal");
    event(&bed, "web.2", "Broken", "Warning");
    let out = bed.ok("get events");
    assert_eq!(cells(&out)[0].join(" "), "LAST SEEN TYPE REASON OBJECT MESSAGE");
    assert_eq!(cells(&out)[1][1..], ["Normal", "Made", "service/web", "it", "was", "so"]);
    for (selector, wanted) in [
        ("involvedObject.kind=Service,involvedObject.name=web,type=Warning", "event/web.2\n"),
        ("reason=Made", "event/web.1\n"),
        ("involvedObject.name=other", ""),
    ] {
        assert_eq!(bed.ok(&format!("get events --field-selector {selector} -o name")), wanted, "{selector}");
    }
    let newer = bed.ok("get events.events.k8s.io web.1 -o 'jsonpath={.regarding.name} {.note} {.deprecatedCount}'");
    assert_eq!(newer, "web it was so 2", "one event, two groups");
    if *MINOR >= 26 {
        let out = bed.ok("events --for service/web --types=Warning --no-headers");
        assert!(out.lines().count() == 1 && out.contains("Broken"), "{out}");
    }
    let out = bed.ok("describe service web");
    assert!(out.contains("Made") && out.contains("Broken"), "{out}");
}

#[test]
fn s01_describe_works_for_the_other_kinds() {
    let bed = Bed::start();
    bed.service("web", "{ports: [{name: http, port: 80}]}");
    bed.ok_with("create -f -", ENDPOINTS);
    let out = bed.ok("describe endpoints web");
    assert_eq!(said(&out, "Addresses"), "10.0.0.1,10.0.0.2");
    assert_eq!(said(&out, "NotReadyAddresses"), "10.0.0.3");
    // Before 1.21 kubectl requests a version of slices that is no longer served by any release.
    if *MINOR >= 21 {
        let out = bed.ok("describe endpointslice web-1");
        assert_eq!(said(&out, "AddressType"), "IPv4");
        assert!(out.contains("10.0.0.3"), "{out}");
    }
    bed.ok("create configmap settings --from-literal=greeting=hello");
    assert!(bed.ok("describe configmap settings").contains("greeting:\n----\nhello\n"));
    bed.ok("create secret generic login --from-literal=password=hush");
    let out = bed.ok("describe secret login");
    assert!(out.contains("password:  4 bytes") && !out.contains("hush"), "{out}");
    assert_eq!(said(&bed.ok("describe namespace default"), "Status"), "Active");
    bed.ok("create ingress web --rule=example.com/shop=web:http");
    let out = bed.ok("describe ingress web");
    assert!(out.contains("example.com") && out.contains("web:http (10.0.0.1:8080,10.0.0.2:8080"), "{out}");
    bed.ok("run web --image=example.com/web:1 --port=8080");
    let out = bed.ok("describe pod web");
    assert_eq!((said(&out, "Image"), said(&out, "Status")), ("example.com/web:1", "Pending"));
    bed.ok("create serviceaccount robot");
    assert_eq!(said(&bed.ok("describe serviceaccount robot"), "Name"), "robot");
    bed.ok_with("create -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: one}\n");
    assert_eq!(said(&bed.ok("describe node one"), "Unschedulable"), "false");
}

#[test]
fn s01_warnings_of_the_server_reach_the_person() {
    let bed = Bed::start();
    let run = bed.run("get endpoints", "");
    let deprecated = "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\n";
    assert_eq!((run.ok, run.err.as_str()), (true, deprecated));
    let run = bed.run("apply -f -", &service("web", "{externalIPs: [192.0.2.7], ports: [{port: 80}]}"));
    assert!(run.ok && run.err.contains("Warning: spec.externalIPs is deprecated"), "{run:?}");
}
