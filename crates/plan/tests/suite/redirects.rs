//! Load-balancer addresses of ports that use the gateway lead to its listener, or to the endpoints of another Service, and
//! nowhere without either.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::ip::Family;
use api::view::annotations::{BACKEND_PROTOCOL, GATEWAY, SSL_CERT, SSL_PORTS};
use plan::oracle::{Outcome, RejectReason};
use plan::why::Subject;
use plan::why::trace::{Stage, trace};
use plan::{Protocol, Redirect, RedirectedFrontends, Role, ServicePortName, Update};
use serde_json::{Value, json};

use crate::world::{NODE, STRANGER, World, ends, ip, names, packet, read_service, service, simple, slice, slice_of};

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

fn redirect(port: &str, protocol: Protocol, listener: &str) -> Redirect {
    Redirect {
        service: "default/web".into(),
        port: port.into(),
        protocol,
        frontends: RedirectedFrontends::LoadBalancer,
        listener: listener.parse().expect("an address"),
        direct: None,
        backends: BTreeSet::new(),
    }
}

fn redirects(listeners: &[&str]) -> Update {
    let redirect = |listener: &&str| redirect("https", Protocol::Tcp, listener);
    Update::Redirects(Arc::new(listeners.iter().map(redirect).collect()))
}

/// The unnamed port of a Service.
fn port_of(service: &str) -> ServicePortName {
    ServicePortName { service: format!("default/{service}").into(), port: "".into() }
}

