//! S32: allocations and Services are consistent, whatever users change manually; and the objects of a new cluster.
//!
//! The server never lets the two differ by itself (see `crash`), so each test here plays the administrator who deletes or
//! changes what holds an allocation, and waits for the watch to show that it was set right.

use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::session::{ADDRESSES, RANGES, SERVICES, Session, text};
use testbed::{Home, Server};

const EVENTS: &str = "/api/v1/namespaces/default/events";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The Ready condition of a range.
fn ready(range: &Value) -> (&str, &str) {
    let conditions = range["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    ready.map_or(("", ""), |ready| (text(ready, "/status"), text(ready, "/reason")))
}

fn range(name: &str, cidr: &str) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
}

/// Creates a range and waits until it can be used.
fn make_range(api: &mut Session, name: &str, cidr: &str) {
    let _ = api.post(RANGES, &range(name, cidr)).success();
    let filter = format!("&fieldSelector=metadata.name%3D{name}");
    api.watch(RANGES, &filter).until(|_, object| ready(object).0 == "True");
}

#[test]
fn s32_a_deleted_address_of_a_live_service_comes_back_and_an_event_says_so() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    let before = api.get(&format!("{ADDRESSES}/10.96.0.50")).success();
    let other = server.session();
    let mut addresses =
        other.watch(ADDRESSES, &format!("&resourceVersion={}", text(&before, "/metadata/resourceVersion")));
    let mut events = other.watch(EVENTS, "");
    let _ = api.delete(&format!("{ADDRESSES}/10.96.0.50")).success();

    let back = addresses.until(|kind, object| kind == "ADDED" && name(object) == "10.96.0.50");
    assert_eq!(back["spec"], before["spec"]);
    assert_eq!(back["metadata"]["labels"], before["metadata"]["labels"]);
    let event = events.until(|_, event| event["reason"] == "ClusterIPNotAllocated");
    assert_eq!(event["involvedObject"]["name"], "web");
    assert_eq!(
        (text(&event, "/type"), text(&event, "/source/component")),
        ("Warning", "ipallocator-repair-controller")
    );
    assert!(text(&event, "/message").contains("10.96.0.50 is not allocated; repairing"), "{event}");
    let listed = server.kubectl("get events --field-selector involvedObject.name=web").success();
    assert!(listed.contains("ClusterIPNotAllocated"), "{listed}");
    let taken = api.refuse("twin", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    assert!(taken.contains("provided IP is already allocated"), "{taken}");
}

#[test]
fn s32_both_addresses_of_a_dual_stack_service_come_back() {
    let server = Server::start();
    let mut api = server.session();
    let ips = json!(["10.96.0.50", "fd00:10:96::50"]);
    api.create(
        "web",
        json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": ips[0], "clusterIPs": ips, "ports": [{"port": 80}]}),
    );
    for address in ["10.96.0.50", "fd00:10:96::50"] {
        let back = deleted_and_back(&server, &mut api, address);
        assert_eq!(text(&back, "/spec/parentRef/name"), "web");
    }
}

#[test]
fn s32_an_address_that_is_deleted_again_comes_back_again() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    for _ in 0..3 {
        deleted_and_back(&server, &mut api, "10.96.0.50");
    }
    let taken = api.refuse("twin", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    assert!(taken.contains("provided IP is already allocated"), "{taken}");
}

