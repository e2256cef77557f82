//! Addresses and ports of Services through the API: chosen or given, refused with the field named, kept, changed, given back.
//!
//! One behaviour per test, on a server of its own. The exact text of every refusal is shown by the recorded answers in
//! `golden`; here it is enough that the field and the reason are named.

mod publishing;

use serde_json::{Value, json};
use testbed::session::{ADDRESSES, SERVICES, Session, service, text};
use testbed::{Home, Server};

/// A server with ranges of the test's choice.
fn with_ranges(addresses: &str, ports: &str) -> Server {
    let home = Home::Own(testbed::folder());
    Server::start_with(home, &["--service-cluster-ip-range", addresses, "--service-node-port-range", ports])
}

/// A Service of this type with one port, and whatever else.
fn of_type(kind: &str, more: Value) -> Value {
    let mut spec = json!({"type": kind, "ports": [{"port": 80}]});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    spec
}

/// Changes the spec of the Service `web`.
fn change(api: &mut Session, spec: &Value) -> Value {
    api.merge(&format!("{SERVICES}/web"), &json!({"spec": spec})).success()
}

fn refuse_change(api: &mut Session, spec: &Value) -> String {
    api.merge(&format!("{SERVICES}/web"), &json!({"spec": spec})).refused(422)
}

fn node_port(service: &Value) -> u64 {
    service["spec"]["ports"][0]["nodePort"].as_u64().unwrap_or(0)
}

/// The addresses that `web` holds.
fn held(api: &mut Session) -> Vec<String> {
    let mut items = api.items(ADDRESSES);
    items.retain(|item| text(item, "/spec/parentRef/name") == "web");
    items.iter().map(|item| text(item, "/metadata/name").to_owned()).collect()
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing: {message}");
    }
}

// === S03: every Service gets an address ===

#[test]
fn s03_a_service_gets_an_address_of_the_range_and_an_object_that_holds_it() {
    let server = Server::start();
    let mut api = server.session();
    let web = api.create("web", of_type("ClusterIP", json!({})));
    let address = text(&web, "/spec/clusterIP");
    assert!(address.starts_with("10.96."), "{address}");
    assert_eq!(web["spec"]["clusterIPs"], json!([address]));
    assert_eq!((&web["spec"]["ipFamilyPolicy"], &web["spec"]["ipFamilies"]), (&json!("SingleStack"), &json!(["IPv4"])));
    assert_eq!(held(&mut api), [address]);
}

#[test]
fn s03_on_an_ipv6_cluster_addresses_are_ipv6() {
    let server = with_ranges("fd00:10:96::/112", "30000-32767");
    let web = server.session().create("web", of_type("ClusterIP", json!({})));
    assert!(text(&web, "/spec/clusterIP").starts_with("fd00:10:96::"), "{web}");
    assert_eq!(web["spec"]["ipFamilies"], json!(["IPv6"]));
}

