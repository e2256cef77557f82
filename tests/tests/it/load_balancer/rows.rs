//! The rows of the requirements, each through kubectl and with real packets from outside.

use std::time::Duration;

use serde_json::{Value, json};
use testbed::net::{Family, Kind, Protocol, eventually};
use testbed::session::text;

use super::desk::{addresses, condition};
use super::stage::{Stage, TARGET};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

fn node_ports(service: &Value) -> Vec<u64> {
    let ports = service["spec"]["ports"].as_array().expect("ports").iter();
    ports.filter_map(|port| port["nodePort"].as_u64()).collect()
}

#[test]
fn s43_s44_a_load_balancer_comes_by_itself_and_carries_every_protocol_and_family_to_pods() {
    let stage = Stage::new();
    let (web, client) = (stage.near.pod("web"), stage.far.pod("client"));
    web.echo(TARGET);
    stage.endpoints("web", &[&web]);
    stage.ok_with("apply -f -", &stage.balancer("web", ""));
    let ips = stage.assigned("web");
    assert_eq!(ips, ["203.0.113.1".parse::<std::net::IpAddr>().expect("v4"), "2001:db8:f::1".parse().expect("v6")]);
    stage.answers(&ips, "web");
    // Cluster IP and node port were made as well.
    let service = stage.service("web");
    assert_eq!(service["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(service["status"]["loadBalancer"]["ingress"][0], json!({"ip": "203.0.113.1", "ipMode": "VIP"}));
    let port = u16::try_from(node_ports(&service)[0]).expect("a node port");
    assert!(client.ask(Protocol::Tcp, text(&service, "/spec/clusterIP"), 80).is_ok_and(|answer| answer.name == "web"));
    assert!(stage.outside.ask(Protocol::Tcp, stage.far.v4(), port).is_ok_and(|answer| answer.name == "web"));
    let row = stage.ok("get service web --no-headers");
    assert!(row.contains("LoadBalancer") && row.contains("203.0.113.1") && row.contains("2001:db8:f::1"), "{row}");
    for reason in ["EnsuringLoadBalancer", "EnsuredLoadBalancer"] {
        eventually(reason, || stage.ok("get events").contains(reason));
    }
    let given = || stage.ok("get ippool lan -o jsonpath={.status.assigned}");
    eventually("the pool counts", || given() == "2");
    // kubectl waits for the end, and then nothing is left.
    stage.ok("delete service web --timeout=30s");
    stage.silent(&ips);
    eventually("its end is told", || stage.ok("get events").contains("DeletedLoadBalancer"));
    eventually("the pool is whole", || given().is_empty());
}

#[test]
fn s39_a_service_changes_its_type_in_both_directions() {
    let stage = Stage::new();
    let web = stage.near.pod("web");
    web.echo(TARGET);
    stage.endpoints("web", &[&web]);
    stage.ok_with("apply -f -", &stage.balancer("web", ""));
    let ips = stage.assigned("web");
    stage.answers(&ips, "web");
    for kind in ["NodePort", "ClusterIP"] {
        stage.ok(&format!("patch service web --type=merge -p '{{\"spec\":{{\"type\":\"{kind}\"}}}}'"));
        eventually("everything is given back", || {
            let service = stage.service("web");
            service["metadata"]["finalizers"].is_null()
                && condition(&service).is_null()
                && addresses(&service).is_empty()
        });
        assert_eq!(node_ports(&stage.service("web")).is_empty(), kind == "ClusterIP");
        stage.silent(&ips);
        // Another Service has the address meanwhile.
        stage.ok_with("apply -f -", &stage.balancer("other", ""));
        assert_eq!(stage.assigned("other"), ips);
        stage.ok("patch service web --type=merge -p '{\"spec\":{\"type\":\"LoadBalancer\"}}'");
        let others = stage.assigned("web");
        assert_ne!(others, ips);
        stage.answers(&others, "web");
        stage.ok("delete service other --timeout=30s");
        stage.ok(&format!("annotate --overwrite service web waypost.dev/load-balancer-ips={},{}", ips[0], ips[1]));
        eventually("it has its first address again", || stage.assigned("web") == ips);
        stage.answers(&ips, "web");
        // What it has it keeps, also when it no longer insists.
        stage.ok("annotate service web waypost.dev/load-balancer-ips-");
        assert_eq!(stage.assigned("web"), ips);
    }
}

#[test]
fn s45_without_node_ports_a_load_balancer_works_and_old_ones_go_one_by_one() {
    let stage = Stage::new();
    let web = stage.far.pod("web");
    web.echo(TARGET);
    for name in ["bare", "kept"] {
        stage.endpoints(name, &[&web]);
    }
    stage.ok_with("apply -f -", &stage.balancer("bare", "allocateLoadBalancerNodePorts: false"));
    let ips = stage.assigned("bare");
    assert_eq!(node_ports(&stage.service("bare")), [] as [u64; 0]);
    stage.answers(&ips, "web");
    stage.ok_with("apply -f -", &stage.balancer("kept", ""));
    let ips = stage.assigned("kept");
    let before = node_ports(&stage.service("kept"));
    assert_eq!(before.len(), stage.protocols().len());
    stage.ok("patch service kept --type=merge -p '{\"spec\":{\"allocateLoadBalancerNodePorts\":false}}'");
    assert_eq!(node_ports(&stage.service("kept")), before, "existing ones stay");
    stage.ok("patch service kept --type=json -p '[{\"op\":\"remove\",\"path\":\"/spec/ports/0/nodePort\"}]'");
    assert_eq!(node_ports(&stage.service("kept")), before[1..], "until they are removed, one by one");
    stage.answers(&ips, "web");
    let caller = stage.outside.caller().timeout(Duration::from_millis(200));
    let gone = u16::try_from(before[0]).expect("a port");
    eventually("the node port is closed", || caller.ask(Protocol::Tcp, stage.near.v4(), gone).is_err());
}

#[test]
fn s46_classes_are_kept_and_those_of_others_are_left_alone() {
    let stage = Stage::new();
    stage.ok_with("apply -f -", &stage.balancer("theirs", "loadBalancerClass: example.com/internal-vip"));
    stage.ok_with("apply -f -", &stage.balancer("ours", "loadBalancerClass: waypost.dev/l2"));
    stage.assigned("ours");
    let theirs = stage.service("theirs");
    assert_eq!((addresses(&theirs).as_str(), &theirs["metadata"]["finalizers"]), ("", &Value::Null));
    assert_eq!(condition(&theirs), &Value::Null);
    for (name, patch, words) in [
        ("ours", "{\"spec\":{\"loadBalancerClass\":\"waypost.dev/bgp\"}}", "may not change once set"),
        ("ours", "{\"spec\":{\"loadBalancerClass\":\"a b\"}}", "spec.loadBalancerClass"),
    ] {
        let run = stage.served.session(|session| {
            let patch: Value = serde_json::from_str(patch).expect("JSON");
            session.merge(&format!("{}/{name}", testbed::session::SERVICES), &patch).refused(422)
        });
        assert!(run.contains(words), "{run}");
    }
    // Another controller sets the status, and it is not undone.
    stage.served.session(|session| {
        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.9", "ipMode": "VIP"}]}}});
        let path = format!("{}/theirs/status", testbed::session::SERVICES);
        let _ = session.merge(&path, &status).success();
    });
    stage.ok_with("apply -f -", &stage.balancer("later", ""));
    stage.assigned("later");
    assert_eq!(addresses(&stage.service("theirs")), "198.51.100.9");
    stage.ok("delete service theirs --timeout=30s");
}

#[test]
fn s49_external_ips_work_beside_the_address_of_the_load_balancer() {
    let stage = Stage::new();
    let web = stage.near.pod("web");
    web.echo(TARGET);
    stage.endpoints("web", &[&web]);
    stage.ok_with("apply -f -", &stage.balancer("web", "externalIPs: [198.51.100.7]"));
    let mut ips = stage.assigned("web");
    ips.push("198.51.100.7".parse().expect("an address"));
    stage.answers(&ips, "web");
}

#[test]
fn s50_ranges_of_one_family_close_the_other_and_can_be_changed() {
    let stage = Stage::new();
    let web = stage.near.pod("web");
    web.echo(TARGET);
    stage.endpoints("web", &[&web]);
    let ranges = |list: &str| stage.balancer("web", &format!("loadBalancerSourceRanges: [{list}]"));
    let own = format!("{}/32", stage.outside.v4());
    stage.ok_with("apply -f -", &ranges(&own));
    let ips = stage.assigned("web");
    stage.answers(&ips[..1], "web");
    stage.served.settle();
    let caller = stage.outside.caller().timeout(Duration::from_millis(300));
    assert_eq!(caller.ask(Protocol::Tcp, ips[1], 80).map_err(|failure| failure.kind).err(), Some(Kind::TimedOut));
    stage.ok_with("apply -f -", &ranges(&format!("{own}, '{}/128'", stage.outside.v6())));
    stage.answers(&ips, "web");
    stage.ok_with("apply -f -", &ranges("'192.0.2.250/32', '2001:db8::250/128'"));
    stage.served.settle();
    for ip in &ips {
        let asked = caller.ask(Protocol::Tcp, *ip, 80).map_err(|failure| failure.kind);
        assert_eq!(asked.err(), Some(Kind::TimedOut), "{ip}");
    }
    stage.ok("patch service web --type=merge -p '{\"spec\":{\"loadBalancerSourceRanges\":null}}'");
    stage.answers(&ips, "web");
}

#[test]
fn s43_with_the_policy_local_pods_see_who_asks_and_nodes_say_whether_they_have_pods() {
    let stage = Stage::new();
    let web = stage.near.pod("web");
    web.echo(TARGET);
    stage.endpoints("web", &[&web]);
    stage.ok_with("apply -f -", &stage.balancer("web", "externalTrafficPolicy: Local"));
    let ips = stage.assigned("web");
    stage.answers(&ips, "web");
    if stage.served.mode().keeps_source {
        for (ip, family) in ips.iter().zip(Family::BOTH) {
            let answer = stage.outside.ask(Protocol::Tcp, *ip, 80).expect("an answer");
            assert_eq!(answer.client.ip(), stage.outside.address(family));
        }
    }
    let service = stage.service("web");
    let health = u16::try_from(service["spec"]["healthCheckNodePort"].as_u64().expect("a port")).expect("a port");
    for (node, code) in [(&stage.near, 200), (&stage.far, 503)] {
        eventually("each node says what it has", || {
            stage.outside.page(node.v4(), health, "/").is_some_and(|page| page.code == code)
        });
    }
}
