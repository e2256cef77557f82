//! Services of every kind, made and changed with kubectl: addresses, ports, types, load balancers, endpoints by hand.

use serde_json::json;

use super::{Bed, cells, service};

#[test]
fn s03_cluster_ips_come_from_the_ranges_of_the_flag() {
    let bed = Bed::start_with(&["--service-cluster-ip-range", "10.20.30.0/28,fd00:20::/120"]);
    assert_eq!(bed.field("service/kubernetes", ".spec.clusterIP"), "10.20.30.1");
    bed.service("four", "{ports: [{port: 80}]}");
    assert!(bed.field("service/four", ".spec.clusterIP").starts_with("10.20.30."));
    bed.service("six", "{ipFamilies: [IPv6], ports: [{port: 80}]}");
    assert!(bed.field("service/six", ".spec.clusterIP").starts_with("fd00:20::"));
    bed.service("both", "{ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}");
    let both = bed.json("service both")["spec"].clone();
    assert_eq!(both["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(both["clusterIPs"][0], both["clusterIP"]);
    assert!(both["clusterIPs"][1].as_str().is_some_and(|ip| ip.starts_with("fd00:20::")), "{both}");

    // And back to one: the second address is given up.
    bed.ok(r#"patch service both -p '{"spec":{"ipFamilyPolicy":"SingleStack"}}'"#);
    let one = bed.json("service both")["spec"].clone();
    assert_eq!((&one["clusterIPs"], &one["ipFamilies"]), (&json!([both["clusterIP"]]), &json!(["IPv4"])));
    let freed = both["clusterIPs"][1].as_str().expect("an address");
    bed.service("heir", &format!("{{clusterIP: '{freed}', ports: [{{port: 80}}]}}"));
}

#[test]
fn s03_a_full_range_says_so_and_a_deletion_makes_room() {
    // 14 usable addresses, one of which is that of the API.
    let bed = Bed::start_with(&["--service-cluster-ip-range", "10.20.30.0/28"]);
    let many: Vec<_> = (0..13).map(|i| service(&format!("web-{i}"), "{ports: [{port: 80}]}")).collect();
    bed.ok_with("create -f -", &many.join("---\n"));
    let full = bed.no_service("late", "{ports: [{port: 80}]}");
    assert!(full.contains("failed to allocate") && full.contains("range is full"), "{full}");
    let freed = bed.field("service/web-7", ".spec.clusterIP");
    bed.ok("delete service web-7");
    bed.service("late", "{ports: [{port: 80}]}");
    assert_eq!(bed.field("service/late", ".spec.clusterIP"), freed);
}

#[test]
fn s04_a_target_port_is_the_port_unless_said_otherwise() {
    let bed = Bed::start();
    bed.service(
        "web",
        "{ports: [{name: a, port: 80}, {name: b, port: 81, targetPort: 8081}, {name: c, port: 82, targetPort: http}]}",
    );
    let targets = bed.json("service web")["spec"]["ports"].clone();
    let targets: Vec<_> = targets.as_array().expect("ports").iter().map(|port| port["targetPort"].clone()).collect();
    assert_eq!(targets, [json!(80), json!(8081), json!("http")]);
}

#[test]
fn s06_one_service_has_ports_of_all_protocols() {
    let bed = Bed::start();
    let ports = "[{name: a, port: 53}, {name: b, port: 53, protocol: UDP}, {name: c, port: 53, protocol: SCTP}]";
    bed.service("web", &format!("{{ports: {ports}}}"));
    assert_eq!(cells(&bed.ok("get service web --no-headers"))[0][4], "53/TCP,53/UDP,53/SCTP");
}

#[test]
fn s30_a_headless_service_has_no_address() {
    let bed = Bed::start();
    bed.service("chosen", "{clusterIP: None, selector: {app: web}, ports: [{port: 80}]}");
    bed.service("bare", "{clusterIP: None}");
    let chosen = bed.json("service chosen")["spec"].clone();
    assert_eq!((&chosen["clusterIPs"], &chosen["ipFamilies"]), (&json!(["None"]), &json!(["IPv4"])));
    assert_eq!(bed.field("service/bare", ".spec.ipFamilyPolicy"), "RequireDualStack");
    assert_eq!(bed.ok("get ipaddresses -o name"), "ipaddress.networking.k8s.io/10.96.0.1\n");
    let said = bed.fails(r#"patch service chosen -p '{"spec":{"type":"NodePort"}}'"#);
    assert!(said.contains("may not be set to 'None' for NodePort services"), "{said}");
    let said = bed.fails(r#"patch service chosen -p '{"spec":{"clusterIP":"10.96.0.9","clusterIPs":null}}'"#);
    assert!(said.contains("may not change once set"), "{said}");
}

#[test]
fn s39_types_change_in_both_directions() {
    let bed = Bed::start();
    bed.service("web", "{ports: [{name: http, port: 80}]}");
    let patch = |to: &str| bed.ok(&format!("patch service web --type=merge -p '{to}'"));
    let address = bed.field("service/web", ".spec.clusterIP");

    patch(r#"{"spec":{"type":"NodePort"}}"#);
    let port = bed.field("service/web", ".spec.ports[0].nodePort");
    assert_eq!(bed.field("service/web", ".spec.externalTrafficPolicy"), "Cluster");
    patch(r#"{"spec":{"type":"LoadBalancer"}}"#);
    assert_eq!(bed.field("service/web", ".spec.ports[0].nodePort"), port, "each type holds the one before it");
    assert_eq!(bed.field("service/web", ".spec.allocateLoadBalancerNodePorts"), "true");
    patch(r#"{"spec":{"type":"ClusterIP"}}"#);
    let plain = bed.json("service web")["spec"].clone();
    assert_eq!(plain["clusterIP"], address);
    for gone in ["externalTrafficPolicy", "allocateLoadBalancerNodePorts"] {
        assert_eq!(plain.get(gone), None, "{plain}");
    }
    assert_eq!(plain["ports"][0].get("nodePort"), None, "{plain}");

    patch(r#"{"spec":{"type":"ExternalName","externalName":"example.com"}}"#);
    assert_eq!(bed.json("service web")["spec"].get("clusterIP"), None);
    bed.service("heir", &format!("{{type: NodePort, clusterIP: {address}, ports: [{{port: 80, nodePort: {port}}}]}}"));
    patch(r#"{"spec":{"type":"ClusterIP","externalName":null}}"#);
    let back = bed.field("service/web", ".spec.clusterIP");
    assert!(!back.is_empty() && back != address, "a new one: {back}");
}

#[test]
fn s40_tcp_and_udp_of_one_port_share_a_node_port() {
    let bed = Bed::start();
    bed.service(
        "dns",
        "{type: NodePort, ports: [{name: u, port: 53, protocol: UDP}, {name: t, port: 53}, {name: m, port: 90}]}",
    );
    let ports = bed.field("service/dns", ".spec.ports[*].nodePort");
    let ports: Vec<u32> = ports.split(' ').map(|port| port.parse().expect("a port")).collect();
    assert_eq!(ports[0], ports[1]);
    assert_ne!(ports[0], ports[2]);
    assert!(ports.iter().all(|port| (30000..=32767).contains(port)), "{ports:?}");
}

#[test]
fn s44_a_load_balancer_mixes_protocols() {
    let bed = Bed::start();
    let ports = "[{name: a, port: 80}, {name: b, port: 5353, protocol: UDP}, {name: c, port: 90, protocol: SCTP}]";
    bed.service("web", &format!("{{type: LoadBalancer, ports: {ports}}}"));
    let out = bed.ok("get service web --no-headers");
    let row = cells(&out)[0].clone();
    assert_eq!(row[3], "<pending>");
    let protocols: Vec<_> = row[4].split(',').filter_map(|port| port.rsplit('/').next()).collect();
    assert_eq!(protocols, ["TCP", "UDP", "SCTP"]);
}

#[test]
fn s45_node_ports_of_a_load_balancer_can_be_done_without() {
    let bed = Bed::start();
    let without = "{type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}";
    bed.service("without", without);
    assert_eq!(cells(&bed.ok("get service without --no-headers"))[0][4], "80/TCP");

    // Existing ones stay until they are removed one by one.
    bed.service("web", "{type: LoadBalancer, ports: [{name: a, port: 80}, {name: b, port: 443}]}");
    let before = bed.field("service/web", ".spec.ports[*].nodePort");
    bed.ok(r#"patch service web -p '{"spec":{"allocateLoadBalancerNodePorts":false}}'"#);
    assert_eq!(bed.field("service/web", ".spec.ports[*].nodePort"), before);
    bed.ok(r#"patch service web --type=json -p '[{"op":"remove","path":"/spec/ports/0/nodePort"}]'"#);
    let after = bed.field("service/web", ".spec.ports[*].nodePort");
    assert_eq!(Some(after.as_str()), before.split(' ').nth(1));
    let said = bed.no_service("plain", "{allocateLoadBalancerNodePorts: true, ports: [{port: 80}]}");
    assert!(
        said.contains("spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'")
    );
}

#[test]
fn s46_the_class_of_a_load_balancer_is_chosen_once() {
    let bed = Bed::start();
    let with = |class: &str| format!("{{type: LoadBalancer, loadBalancerClass: {class}, ports: [{{port: 80}}]}}");
    bed.service("web", &with("example.com/internal"));
    let wanted = "The Service \"web\" is invalid: spec.loadBalancerClass: Invalid value: \"example.com/other\": \
                  may not change once set\n";
    assert_eq!(bed.fails_with("apply -f -", &service("web", &with("example.com/other"))), wanted);
    let said = bed.fails(r#"patch service web -p '{"spec":{"loadBalancerClass":null}}'"#);
    assert!(said.contains("spec.loadBalancerClass: Invalid value: null: may not change once set"), "{said}");
    bed.ok(r#"patch service web -p '{"spec":{"type":"ClusterIP"}}'"#);
    assert_eq!(bed.field("service/web", ".spec.loadBalancerClass"), "", "it goes with the type");
    let said = bed.no_service("plain", "{loadBalancerClass: example.com/internal, ports: [{port: 80}]}");
    assert!(
        said.contains("spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"),
        "{said}"
    );
    assert!(
        bed.no_service("odd", &with("'not a class'"))
            .contains("spec.loadBalancerClass: Invalid value: \"not a class\"")
    );
}

#[test]
fn s49_any_type_may_have_external_ips() {
    let bed = Bed::start();
    for kind in ["ClusterIP", "NodePort", "LoadBalancer"] {
        let name = kind.to_lowercase();
        bed.service(&name, &format!("{{type: {kind}, externalIPs: [192.0.2.7, 192.0.2.8], ports: [{{port: 80}}]}}"));
        let out = bed.ok(&format!("get service {name} --no-headers"));
        assert_eq!(cells(&out)[0][3], "192.0.2.7,192.0.2.8", "{kind}");
        assert_eq!(bed.field(&format!("service/{name}"), ".spec.externalTrafficPolicy"), "Cluster");
    }
    for (address, why) in [
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("somewhere", "must be a valid IP address"),
    ] {
        let said = bed.no_service("web", &format!("{{externalIPs: ['{address}'], ports: [{{port: 80}}]}}"));
        let wanted = format!("spec.externalIPs[0]: Invalid value: {address:?}: {why}");
        assert!(said.contains(&wanted), "{address}: {said}");
    }
}

#[test]
fn s50_source_ranges_belong_to_load_balancers() {
    let bed = Bed::start();
    bed.service("web", "{type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8, 'fd00::/8'], ports: [{port: 80}]}");
    assert_eq!(bed.json("service web")["spec"]["loadBalancerSourceRanges"], json!(["10.0.0.0/8", "fd00::/8"]));
    let only = "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'";
    assert!(bed.no_service("plain", "{loadBalancerSourceRanges: [10.0.0.0/8], ports: [{port: 80}]}").contains(only));
    assert!(bed.fails(r#"patch service web -p '{"spec":{"type":"ClusterIP"}}'"#).contains(only));
    bed.ok(r#"patch service web -p '{"spec":{"type":"ClusterIP","loadBalancerSourceRanges":null}}'"#);
    let wrong =
        bed.no_service("odd", "{type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0], ports: [{port: 80}]}");
    assert!(
        wrong.contains("spec.LoadBalancerSourceRanges[0]: Invalid value: \"10.0.0.0\": must be a valid CIDR"),
        "{wrong}"
    );
}
