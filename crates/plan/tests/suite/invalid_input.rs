//! Invalid input is ignored and reported, and the rest works.

use plan::Update;
use plan::oracle::Outcome;
use serde_json::{Value, json};

use crate::world::{STRANGER, World, ends, names, service, service_with, simple, slice, slice_of};

fn says(world: &World, part: &str) -> bool {
    world.problems().iter().any(|problem| problem.starts_with("default/s: ") && problem.contains(part))
}

#[test]
fn invalid_addresses_are_reported() {
    let mut world = World::new();
    world.say(service_with(
        "s",
        json!({"type": "LoadBalancer", "clusterIP": "010.96.0.01", "clusterIPs": ["010.96.0.01", "nonsense"],
            "externalIPs": ["198.51.100.2", "nope", "127.0.0.1", "0.0.0.0"], "ports": [{"port": 80}]}),
        json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.300"}, {"ip": "198.51.100.1"}, {"ip": "224.0.0.1"}]}}),
    ));
    world.say(slice("s", "s", "1"));
    for address in ["10.96.0.1", "198.51.100.1", "198.51.100.2"] {
        assert!(matches!(world.judge(STRANGER, address, 80), Outcome::Forward(_)), "{address}");
    }
    assert_eq!(world.port("default/s/TCP").frontends().len(), 3);
    for part in [
        "`nonsense`",
        "`nope`",
        "127.0.0.1 is a loopback",
        "0.0.0.0 is the unspecified",
        "`198.51.100.300`",
        "224.0.0.1 is a multi",
    ] {
        assert!(says(&world, part), "{part} in {:?}", world.problems());
    }
}

#[test]
fn invalid_endpoints_are_reported() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    for (endpoints, part) in [
        ("1 nonsense 2", "`nonsense` is not an address"),
        ("1 127.0.0.1 2", "`127.0.0.1` is a loopback"),
        ("1 169.254.7.7 2 169.254.8.8 169.254.9.9", "is a link-local address; ignored (2 others as well)"),
        ("1 224.0.0.5 2", "`224.0.0.5` is a multicast"),
        ("1 0.0.0.0 2", "`0.0.0.0` is the unspecified address"),
        ("1 255.255.255.255 2", "broadcast"),
        ("1 fd00::1 2", "`fd00::1` is not of the slice's family"),
        ("1 ::1 2", "family"),
    ] {
        world.say(slice("x", "s", endpoints));
        assert_eq!(ends(&world.port("default/s/TCP").cluster), "1,2", "{endpoints}");
        assert!(says(&world, part) && says(&world, "default/x"), "{part} in {:?}", world.problems());
    }
    assert!(world.say(slice("x", "s", "1 2")).problems);
    assert_eq!(world.problems(), Vec::<String>::new());
}

#[test]
fn fqdn_slices_are_reported() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    let ports = json!([{"name": "", "port": 8080}]);
    world.say(slice_of("x", "s", "FQDN", &ports, "example.com"));
    assert!(says(&world, "`FQDN`"));
    assert!(matches!(world.judge(STRANGER, "10.96.0.1", 80), Outcome::Refuse(_)));
    world.say(Update::ServiceGone("default/s".to_owned()));
    assert_eq!(world.problems(), Vec::<String>::new(), "nobody asked for it");
}

#[test]
fn invalid_ports_are_reported() {
    let mut world = World::new();
    world.say(service(
        "s",
        json!({"clusterIP": "10.96.0.1", "ports": [
            {"name": "zero", "port": 0}, {"name": "huge", "port": 70000}, {"name": "odd", "port": 1, "protocol": "ICMP"},
            {"name": "minus", "port": -5}, {"name": "good", "port": 80}, {"name": "good", "port": 81}]}),
    ));
    let ports = json!([{"name": "good", "port": 0}, {"name": "good", "port": null}, {"port": 8081},
        {"name": "good", "port": 8080}, {"name": "good", "port": 65536}, {"name": "good", "port": 1, "protocol": "GRE"}]);
    world.say(slice_of("x", "s", "IPv4", &ports, "1"));
    assert_eq!(world.0.plan().ports.len(), 1);
    assert_eq!(world.port("default/s:good/TCP").cluster.len(), 1);
    assert_eq!(world.port("default/s:good/TCP").port, 80);
    for part in [
        "`zero`",
        "`huge`",
        "`odd`",
        "`minus`",
        "duplicate port default/s:good/TCP",
        "has no valid number",
        "has an unknown protocol",
    ] {
        assert!(says(&world, part), "{part} in {:?}", world.problems());
    }
}