/// The TCP port of `web` and its UDP port lead to these Services: directly to the first one, if it says so.
fn direct(backends: &[&str], is_direct: bool) -> Update {
    let all = [redirect("https", Protocol::Tcp, "192.0.2.1:41000"), redirect("quic", Protocol::Udp, "192.0.2.1:41000")];
    let direct = |one: Redirect| Redirect {
        direct: backends.first().filter(|_| is_direct).map(|name| port_of(name)),
        backends: backends.iter().map(|name| port_of(name)).collect(),
        ..one
    };
    Update::Redirects(Arc::new(all.map(direct).into()))
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
    let all =
        [redirect("https", Protocol::Tcp, "192.0.2.11:40000"), redirect("quic", Protocol::Udp, "192.0.2.11:40001")];
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
    let other = redirect("http", Protocol::Tcp, "192.0.2.1:1");
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

/// `web` is the Service of a Gateway, and Pods 7 (here) and 8 serve `db` by TCP and UDP.
fn gateway() -> World {
    let mut world = World::new();
    world.say(web(&json!({GATEWAY: "public"})));
    world.say(service(
        "db",
        json!({"clusterIP": "10.96.0.20", "sessionAffinity": "ClientIP", "internalTrafficPolicy": "Local",
               "ports": [{"port": 5432}, {"port": 5432, "protocol": "UDP"}]}),
    ));
    world.say(db("7=rsl 8"));
    world
}

fn db(endpoints: &str) -> Update {
    let ports = json!([{"name": "", "port": 9000}, {"name": "", "port": 9000, "protocol": "UDP"}]);
    slice_of("db", "db", "IPv4", &ports, endpoints)
}

const TCP: &str = "default/web:https/TCP at the gateway";
const UDP: &str = "default/web:quic/UDP at the gateway";

#[test]
fn the_endpoints_of_another_service_serve_in_place_of_the_listener() {
    let mut world = gateway();
    world.say(direct(&["db"], false));
    assert_eq!(world.forward(STRANGER, VIP, 443).backends[0].port, 41_000);
    assert_eq!(names(&world.say(direct(&["db"], true))), [TCP, UDP]);
    for source in [STRANGER, NODE] {
        let forward = world.forward(source, VIP, 443);
        assert_eq!((ends(&forward.backends), forward.backends[0].port), ("7,8".to_owned(), 9000), "{source}");
        // As with externalTrafficPolicy Cluster; the policies and the affinity of `db` are for its own addresses.
        assert_eq!((forward.masquerade, forward.affinity, forward.role), (true, None, Role::LoadBalancer), "{source}");
    }
    let udp = world.judge_packet(&plan::oracle::Packet { protocol: Protocol::Udp, ..packet(STRANGER, VIP, 443) });
    assert!(matches!(&udp, Outcome::Forward(forward) if ends(&forward.backends) == "7,8"), "{udp:?}");
    let outside = world.judge("192.0.2.99", VIP, 443);
    assert!(matches!(outside, Outcome::Drop(RejectReason::SourceRange(_))), "the ranges of the Gateway: {outside:?}");
    assert_eq!(world.port(TCP).served_by(), Some(&port_of("db")));
    // The node ports of the Gateway's Service do not lead there.
    assert!(matches!(world.judge(STRANGER, NODE, 30443), Outcome::Refuse(_)));
    assert_eq!(names(&world.say(direct(&["db"], false))), [TCP, UDP]);
    let forward = world.forward(STRANGER, VIP, 443);
    assert_eq!((forward.backends[0].port, forward.masquerade), (41_000, false));
}

#[test]
fn the_listener_takes_over_while_no_endpoint_can_serve() {
    let mut world = gateway();
    world.say(direct(&["db"], true));
    let served = |world: &World| {
        let forward = world.forward(STRANGER, VIP, 443);
        (ends(&forward.backends), forward.backends[0].port)
    };
    let listener = ("1".to_owned(), 41_000);
    assert_eq!(names(&world.say(db("7=rs 8=s"))), ["default/db/TCP", "default/db/UDP", TCP, UDP]);
    assert_eq!(served(&world), ("7".to_owned(), 9000), "ready ones alone");
    world.say(db("7=st 8=s"));
    assert_eq!(served(&world), ("7".to_owned(), 9000), "terminating ones as a last resort");
    world.say(db("7=s 8="));
    assert_eq!(served(&world), listener);
    assert_eq!(world.port(TCP).served_by(), None);
    world.say(db("10.96.0.30=rs"));
    assert_eq!(served(&world), ("30".to_owned(), 9000));
    let touched = world.say(simple("loop", "10.96.0.30"));
    assert!(names(&touched).iter().any(|name| name == TCP), "{touched:?}");
    assert_eq!(served(&world), listener, "a cluster IP is no endpoint");
    world.say(Update::ServiceGone("default/loop".to_owned()));
    assert_eq!(served(&world), ("30".to_owned(), 9000));
    world.say(Update::SliceGone("default/db".to_owned()));
    assert_eq!(served(&world), listener);
    world.say(db("9"));
    assert_eq!(served(&world), ("9".to_owned(), 9000));
    world.say(redirects(&[]));
    let outcome = world.judge(STRANGER, VIP, 443);
    assert!(matches!(outcome, Outcome::Refuse(RejectReason::NoEndpoints(_))), "{outcome:?}");
}

#[test]
fn each_family_has_its_endpoints_or_its_listener() {
    let mut world = gateway();
    let [v4, v6] = ["192.0.2.1:41000", "[2001:db8::1]:41001"]
        .map(|listener| Redirect { direct: Some(port_of("db")), ..redirect("https", Protocol::Tcp, listener) });
    world.say(Update::Redirects(Arc::new([v4, v6].into())));
    let of = |world: &World, family| world.find(TCP, family).expect("planned").served_by().cloned();
    assert_eq!((of(&world, Family::V4), of(&world, Family::V6)), (Some(port_of("db")), None));
    let ports = json!([{"name": "", "port": 9006}]);
    world.say(slice_of("db6", "db", "IPv6", &ports, "fd00:10:244::7"));
    let backends = &world.find(TCP, Family::V6).expect("planned").cluster;
    assert_eq!((ends(backends), backends[0].port), ("7".to_owned(), 9006));
}

#[test]
fn only_what_a_redirect_depends_on_touches_its_port() {
    let mut world = gateway();
    world.say(direct(&["db", "canary"], true));
    assert!(world.say(direct(&["db", "canary"], true)).is_empty(), "nothing new");
    assert_eq!(names(&world.say(slice("other", "other", "1"))), Vec::<String>::new());
    world.say(simple("api", "10.96.0.21"));
    assert_eq!(names(&world.say(slice("api", "api", "1"))), ["default/api/TCP"]);
    assert!(world.say(db("7=rsl 8")).is_empty(), "nothing new");
    world.say(direct(&["api"], true));
    assert_eq!(names(&world.say(db("8"))), ["default/db/TCP", "default/db/UDP"], "no longer");
    assert_eq!(names(&world.say(slice("api", "api", "1 2"))), ["default/api/TCP", TCP]);
}

#[test]
fn udp_flows_stay_while_their_listener_or_their_endpoint_does() {
    let mut world = gateway();
    world.say(slice_of("canary", "canary", "IPv4", &json!([{"name": "", "port": 9100, "protocol": "UDP"}]), "5"));
    let serving = |world: &World| -> Vec<u16> {
        let serving = &world.port(UDP).serving;
        let mut ports: Vec<u16> = serving.iter().map(|backend| backend.port).collect();
        ports.dedup();
        ports
    };
    world.say(direct(&["db"], true));
    assert_eq!(serving(&world), [9000, 41_000], "flows of the listener");
    world.say(direct(&["db", "canary"], false));
    assert_eq!(serving(&world), [9100, 9000, 41_000], "flows of the endpoints, while the listener gets new ones");
    world.say(Update::SliceGone("default/db".to_owned()));
    assert_eq!(serving(&world), [9100, 41_000], "an endpoint that is gone keeps none");
    world.say(direct(&[], false));
    assert_eq!(serving(&world), [41_000]);
    assert_eq!(world.port(TCP).serving.len(), 1, "TCP connections end by themselves");
}

#[test]
fn explanations_say_what_serves() {
    let mut world = gateway();
    let Update::Service(service) = web(&json!({GATEWAY: "public"})) else { panic!("a Service") };
    let explained = |world: &World| world.0.why(&Subject { service: &service, slices: &[], pods: &[] }).summary();
    let policy = |world: &World| {
        let trace = trace(world.0.plan(), &packet(STRANGER, VIP, 443));
        trace.steps.into_iter().find(|step| step.at == Stage::Policy).expect("a policy").says
    };
    world.say(direct(&["db"], true));
    let summary = explained(&world);
    assert!(summary.contains("redirected to default/db without a listener: all 2 endpoints get traffic"), "{summary}");
    assert_eq!(policy(&world), "redirected to default/db without a listener: any of its endpoints may answer");
    world.say(db(""));
    let summary = explained(&world);
    assert!(summary.contains("the listener gets traffic"), "{summary}");
    assert!(policy(&world).starts_with("redirected to a listener on this node"));
}
