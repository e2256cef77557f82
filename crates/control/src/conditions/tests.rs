use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::{CONTROLLER, TYPES, list};
use crate::endpointslice;
use crate::testing::{Cluster, node, pod, service};
use crate::write::Write;

const SERVICES: &str = super::TABLE;

/// A cluster with a node, this controller, and the controllers of slices.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new(&[&endpointslice::CONTROLLER, &CONTROLLER]);
    cluster.settings.service_conditions = true;
    cluster.put("minions", node("node"));
    cluster
}

/// One condition of the Service `web`: status, reason, message.
#[track_caller]
fn said(cluster: &Cluster, kind: &str) -> (String, String, String) {
    let service = cluster.get(SERVICES, "default/web").expect("the Service");
    let found = service.items("status.conditions").iter().find(|condition| condition.text("type") == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind} in {service}"));
    let text = |path: &str| found.text(path).to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Asserts status, reason and message of a condition of the Service `web`.
#[track_caller]
fn says(cluster: &Cluster, kind: &str, status: &str, reason: &str, words: &str) {
    let (have, why, message) = said(cluster, kind);
    assert_eq!((have.as_str(), why.as_str()), (status, reason), "{message}");
    assert!(message.contains(words), "{message}");
}

/// The Service `web` as created by kubectl, with this spec.
fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut web = service("web", "web");
    let owner = json!({"manager": "kubectl", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
                       "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:selector": {}, "f:type": {}}}});
    web.put("metadata.managedFields", json!([owner]));
    change(&mut web);
    web
}

/// The message of EndpointsReady when it is false; asserts that Ready has the same.
#[track_caller]
fn hindered(cluster: &mut Cluster, reason: &str, words: &str) {
    cluster.converge();
    says(cluster, "PodsMatched", "True", "PodsMatched", "selector app=web matches pods in default");
    says(cluster, "EndpointsReady", "False", reason, words);
    assert_eq!(said(cluster, "Ready"), said(cluster, "EndpointsReady"));
}

#[test]
fn s19_a_service_becomes_ready_with_its_first_ready_pod_and_reports_the_reason_until_then() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    cluster.converge();
    says(&cluster, "AddressAssigned", "True", "ClusterIP", "cluster IP 10.96.0.9");
    says(&cluster, "PodsMatched", "False", "NoPodMatches", "there are no pods in default");
    says(&cluster, "EndpointsReady", "False", "NoPodMatches", "there are no pods in default");
    says(&cluster, "Ready", "False", "NoPodMatches", "there are no pods in default");

    cluster.put("pods", pod("p1", "web", 1, false));
    hindered(&mut cluster, "PodsNotReady", "pod p1 is not ready");
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.converge();
    for kind in TYPES {
        assert_eq!(said(&cluster, kind).0, "True", "{kind}");
    }
    cluster.put("pods", pod("p1", "web", 1, false));
    hindered(&mut cluster, "PodsNotReady", "pod p1 is not ready");
    cluster.remove("pods", "default/p1");
    cluster.converge();
    says(&cluster, "PodsMatched", "False", "NoPodMatches", "there are no pods in default");
}

#[test]
fn conditions_have_a_fixed_order_and_only_the_status_is_written() {
    let mut cluster = cluster();
    let foreign = json!({"type": "example.com/Warm", "status": "True", "reason": "R", "message": "",
                         "lastTransitionTime": "2026-01-01T00:00:00Z"});
    cluster.put(SERVICES, with(|web| web.put("status", json!({"loadBalancer": {}, "conditions": [foreign]}))));
    let before = cluster.get(SERVICES, "default/web").expect("the Service");
    cluster.converge();
    let after = cluster.get(SERVICES, "default/web").expect("the Service");
    let types: Vec<&str> = after.items("status.conditions").iter().map(|condition| condition.text("type")).collect();
    assert_eq!(types, ["example.com/Warm", "AddressAssigned", "PodsMatched", "EndpointsReady", "Ready"]);
    assert_eq!(after.items("status.conditions")[0], foreign);
    assert_eq!(after.at("spec"), before.at("spec"));
    assert_eq!(after.at("status.loadBalancer"), &json!({}));
    let fields = after.items("metadata.managedFields");
    let ours = fields.iter().find(|owner| owner.text("manager") == crate::write::MANAGER).expect("we own something");
    assert_eq!((fields.len(), ours.text("subresource")), (2, "status"), "{fields:?}");
    assert!(ours.at("fieldsV1").at("f:status").at("f:conditions").get("k:{\"type\":\"Ready\"}").is_some());
}