#[test]
fn s32_the_address_of_a_service_that_spells_it_in_another_way_comes_back_and_stays() {
    let server = Server::start();
    let mut api = server.session();
    let spelled = "fd00:10:96:0::00ab";
    api.create("web", json!({"ipFamilies": ["IPv6"], "clusterIP": spelled, "ports": [{"port": 80}]}));
    let first = deleted_and_back(&server, &mut api, "fd00:10:96::ab");
    assert_eq!(text(&first, "/spec/parentRef/name"), "web");
    // Another inconsistency, after whose repair everything has been checked.
    api.create("other", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    deleted_and_back(&server, &mut api, "10.96.0.50");
    assert_eq!(api.get(&format!("{ADDRESSES}/fd00:10:96::ab")).success(), first);
    assert_eq!(text(&api.get(&format!("{SERVICES}/web")).success(), "/spec/clusterIP"), spelled);
}

/// Deletes the object of an address, and waits until it is there again.
fn deleted_and_back(server: &Server, api: &mut Session, address: &str) -> Value {
    let before = api.get(&format!("{ADDRESSES}/{address}")).success();
    let other = server.session();
    let mut addresses =
        other.watch(ADDRESSES, &format!("&resourceVersion={}", text(&before, "/metadata/resourceVersion")));
    let _ = api.delete(&format!("{ADDRESSES}/{address}")).success();
    addresses.until(|kind, object| kind == "ADDED" && name(object) == address)
}

#[test]
fn s32_an_address_that_no_service_uses_is_freed() {
    let server = Server::start();
    let mut api = server.session();
    api.create("live", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    let labels = json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"});
    for owner in ["gone", "live"] {
        let leaked = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.96.0.66", "labels": labels},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": owner}},
        });
        let other = server.session();
        let mut addresses = other.watch(ADDRESSES, "&resourceVersion=0");
        let _ = api.post(ADDRESSES, &leaked).success();
        addresses.until(|kind, object| kind == "DELETED" && name(object) == "10.96.0.66");
    }
    api.create("web", json!({"clusterIP": "10.96.0.66", "ports": [{"port": 80}]}));
}

#[test]
fn s32_an_address_that_somebody_else_manages_is_left_alone_and_not_given_out() {
    let server = Server::start();
    let mut api = server.session();
    let foreign = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.96.0.66"},
        "spec": {"parentRef": {"group": "example.com", "resource": "gateways", "name": "front"}},
    });
    let _ = api.post(ADDRESSES, &foreign).success();
    // A change that wakes the controller, and is handled when it has checked everything.
    api.create("web", json!({"clusterIP": "10.96.0.50", "ports": [{"port": 80}]}));
    let other = server.session();
    let mut addresses = other.watch(ADDRESSES, "&resourceVersion=0");
    let _ = api.delete(&format!("{ADDRESSES}/10.96.0.50")).success();
    addresses.until(|kind, object| kind == "DELETED" && name(object) == "10.96.0.50");
    addresses.until(|kind, object| kind == "ADDED" && name(object) == "10.96.0.50");
    assert_eq!(api.get(&format!("{ADDRESSES}/10.96.0.66")).code, 200);
    let taken = api.refuse("twin", json!({"clusterIP": "10.96.0.66", "ports": [{"port": 80}]}));
    assert!(taken.contains("provided IP is already allocated"), "{taken}");
}

#[test]
fn s32_a_deleted_range_stays_while_an_address_of_it_is_in_use_and_goes_with_it() {
    let server = Server::start();
    let mut api = server.session();
    make_range(&mut api, "extra", "10.97.0.0/24");
    let made = api.get(&format!("{RANGES}/extra")).success();
    assert_eq!(made["metadata"]["finalizers"], json!([FINALIZER]));
    api.create("web", json!({"clusterIP": "10.97.0.9", "ports": [{"port": 80}]}));

    let other = server.session();
    let mut ranges = other.watch(RANGES, "&resourceVersion=0&fieldSelector=metadata.name%3Dextra");
    let _ = api.delete(&format!("{RANGES}/extra")).success();
    let held = ranges.until(|_, object| ready(object) == ("False", "Terminating"));
    assert!(!text(&held, "/metadata/deletionTimestamp").is_empty());
    assert!(held.to_string().contains("There are still IPAddresses referencing the ServiceCIDR"), "{held}");
    let refused = api.refuse("late", json!({"clusterIP": "10.97.0.10", "ports": [{"port": 80}]}));
    assert!(refused.contains("does not match the current range"), "nothing new comes from it: {refused}");
    assert_eq!(api.get(&format!("{SERVICES}/web")).code, 200);

    let _ = api.delete(&format!("{SERVICES}/web")).success();
    ranges.until(|kind, _| kind == "DELETED");
    assert_eq!(api.get(&format!("{RANGES}/extra")).code, 404);
}

