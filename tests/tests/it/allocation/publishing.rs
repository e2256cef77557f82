//! Types of Services, node ports and the status of load balancers: given, chosen, rejected, kept and released.

use serde_json::{Value, json};
use testbed::Server;
use testbed::session::{SERVICES, Session, service, text};

use super::{assert_says, change, held, node_port, of_type, refuse_change, with_ranges};

/// Whether a node port is free: another Service can have it, and releases it.
fn is_free(api: &mut Session, port: u64) -> bool {
    let answer =
        api.post(SERVICES, &service("probe", of_type("NodePort", json!({"ports": [{"port": 1, "nodePort": port}]}))));
    if answer.code != 201 {
        assert_says(&answer.refused(422), &["provided port is already allocated"]);
        return false;
    }
    let _ = api.delete(&format!("{SERVICES}/probe")).success();
    true
}

fn web(api: &mut Session) -> Value {
    api.get(&format!("{SERVICES}/web")).success()
}

// === S39: types nest, and change in both directions ===

#[test]
fn s39_every_type_has_what_the_smaller_ones_have() {
    let server = Server::start();
    let mut api = server.session();
    for (kind, ports, balanced) in
        [("ClusterIP", false, false), ("NodePort", true, false), ("LoadBalancer", true, true)]
    {
        let made = api.create(&kind.to_ascii_lowercase(), of_type(kind, json!({})));
        assert!(text(&made, "/spec/clusterIP").starts_with("10.96."), "{made}");
        assert_eq!(node_port(&made) > 0, ports, "{made}");
        assert_eq!(made["spec"]["allocateLoadBalancerNodePorts"] == json!(true), balanced, "{made}");
    }
}

#[test]
fn s39_growing_from_cluster_ip_to_load_balancer_keeps_address_and_port() {
    let server = Server::start();
    let mut api = server.session();
    let address = api.create("web", of_type("ClusterIP", json!({})))["spec"]["clusterIP"].take();
    let with_port = change(&mut api, &json!({"type": "NodePort"}));
    let port = node_port(&with_port);
    assert!((30_000..=32_767).contains(&port), "{with_port}");
    let balanced = change(&mut api, &json!({"type": "LoadBalancer"}));
    assert_eq!((&balanced["spec"]["clusterIP"], node_port(&balanced)), (&address, port));
}

#[test]
fn s39_shrinking_to_cluster_ip_gives_back_the_node_port() {
    let server = Server::start();
    let mut api = server.session();
    let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 30_071, "ports": [{"port": 80, "nodePort": 30_070}]});
    let before = api.create("web", of_type("LoadBalancer", spec));
    let after = change(&mut api, &json!({"type": "ClusterIP"}));
    assert_eq!((&after["spec"]["clusterIP"], node_port(&after)), (&before["spec"]["clusterIP"], 0));
    for gone in ["healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
        assert_eq!(after["spec"].get(gone), None, "{after}");
    }
    assert!(is_free(&mut api, 30_070) && is_free(&mut api, 30_071));
}

#[test]
fn s39_an_external_name_holds_nothing_and_gets_an_address_when_it_becomes_a_service() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", json!({"type": "ExternalName", "externalName": "db.example.com"}));
    assert_eq!(held(&mut api), [""; 0]);
    let after = change(&mut api, &json!({"type": "NodePort", "externalName": null, "ports": [{"port": 80}]}));
    assert_eq!(held(&mut api), [text(&after, "/spec/clusterIP")]);
    assert!(node_port(&after) > 0, "{after}");
}

#[test]
fn s39_becoming_an_external_name_gives_back_addresses_and_ports() {
    let server = Server::start();
    let mut api = server.session();
    let spec = json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80, "nodePort": 30_070}]});
    api.create("web", of_type("NodePort", spec));
    let after = change(&mut api, &json!({"type": "ExternalName", "externalName": "db.example.com"}));
    assert_eq!((after["spec"].get("clusterIP"), after["spec"].get("clusterIPs")), (None, None), "{after}");
    assert_eq!(held(&mut api), [""; 0]);
    assert!(is_free(&mut api, 30_070));
}

#[test]
fn s39_a_change_that_is_refused_changes_and_claims_nothing() {
    let server = Server::start();
    let mut api = server.session();
    let before = api.create("web", of_type("ClusterIP", json!({})));
    let refused = refuse_change(
        &mut api,
        &json!({"type": "NodePort", "sessionAffinity": "Sometimes", "ports": [{"port": 80, "nodePort": 30_070}]}),
    );
    assert_says(&refused, &["spec.sessionAffinity"]);
    assert_eq!(web(&mut api), before);
    assert!(is_free(&mut api, 30_070));
}

// === S40: node ports ===