#[test]
fn changes_of_pods_of_a_ready_service_cause_no_write() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    cluster.put("pods", pod("steady", "web", 0, true));
    cluster.converge();
    cluster.written.clear();
    for number in 1..20 {
        cluster.put("pods", pod(&format!("p{number}"), "web", number, number % 3 != 0));
        cluster.converge();
    }
    cluster.put("pods", pod("p1", "web", 1, false));
    cluster.remove("pods", "default/p2");
    cluster.converge();
    assert_eq!(cluster.writes_to(SERVICES), 0);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to(SERVICES), 0, "nor does a restart write anything");
}

#[test]
fn readiness_is_one_write_after_the_slices_have_it() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    cluster.put("pods", pod("p1", "web", 1, false));
    cluster.converge();
    cluster.written.clear();
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.deliver_all();
    // Reconciled before the slices are written: no condition yet.
    cluster.run(1, "default/web");
    assert_eq!(cluster.writes_to(SERVICES), 0);
    says(&cluster, "Ready", "False", "PodsNotReady", "pod p1 is not ready");
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
    assert_eq!(cluster.writes_to(SERVICES), 1);
}

#[test]
fn unpublished_endpoints_are_not_ready() {
    let mut cluster = Cluster::new(&[&CONTROLLER]);
    cluster.settings.service_conditions = true;
    cluster.put("minions", node("node"));
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.put(SERVICES, service("web", "web"));
    cluster.converge();
    says(&cluster, "EndpointsReady", "False", "NotPublished", "being published");
    says(&cluster, "Ready", "False", "NotPublished", "being published");
}

#[test]
fn the_time_of_a_condition_is_that_of_its_last_change() {
    let mut cluster = cluster();
    let since = "2026-01-01T00:00:00Z";
    let said = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Old", "message": "", "lastTransitionTime": since});
    let conditions = json!([said("AddressAssigned", "True"), said("PodsMatched", "True")]);
    cluster.put(SERVICES, with(|web| web.put("status.conditions", conditions)));
    cluster.converge();
    let web = cluster.get(SERVICES, "default/web").expect("the Service");
    let time = |place: usize| web.items("status.conditions")[place].text("lastTransitionTime").to_owned();
    assert_eq!((time(0), time(1)), (since.to_owned(), "1970-01-01T00:00:00Z".to_owned()));
}

#[test]
fn s05_a_missing_named_target_port_is_reported() {
    let mut cluster = cluster();
    let mut nginx = pod("nginx-1", "web", 1, true);
    let ports = json!([{"name": "http", "containerPort": 80, "protocol": "TCP"},
                       {"name": "metrics", "containerPort": 9100, "protocol": "TCP"}]);
    nginx.put("spec.containers", json!([{"name": "c", "image": "i", "ports": ports}]));
    cluster.put("pods", nginx.clone());
    let port = |name: &str, number: u16, target: &str, protocol: &str| json!({"name": name, "port": number, "targetPort": target, "protocol": protocol});
    cluster.put(SERVICES, with(|web| web.put("spec.ports", json!([port("web", 80, "http-web", "TCP")]))));
    hindered(
        &mut cluster,
        "NoSuchTargetPort",
        "port web: targetPort http-web is not a port of pod nginx-1; its ports are http and metrics",
    );

    let partly = json!([port("web", 80, "http", "TCP"), port("dns", 53, "http", "UDP")]);
    cluster.put(SERVICES, with(|web| web.put("spec.ports", partly)));
    hindered(
        &mut cluster,
        "NoSuchTargetPort",
        "port dns: targetPort http is a TCP port of pod nginx-1, and the Service asks for UDP",
    );

    nginx.put(
        "spec.containers",
        json!([{"name": "c", "image": "i", "ports": [
        {"name": "http-web", "containerPort": 80, "protocol": "TCP"}]}]),
    );
    cluster.put(SERVICES, with(|web| web.put("spec.ports", json!([port("", 80, "http-web", "TCP")]))));
    hindered(&mut cluster, "NoSuchTargetPort", "port 80: targetPort http-web is not a port of pod nginx-1");
    cluster.put("pods", nginx);
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
}

