//! The Service of a class, and the addresses of its Ingresses.

use super::*;

#[test]
fn s51_an_ingress_gets_the_address_of_its_class() {
    let mut cluster = cluster();
    put(&mut cluster, with_class("shop", "waypost"));
    converge(&mut cluster);
    let service = service(&cluster);
    let port = |port: &Value| format!("{} {}/{}", port.text("name"), port.int("port"), port.text("protocol"));
    let ports: Vec<String> = service.items("spec.ports").iter().map(port).collect();
    assert_eq!(ports, ["tcp-80 80/TCP", "tcp-443 443/TCP"]);
    assert_eq!(service.at("metadata.annotations"), &json!({"waypost.dev/ingress-class": "waypost"}));
    assert_eq!(service.at("metadata.labels"), &json!({"waypost.dev/ingress-class": "waypost"}));
    assert_eq!(service.text("spec.type"), "LoadBalancer");
    assert!(!service.has("spec.selector") && !service.text("spec.clusterIP").is_empty());
    assert!(service.items("spec.ports").iter().all(|port| !port.has("nodePort")), "{service}");
    let owner = &service.items("metadata.ownerReferences")[0];
    assert_eq!((owner.text("kind"), owner.text("name")), ("IngressClass", "waypost"));
    assert_eq!(addresses(&cluster, "shop"), at("192.0.2.0"));
    // Nothing is written when nothing changes, also after a restart.
    cluster.written.clear();
    cluster.restart();
    converge(&mut cluster);
    assert_eq!(cluster.written, []);
}

#[test]
fn s51_with_http3_a_class_has_a_udp_port() {
    let mut cluster = cluster();
    cluster.settings.gateway_http3 = true;
    put(&mut cluster, with_class("shop", "waypost"));
    converge(&mut cluster);
    let service = service(&cluster);
    let names: Vec<&str> = service.items("spec.ports").iter().map(|port| port.text("name")).collect();
    assert_eq!(names, ["tcp-80", "tcp-443", "udp-443"]);
    let ports =
        json!([{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}, {"port": 443, "protocol": "UDP"}]);
    assert_eq!(addresses(&cluster, "shop"), json!([{"ip": "192.0.2.0", "ports": ports}]));
}

#[test]
fn s51_ingresses_of_a_class_share_an_address_and_classes_do_not() {
    let mut cluster = cluster();
    put_class(&mut cluster, "internal", CONTROLLER, &json!({}));
    put(&mut cluster, with_class("a", "waypost"));
    put(&mut cluster, with_class("b", "waypost"));
    put(&mut cluster, with_class("c", "internal"));
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "a"), addresses(&cluster, "b"));
    assert!(!addresses(&cluster, "c").is_null());
    assert_ne!(addresses(&cluster, "a"), addresses(&cluster, "c"));
}

#[test]
fn s51_a_class_has_a_service_while_it_has_ingresses() {
    let mut cluster = cluster();
    assert!(cluster.get(CLASSES, "waypost").is_some());
    assert!(cluster.all(SERVICES).is_empty() && cluster.get("namespaces", "waypost-system").is_none());
    put(&mut cluster, with_class("shop", "waypost"));
    put(&mut cluster, with_class("blog", "waypost"));
    converge(&mut cluster);
    assert!(cluster.get("namespaces", "waypost-system").is_some());
    cluster.remove(INGRESSES, "default/shop");
    converge(&mut cluster);
    assert_eq!(service(&cluster).items("status.loadBalancer.ingress")[0].text("ip"), "192.0.2.0");
    cluster.remove(INGRESSES, "default/blog");
    converge(&mut cluster);
    assert!(cluster.all(SERVICES).is_empty());
    // An Ingress without rules counts, too.
    let mut ingress = with_class("none", "waypost");
    ingress.put(
        "spec",
        json!({"ingressClassName": "waypost", "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}),
    );
    put(&mut cluster, ingress);
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "none"), at("192.0.2.0"));
}

#[test]
fn s51_annotations_of_the_class_request_an_address_and_edits_of_the_service_are_reverted() {
    let mut cluster = cluster();
    let annotations = json!({"waypost.dev/load-balancer-ips": "192.0.2.9", "waypost.dev/pool": "lan", "other": "x"});
    put_class(&mut cluster, "waypost", CONTROLLER, &annotations);
    put(&mut cluster, with_class("shop", "waypost"));
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "shop"), at("192.0.2.9"));
    let mut edited = service(&cluster);
    let keys: Vec<&String> = edited.map("metadata.annotations").expect("annotations").keys().collect();
    assert_eq!(keys, ["waypost.dev/ingress-class", "waypost.dev/load-balancer-ips", "waypost.dev/pool"]);
    edited.put("spec.selector", json!({"app": "web"}));
    edited.put("metadata.labels.mine", "x");
    edited.put("spec.ports", json!([{"name": "http", "port": 8080, "protocol": "TCP", "targetPort": 8080}]));
    cluster.put(SERVICES, edited);
    converge(&mut cluster);
    let reverted = service(&cluster);
    assert!(!reverted.has("spec.selector") && !reverted.has("metadata.labels.mine"), "{reverted}");
    assert_eq!(reverted.items("spec.ports").len(), 2);
    put_class(&mut cluster, "waypost", CONTROLLER, &json!({"waypost.dev/load-balancer-ips": "192.0.2.10"}));
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "shop"), at("192.0.2.10"));
}