#[test]
fn s40_a_node_port_may_be_chosen_and_a_taken_one_is_refused() {
    let server = Server::start();
    let mut api = server.session();
    let spec = of_type("NodePort", json!({"ports": [{"port": 80, "nodePort": 30_070}]}));
    assert_eq!(node_port(&api.create("web", spec.clone())), 30_070);
    assert_says(
        &api.refuse("twin", spec),
        &["spec.ports[0].nodePort: Invalid value: 30070: provided port is already allocated"],
    );
}

#[test]
fn s40_a_node_port_outside_the_range_is_refused_with_the_range() {
    let server = with_ranges("10.96.0.0/16", "31000-31010");
    let mut api = server.session();
    for port in [80, 30_999, 31_011] {
        let refused = api.refuse("web", of_type("NodePort", json!({"ports": [{"port": 80, "nodePort": port}]})));
        assert_says(&refused, &["spec.ports[0].nodePort", "The range of valid ports is 31000-31010"]);
    }
}

#[test]
fn s40_one_service_may_use_a_number_for_two_protocols_and_two_services_may_not() {
    let server = Server::start();
    let mut api = server.session();
    let port = |protocol: &str| json!({"name": protocol.to_ascii_lowercase(), "port": 53, "protocol": protocol, "nodePort": 30_053});
    api.create("web", of_type("NodePort", json!({"ports": [port("TCP"), port("UDP")]})));
    assert!(!is_free(&mut api, 30_053), "a number is one thing, whatever the protocol");
    let refused = api.refuse("twin", of_type("NodePort", json!({"ports": [port("SCTP")]})));
    assert_says(&refused, &["provided port is already allocated"]);
}

#[test]
fn s40_two_protocols_of_one_port_get_one_number() {
    let server = Server::start();
    let ports = json!([{"name": "tcp", "port": 53}, {"name": "udp", "port": 53, "protocol": "UDP"}]);
    let made = server.session().create("web", of_type("NodePort", json!({"ports": ports})));
    assert_eq!(made["spec"]["ports"][0]["nodePort"], made["spec"]["ports"][1]["nodePort"]);
}

#[test]
fn s40_a_cluster_ip_service_has_no_node_port() {
    let server = Server::start();
    let refused =
        server.session().refuse("web", of_type("ClusterIP", json!({"ports": [{"port": 80, "nodePort": 30_070}]})));
    assert_says(&refused, &["spec.ports[0].nodePort", "may not be used when `type` is 'ClusterIP'"]);
}

#[test]
fn s40_a_replace_that_does_not_repeat_the_numbers_keeps_them() {
    let server = Server::start();
    let mut api = server.session();
    let spec = of_type("NodePort", json!({"selector": {"app": "web"}}));
    let before = api.create("web", spec.clone());
    let after = api.put(&format!("{SERVICES}/web"), &service("web", spec)).success();
    assert_eq!(after, before, "the same file again changes nothing");
}

#[test]
fn s40_a_changed_node_port_gives_back_the_old_one() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("NodePort", json!({"ports": [{"port": 80, "nodePort": 30_070}]})));
    assert_eq!(node_port(&change(&mut api, &json!({"ports": [{"port": 80, "nodePort": 30_071}]}))), 30_071);
    assert!(is_free(&mut api, 30_070) && !is_free(&mut api, 30_071));
}

#[test]
fn s40_the_health_check_port_comes_from_the_same_numbers() {
    let server = Server::start();
    let mut api = server.session();
    let made = api.create("web", of_type("LoadBalancer", json!({"externalTrafficPolicy": "Local"})));
    let health = made["spec"]["healthCheckNodePort"].as_u64().expect("a health check port");
    assert!(!is_free(&mut api, health));
    let changed = change(&mut api, &json!({"externalTrafficPolicy": "Cluster"}));
    assert_eq!(changed["spec"].get("healthCheckNodePort"), None, "{changed}");
    assert!(is_free(&mut api, health));
}

// === S44–S46: load balancers ===

#[test]
fn s44_a_load_balancer_may_mix_protocols() {
    let server = Server::start();
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 443, "protocol": "UDP"}, {"name": "c", "port": 9, "protocol": "SCTP"}]);
    let made = server.session().create("web", of_type("LoadBalancer", json!({"ports": ports})));
    let protocols: Vec<&str> =
        made["spec"]["ports"].as_array().expect("ports").iter().map(|port| text(port, "/protocol")).collect();
    assert_eq!(protocols, ["TCP", "UDP", "SCTP"]);
}

#[test]
fn s45_a_load_balancer_can_do_without_node_ports() {
    let server = Server::start();
    let mut api = server.session();
    let made = api.create("web", of_type("LoadBalancer", json!({"allocateLoadBalancerNodePorts": false})));
    assert_eq!(node_port(&made), 0);
    assert!(text(&made, "/spec/clusterIP").starts_with("10.96."), "{made}");
}