#[test]
fn s05_faults_are_reported_per_port() {
    let mut cluster = cluster();
    let with_port = |name: &str, number: usize, port: &str, ready: bool| {
        let mut pod = pod(name, "web", number, ready);
        let ports = json!([{"name": port, "containerPort": 80, "protocol": "TCP"}]);
        pod.put("spec.containers", json!([{"name": "c", "image": "i", "ports": ports}]));
        pod
    };
    cluster.put("pods", with_port("a", 1, "one", true));
    cluster.put("pods", with_port("b", 2, "two", false));
    let ports =
        ["one", "two", "six"].map(|name| json!({"name": name, "port": 80, "targetPort": name, "protocol": "TCP"}));
    cluster.put(SERVICES, with(|web| web.put("spec.ports", json!(ports))));
    hindered(&mut cluster, "PodsNotReady", "port two: 0 of 2 matching pods are ready: b is not ready; port six: ");
    let (_, _, message) = said(&cluster, "EndpointsReady");
    let wanted = "port six: targetPort six is not a port of pod a (like 1 other pod); its only named port is one";
    assert!(message.ends_with(wanted), "{message}");
}

#[test]
fn s18_unready_pods_are_listed_with_their_reasons() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    let mut pulling = pod("a", "web", 1, false);
    pulling
        .put("status.containerStatuses", json!([{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]));
    cluster.put("pods", pulling);
    hindered(&mut cluster, "PodsNotReady", "pod a is not ready: container c is waiting: ImagePullBackOff");
    let mut unborn = pod("b", "web", 2, false);
    unborn.put("status", json!({"phase": "Pending"}));
    cluster.put("pods", unborn);
    let mut dying = pod("c", "web", 3, true);
    dying.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    cluster.put("pods", dying.clone());
    let mut done = pod("d", "web", 4, false);
    done.put("status.phase", "Succeeded");
    cluster.put("pods", done);
    hindered(
        &mut cluster,
        "PodsNotReady",
        "0 of 4 matching pods are ready: a is not ready (container c is waiting: ImagePullBackOff) and \
         b has no address yet (phase Pending)",
    );
    cluster.remove("pods", "default/a");
    cluster.remove("pods", "default/b");
    hindered(&mut cluster, "PodsNotReady", "0 of 2 matching pods are ready: c is being deleted and d has finished");

    // The reason of an unready Pod may change while it stays unready.
    let mut crashing = pod("a", "web", 1, false);
    crashing
        .put("status.containerStatuses", json!([{"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]));
    cluster.put("pods", crashing);
    hindered(&mut cluster, "PodsNotReady", "a is not ready (container c is waiting: CrashLoopBackOff)");
}

#[test]
fn s18_a_service_that_publishes_unready_pods_is_ready_with_them() {
    let mut cluster = cluster();
    let mut dying = pod("p1", "web", 1, false);
    dying.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    cluster.put("pods", dying);
    cluster.put(SERVICES, with(|web| web.put("spec.publishNotReadyAddresses", true)));
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
}

#[test]
fn a_pod_on_a_missing_node_is_reported() {
    let mut cluster = cluster();
    cluster.remove("minions", "node");
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.put(SERVICES, service("web", "web"));
    hindered(&mut cluster, "NodeMissing", "pod p1 is bound to node node, which does not exist");
    cluster.put("minions", node("node"));
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
    cluster.remove("minions", "node");
    hindered(&mut cluster, "NodeMissing", "node node, which does not exist");
}

#[test]
fn addresses_of_the_wrong_family_and_of_services_are_reported() {
    let mut cluster = cluster();
    let six = |web: &mut Value| {
        web.put("spec.clusterIP", "fd00:10:96::9");
        web.put("spec.clusterIPs", json!(["fd00:10:96::9"]));
        web.put("spec.ipFamilies", json!(["IPv6"]));
    };
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.put(SERVICES, with(six));
    hindered(&mut cluster, "WrongFamily", "pod p1 has no IPv6 address");

    let mut looping = pod("p1", "web", 1, true);
    looping.put("status.podIPs", json!([{"ip": "10.96.0.9"}]));
    cluster.put(SERVICES, service("web", "web"));
    cluster.put("pods", looping);
    hindered(
        &mut cluster,
        "EndpointIsClusterIP",
        "the address 10.96.0.9 of pod p1 is the cluster IP of Service default/web",
    );
}

#[test]
fn two_families_are_needed_only_with_require_dual_stack() {
    let mut cluster = cluster();
    let dual = |policy: &'static str| {
        move |web: &mut Value| {
            web.put("spec.clusterIPs", json!(["10.96.0.9", "fd00:10:96::9"]));
            web.put("spec.ipFamilies", json!(["IPv4", "IPv6"]));
            web.put("spec.ipFamilyPolicy", policy);
        }
    };
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.put(SERVICES, with(dual("RequireDualStack")));
    hindered(&mut cluster, "WrongFamily", "pod p1 has no IPv6 address");
    says(&cluster, "AddressAssigned", "True", "ClusterIP", "cluster IPs 10.96.0.9 and fd00:10:96::9");
    cluster.put(SERVICES, with(dual("PreferDualStack")));
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
}

#[test]
fn the_near_miss_is_updated_and_only_unmatched_services_are_queued() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    let mut fine = service("fine", "fine");
    fine.put("spec.clusterIP", "10.96.0.10");
    fine.put("spec.clusterIPs", json!(["10.96.0.10"]));
    cluster.put(SERVICES, fine);
    cluster.put("pods", pod("f", "fine", 1, true));
    cluster.put("pods", pod("p", "web2", 2, true));
    cluster.converge();
    says(&cluster, "PodsMatched", "False", "NoPodMatches", "matches 0 of 2 pods in default; 1 pod has app=web2");
    cluster.put("pods", pod("q", "web2", 3, true));
    cluster.deliver_all();
    assert_eq!(cluster.queued, [(1, "default/web".to_owned())].into());
    cluster.converge();
    says(&cluster, "Ready", "False", "NoPodMatches", "matches 0 of 3 pods in default; 2 pods have app=web2");
    cluster.put("pods", pod("q", "web2", 3, false));
    cluster.deliver_all();
    assert_eq!(cluster.queued, [].into(), "whether a stranger is ready is nobody's business");
    cluster.remove("pods", "default/p");
    cluster.put("pods", pod("q", "web", 3, true));
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
    cluster.put("pods", pod("r", "web2", 4, true));
    cluster.deliver_all();
    assert_eq!(cluster.queued, [].into(), "all is well");
}

#[test]
fn a_service_without_selector_is_ready_by_its_slices() {
    let mut cluster = cluster();
    let bare = |web: &mut Value| {
        web.drop_path("spec.selector");
        web.put("spec.ports", json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]));
    };
    cluster.put(SERVICES, with(bare));
    cluster.converge();
    let todo = "Create an EndpointSlice with the label kubernetes.io/service-name=web";
    says(&cluster, "PodsMatched", "False", "NoSelector", todo);
    says(&cluster, "EndpointsReady", "False", "NoSelector", todo);
    let slice = |port: &str, ready: bool| {
        json!({
            "metadata": {"name": "s", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": port, "port": 5432, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": ready}}],
        })
    };
    cluster.put("endpointslices", slice("sql", false));
    cluster.converge();
    says(&cluster, "PodsMatched", "True", "NoSelector", "EndpointSlices made for this Service");
    says(&cluster, "Ready", "False", "EndpointsNotReady", "none of the endpoints");
    cluster.put("endpointslices", slice("mysql", true));
    cluster.converge();
    says(&cluster, "Ready", "False", "NoSuchPort", "no ready endpoint for port sql");
    says(&cluster, "EndpointsReady", "False", "NoSuchPort", "theirs are mysql TCP");
    cluster.put("endpointslices", slice("sql", true));
    cluster.converge();
    says(&cluster, "Ready", "True", "Ready", "");
    cluster.remove("endpointslices", "default/s");
    cluster.converge();
    says(&cluster, "Ready", "False", "NoSelector", todo);
}