#[test]
fn s03_a_dual_stack_service_gets_one_address_of_each_family_in_the_order_it_asked_for() {
    let server = Server::start();
    let mut api = server.session();
    let web = api.create("web", of_type("ClusterIP", json!({"ipFamilyPolicy": "RequireDualStack"})));
    assert_eq!(web["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(held(&mut api).len(), 2);
    let six = json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6"]});
    let six = api.create("six", of_type("ClusterIP", six));
    assert_eq!(six["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    assert!(text(&six, "/spec/clusterIP").contains(':'), "{six}");
}

#[test]
fn s03_without_a_second_family_dual_stack_is_refused_when_required_and_waived_when_preferred() {
    let server = with_ranges("10.96.0.0/16", "30000-32767");
    let mut api = server.session();
    let web = api.create("web", of_type("ClusterIP", json!({"ipFamilyPolicy": "PreferDualStack"})));
    assert_eq!(web["spec"]["ipFamilies"], json!(["IPv4"]));
    let refused = api.refuse("x", of_type("ClusterIP", json!({"ipFamilyPolicy": "RequireDualStack"})));
    assert_says(&refused, &["spec.ipFamilyPolicy", "this cluster is not configured for dual-stack services"]);
}

#[test]
fn s03_a_second_family_can_be_added_and_given_back() {
    let server = Server::start();
    let mut api = server.session();
    let first = api.create("web", of_type("ClusterIP", json!({})))["spec"]["clusterIP"].take();
    let two = change(&mut api, &json!({"ipFamilyPolicy": "RequireDualStack"}));
    assert_eq!((&two["spec"]["clusterIPs"][0], held(&mut api).len()), (&first, 2));
    let one =
        change(&mut api, &json!({"ipFamilyPolicy": "SingleStack", "clusterIPs": [first], "ipFamilies": ["IPv4"]}));
    assert_eq!((&one["spec"]["clusterIPs"], held(&mut api).len()), (&json!([first]), 1));
}

#[test]
fn s03_the_first_addresses_of_a_range_are_kept_for_those_who_choose() {
    // 32 addresses: 16 reserved, 14 available, and the network and broadcast addresses, which are never assigned.
    let server = with_ranges("10.96.0.0/27", "30000-32767");
    let mut api = server.session();
    let mut hosts: Vec<u32> = (0..14)
        .map(|number| {
            let made = api.create(&format!("s{number}"), of_type("ClusterIP", json!({})));
            text(&made, "/spec/clusterIP").rsplit('.').next().and_then(|host| host.parse().ok()).expect("a host")
        })
        .collect();
    hosts.sort_unstable();
    assert_eq!(hosts, (17..=30).collect::<Vec<u32>>());
    api.create("chosen", of_type("ClusterIP", json!({"clusterIP": "10.96.0.2"})));
    let last = api.create("one-more", of_type("ClusterIP", json!({})));
    let host: u32 =
        text(&last, "/spec/clusterIP").rsplit('.').next().and_then(|host| host.parse().ok()).expect("a host");
    assert!((3..=16).contains(&host), "when all others are gone, these are given: {last}");
}

// === S29: chosen addresses ===

#[test]
fn s29_an_address_may_be_chosen() {
    let server = Server::start();
    let web = server.session().create("web", of_type("ClusterIP", json!({"clusterIP": "10.96.7.7"})));
    assert_eq!(web["spec"]["clusterIPs"], json!(["10.96.7.7"]));
}

#[test]
fn s29_both_addresses_of_a_dual_stack_service_may_be_chosen() {
    let server = Server::start();
    let ips = json!(["fd00:10:96::7", "10.96.7.7"]);
    let spec = json!({"ipFamilyPolicy": "PreferDualStack", "clusterIP": ips[0], "clusterIPs": ips});
    let web = server.session().create("web", of_type("ClusterIP", spec));
    assert_eq!((&web["spec"]["clusterIPs"], &web["spec"]["ipFamilies"]), (&ips, &json!(["IPv6", "IPv4"])));
}

#[test]
fn s29_what_is_no_address_is_refused() {
    let server = Server::start();
    let mut api = server.session();
    for text in ["10.96.0", "web", "10.96.0.300", "10.96.0.9/32", "10.96.00.9"] {
        let refused = api.refuse("web", of_type("ClusterIP", json!({"clusterIP": text})));
        assert_says(&refused, &["spec.clusterIPs[0]: Invalid value", text]);
    }
}

#[test]
fn s29_an_address_outside_the_range_is_refused() {
    let server = Server::start();
    let mut api = server.session();
    for address in ["1.2.3.4", "10.97.0.1", "10.96.0.0", "10.96.255.255", "fd00:10:97::1"] {
        let refused = api.refuse("web", of_type("ClusterIP", json!({"clusterIP": address})));
        assert_says(&refused, &["spec.clusterIPs", address, "the provided network does not match the current range"]);
    }
}

#[test]
fn s29_a_taken_address_is_refused() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("ClusterIP", json!({"clusterIP": "10.96.7.7"})));
    let refused = api.refuse("twin", of_type("ClusterIP", json!({"clusterIP": "10.96.7.7"})));
    assert_says(&refused, &["Service \"twin\" is invalid", "spec.clusterIPs", "provided IP is already allocated"]);
}

#[test]
fn s29_another_spelling_of_a_taken_address_is_refused_too() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("ClusterIP", json!({"ipFamilies": ["IPv6"], "clusterIP": "fd00:10:96:0::00ab"})));
    for twin in ["fd00:10:96::ab", "fd00:10:96:0:0:0:0:ab", "FD00:10:96::AB"] {
        let refused = api.refuse("twin", of_type("ClusterIP", json!({"ipFamilies": ["IPv6"], "clusterIP": twin})));
        assert_says(&refused, &["provided IP is already allocated"]);
    }
}

