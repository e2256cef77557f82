//! `kubectl delete` in all its forms, and `kubectl wait`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use super::change::patch_status;
use super::{Bed, MINOR, service};

/// Services with labels.
fn services(bed: &Bed) {
    let one =
        |name: &str, label: &str| service(&format!("{name}\n  labels: {{app: {label}}}"), "{ports: [{port: 80}]}");
    bed.ok_with("apply -f -", &[one("a1", "a"), one("a2", "a"), one("b1", "b")].join("---\n"));
}

#[test]
fn s01_delete_by_name_by_file_by_label_by_field_and_all() {
    let bed = Bed::start();
    services(&bed);
    let one = bed.ok("delete service b1");
    assert!(one.starts_with("service \"b1\" deleted"), "{one}");
    assert!(bed.fails("delete service b1").contains(r#"services "b1" not found"#));
    assert_eq!(bed.ok("delete service b1 --ignore-not-found"), "");
    services(&bed);
    bed.ok("delete services -l app=a");
    assert_eq!(bed.ok("get services -o name"), "service/b1\nservice/kubernetes\n");
    services(&bed);
    bed.ok_with("delete -f -", &[service("a1", "{}"), service("b1", "{}")].join("---\n"));
    assert_eq!(bed.ok("get services -o name"), "service/a2\nservice/kubernetes\n");
    bed.ok("delete services --field-selector metadata.name!=kubernetes");
    assert_eq!(bed.ok("get services -o name"), "service/kubernetes\n");

    bed.ok("create namespace shop");
    bed.ok_with("apply -n shop -f -", &service("web", "{ports: [{port: 80}]}"));
    bed.ok("delete services --all -n shop");
    assert_eq!(bed.ok("get services -A -o name"), "service/kubernetes\n");
    // What a client does with one request for a whole collection.
    services(&bed);
    bed.ok("delete --raw /api/v1/namespaces/default/services?labelSelector=app");
    assert_eq!(bed.ok("get services -o name"), "service/kubernetes\n");
}

#[test]
fn s01_a_dry_run_deletes_nothing() {
    let bed = Bed::start();
    services(&bed);
    let out = bed.ok("delete service a1 --dry-run=server");
    assert!(out.starts_with("service \"a1\" deleted") && out.contains("(server dry run)"), "{out}");
    assert_eq!(bed.ok("get service a1 -o name"), "service/a1\n");
}

/// A kubectl that waits until the Service is gone. It has found the Service when this returns.
fn wait_for_the_end_of_web(bed: &Bed) -> Child {
    let mut command = bed.command("wait --for=delete service/web --timeout=60s -v=6");
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl is needed for this test");
    let mut said = BufReader::new(child.stderr.take().expect("its log")).lines();
    let found = said.find(|line| line.as_ref().is_ok_and(|line| line.contains("/services") && line.contains("200 OK")));
    assert!(found.is_some(), "it ended without having found the Service");
    // Read to its end beside the test, so that it never waits for a reader.
    std::thread::spawn(move || said.count());
    child
}

#[test]
fn s31_a_finalizer_holds_the_object_and_its_address_until_it_is_taken_off() {
    let bed = Bed::start();
    bed.service("web", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    bed.ok(r#"patch service web -p '{"metadata":{"finalizers":["example.com/hold"]}}'"#);
    bed.ok("delete service web --wait=false");
    assert_ne!(bed.field("service/web", ".metadata.deletionTimestamp"), "");
    let taken = bed.no_service("other", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
    assert!(taken.contains("provided IP is already allocated"), "{taken}");
    let again = bed.fails_with("create -f -", &service("web", "{clusterIP: None}"));
    assert!(again.contains(r#"object is being deleted: services "web" already exists"#), "{again}");

    let waiting = wait_for_the_end_of_web(&bed);
    bed.ok(r#"patch service web -p '{"metadata":{"finalizers":null}}'"#);
    let out = waiting.wait_with_output().expect("its end");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "service/web condition met\n");
    bed.service("other", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");
}

#[test]
fn s01_delete_waits_until_the_object_is_gone() {
    let bed = Bed::start();
    bed.service("web", "{ports: [{port: 80}]}");
    bed.ok(r#"patch service web -p '{"metadata":{"finalizers":["example.com/hold"]}}'"#);
    let mut changes = bed.stream("get service web -w --output-watch-events --no-headers");
    assert_eq!(changes.next()[..2], ["ADDED", "web"]);
    let mut deleting = bed.stream("delete service web");
    assert_eq!(changes.next()[..2], ["MODIFIED", "web"], "it is marked");
    bed.ok(r#"patch service web --type=json -p '[{"op":"remove","path":"/metadata/finalizers"}]'"#);
    assert!(deleting.next().join(" ").starts_with("service \"web\" deleted"));
    assert!(deleting.ended(), "and it comes back");
    assert!(bed.fails("get service web").contains("not found"));
}

#[test]
fn s01_a_service_goes_whatever_is_to_become_of_its_dependents() {
    let bed = Bed::start();
    for cascade in ["background", "foreground", "orphan"] {
        bed.service("web", "{clusterIP: 10.96.0.20, selector: {app: web}, ports: [{port: 80}]}");
        let mut slices = bed.stream(
            "get endpointslices -w --output-watch-events --no-headers -l endpointslice.kubernetes.io/managed-by",
        );
        let slice = slices.next().swap_remove(1);
        bed.ok(&format!("delete service web --cascade={cascade} --timeout=60s"));
        assert!(bed.fails("get service web").contains("not found"), "{cascade}");
        match cascade {
            "foreground" => assert!(bed.fails(&format!("get endpointslice {slice}")).contains("not found")),
            "orphan" => assert_eq!(bed.field(&format!("endpointslice/{slice}"), ".metadata.ownerReferences"), ""),
            _ => while slices.next()[..2] != ["DELETED", slice.as_str()] {},
        }
    }
}

#[test]
fn s01_a_namespace_goes_with_all_that_is_in_it() {
    let bed = Bed::start();
    bed.ok("create namespace shop");
    let spec = "{clusterIP: 10.96.0.20, selector: {app: web}, ports: [{port: 80}]}";
    bed.ok_with("apply -n shop -f -", &service("web", spec));
    bed.ok("create configmap settings -n shop");
    bed.ok("run web -n shop --image=example.com/web:1");
    let out = bed.ok("delete namespace shop --timeout=60s");
    assert_eq!(out, "namespace \"shop\" deleted\n");
    assert!(bed.fails("get namespace shop").contains(r#"namespaces "shop" not found"#));
    assert_eq!(bed.ok("get pods,services,endpoints,endpointslices,configmaps,events -n shop -o name"), "");
    assert_eq!(bed.ok("get services -A -o name"), "service/kubernetes\n");
    bed.service("other", "{clusterIP: 10.96.0.20, ports: [{port: 80}]}");

    let kept = bed.fails("delete namespace default");
    assert!(kept.contains(r#"namespaces "default" is forbidden: this namespace may not be deleted"#), "{kept}");
}

#[test]
fn s01_a_namespace_says_what_it_waits_for() {
    let bed = Bed::start();
    bed.ok("create namespace shop");
    bed.ok("create configmap settings -n shop");
    bed.ok(r#"patch configmap settings -n shop -p '{"metadata":{"finalizers":["example.com/hold"]}}'"#);
    bed.ok("delete namespace shop --wait=false");
    bed.ok("wait --for=condition=NamespaceFinalizersRemaining namespace/shop --timeout=60s");
    let said = bed.field("namespace/shop", ".status.conditions[?(@.type==\"NamespaceContentRemaining\")].message");
    assert_eq!(said, "Some resources are remaining: configmaps. has 1 resource instances");
    let late = bed.fails("create configmap late -n shop");
    assert!(late.contains("because it is being terminated"), "{late}");

    bed.ok(r#"patch configmap settings -n shop -p '{"metadata":{"finalizers":null}}'"#);
    bed.ok("wait --for=delete namespace/shop --timeout=60s");
    assert!(bed.fails("get namespace shop").contains("not found"));
}

#[test]
fn s01_a_pod_with_a_node_is_marked_first_and_can_be_forced_away() {
    let bed = Bed::start();
    let spec = "{nodeName: one, containers: [{name: web, image: x}]}";
    let pod = &service("web", spec).replace("Service", "Pod");
    bed.ok_with("create -f -", pod);
    bed.ok("delete pod web --wait=false");
    let marked = bed.json("pod web");
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let out = bed.ok("get pod web --no-headers");
    assert_eq!(super::cells(&out)[0][2], "Terminating");
    bed.ok("delete pod web --force --grace-period=0");
    assert!(bed.fails("get pod web").contains("not found"));
}

#[test]
fn s01_wait_sees_a_condition_come() {
    let bed = Bed::start();
    let out = bed.ok("wait --for=condition=Ready servicecidr/kubernetes --timeout=60s");
    assert_eq!(out, "servicecidr.networking.k8s.io/kubernetes condition met\n");

    bed.ok("run web --image=example.com/web:1");
    let late = bed.fails("wait --for=condition=Ready pod/web --timeout=1s");
    assert!(late.contains("timed out waiting for the condition on pods/web"), "{late}");
    let mut waiting = bed.stream("wait --for=condition=Ready pod/web --timeout=60s");
    let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    patch_status(&bed, "/api/v1/namespaces/default/pods/web", ready);
    assert_eq!(waiting.next().join(" "), "pod/web condition met");
    bed.ok("wait --for=condition=Ready=true pod --all --timeout=60s");
}

#[test]
fn s01_wait_sees_a_value_come() {
    let bed = Bed::start();
    bed.service("web", "{type: LoadBalancer, ports: [{port: 80}]}");
    let path = "/api/v1/namespaces/default/services/web";
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}"#;
    // An older kubectl waits for conditions only; there the same stream is read with a watch.
    if *MINOR >= 23 {
        let mut waiting =
            bed.stream("wait --for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.1 service/web --timeout=60s");
        patch_status(&bed, path, status);
        assert_eq!(waiting.next().join(" "), "service/web condition met");
    } else {
        let mut watching =
            bed.stream("get service web -w -o 'jsonpath={.status.loadBalancer.ingress[0].ip}|{\"\\n\"}'");
        assert_eq!(watching.next(), ["|"]);
        patch_status(&bed, path, status);
        assert_eq!(watching.next(), ["192.0.2.1|"]);
    }
}