#[test]
fn address_conditions_depend_on_the_type() {
    let mut cluster = cluster();
    cluster.put("pods", pod("p1", "web", 1, true));
    let mut told = |reason: &str, status: &str, words: &str, change: fn(&mut Value)| {
        cluster.put(SERVICES, with(change));
        cluster.converge();
        says(&cluster, "AddressAssigned", status, reason, words);
        assert_eq!(said(&cluster, "Ready").0, status);
    };
    told("ClusterIP", "True", "cluster IP 10.96.0.9", |_| {});
    told("Headless", "True", "the name leads to the endpoints", |web| {
        web.put("spec.clusterIP", "None");
        web.put("spec.clusterIPs", json!(["None"]));
    });
    told("NodePort", "True", "cluster IP 10.96.0.9, node port 30080", |web| {
        web.put("spec.type", "NodePort");
        web.put("spec.ports", json!([{"port": 80, "nodePort": 30080, "protocol": "TCP"}]));
    });
    let waiting = "no load balancer has answered yet; cluster IP 10.96.0.9 works meanwhile";
    told("Pending", "False", waiting, |web| web.put("spec.type", "LoadBalancer"));
    let foreign =
        "no controller has answered for loadBalancerClass example.com/lb; cluster IP 10.96.0.9 works meanwhile";
    told("LoadBalancerClassNotServed", "False", foreign, |web| {
        web.put("spec.type", "LoadBalancer");
        web.put("spec.loadBalancerClass", "example.com/lb");
    });
    told("LoadBalancer", "True", "load balancer 192.0.2.7, cluster IP 10.96.0.9", |web| {
        web.put("spec.type", "LoadBalancer");
        web.put("status.loadBalancer.ingress", json!([{"ip": "192.0.2.7", "ipMode": "VIP"}]));
    });
    told("ExternalName", "True", "clients are sent on to db.example.com", |web| {
        web.put("spec", json!({"type": "ExternalName", "externalName": "db.example.com"}));
    });
    told("ExternalNameIsAddress", "False", "externalName is 192.0.2.1, an address", |web| {
        web.put("spec", json!({"type": "ExternalName", "externalName": "192.0.2.1"}));
    });
}

