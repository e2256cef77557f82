//! Reports of constructed snapshots: counters, and null values.

use api::view::{EndpointSlice, Node, Service};
use kernel::conntrack::{Direction, Flow};
use plan::{Plan, Planner, RedirectedFrontends, Update};

use super::*;
use crate::Backend as _;
use crate::frontends::owned;
use crate::nftables::Nftables;

/// A plan with one Service `default/web` on a node port, with a local and a remote endpoint.
fn plan() -> Planner {
    let service: Service = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"type": "NodePort", "clusterIP": "10.96.0.5", "clusterIPs": ["10.96.0.5"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}]},
    }))
    .expect("a Service");
    let slice: EndpointSlice = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "s", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}],
        "endpoints": [{"addresses": ["10.244.0.2"], "nodeName": "n1"}, {"addresses": ["10.244.1.2"], "nodeName": "n2"}],
    }))
    .expect("a slice");
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]},
    }))
    .expect("a Node");
    let mut planner = Planner::new(Options { node_name: "n1".to_owned(), ..Options::default() });
    planner.update_all([Update::Service(Box::new(service)), Update::Slice(slice), Update::Node(Some(Box::new(node)))]);
    planner
}

fn snapshot(plan: &Plan, synced: bool) -> Snapshot {
    let backend = Nftables::new(kernel::nft::fake::Fake::default());
    let status = |port: &Arc<ServicePort>| PortStatus {
        frontends: owned(plan, port).into_iter().map(|(frontend, _)| frontend).collect(),
        rules: backend.rules(plan, port),
        port: Arc::clone(port),
        programmed: synced,
    };
    Snapshot {
        mode: "nftables",
        options: plan.options.clone(),
        node_port_ips: plan.node_port_ips.iter().copied().collect(),
        synced,
        problems: Vec::new(),
        leaders: BTreeMap::from([("default/lock".into(), Some("p1_x".into()))]),
        ports: plan.ports.values().map(status).collect(),
    }
}

fn flow(to: &str, answers: &str, bytes: Option<u64>, ended: bool) -> Counted {
    let at = |text: &str| text.parse::<SocketAddr>().expect("an address and a port");
    let client = at("203.0.113.9:40000");
    let original = Direction { source: client, destination: at(to) };
    let reply = Direction { source: at(answers), destination: client };
    let flow = Flow { family: kernel::Family::Ip, protocol: 6, zone: 0, original, reply, translated: true };
    Counted { flow, bytes, ended }
}

#[test]
fn connections_are_counted_per_backend() {
    let planner = plan();
    let flows = vec![
        flow("10.96.0.5:80", "10.244.0.2:8080", Some(100), false),
        flow("192.0.2.1:30080", "10.244.0.2:8080", Some(10), true),
        flow("10.96.0.5:80", "10.244.9.9:8080", Some(1), false),
        flow("10.96.0.5:81", "10.244.0.2:8080", Some(1000), false),
        flow("192.0.2.7:30080", "10.244.0.2:8080", Some(1000), false),
    ];
    let traffic = Traffic { flows: Some(flows), accounting: true };
    let at = Some("2026-11-16T07:00:00Z".parse().expect("a time"));
    let report = report(&snapshot(planner.plan(), true), &LastSync { at, error: None }, &traffic);
    assert_eq!((&report["node"], &report["mode"], &report["synced"]), (&json!("n1"), &json!("nftables"), &json!(true)));
    assert_eq!(report["syncedAt"], "2026-11-16T07:00:00Z");
    let web = &report["services"]["default/web"];
    assert_eq!((&web["programmed"], &web["why"]), (&json!(true), &json!("")));
    let port = &web["ports"][0];
    assert_eq!((&port["name"], &port["protocol"], &port["port"]), (&json!("http"), &json!("TCP"), &json!(80)));
    assert_eq!(port["frontends"], json!(["10.96.0.5:80", "*:30080"]));
    let want = json!([
        {"address": "10.244.0.2:8080", "local": true, "planned": true, "connections": 1, "bytes": 110},
        {"address": "10.244.1.2:8080", "local": false, "planned": true, "connections": 0, "bytes": 0},
        {"address": "10.244.9.9:8080", "local": false, "planned": false, "connections": 1, "bytes": 1},
    ]);
    assert_eq!(port["backends"], want);
}