#[test]
fn cluster_ips_are_ignored_as_endpoints() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    world.say(slice("x", "s", "1 10.96.0.7 10.96.0.1"));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "7,1", "its own address leads to itself");
    assert!(says(&world, "10.96.0.1 is the cluster IP"));
    let touched = world.say(simple("other", "10.96.0.7"));
    assert_eq!(names(&touched), ["default/other/TCP", "default/s/TCP"]);
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1");
    assert_eq!(ends(&world.port("default/s/TCP").serving), "1");
    let touched = world.say(Update::ServiceGone("default/other".to_owned()));
    assert_eq!(names(&touched), ["default/other/TCP", "default/s/TCP"]);
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "7,1");
    world.say(slice("x", "s", "10.96.0.1"));
    assert!(matches!(world.judge(STRANGER, "10.96.0.1", 80), Outcome::Refuse(_)), "nobody else could answer");
}

/// Also without a known ServiceCIDR, and far from any other cluster IP.
#[test]
fn cluster_ips_far_from_others_are_ignored_as_endpoints() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    world.say(slice("x", "s", "1 172.20.0.7"));
    world.say(slice("y", "s", "172.20.0.7"));
    world.say(simple("other", "172.20.0.7"));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1");
    world.say(Update::SliceGone("default/x".to_owned()));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "");
    world.say(Update::ServiceGone("default/other".to_owned()));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "7");
}

#[test]
fn source_ranges_may_close_a_family() {
    let mut world = World::new();
    let spec = json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.1", "fd00:10:96::1"], "ports": [{"port": 80}],
        "loadBalancerSourceRanges": ["10.0.0.0/8", "bogus"]});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "2001:db8:1::1"}, {"ip": "198.51.100.1"}]}});
    world.say(service_with("s", spec, status));
    assert!(says(&world, "contain no IPv6 address"));
    assert!(says(&world, "`bogus` is not a CIDR"));
    assert!(matches!(world.judge("2001:db8:f::9", "2001:db8:1::1", 80), Outcome::Drop(_)));
}

#[test]
fn a_thousand_endpoints_in_one_slice() {
    let mut world = World::new();
    world.say(simple("s", "10.96.0.1"));
    let many: Vec<String> = (0..1000).map(|n| format!("10.244.{}.{}=rsl", n / 250, n % 250)).collect();
    world.say(slice("x", "s", &many.join(" ")));
    let port = world.port("default/s/TCP");
    assert_eq!((port.cluster.len(), port.hairpin.len(), port.local_ready), (1000, 1000, 1000));
}

#[test]
fn nulls_are_absent() {
    let mut world = World::new();
    let null = Value::Null;
    world.say(service(
        "s",
        json!({"type": null, "clusterIP": "10.96.0.1", "clusterIPs": null, "ipFamilies": null, "externalIPs": null,
            "sessionAffinity": null, "loadBalancerSourceRanges": null, "healthCheckNodePort": null,
            "ports": [{"name": null, "port": 80, "protocol": null, "nodePort": null}]}),
    ));
    world.say(slice_of("x", "s", "IPv4", &json!([{"name": "", "port": 8080, "protocol": null}]), "1"));
    assert_eq!(ends(&world.port("default/s/TCP").cluster), "1");
    world.say(service_with("s", null.clone(), null));
    assert!(world.0.plan().ports.is_empty());
}