#[test]
fn s45_node_ports_that_are_there_stay_until_they_are_removed_one_by_one() {
    let server = Server::start();
    let mut api = server.session();
    let ports = json!([{"name": "a", "port": 80, "nodePort": 30_070}, {"name": "b", "port": 81, "nodePort": 30_071}]);
    api.create("web", of_type("LoadBalancer", json!({"ports": ports})));
    let after = change(&mut api, &json!({"allocateLoadBalancerNodePorts": false}));
    assert_eq!(after["spec"]["ports"][0]["nodePort"], json!(30_070), "{after}");
    let after =
        change(&mut api, &json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30_071}]}));
    assert_eq!((node_port(&after), &after["spec"]["ports"][1]["nodePort"]), (0, &json!(30_071)));
    assert!(is_free(&mut api, 30_070) && !is_free(&mut api, 30_071));
}

#[test]
fn s45_only_a_load_balancer_can_be_told_so() {
    let server = Server::start();
    let refused = server.session().refuse("web", of_type("NodePort", json!({"allocateLoadBalancerNodePorts": false})));
    assert_says(&refused, &["spec.allocateLoadBalancerNodePorts: Forbidden"]);
}

#[test]
fn s46_a_class_is_set_with_the_type_and_then_stays() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("LoadBalancer", json!({"loadBalancerClass": "example.com/fast"})));
    for other in [json!("example.com/slow"), Value::Null] {
        let refused = refuse_change(&mut api, &json!({"loadBalancerClass": other}));
        assert_says(&refused, &["spec.loadBalancerClass", "may not change once set"]);
    }
    let smaller = change(&mut api, &json!({"type": "ClusterIP"}));
    assert_eq!(smaller["spec"].get("loadBalancerClass"), None, "{smaller}");
    change(&mut api, &json!({"type": "LoadBalancer", "loadBalancerClass": "example.com/slow"}));
}

#[test]
fn s46_a_class_looks_like_a_label_and_belongs_to_load_balancers() {
    let server = Server::start();
    let mut api = server.session();
    let refused = api.refuse("web", of_type("LoadBalancer", json!({"loadBalancerClass": "Bad Class"})));
    assert_says(&refused, &["spec.loadBalancerClass: Invalid value"]);
    let refused = api.refuse("web", of_type("NodePort", json!({"loadBalancerClass": "example.com/fast"})));
    assert_says(&refused, &["spec.loadBalancerClass: Forbidden", "may only be used when `type` is 'LoadBalancer'"]);
}

// === S49, S50: where traffic may come from ===

#[test]
fn s49_external_addresses_go_with_every_type() {
    let server = Server::start();
    let mut api = server.session();
    for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
        let made = api.create(
            &kind.to_ascii_lowercase(),
            of_type(kind, json!({"externalIPs": ["198.51.100.32", "2001:db8::32"]})),
        );
        assert_eq!(made["spec"]["externalIPs"], json!(["198.51.100.32", "2001:db8::32"]));
        assert_eq!(text(&made, "/spec/externalTrafficPolicy"), "Cluster");
    }
}

#[test]
fn s49_external_addresses_that_lead_nowhere_are_refused() {
    let server = Server::start();
    let mut api = server.session();
    let cases = [
        ("0.0.0.0", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("169.254.1.1", "link-local"),
        ("ff02::1", "multicast"),
        ("x", "valid IP"),
    ];
    for (address, why) in cases {
        let refused = api.refuse("web", of_type("ClusterIP", json!({"externalIPs": [address]})));
        assert_says(&refused, &["spec.externalIPs[0]: Invalid value", why]);
    }
}

#[test]
fn s50_a_load_balancer_may_be_limited_to_sources() {
    let server = Server::start();
    let mut api = server.session();
    let made = api
        .create("web", of_type("LoadBalancer", json!({"loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"]})));
    assert_eq!(made["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24", "2001:db8::/32"]));
    let refused = api.refuse("x", of_type("LoadBalancer", json!({"loadBalancerSourceRanges": ["192.0.2.0"]})));
    assert_says(&refused, &["spec.LoadBalancerSourceRanges[0]: Invalid value"]);
    let refused = api.refuse("x", of_type("NodePort", json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]})));
    assert_says(
        &refused,
        &["spec.LoadBalancerSourceRanges: Forbidden", "may only be used when `type` is 'LoadBalancer'"],
    );
}

#[test]
fn s50_source_ranges_must_go_before_the_type_changes() {
    let server = Server::start();
    let mut api = server.session();
    api.create("web", of_type("LoadBalancer", json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]})));
    assert_says(&refuse_change(&mut api, &json!({"type": "NodePort"})), &["LoadBalancerSourceRanges: Forbidden"]);
    change(&mut api, &json!({"type": "NodePort", "loadBalancerSourceRanges": null}));
}