#[test]
fn s32_a_deleted_range_that_another_one_covers_goes_at_once() {
    let server = Server::start();
    let mut api = server.session();
    make_range(&mut api, "small", "10.97.0.0/24");
    make_range(&mut api, "large", "10.97.0.0/16");
    api.create("web", json!({"clusterIP": "10.97.0.9", "ports": [{"port": 80}]}));
    let other = server.session();
    let mut ranges = other.watch(RANGES, "&resourceVersion=0&fieldSelector=metadata.name%3Dsmall");
    let _ = api.delete(&format!("{RANGES}/small")).success();
    ranges.until(|kind, _| kind == "DELETED");
}

#[test]
fn s32_a_new_cluster_has_its_namespaces_its_range_and_the_way_to_itself() {
    let server = Server::start();
    let mut api = server.session();
    assert_eq!(api.names("/api/v1/namespaces"), ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let default = api.get(&format!("{RANGES}/kubernetes")).success();
    assert_eq!(default["spec"]["cidrs"], json!(["10.96.0.0/16", "fd00:10:96::/112"]));
    assert_eq!((ready(&default).0, &default["metadata"]["finalizers"]), ("True", &json!([FINALIZER])));

    let (host, port) = server.address.rsplit_once(':').expect("an address");
    let port: u16 = port.parse().expect("a port");
    let service = api.get(&format!("{SERVICES}/kubernetes")).success();
    assert_eq!(text(&service, "/spec/clusterIP"), "10.96.0.1");
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}])
    );
    assert_eq!(service["metadata"]["labels"], json!({"component": "apiserver", "provider": "kubernetes"}));
    let held = api.get(&format!("{ADDRESSES}/10.96.0.1")).success();
    assert_eq!(
        held["spec"]["parentRef"],
        json!({"resource": "services", "namespace": "default", "name": "kubernetes"})
    );
    let endpoints = api.get("/api/v1/namespaces/default/endpoints/kubernetes").success();
    let subset = json!([{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]);
    assert_eq!(endpoints["subsets"], subset);
    let slice = api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").success();
    assert_eq!(slice["endpoints"], json!([{"addresses": [host], "conditions": {"ready": true}}]));
    assert_eq!(slice["metadata"]["labels"], json!({"kubernetes.io/service-name": "kubernetes"}));
}

#[test]
fn s32_what_every_cluster_has_is_made_again_at_a_start_and_follows_the_listener() {
    let home = testbed::folder();
    let mut server = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
    let mut api = server.session();
    let _ = api.delete(&format!("{SERVICES}/kubernetes")).success();
    // The controllers may have removed them already.
    let _ = api.delete("/api/v1/namespaces/default/endpoints/kubernetes");
    assert!(server.terminate().success());
    let server = Server::start_with(Home::Kept(home.path().to_owned()), &[]);
    let mut api = server.session();
    let service = api.get(&format!("{SERVICES}/kubernetes")).success();
    assert_eq!(text(&service, "/spec/clusterIP"), "10.96.0.1");
    let port: u16 = server.address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let endpoints = api.get("/api/v1/namespaces/default/endpoints/kubernetes").success();
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], json!(port));
    let slice = api.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").success();
    assert_eq!(slice["ports"][0]["port"], json!(port));
}

#[test]
fn s32_without_a_range_creation_says_that_no_address_could_be_allocated_until_there_is_one_again() {
    let server = Server::start();
    let mut api = server.session();
    let other = server.session();
    let mut ranges = other.watch(RANGES, "&resourceVersion=0");
    let _ = api.delete(&format!("{RANGES}/kubernetes")).success();
    ranges.until(|_, object| ready(object) == ("False", "Terminating"));
    let spec = json!({"ports": [{"port": 80}]});
    let refused = api.post(SERVICES, &testbed::session::service("web", spec.clone())).refused(500);
    assert!(refused.contains("failed to allocate a serviceIP for Service \"web\""), "{refused}");
    // What needs no address is created nevertheless.
    api.create("headless", json!({"clusterIP": "None", "ports": [{"port": 80}]}));
    make_range(&mut api, "again", "10.96.0.0/16");
    api.create("web", spec);
    let _ = api.post(RANGES, &range("again6", "fd00:10:96::/112")).success();
    ranges.until(|kind, object| kind == "DELETED" && name(object) == "kubernetes");
    let default = ranges.until(|kind, object| kind == "ADDED" && name(object) == "kubernetes");
    assert_eq!(ready(&default).0, "True", "the default range is made again");
}

