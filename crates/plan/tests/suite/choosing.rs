//! Which endpoints are chosen: by readiness, topology hints, locality, and terminating ones as a last resort.

use plan::{EndpointStatus, Update};
use serde_json::json;

use crate::world::{STRANGER, World, endpoint, ends, node, read_slice, service, simple, slice, slice_of};

/// A Service with these policies, with external frontends if `outside`.
fn with_policies(internal: &str, external: &str, outside: bool) -> Update {
    let ports = if outside { json!([{"port": 80, "nodePort": 30080}]) } else { json!([{"port": 80}]) };
    let kind = if outside { "NodePort" } else { "ClusterIP" };
    service(
        "s",
        json!({"type": kind, "clusterIP": "10.96.0.1", "ports": ports,
            "internalTrafficPolicy": internal, "externalTrafficPolicy": external}),
    )
}

/// `cluster | local | hairpin`, and `!` if any endpoint can serve.
fn choice(world: &World) -> String {
    let port = world.port("default/s/TCP");
    let any = if port.has_any { "!" } else { "" };
    format!("{} | {} | {}{any}", ends(&port.cluster), ends(&port.local), ends(&port.hairpin))
}

#[test]
fn readiness_and_the_last_resort() {
    let policies = [("Cluster", "Cluster"), ("Cluster", "Local"), ("Local", "Cluster"), ("Local", "Local")];
    for (endpoints, want) in [
        ("", [" |  | ", " |  | ", " |  | ", " |  | "]),
        ("1=rsl 2=rs", ["1,2 |  | 1!", "1,2 | 1 | 1!", "1,2 | 1 | 1!", "1,2 | 1 | 1!"]),
        ("1=rs 2=rs", ["1,2 |  | !", "1,2 |  | !", "1,2 |  | !", "1,2 |  | !"]),
        ("1=l 2=rs 3=", ["2 |  | !", "2 |  | !", "2 |  | !", "2 |  | !"]),
        ("1=stl 2=rs", ["2 |  | !", "2 | 1 | 1!", "2 | 1 | 1!", "2 | 1 | 1!"]),
        ("1=stl 2=st 3=t", ["1,2 |  | 1!", "1,2 | 1 | 1!", "1,2 | 1 | 1!", "1,2 | 1 | 1!"]),
        ("1=rsl 2=st", ["1 |  | 1!", "1 | 1 | 1!", "1 | 1 | 1!", "1 | 1 | 1!"]),
        ("1=rsl 2=stl", ["1 |  | 1!", "1 | 1 | 1!", "1 | 1 | 1!", "1 | 1 | 1!"]),
        ("1=st", ["1 |  | !", "1 |  | !", "1 |  | !", "1 |  | !"]),
        ("1=s 2=tl", [" |  | ", " |  | ", " |  | ", " |  | "]),
        ("1=rstl", ["1 |  | 1!", "1 | 1 | 1!", "1 | 1 | 1!", "1 | 1 | 1!"]),
    ] {
        let mut world = World::new();
        world.say(slice("s", "s", endpoints));
        for ((internal, external), want) in policies.iter().zip(want) {
            world.say(with_policies(internal, external, true));
            assert_eq!(choice(&world), want, "{endpoints}, internal {internal}, external {external}");
        }
    }
}

#[test]
fn an_external_policy_means_nothing_inside() {
    let mut world = World::new();
    world.say(slice("s", "s", "1=rsl 2=rs"));
    world.say(with_policies("Cluster", "Local", false));
    assert_eq!(choice(&world), "1,2 |  | 1!");
    world.say(with_policies("Local", "Local", false));
    assert_eq!(choice(&world), " | 1 | 1!", "nothing may go anywhere");
    world.say(slice("s", "s", "2=rs"));
    assert_eq!(choice(&world), " |  | !");
}

#[test]
fn topology_hints() {
    for (endpoints, zone, want) in [
        ("1=rs/a 2=rs/b", Some("a"), "1"),
        ("1=rs/a 2=rs/b", Some("b"), "2"),
        ("1=rs/a 2=rs/b", Some("c"), "1,2"),
        ("1=rs/a 2=rs/b", None, "1,2"),
        ("1=rs/a/b 2=rs/b", Some("b"), "1,2"),
        ("1=rs/a 2=rs", Some("a"), "1,2"),
        ("1=rs/a 2=/b 3=", Some("a"), "1"),
        ("1=/a 2=rs/b", Some("a"), "2"),
        ("1=rs/a@here 2=rs/a@there", Some("a"), "1"),
        ("1=rs/a@there 2=rs/b@there", Some("a"), "1"),
        ("1=rs@here 2=rs", Some("a"), "1,2"),
        ("1=rs/a@here 2=rs/a", Some("a"), "1,2"),
        ("1=rs/b@here 2=rs/a@there", Some("a"), "1"),
        ("1=/a 2=st/b 3=st/a", Some("a"), "2,3"),
    ] {
        let mut world = World::new();
        world.say(with_policies("Cluster", "Cluster", true));
        world.say(slice("s", "s", endpoints));
        world.say(node("192.0.2.1", zone));
        assert_eq!(ends(&world.port("default/s/TCP").cluster), want, "{endpoints} in {zone:?}");
    }
}