#[test]
fn b13_another_fault_of_a_service_is_an_event_with_its_code_and_sentence() {
    let mut cluster = cluster();
    cluster.put(SERVICES, service("web", "web"));
    cluster.converge();
    assert_eq!(cluster.events, [], "a Service that waits for its first Pods");
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.converge();
    assert_eq!(cluster.events, [], "all is well");
    cluster.put("pods", pod("p1", "web2", 1, true));
    cluster.converge();
    let (_, reason, message) = said(&cluster, "Ready");
    assert_eq!(reason, "NoPodMatches");
    assert_eq!(cluster.events, [(reason, message)]);
}

#[test]
fn probable_faults_are_reported_although_the_service_is_ready() {
    let mut cluster = cluster();
    let mut tcp = pod("p1", "web", 1, true);
    let ports = json!([{"containerPort": 8080, "protocol": "TCP"}]);
    tcp.put("spec.containers", json!([{"name": "c", "image": "i", "ports": ports}]));
    cluster.put("pods", tcp);
    let port = json!([{"name": "dns", "port": 53, "targetPort": 8080, "protocol": "UDP"}]);
    cluster.put(SERVICES, with(|web| web.put("spec.ports", port)));
    cluster.converge();
    let words = "port dns: the Service sends UDP to port 8080 of its pods, whose containers declare 8080 for TCP only";
    says(&cluster, "Ready", "True", "ProtocolNotDeclared", words);
    says(&cluster, "EndpointsReady", "True", "EndpointsReady", "");
}