#[test]
fn s29_an_address_cannot_be_changed_once_it_is_set() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("ClusterIP", json!({"clusterIP": "10.96.7.7"})));
    let refused = refuse_change(&mut api, &json!({"clusterIP": "10.96.7.8"}));
    assert_says(&refused, &["spec.clusterIPs[0]", "may not change once set"]);
    assert_eq!(held(&mut api), ["10.96.7.7"]);
}

// === S30: headless ===

#[test]
fn s30_a_headless_service_holds_no_address() {
    let server = Server::start();
    let mut api = server.session();
    let web = api.create("web", of_type("ClusterIP", json!({"clusterIP": "None"})));
    assert_eq!(web["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(held(&mut api), [""; 0]);
}

#[test]
fn s30_only_type_cluster_ip_can_be_headless() {
    let server = Server::start();
    let mut api = server.session();
    for kind in ["NodePort", "LoadBalancer"] {
        let refused = api.refuse("web", of_type(kind, json!({"clusterIP": "None"})));
        assert_says(&refused, &["spec.clusterIPs[0]", &format!("may not be set to 'None' for {kind} services")]);
    }
}

#[test]
fn s30_a_service_does_not_become_headless_nor_stop_being_it() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("ClusterIP", json!({"clusterIP": "None"})));
    assert_says(&refuse_change(&mut api, &json!({"clusterIP": "10.96.7.7"})), &["may not change once set"]);
    let _ = api.delete(&format!("{SERVICES}/web")).success();
    api.create("web", of_type("ClusterIP", json!({"clusterIP": "10.96.7.7"})));
    assert_says(&refuse_change(&mut api, &json!({"clusterIP": "None"})), &["may not change once set"]);
}

// === S31: one owner, and nothing left behind ===

#[test]
fn s31_a_deleted_service_gives_back_its_addresses_and_ports() {
    let server = Server::start();
    let mut api = server.session();
    let ips = json!(["10.96.7.7", "fd00:10:96::7"]);
    let spec = json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": ips[0], "clusterIPs": ips,
                      "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_071, "ports": [{"port": 80, "nodePort": 30_070}]});
    for _ in 0..3 {
        api.create("web", of_type("LoadBalancer", spec.clone()));
        let _ = api.delete(&format!("{SERVICES}/web")).success();
        assert_eq!(held(&mut api), [""; 0]);
    }
}

#[test]
fn s31_a_deleted_collection_gives_back_all_of_it() {
    let server = Server::start();
    let mut api = server.session();
    let before = api.names(ADDRESSES);
    for number in 0..20 {
        let mut made =
            service(&format!("s{number}"), of_type("NodePort", json!({"ipFamilyPolicy": "RequireDualStack"})));
        made["metadata"]["labels"] = json!({"app": "web"});
        let _ = api.post(SERVICES, &made).success();
    }
    assert_eq!(api.names(ADDRESSES).len(), before.len() + 40);
    let _ = api.delete(&format!("{SERVICES}?labelSelector=app%3Dweb")).success();
    assert_eq!(api.names(ADDRESSES), before);
}

