//! Load-balancer addresses of ports that use the gateway lead to its listener, and nowhere without one.

use std::sync::Arc;

use api::ip::Family;
use api::view::annotations::{BACKEND_PROTOCOL, GATEWAY, SSL_CERT, SSL_PORTS};
use plan::oracle::{Outcome, RejectReason};
use plan::{Protocol, Redirect, Role, Update};
use serde_json::{Value, json};

use crate::world::{NODE, STRANGER, World, ends, ip, names, read_service, slice_of};

const VIP: &str = "198.51.100.1";
const VIP6: &str = "2001:db8:1::1";

/// A Service with the ports 443 and 80, and with UDP 443, on a load balancer of both families.
fn web(annotations: &Value) -> Update {
    read_service(json!({
        "metadata": {"namespace": "default", "name": "web", "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.9", "sessionAffinity": "ClientIP",
            "loadBalancerSourceRanges": ["203.0.113.0/24", "192.0.2.1/32"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "ports": [
                {"name": "https", "port": 443, "nodePort": 30443},
                {"name": "http", "port": 80, "nodePort": 30080},
                {"name": "quic", "port": 443, "protocol": "UDP"},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": VIP}, {"ip": VIP6}]}},
    }))
}

fn redirects(listeners: &[&str]) -> Update {
    let redirect = |listener: &&str| Redirect {
        service: "default/web".into(),
        port: "https".into(),
        protocol: Protocol::Tcp,
        listener: listener.parse().expect("an address"),
    };
    Update::Redirects(Arc::new(listeners.iter().map(redirect).collect()))
}

/// `web` with TLS on port 443 alone, and a Pod on this node.
fn world() -> World {
    let mut world = World::new();
    world.say(web(&json!({SSL_CERT: "arn:x", SSL_PORTS: "443"})));
    let ports = json!([{"name": "https", "port": 8443}, {"name": "http", "port": 8080}]);
    world.say(slice_of("s", "web", "IPv4", &ports, "7=rsl"));
    world
}

#[test]
fn load_balancer_addresses_lead_to_the_listener_and_clients_keep_their_addresses() {
    let mut world = world();
    let touched = world.say(redirects(&["192.0.2.1:41000"]));
    assert_eq!(names(&touched), ["default/web:https/TCP at the gateway"]);
    let forward = world.forward(STRANGER, VIP, 443);
    assert_eq!((ends(&forward.backends), forward.backends[0].port), ("1".to_owned(), 41_000));
    assert_eq!((forward.role, forward.masquerade, forward.affinity), (Role::LoadBalancer, false, None));
    assert!(world.forward(NODE, VIP, 443).masquerade, "the node itself");
    let outside = world.judge("192.0.2.99", VIP, 443);
    assert!(matches!(outside, Outcome::Drop(RejectReason::SourceRange(_))), "{outside:?}");
}

#[test]
fn other_frontends_and_other_ports_lead_to_pods() {
    let mut world = world();
    world.say(redirects(&["192.0.2.1:41000"]));
    for (to, port, target) in [("10.96.0.9", 443, 8443), (NODE, 30443, 8443), (VIP, 80, 8080), (NODE, 30080, 8080)] {
        let forward = world.forward(STRANGER, to, port);
        assert_eq!((ends(&forward.backends), forward.backends[0].port), ("7".to_owned(), target), "{to}:{port}");
    }
    let udp = &world.find("default/web:quic/UDP", Family::V4).expect("planned").lb_ips;
    assert_eq!(udp, &[ip(VIP)], "only TCP uses the gateway");
    let health: Vec<_> = world.0.plan().health.values().map(|health| (health.port, health.local_ready)).collect();
    assert_eq!(health, [(31_000, 1)], "the listener is no endpoint of the Service");
}

#[test]
fn all_ports_of_the_service_of_a_gateway_are_redirected() {
    let mut world = World::new();
    world.say(web(&json!({GATEWAY: "public"})));
    for key in ["default/web:https/TCP", "default/web:http/TCP", "default/web:quic/UDP"] {
        assert!(world.find(key, Family::V4).expect("planned").lb_ips.is_empty(), "{key}");
        let redirected = world.find(&format!("{key} at the gateway"), Family::V4).expect("planned");
        assert_eq!(redirected.lb_ips, [ip(VIP)], "{key}");
    }
    let outcome = world.judge(STRANGER, VIP, 80);
    assert!(matches!(outcome, Outcome::Refuse(RejectReason::NoEndpoints(_))), "{outcome:?}");
    let listener = |port: &str, protocol, number: u16| Redirect {
        service: "default/web".into(),
        port: port.into(),
        protocol,
        listener: ([192, 0, 2, 11], number).into(),
    };
    let all = [listener("https", Protocol::Tcp, 40_000), listener("quic", Protocol::Udp, 40_001)];
    world.say(Update::Redirects(Arc::new(all.into())));
    for (key, number) in [("default/web:https/TCP", 40_000), ("default/web:quic/UDP", 40_001)] {
        let redirected = world.find(&format!("{key} at the gateway"), Family::V4).expect("planned");
        let backends: Vec<_> = redirected.local.iter().map(|backend| backend.port).collect();
        assert_eq!(backends, [number], "{key}");
    }
    let http = world.find("default/web:http/TCP at the gateway", Family::V4).expect("planned");
    assert!(http.local.is_empty(), "no listener of the protocol");
}

#[test]
fn without_a_listener_connections_are_rejected_and_reach_no_pod() {
    let mut world = world();
    let refused = |world: &World, source: &str, to: &str| {
        let outcome = world.judge(source, to, 443);
        assert!(matches!(outcome, Outcome::Refuse(RejectReason::NoEndpoints(_))), "{source}: {outcome:?}");
    };
    refused(&world, STRANGER, VIP);
    world.say(redirects(&["192.0.2.1:41000"]));
    assert!(world.say(redirects(&["192.0.2.1:41000"])).is_empty(), "nothing new");
    world.say(redirects(&["192.0.2.1:41001"]));
    assert_eq!(world.forward(STRANGER, VIP, 443).backends[0].port, 41_001);
    world.say(redirects(&["169.254.1.1:41000"]));
    refused(&world, STRANGER, VIP);
    world.say(redirects(&[]));
    refused(&world, STRANGER, VIP);
    // A redirect for another Service or port changes nothing.
    let other = Redirect {
        service: "default/web".into(),
        port: "http".into(),
        protocol: Protocol::Tcp,
        listener: ([192, 0, 2, 1], 1).into(),
    };
    world.say(Update::Redirects(Arc::new([other].into())));
    refused(&world, STRANGER, VIP);
    assert_eq!(ends(&world.forward(STRANGER, VIP, 80).backends), "7");
}

#[test]
fn each_family_has_its_own_listener() {
    let mut world = World::new();
    let mut open = web(&json!({BACKEND_PROTOCOL: "http"}));
    if let Update::Service(service) = &mut open {
        service.spec.load_balancer_source_ranges.clear();
    }
    world.say(open);
    world.say(redirects(&["192.0.2.1:41000", "[2001:db8::1]:41001"]));
    assert_eq!(world.forward(STRANGER, VIP, 443).backends[0].port, 41_000);
    let forward = world.forward("2001:db8:f::9", VIP6, 443);
    assert_eq!(forward.backends[0].port, 41_001, "although the Service has no cluster IP of this family");
    assert_eq!(forward.port.protocol, Protocol::Tcp);
}

#[test]
fn the_annotation_comes_and_goes() {
    let mut world = world();
    world.say(redirects(&["192.0.2.1:41000"]));
    let redirected = "default/web:https/TCP at the gateway";
    let all = ["default/web:https/TCP", redirected, redirected];
    assert_eq!(names(&world.say(web(&json!({})))), all, "the port, and its redirect in both families");
    assert_eq!(ends(&world.forward(STRANGER, VIP, 443).backends), "7", "a plain load balancer");
    assert_eq!(names(&world.say(web(&json!({SSL_CERT: "arn:x", SSL_PORTS: "443"})))), all);
    assert_eq!(world.forward(STRANGER, VIP, 443).backends[0].port, 41_000);
    world.say(Update::ServiceGone("default/web".to_owned()));
    assert!(world.0.plan().ports.is_empty() && world.0.plan().frontends.is_empty());
    assert_eq!(world.problems(), Vec::<String>::new());
}