#[test]
fn services_that_are_being_deleted_are_ignored() {
    let mut cluster = cluster();
    cluster.put(
        SERVICES,
        with(|web| {
            web.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
            web.put("metadata.finalizers", json!(["example.com/keep"]));
        }),
    );
    cluster.converge();
    assert_eq!(cluster.writes_to(SERVICES), 0);
}

#[test]
fn disabled_conditions_are_removed() {
    let mut cluster = cluster();
    cluster.put(SERVICES, with(|_| {}));
    cluster.converge();
    says(&cluster, "Ready", "False", "NoPodMatches", "");
    cluster.settings.service_conditions = false;
    cluster.restart();
    cluster.converge();
    let web = cluster.get(SERVICES, "default/web").expect("the Service");
    assert!(!web.has("status.conditions"), "{web}");
    cluster.written.clear();
    // Conditions of clients are not removed.
    let theirs = json!([{"type": "Ready", "status": "True", "reason": "Mine", "message": "",
                         "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    cluster.put(SERVICES, with(|web| web.put("status.conditions", theirs)));
    cluster.put("pods", pod("p1", "web", 1, true));
    cluster.converge();
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to(SERVICES), 0);
    says(&cluster, "Ready", "True", "Mine", "");
}

/// The table of faults and healthy shapes that all renderers of findings are tested with.
const FAULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../diagnose/tests/faults.json");

/// What is found for the Service of a case, and the Event for it after it was ready: the reason and the message.
fn rendered(case: &Value) -> (list::Finding, Option<(String, String)>) {
    let mut cluster = Cluster::new(&[]);
    for (member, table) in
        [("services", SERVICES), ("slices", "endpointslices"), ("pods", "pods"), ("nodes", "minions")]
    {
        for object in case.items(member) {
            cluster.put(table, object.clone());
        }
    }
    cluster.deliver_all();
    let (view, typed) = (cluster.view(None), diagnose::Service::of(&case.items("services")[0]));
    let found = super::find(&view, &typed);
    let ready = found.iter().find(|(kind, _)| *kind == "Ready").and_then(|(_, finding)| finding.clone());
    let before = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": ""});
    let before = [before];
    let after = list::merge(&before, found, &view.now_text()).expect("other conditions");
    let service = view.cache.services.get("default/web").expect("the Service");
    let event = super::event(&view, service, &before, &after).map(|write| match write {
        Write::Object { object, .. } => (object.text("reason").to_owned(), object.text("message").to_owned()),
        other => panic!("not an Event: {other:?}"),
    });
    (ready.expect("a condition"), event)
}

#[test]
fn b13_conditions_and_events_have_the_code_and_the_sentence_of_the_diagnosis() {
    let table = std::fs::read(FAULTS).expect("the table");
    let table: Value = serde_json::from_slice(&table).expect("JSON");
    for case in table.items("faults") {
        let (ready, event) = rendered(case);
        let wanted = (case.text("code").to_owned(), case.text("message").to_owned());
        let degraded = case.text("level") == "degraded";
        assert_eq!(
            (ready.holds, (ready.reason.into_owned(), ready.message)),
            (degraded, wanted.clone()),
            "{}",
            case.text("name")
        );
        // What is only degraded still serves, and endpoints that are about to be published are no fault yet.
        let silent = degraded || case.text("code") == "NotPublished";
        assert_eq!(event, (!silent).then_some(wanted), "{}", case.text("name"));
    }
    for case in table.items("healthy") {
        let (ready, event) = rendered(case);
        assert_eq!(
            (ready.holds, &*ready.reason, event),
            (true, "Ready", None),
            "{}: {}",
            case.text("name"),
            ready.message
        );
    }
}
