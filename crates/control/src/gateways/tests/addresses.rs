//! The Service of a Gateway, and its addresses.

use super::*;

fn service(cluster: &Cluster) -> Value {
    cluster.get(service::TABLE, SERVICE).expect("a Service")
}

fn ports(service: &Value) -> Vec<String> {
    let one = |port: &Value| format!("{} {}/{}", port.text("name"), port.int("port"), port.text("protocol"));
    service.items("spec.ports").iter().map(one).collect()
}

#[test]
fn s52_a_gateway_gets_a_service_and_an_address() {
    let mut cluster = cluster();
    put_gateway(
        &mut cluster,
        &[listener("http", 80, "HTTP"), listener("dns", 53, "UDP"), listener("sql", 5432, "TCP")],
    );
    converge(&mut cluster);
    let service = service(&cluster);
    assert_eq!(ports(&service), ["udp-53 53/UDP", "tcp-80 80/TCP", "tcp-5432 5432/TCP"]);
    assert_eq!(service.at("metadata.annotations")["waypost.dev/gateway"], "public");
    assert_eq!(service.at("metadata.labels")["gateway.networking.k8s.io/gateway-name"], "public");
    assert_eq!(service.at("metadata.labels")["gateway.networking.k8s.io/gateway-class-name"], "waypost");
    assert!(!service.has("spec.selector") && !service.text("spec.clusterIP").is_empty());
    assert!(service.items("spec.ports").iter().all(|port| !port.has("nodePort")), "{service}");
    let owner = &service.items("metadata.ownerReferences")[0];
    assert_eq!((owner.text("kind"), owner.text("name")), ("Gateway", "public"));
    let status = status(&cluster);
    assert_eq!(status.at("addresses"), &json!([{"type": "IPAddress", "value": "192.0.2.0"}]));
    assert_condition(&status, "Accepted=True/Accepted");
    assert_condition(&status, "Programmed=True/Programmed");
    // Nothing is written when nothing changes, also after a restart.
    cluster.written.clear();
    cluster.restart();
    converge(&mut cluster);
    assert_eq!(cluster.written, []);
}

#[test]
fn s52_https_listeners_have_a_udp_port_with_http3() {
    let mut cluster = cluster();
    cluster.settings.gateway_http3 = true;
    let metadata = json!({"name": "tls", "namespace": "default"});
    cluster.put("secrets", json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": {"tls.crt": "good"}}));
    let tls = |mode: &str, name: &str, port: u16, protocol: &str| {
        let mut listener = listener(name, port, protocol);
        listener["tls"] = json!({"mode": mode});
        if mode == "Terminate" {
            listener["tls"]["certificateRefs"] = json!([{"name": "tls"}]);
        }
        listener
    };
    let mut listeners = vec![
        listener("http", 80, "HTTP"),
        tls("Terminate", "https", 443, "HTTPS"),
        tls("Passthrough", "pass", 8443, "TLS"),
    ];
    put_gateway(&mut cluster, &listeners);
    converge(&mut cluster);
    let expected = ["tcp-80 80/TCP", "tcp-443 443/TCP", "udp-443 443/UDP", "tcp-8443 8443/TCP"];
    assert_eq!(ports(&service(&cluster)), expected);
    // A UDP listener has that port anyway.
    listeners.push(listener("udp", 443, "UDP"));
    put_gateway(&mut cluster, &listeners);
    converge(&mut cluster);
    assert_eq!(ports(&service(&cluster)), expected);
    cluster.settings.gateway_http3 = false;
    cluster.restart();
    listeners.pop();
    put_gateway(&mut cluster, &listeners);
    converge(&mut cluster);
    assert_eq!(ports(&service(&cluster)), ["tcp-80 80/TCP", "tcp-443 443/TCP", "tcp-8443 8443/TCP"]);
}

#[test]
fn s52_two_gateways_have_two_addresses() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put(
        &mut cluster,
        GATEWAYS,
        "second",
        json!({"gatewayClassName": "waypost", "listeners": [listener("http", 80, "HTTP")]}),
    );
    converge(&mut cluster);
    let address = |name: &str| {
        let gateway = cluster.get(GATEWAYS, &format!("default/{name}")).expect("a Gateway");
        gateway.items("status.addresses")[0].text("value").to_owned()
    };
    assert_ne!(address("public"), address("second"));
}

#[test]
fn s52_ports_follow_the_listeners_and_the_address_stays() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    converge(&mut cluster);
    let (ip, address) = (service(&cluster).text("spec.clusterIP").to_owned(), status(&cluster).at("addresses").clone());
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP"), listener("more", 8080, "HTTP")]);
    converge(&mut cluster);
    assert_eq!(ports(&service(&cluster)), ["tcp-80 80/TCP", "tcp-8080 8080/TCP"]);
    // While no listener works the Service stays as it is.
    let tls =
        json!({"name": "tls", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "missing"}]}});
    put_gateway(&mut cluster, &[tls]);
    converge(&mut cluster);
    assert_eq!(ports(&service(&cluster)), ["tcp-80 80/TCP", "tcp-8080 8080/TCP"]);
    put_gateway(&mut cluster, &[listener("http", 8080, "HTTP")]);
    converge(&mut cluster);
    assert_eq!(ports(&service(&cluster)), ["tcp-8080 8080/TCP"]);
    assert_eq!(service(&cluster).text("spec.clusterIP"), ip);
    assert_eq!(status(&cluster).at("addresses"), &address);
}