#[test]
fn the_local_policy_ignores_hints() {
    let mut world = World::new();
    world.say(with_policies("Cluster", "Local", true));
    world.say(slice("s", "s", "1=rsl/b 2=rs/a 3=rsl/b"));
    assert_eq!(choice(&world), "2 | 1,3 | 1,3!");
}

#[test]
fn each_endpoint_counts_once() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    world.say(slice("a", "s", "2=t 1=rs"));
    world.say(slice("b", "s", "1=rsl 2=rs"));
    world.say(slice("c", "s", "2=st 2=st 3=rs"));
    let port = world.port("default/s/TCP");
    assert_eq!(ends(&port.cluster), "1,2,3");
    assert_eq!(ends(&port.serving), "1,2,3");
    for name in ["a", "b"] {
        world.say(Update::SliceGone(format!("default/{name}")));
    }
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "3", "the one that is going is no longer needed");
}

/// The port number comes from the slice and may differ between slices.
#[test]
fn ports_are_found_by_name_and_protocol() {
    let mut world = World::new();
    world.say(service(
        "s",
        json!({"clusterIP": "10.96.0.1", "ports": [
            {"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"}, {"name": "sctp", "port": 9, "protocol": "SCTP"}]}),
    ));
    let ports = |http: u16| {
        json!([{"name": "http", "port": http, "protocol": "TCP"}, {"name": "dns", "port": 5353, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 5354}, {"name": "sctp", "port": 99, "protocol": "TCP"}])
    };
    world.say(slice_of("a", "s", "IPv4", &ports(8080), "1"));
    world.say(slice_of("b", "s", "IPv4", &ports(9090), "2 1"));
    let backends = |name: &str| {
        let all = world.port(name).cluster.iter();
        all.map(|backend| format!("{}:{}", backend.ip, backend.port)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(backends("default/s:http/TCP"), "10.244.0.1:8080 10.244.0.1:9090 10.244.0.2:9090");
    assert_eq!(backends("default/s:dns/UDP"), "10.244.0.1:5353 10.244.0.2:5353");
    assert_eq!(backends("default/s:dns-tcp/TCP"), "10.244.0.1:5354 10.244.0.2:5354");
    assert_eq!(backends("default/s:sctp/SCTP"), "", "a port of another protocol is another port");
}

#[test]
fn missing_conditions_have_defaults() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    world.say(read_slice(json!({
        "metadata": {"namespace": "default", "name": "a", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4", "ports": [{"name": "", "port": 8080}],
        "endpoints": [
            {"addresses": ["10.244.0.1", "10.244.0.9"]},
            {"addresses": ["10.244.0.2"], "conditions": {"ready": false}},
            {"addresses": ["10.244.0.3"], "conditions": null, "hints": null, "nodeName": null},
            {"addresses": []}, endpoint("10.244.0.4=r"),
        ],
    })));
    let port = world.port("default/s/TCP");
    assert_eq!(ends(&port.cluster), "1,3,4");
    assert_eq!(ends(&port.serving), "1,2,3", "an endpoint is thought to answer until it says that it does not");
}

#[test]
fn reasons_name_the_status_of_each_endpoint() {
    let mut world = World::new();
    world.say(with_policies("Cluster", "Local", true));
    world.say(simple("other", "10.96.0.9"));
    world.say(slice("s", "s", "10.96.0.9 1=rs/b 2=rsl/a 3=s 4=st 5=stl 6=l"));
    let port = world.port("default/s/TCP");
    let reasons = world.0.reasons(&port.key);
    let standings: Vec<_> = reasons.iter().map(|reason| (reason.cluster, reason.local)).collect();
    let pair = |cluster, local| (Some(cluster), Some(local));
    assert_eq!(
        standings,
        [
            pair(EndpointStatus::ClusterIp, EndpointStatus::ClusterIp),
            pair(EndpointStatus::HintedForOtherZone, EndpointStatus::OtherNode),
            pair(EndpointStatus::Chosen, EndpointStatus::Chosen),
            pair(EndpointStatus::NotReady, EndpointStatus::OtherNode),
            pair(EndpointStatus::Terminating, EndpointStatus::OtherNode),
            pair(EndpointStatus::Terminating, EndpointStatus::Terminating),
            pair(EndpointStatus::NotReady, EndpointStatus::NotReady),
        ]
    );
    world.say(slice("s", "s", "4=st"));
    let reasons = world.0.reasons(&world.port("default/s/TCP").key);
    assert_eq!((reasons[0].cluster, reasons[0].local), pair(EndpointStatus::LastResort, EndpointStatus::OtherNode));
    assert_eq!(ends(&world.forward("192.0.2.1", "192.0.2.1", 30080).backends), "4");
    world.say(with_policies("Cluster", "Cluster", false));
    assert_eq!(world.0.reasons(&world.port("default/s/TCP").key)[0].local, None);
    assert_eq!(ends(&world.forward(STRANGER, "10.96.0.1", 80).backends), "4");
}