#[test]
fn s51_addresses_of_another_load_balancer_are_those_of_the_ingresses() {
    let mut cluster = without_pool();
    cluster.settings.load_balancer.enabled = false;
    put(&mut cluster, with_class("a", "waypost"));
    put(&mut cluster, with_class("b", "waypost"));
    converge(&mut cluster);
    assert!(addresses(&cluster, "a").is_null());
    let mut assigned = service(&cluster);
    assigned.put("status.loadBalancer.ingress", json!([{"hostname": "lb.example.com"}, {"ip": "203.0.113.7"}, {}]));
    cluster.put(SERVICES, assigned.clone());
    converge(&mut cluster);
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]);
    let expected = json!([{"hostname": "lb.example.com", "ports": ports}, {"ip": "203.0.113.7", "ports": ports}]);
    assert_eq!((addresses(&cluster, "a"), addresses(&cluster, "b")), (expected.clone(), expected));
    // Another change of the Service is none of the Ingresses.
    assigned.put("metadata.resourceVersion", "1");
    cluster.writes_to(INGRESSES);
    cluster.put(SERVICES, assigned.clone());
    converge(&mut cluster);
    assert_eq!(cluster.writes_to(INGRESSES), 0);
    assigned.drop_path("status.loadBalancer.ingress");
    cluster.put(SERVICES, assigned);
    converge(&mut cluster);
    assert!(addresses(&cluster, "a").is_null() && addresses(&cluster, "b").is_null());
}

#[test]
fn s51_ingresses_of_other_controllers_are_not_changed() {
    let mut cluster = cluster();
    put_class(&mut cluster, "nginx", "k8s.io/ingress-nginx", &json!({}));
    for (name, class) in [("a", "nginx"), ("b", "missing")] {
        put(&mut cluster, with_class(name, class));
        put_foreign_address(&mut cluster, name, "203.0.113.7");
    }
    let mut without = with_class("c", "");
    without.drop_path("spec.ingressClassName");
    put(&mut cluster, without);
    cluster.written.clear();
    converge(&mut cluster);
    cluster.restart();
    converge(&mut cluster);
    assert_eq!(cluster.written, []);
    assert_eq!(cluster.events, []);
    // They are when they are to be served here.
    cluster.settings.ingress.controllers.push("k8s.io/ingress-nginx".into());
    cluster.restart();
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "a"), at("192.0.2.0"));
    assert_eq!(addresses(&cluster, "b"), json!([{"ip": "203.0.113.7"}]));
}

#[test]
fn s51_an_ingress_that_leaves_its_class_loses_the_addresses_that_were_written_here() {
    let mut cluster = cluster();
    put_class(&mut cluster, "nginx", "k8s.io/ingress-nginx", &json!({}));
    put(&mut cluster, with_class("stays", "waypost"));
    put(&mut cluster, with_class("a", "waypost"));
    put(&mut cluster, with_class("b", "waypost"));
    converge(&mut cluster);
    put(&mut cluster, with_class("a", "nginx"));
    put(&mut cluster, with_class("b", "nginx"));
    put_foreign_address(&mut cluster, "b", "203.0.113.7");
    converge(&mut cluster);
    assert!(addresses(&cluster, "a").is_null());
    assert_eq!(addresses(&cluster, "b"), json!([{"ip": "203.0.113.7"}]));
    assert_eq!(addresses(&cluster, "stays"), at("192.0.2.0"));
    // The same holds when the class goes.
    cluster.remove(CLASSES, "waypost");
    converge(&mut cluster);
    assert!(addresses(&cluster, "stays").is_null());
}

#[test]
fn s51_addresses_of_the_controller_before_stay_until_there_are_others() {
    let mut cluster = without_pool();
    put(&mut cluster, with_class("shop", "waypost"));
    put_foreign_address(&mut cluster, "shop", "203.0.113.7");
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "shop"), json!([{"ip": "203.0.113.7"}]));
    pool(&mut cluster);
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "shop"), at("192.0.2.0"));
}

#[test]
fn s51_a_namespace_that_was_deleted_comes_back_with_its_service() {
    let mut cluster = cluster();
    put(&mut cluster, with_class("shop", "waypost"));
    converge(&mut cluster);
    let mut leaving = cluster.get("namespaces", "waypost-system").expect("a namespace");
    leaving.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    cluster.put("namespaces", leaving);
    cluster.remove(SERVICES, SERVICE);
    converge(&mut cluster);
    assert!(cluster.get(SERVICES, SERVICE).is_none() && addresses(&cluster, "shop").is_null());
    cluster.remove("namespaces", "waypost-system");
    converge(&mut cluster);
    assert_eq!(addresses(&cluster, "shop"), at("192.0.2.0"));
}