#[test]
fn unknown_values_are_null() {
    let planner = plan();
    let backend = |traffic: &Traffic| {
        let report = report(&snapshot(planner.plan(), true), &LastSync::default(), traffic);
        assert_eq!(report["syncedAt"], Value::Null);
        let first = &report["services"]["default/web"]["ports"][0]["backends"][0];
        (first["connections"].clone(), first["bytes"].clone())
    };
    assert_eq!(backend(&Traffic::default()), (Value::Null, Value::Null));
    let uncounted =
        Traffic { flows: Some(vec![flow("10.96.0.5:80", "10.244.0.2:8080", None, false)]), accounting: false };
    assert_eq!(backend(&uncounted), (json!(1), Value::Null));
}

#[test]
fn unprogrammed_ports_name_the_error() {
    let planner = plan();
    let error = Some("the kernel is full".to_owned());
    let report = report(&snapshot(planner.plan(), false), &LastSync { at: None, error }, &Traffic::default());
    let web = &report["services"]["default/web"];
    assert_eq!(web["programmed"], false);
    assert_eq!(web["why"], "the rules could not be written: the kernel is full");
}

#[test]
fn rules_are_rendered_as_text() {
    let planner = plan();
    let text = rules(&snapshot(planner.plan(), true));
    for line in [
        "# default/web:http/TCP (IPv4)",
        "element ip waypost frontends { 10.96.0.5 . tcp . 80 : goto ",
        "element ip waypost node-ports { tcp . 30080 : goto ",
        "element ip waypost endpoints { 10.96.0.5 . tcp . 80 . 1 : 10.244.1.2 . 8080 }",
        "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let nothing = Snapshot { ports: Vec::new(), ..snapshot(planner.plan(), true) };
    assert!(rules(&nothing).starts_with("# no port"));
}

/// The client computes the same plan from this (`cli::why::node_view`).
#[test]
fn redirects_are_reported_with_all_that_decides() {
    let mut planner = plan();
    let service: Service = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "public-waypost", "annotations": {"waypost.dev/gateway": "public"}},
        "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.6", "ports": [{"name": "tcp-80", "port": 80}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }))
    .expect("a Service");
    let target = ServicePortName { service: "default/web".into(), port: "http".into() };
    let redirect = Redirect {
        frontends: RedirectedFrontends::LoadBalancer,
        service: "default/public-waypost".into(),
        port: "tcp-80".into(),
        protocol: Protocol::Tcp,
        listener: "192.0.2.1:41000".parse().expect("an address"),
        direct: Some(target.clone()),
        backends: [target].into(),
    };
    planner.update_all([Update::Service(Box::new(service)), Update::Redirects(Arc::new([redirect].into()))]);
    let report = report(&snapshot(planner.plan(), true), &LastSync::default(), &Traffic::default());
    let ports = report["services"]["default/public-waypost"]["ports"].as_array().expect("ports");
    let [redirected] = &ports.iter().filter(|port| port["redirected"] == true).collect::<Vec<_>>()[..] else {
        panic!("{ports:?}")
    };
    let web = json!({"service": "default/web", "port": "http"});
    let listener = "192.0.2.1:41000";
    assert_eq!(
        redirected["redirect"],
        json!({"frontends": "LoadBalancer", "listener": listener, "direct": web, "backends": [web]})
    );
    assert_eq!(redirected["backends"].as_array().map(Vec::len), Some(2), "{redirected}");
    assert!(ports.iter().filter(|port| port["redirected"] == false).all(|port| port["redirect"].is_null()));
}

#[test]
fn s53_policies_and_leaders_are_reported() {
    let planner = plan();
    let document = report(&snapshot(planner.plan(), true), &LastSync::default(), &Traffic::default());
    assert_eq!(document["leaders"], json!({"default/lock": "p1_x"}));
    assert_eq!(document["services"]["default/web"]["ports"][0]["policy"], "random");
}
