//! Cluster IPs that are served at layer 7 lead to the listener of this node, and to the endpoints again without it.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::ip::Family;
use api::view::annotations::GATEWAY;
use plan::oracle::{Outcome, RejectReason};
use plan::why::Subject;
use plan::why::trace::{Stage, trace};
use plan::{LocalDetector, Options, Protocol, Redirect, RedirectedFrontends, Role, Touched, Update};
use serde_json::{Value, json};

use crate::world::{
    NODE, POD, STRANGER, World, ends, ip, names, options, packet, read_service, service, slice, slice_of,
};

const CLUSTER_IP: &str = "10.96.0.9";
const CLUSTER_IP6: &str = "fd00:10:96::9";
const LISTENERS: [&str; 2] = ["192.0.2.1:42000", "[2001:db8::1]:42000"];
const PORT: &str = "default/web:http/TCP";
const AT_LAYER_7: &str = "default/web:http/TCP at layer 7";

/// A Service of both families with the ports 80 and 81 and everything that does not apply at layer 7.
fn web(kind: &str, annotations: &Value) -> Update {
    read_service(json!({
        "metadata": {"namespace": "default", "name": "web", "annotations": annotations},
        "spec": {
            "type": kind, "clusterIP": CLUSTER_IP, "clusterIPs": [CLUSTER_IP, CLUSTER_IP6], "sessionAffinity": "ClientIP",
            "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "externalIPs": ["198.51.100.2"],
            "ports": [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "admin", "port": 81}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}},
    }))
}

fn redirects(listeners: &[&str]) -> Update {
    let redirect = |listener: &&str| Redirect {
        service: "default/web".into(),
        port: "http".into(),
        protocol: Protocol::Tcp,
        frontends: RedirectedFrontends::ClusterIp,
        listener: listener.parse().expect("an address"),
        direct: None,
        backends: BTreeSet::new(),
    };
    Update::Redirects(Arc::new(listeners.iter().map(redirect).collect()))
}

fn world(kind: &str) -> World {
    let local = LocalDetector::Ranges(vec!["10.244.0.0/16".parse().expect("a range")]);
    let mut world = World::with(Options { local, ..options() });
    world.say(web(kind, &json!({})));
    let ports = json!([{"name": "http", "port": 8080}, {"name": "admin", "port": 8081}]);
    world.say(slice_of("s", "web", "IPv4", &ports, "7=rsl 8"));
    world
}

/// Last parts of the endpoints of a packet, and the port of the first.
fn led(world: &World, source: &str, to: &str, port: u16) -> (String, u16) {
    let forward = world.forward(source, to, port);
    (ends(&forward.backends), forward.backends[0].port)
}

#[test]
fn s54_the_cluster_ip_leads_to_the_listener_and_clients_keep_their_addresses() {
    let mut world = world("LoadBalancer");
    assert_eq!(led(&world, POD, CLUSTER_IP, 80), ("7".to_owned(), 8080), "as a Service without routes");
    assert_eq!(names(&world.say(redirects(&LISTENERS))), [PORT, AT_LAYER_7, PORT, AT_LAYER_7]);
    for source in [POD, "10.244.0.7"] {
        let forward = world.forward(source, CLUSTER_IP, 80);
        assert_eq!((ends(&forward.backends), forward.backends[0].port), ("1".to_owned(), 42_000), "{source}");
        assert_eq!((forward.role, forward.masquerade, forward.affinity), (Role::Cluster, false, None), "{source}");
        assert!(forward.hairpin.is_empty(), "the client may be an endpoint: {source}");
    }
    assert_eq!(world.forward("fd00:10:244::3", CLUSTER_IP6, 80).backends[0].ip, ip("2001:db8::1"));
    assert_eq!(led(&world, NODE, CLUSTER_IP, 80), ("1".to_owned(), 42_000), "programs of the node");
}

#[test]
fn s54_other_ports_and_other_frontends_stay_at_layer_4() {
    let mut world = world("LoadBalancer");
    world.say(redirects(&LISTENERS));
    for (to, port, number) in
        [(CLUSTER_IP, 81, 8081), (NODE, 30080, 8080), ("198.51.100.1", 80, 8080), ("198.51.100.2", 80, 8080)]
    {
        let forward = world.forward(STRANGER, to, port);
        assert_eq!((ends(&forward.backends), forward.backends[0].port), ("7".to_owned(), number), "{to}:{port}");
        assert_eq!(forward.affinity, Some(10_800), "{to}:{port}");
    }
    let health: Vec<_> = world.0.plan().health.values().map(|health| (health.port, health.local_ready)).collect();
    assert_eq!(health, [(31_000, 1), (31_000, 0)], "the listener is no endpoint");
    let outcome = world.judge(POD, CLUSTER_IP, 82);
    assert!(matches!(outcome, Outcome::Refuse(RejectReason::NoSuchPort)), "{outcome:?}");
}