/// Starts a server on a directory with these ranges.
fn with_ranges(home: &TempDir, addresses: &str, ports: &str) -> Server {
    let arguments = ["--service-cluster-ip-range", addresses, "--service-node-port-range", ports];
    Server::start_with(Home::Kept(home.path().to_owned()), &arguments)
}

#[test]
fn s32_a_second_family_added_by_flag_is_used_from_the_next_start() {
    let home = testbed::folder();
    let mut server = with_ranges(&home, "10.96.0.0/16", "30000-32767");
    let mut api = server.session();
    api.create("prefers", json!({"ipFamilyPolicy": "PreferDualStack", "ports": [{"port": 80}]}));
    let refused = api.refuse("requires", json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}));
    assert!(refused.contains("this cluster is not configured for dual-stack services"), "{refused}");
    assert!(server.terminate().success());
    let server = with_ranges(&home, "10.96.0.0/16,fd00:10:96::/112", "30000-32767");
    let mut api = server.session();
    let default = api.get(&format!("{RANGES}/kubernetes")).success();
    assert_eq!(default["spec"]["cidrs"], json!(["10.96.0.0/16", "fd00:10:96::/112"]));
    let made = api.create("requires", json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}));
    assert_eq!(made["spec"]["clusterIPs"].as_array().map(Vec::len), Some(2));
    let kept = api.get(&format!("{SERVICES}/prefers")).success();
    assert_eq!(kept["spec"]["ipFamilies"], json!(["IPv4"]), "Services are not changed by themselves");
}

#[test]
fn s32_another_range_by_flag_does_not_replace_the_one_in_use_and_an_event_says_so() {
    let home = testbed::folder();
    let mut server = with_ranges(&home, "10.96.0.0/16", "30000-32767");
    let before = server.session().create("web", json!({"ports": [{"port": 80}]}));
    assert!(server.terminate().success());
    let server = with_ranges(&home, "10.200.0.0/16", "30000-32767");
    let mut api = server.session();
    let default = api.get(&format!("{RANGES}/kubernetes")).success();
    assert_eq!(default["spec"]["cidrs"], json!(["10.96.0.0/16"]));
    assert_eq!(api.get(&format!("{SERVICES}/web")).success()["spec"], before["spec"]);
    let made = api.create("more", json!({"ports": [{"port": 80}]}));
    assert!(text(&made, "/spec/clusterIP").starts_with("10.96."), "{made}");
    let other = server.session();
    let event = other.watch(EVENTS, "").until(|_, event| event["reason"] == "KubernetesDefaultServiceCIDRInconsistent");
    assert_eq!(text(&event, "/involvedObject/name"), "kubernetes");
    // The way to the new range: one more object.
    make_range(&mut api, "new", "10.200.0.0/16");
    api.create("new", json!({"clusterIP": "10.200.0.9", "ports": [{"port": 80}]}));
}

#[test]
fn s32_node_ports_outside_a_changed_range_are_kept_and_reported() {
    let home = testbed::folder();
    let mut server = with_ranges(&home, "10.96.0.0/16", "30000-30100");
    let mut api = server.session();
    api.create("old", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_050}]}));
    assert!(server.terminate().success());
    let server = with_ranges(&home, "10.96.0.0/16", "31000-31100");
    let mut api = server.session();
    let kept = api.get(&format!("{SERVICES}/old")).success();
    assert_eq!(kept["spec"]["ports"][0]["nodePort"], json!(30_050));
    let other = server.session();
    let event = other.watch(EVENTS, "").until(|_, event| event["reason"] == "PortOutOfRange");
    assert_eq!(
        (text(&event, "/involvedObject/name"), text(&event, "/source/component")),
        ("old", "portallocator-repair-controller")
    );
    let made = api.create("new", json!({"type": "NodePort", "ports": [{"port": 80}]}));
    assert!((31_000..=31_100).contains(&made["spec"]["ports"][0]["nodePort"].as_u64().expect("a port")), "{made}");
    let refused = api.refuse("late", json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_051}]}));
    assert!(refused.contains("The range of valid ports is 31000-31100"), "{refused}");
}