#[test]
fn s31_a_service_with_a_finalizer_keeps_what_it_has_until_it_is_gone() {
    let server = Server::start();
    let mut api = server.session();
    let spec = of_type("NodePort", json!({"clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30_070}]}));
    let mut web = service("web", spec.clone());
    web["metadata"]["finalizers"] = json!(["example.com/wait"]);
    let _ = api.post(SERVICES, &web).success();
    let _ = api.delete(&format!("{SERVICES}/web")).success();
    assert_says(&api.refuse("twin", spec.clone()), &["provided IP is already allocated"]);
    let _ = api.merge(&format!("{SERVICES}/web"), &json!({"metadata": {"finalizers": null}})).success();
    api.create("twin", spec);
}

#[test]
fn s31_a_dry_run_claims_nothing() {
    let server = Server::start();
    let mut api = server.session();
    let spec = of_type("NodePort", json!({"clusterIP": "10.96.7.7", "ports": [{"port": 80, "nodePort": 30_070}]}));
    let _ = api.post(&format!("{SERVICES}?dryRun=All"), &service("web", spec.clone())).success();
    assert_eq!(held(&mut api), [""; 0]);
    api.create("web", spec);
    let _ = api.delete(&format!("{SERVICES}/web?dryRun=All")).success();
    assert_eq!(held(&mut api), ["10.96.7.7"]);
}

// === S55: node ports of a namespace ===

#[test]
fn s55_a_namespace_reserves_node_ports_for_its_services() {
    let server = Server::start();
    let mut api = server.session();
    let namespace = |name: &str, range: &str| {
        let annotations = json!({"waypost.dev/node-port-range": range});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}})
    };
    let reserve = |api: &mut Session, name: &str, range: &str| api.post("/api/v1/namespaces", &namespace(name, range));
    let _ = reserve(&mut api, "team", "31000-31001").success();
    let refusal = reserve(&mut api, "rival", "31001-31005").refused(422);
    assert_says(
        &refusal,
        &["metadata.annotations[waypost.dev/node-port-range]", "overlaps the node ports 31000-31001"],
    );
    let refusal = reserve(&mut api, "rival", "29000-29005").refused(422);
    assert_says(&refusal, &["not in the valid range. The range of valid ports is 30000-32767"]);
    assert_says(&reserve(&mut api, "rival", "31000").refused(422), &["must be two ports"]);
    assert_says(&reserve(&mut api, "rival", "31100-31400").refused(422), &["must have at most 256 ports"]);

    let create = |api: &mut Session, namespace: &str, name: &str, port: u64| {
        let mut service = service(name, of_type("NodePort", json!({"ports": [{"port": 80, "nodePort": port}]})));
        service["metadata"]["namespace"] = namespace.into();
        api.post(&format!("/api/v1/namespaces/{namespace}/services"), &service)
    };
    let [first, second] = ["first", "second"].map(|name| node_port(&create(&mut api, "team", name, 0).success()));
    assert_eq!([first.min(second), first.max(second)], [31000, 31001]);
    assert_says(&create(&mut api, "team", "third", 31002).refused(422), &["not in the range of the namespace"]);
    let _ = api.delete("/api/v1/namespaces/team/services/second").success();
    let refusal = create(&mut api, "default", "web", second).refused(422);
    assert_says(&refusal, &["spec.ports[0].nodePort", "another namespace has the node ports 31000-31001"]);
    // Without the annotation, the ports are everybody's, but for those that Services of the namespace have.
    let none = json!({"metadata": {"annotations": {"waypost.dev/node-port-range": null}}});
    let _ = api.merge("/api/v1/namespaces/team", &none).success();
    assert_says(&create(&mut api, "default", "web", first).refused(422), &["provided port is already allocated"]);
    assert_eq!(node_port(&create(&mut api, "default", "web", second).success()), second);
}