#[test]
fn s54_a_port_is_whole_again_without_its_redirect() {
    let mut world = world("ClusterIP");
    let before = world.0.plan().clone();
    let step = |world: &mut World, listeners: &[&str]| -> Touched {
        let touched = world.say(redirects(listeners));
        let owner = world.0.plan().frontends.values().all(|claims| claims.len() == 1);
        assert!(owner && world.0.plan().frontends.keys().eq(before.frontends.keys()), "each frontend has one owner");
        touched
    };
    step(&mut world, &LISTENERS[..1]);
    assert_eq!(world.find(AT_LAYER_7, Family::V6), None, "each family has its own");
    assert!(world.find(PORT, Family::V4).expect("planned").frontends().len() == 1, "the external IP is left");
    assert!(step(&mut world, &LISTENERS[..1]).is_empty(), "nothing new");
    let touched = step(&mut world, &["192.0.2.1:42001"]);
    assert_eq!(names(&touched), [AT_LAYER_7], "another listener");
    assert_eq!(names(&world.say(slice("s2", "web", "9"))), Vec::<String>::new(), "not a port of the Service");
    let touched = world.say(Update::SliceGone("default/s".to_owned()));
    assert!(names(&touched).contains(&PORT.to_owned()) && !names(&touched).contains(&AT_LAYER_7.to_owned()));
    assert_eq!(led(&world, POD, CLUSTER_IP, 80), ("1".to_owned(), 42_001), "the gateway answers without endpoints");
    let ports = json!([{"name": "http", "port": 8080}, {"name": "admin", "port": 8081}]);
    world.say(slice_of("s", "web", "IPv4", &ports, "7=rsl 8"));
    world.say(Update::SliceGone("default/s2".to_owned()));
    step(&mut world, &[]);
    assert_eq!(*world.0.plan(), before);
    step(&mut world, &["169.254.1.1:42000"]);
    assert_eq!(*world.0.plan(), before, "not an address that can listen");
}

#[test]
fn s54_a_redirect_may_come_before_its_service() {
    let mut world = World::new();
    assert!(world.say(redirects(&LISTENERS)).is_empty());
    world.say(web("ClusterIP", &json!({})));
    assert_eq!(led(&world, POD, CLUSTER_IP, 80), ("1".to_owned(), 42_000));
    world.say(service("web", json!({"clusterIP": CLUSTER_IP, "ports": [{"name": "other", "port": 80}]})));
    let outcome = world.judge(POD, CLUSTER_IP, 80);
    assert!(matches!(outcome, Outcome::Refuse(RejectReason::NoEndpoints(_))), "another port: {outcome:?}");
    world.say(service("web", json!({"clusterIP": "None", "ports": [{"name": "http", "port": 80}]})));
    assert!(world.0.plan().ports.is_empty() && world.0.plan().frontends.is_empty());
    assert_eq!(world.problems(), Vec::<String>::new());
}

#[test]
fn s54_load_balancer_addresses_and_the_cluster_ip_are_redirected_apart() {
    let mut world = world("LoadBalancer");
    world.say(web("LoadBalancer", &json!({GATEWAY: "public"})));
    let Update::Redirects(at_layer_7) = redirects(&LISTENERS[..1]) else { panic!("redirects") };
    let public = |redirect: &Redirect| Redirect {
        frontends: RedirectedFrontends::LoadBalancer,
        listener: "192.0.2.1:41000".parse().expect("an address"),
        ..redirect.clone()
    };
    let both: BTreeSet<Redirect> = at_layer_7.iter().cloned().chain(at_layer_7.iter().map(public)).collect();
    world.say(Update::Redirects(Arc::new(both)));
    assert_eq!(led(&world, POD, CLUSTER_IP, 80).1, 42_000);
    assert_eq!(led(&world, STRANGER, "198.51.100.1", 80).1, 41_000);
    assert_eq!(led(&world, STRANGER, NODE, 30080).1, 8080);
}

#[test]
fn s54_explanations_say_that_the_gateway_serves() {
    let mut world = world("NodePort");
    let Update::Service(service) = web("NodePort", &json!({})) else { panic!("a Service") };
    let explained = |world: &World| world.0.why(&Subject { service: &service, slices: &[], pods: &[] }).summary();
    assert!(!explained(&world).contains("gateway"), "{}", explained(&world));
    world.say(redirects(&LISTENERS));
    let summary = explained(&world);
    assert!(summary.contains("http at layer 7 (IPv4): the cluster IP leads to the gateway of this node"), "{summary}");
    let steps = trace(world.0.plan(), &packet(POD, CLUSTER_IP, 80)).steps;
    let at = |stage| &*steps.iter().find(|step| step.at == stage).expect("a step").says;
    assert!(at(Stage::Frontend).ends_with("is a cluster IP of default/web:http/TCP at layer 7"), "{steps:?}");
    assert!(at(Stage::Policy).starts_with("served at layer 7: the cluster IP leads to the gateway"), "{steps:?}");
    assert_eq!(at(Stage::Verdict), "forwarded to 192.0.2.1:42000");
    assert_eq!(at(Stage::Source), format!("kept: the endpoint sees {POD}"));
}