#[test]
fn s52_infrastructure_is_on_the_service_and_edits_are_reverted() {
    let mut cluster = cluster();
    let spec = |labels: Value| {
        json!({
            "gatewayClassName": "waypost", "listeners": [listener("http", 80, "HTTP")],
            "infrastructure": {"labels": labels, "annotations": {"waypost.dev/pool": "lan", "waypost.dev/gateway": "no"}},
        })
    };
    put(&mut cluster, GATEWAYS, "public", spec(json!({"team": "a"})));
    converge(&mut cluster);
    let mut stored = service(&cluster);
    assert_eq!(stored.text("metadata.labels.team"), "a");
    assert_eq!(stored.at("metadata.annotations")["waypost.dev/pool"], "lan");
    assert_eq!(stored.at("metadata.annotations")["waypost.dev/gateway"], "public");
    stored.put("spec.selector", json!({"app": "web"}));
    stored.put("metadata.labels.mine", "x");
    cluster.put(service::TABLE, stored);
    put(&mut cluster, GATEWAYS, "public", spec(json!({"tier": "b"})));
    converge(&mut cluster);
    let labels = service(&cluster).at("metadata.labels").clone();
    assert_eq!((labels.text("tier"), labels.text("team"), labels.text("mine")), ("b", "", ""));
    assert!(!service(&cluster).has("spec.selector"));
    // One that was deleted comes back.
    cluster.remove(service::TABLE, SERVICE);
    converge(&mut cluster);
    assert_condition(&status(&cluster), "Programmed=True/Programmed");
}

#[test]
fn s52_requested_addresses_are_assigned_or_the_status_says_why_not() {
    let mut cluster = cluster();
    let spec = |address: &str| {
        json!({
            "gatewayClassName": "waypost", "listeners": [listener("http", 80, "HTTP")],
            "addresses": [{"type": "IPAddress", "value": address}],
        })
    };
    put(&mut cluster, GATEWAYS, "public", spec("192.0.2.9"));
    converge(&mut cluster);
    assert_eq!(status(&cluster).at("addresses"), &json!([{"type": "IPAddress", "value": "192.0.2.9"}]));
    put(&mut cluster, GATEWAYS, "public", spec("198.51.100.1"));
    converge(&mut cluster);
    let status = status(&cluster);
    assert_condition(&status, "Accepted=True/Accepted");
    assert_condition(&status, "Programmed=False/AddressNotUsable");
    let message = condition(&status, "Programmed");
    assert!(message.text("message").contains("198.51.100.1"), "{message}");
}

#[test]
fn s52_without_a_pool_the_status_says_what_to_do() {
    let mut cluster = without_pool();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    converge(&mut cluster);
    assert_condition(&status(&cluster), "Programmed=False/AddressNotAssigned");
    let message = condition(&status(&cluster), "Programmed");
    assert!(message.text("message").contains("IPPool"), "{message}");
    pool(&mut cluster, "192.0.2.0/28");
    converge(&mut cluster);
    assert_condition(&status(&cluster), "Programmed=True/Programmed");
}

#[test]
fn s52_a_service_of_others_is_not_taken_over() {
    let mut cluster = cluster();
    let foreign = json!({
        "metadata": {"name": "public-waypost", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}},
    });
    cluster.put(service::TABLE, foreign.clone());
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    converge(&mut cluster);
    assert_eq!(service(&cluster).at("spec.type"), foreign.at("spec.type"));
    assert!(!service(&cluster).has("metadata.ownerReferences"));
    let status = status(&cluster);
    assert_condition(&status, "Programmed=False/NoResources");
    assert!(condition(&status, "Programmed").text("message").contains("kubectl delete service"));
    assert!(status.items("addresses").is_empty(), "{status}");
}

#[test]
fn s52_a_gateway_of_another_class_loses_its_service() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    converge(&mut cluster);
    put(
        &mut cluster,
        GATEWAYS,
        "public",
        json!({"gatewayClassName": "other", "listeners": [listener("http", 80, "HTTP")]}),
    );
    converge(&mut cluster);
    assert!(cluster.get(service::TABLE, SERVICE).is_none());
}

#[test]
fn s52_names_may_be_as_long_as_names_are() {
    let mut cluster = cluster();
    let name = "n".repeat(253);
    let spec = json!({"gatewayClassName": "waypost", "listeners": [listener("http", 80, "HTTP")]});
    put(&mut cluster, GATEWAYS, &name, spec);
    converge(&mut cluster);
    let gateway = cluster.get(GATEWAYS, &format!("default/{name}")).expect("a Gateway");
    assert_condition(gateway.at("status"), "Programmed=True/Programmed");
    let services = cluster.all(service::TABLE);
    let [service] = &services[..] else { panic!("one Service: {services:?}") };
    assert!(service.text("metadata.name").len() <= 63);
    assert!(service.at("metadata.labels").get("gateway.networking.k8s.io/gateway-name").is_none());
}
