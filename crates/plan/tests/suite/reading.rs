//! Parsing of Services: frontends per family, and their restrictions.

use api::ip::Family;
use plan::{Role, ServicePort};
use serde_json::{Value, json};

use crate::world::{World, ip, read_service, service, service_with, slice, slice_of};

/// Plans a Service alone.
fn planned(spec: Value, status: Value) -> World {
    let mut world = World::new();
    world.say(service_with("s", spec, status));
    world
}

fn only(world: &World, family: Family) -> Option<&ServicePort> {
    world.find("default/s/TCP", family)
}

#[test]
fn services_that_are_not_proxied() {
    let port = json!([{"port": 80}]);
    for spec in [
        json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": port}),
        json!({"clusterIP": "", "ports": port}),
        json!({"clusterIP": null, "clusterIPs": null, "ports": port}),
        json!({"type": "ExternalName", "externalName": "example.com", "ports": port}),
        json!({"type": "ExternalName", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": port}),
    ] {
        let world = planned(spec.clone(), json!({}));
        assert!(world.0.plan().ports.is_empty() && world.0.plan().cluster_ips.is_empty(), "{spec}");
        assert_eq!(world.problems(), Vec::<String>::new(), "{spec}");
    }
    let mut world = World::new();
    world.say(read_service(json!({
        "metadata": {"namespace": "default", "name": "s", "labels": {"service.kubernetes.io/service-proxy-name": "x"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": port},
    })));
    assert!(world.0.plan().ports.is_empty() && world.0.plan().cluster_ips.is_empty());
}

#[test]
fn families_are_planned_separately() {
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "fd00:10:96::1", "clusterIPs": ["fd00:10:96::1", "10.96.0.1"],
        "ipFamilies": ["IPv6", "IPv4"], "externalIPs": ["198.51.100.2", "2001:db8:1::2"],
        "ports": [{"port": 80, "nodePort": 30080}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "2001:db8:1::1"}, {"ip": "198.51.100.1"}]}});
    let mut world = planned(spec, status);
    let ports = json!([{"name": "", "port": 8080}]);
    world.say(slice_of("six", "s", "IPv6", &ports, "fd00:10:244::6"));
    world.say(slice_of("four", "s", "IPv4", &ports, "10.244.0.4"));
    for (family, cluster, external, lb, backend) in [
        (Family::V4, "10.96.0.1", "198.51.100.2", "198.51.100.1", "10.244.0.4"),
        (Family::V6, "fd00:10:96::1", "2001:db8:1::2", "2001:db8:1::1", "fd00:10:244::6"),
    ] {
        let port = only(&world, family).expect("planned");
        assert_eq!(
            (port.cluster_ip, &*port.external_ips, &*port.lb_ips),
            (Some(ip(cluster)), &[ip(external)][..], &[ip(lb)][..])
        );
        assert_eq!(port.cluster.iter().map(|one| one.ip).collect::<Vec<_>>(), [ip(backend)]);
        assert_eq!(port.frontends().len(), 4);
    }
    assert_eq!(world.0.plan().frontends.len(), 8);
}

#[test]
fn a_family_without_cluster_ip_is_not_planned() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "2001:db8:1::1"}]}});
    let spec = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["2001:db8:1::2"],
        "ports": [{"port": 80}]});
    let world = planned(spec, status);
    assert!(only(&world, Family::V6).is_none());
    assert_eq!(only(&world, Family::V4).expect("planned").frontends().len(), 1);
}

#[test]
fn node_ports_need_a_matching_type() {
    for (kind, want) in [("ClusterIP", None), ("", None), ("NodePort", Some(30080)), ("LoadBalancer", Some(30080))] {
        let spec = json!({"type": kind, "clusterIP": "10.96.0.1", "ports": [{"port": 80, "nodePort": 30080}]});
        assert_eq!(only(&planned(spec, json!({})), Family::V4).expect("planned").node_port, want, "{kind}");
    }
}

#[test]
fn load_balancer_addresses_in_vip_mode() {
    let status = json!({"loadBalancer": {"ingress": [
        {"ip": "198.51.100.9", "ipMode": "VIP"}, {"ip": "198.51.100.2"}, {"ip": "198.51.100.3", "ipMode": "Proxy"},
        {"hostname": "lb.example.com"}, {"ip": "198.51.100.9"}]}});
    let spec = |kind: &str| json!({"type": kind, "clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
    let world = planned(spec("LoadBalancer"), status.clone());
    let port = only(&world, Family::V4).expect("planned");
    assert_eq!(port.lb_ips, [ip("198.51.100.2"), ip("198.51.100.9")]);
    assert!(port.frontends().iter().skip(1).all(|(_, role)| *role == Role::LoadBalancer));
    assert!(only(&planned(spec("ClusterIP"), status), Family::V4).expect("planned").lb_ips.is_empty());
}

#[test]
fn external_policies_and_health_ports() {
    for (kind, external_ips, policy, local, health) in [
        ("LoadBalancer", json!([]), "Local", true, Some(31000)),
        ("LoadBalancer", json!([]), "Cluster", false, None),
        ("NodePort", json!([]), "Local", true, None),
        ("ClusterIP", json!([]), "Local", false, None),
        ("ClusterIP", json!(["198.51.100.2"]), "Local", true, None),
    ] {
        let spec = json!({"type": kind, "clusterIP": "10.96.0.1", "externalIPs": external_ips,
            "externalTrafficPolicy": policy, "healthCheckNodePort": 31000, "ports": [{"port": 80}]});
        let world = planned(spec, json!({}));
        let port = only(&world, Family::V4).expect("planned");
        assert_eq!((port.external_local, port.health_port), (local, health), "{kind}, {policy}");
        assert_eq!(world.0.plan().health.len(), usize::from(health.is_some()));
    }
}

#[test]
fn health_counts_ready_local_addresses() {
    let mut world = World::new();
    world.say(service(
        "s",
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalTrafficPolicy": "Local",
            "healthCheckNodePort": 31000, "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}),
    ));
    let health =
        |world: &World| world.0.plan().health.values().map(|one| (one.port, one.local_ready)).collect::<Vec<_>>();
    assert_eq!(health(&world), [(31000, 0)]);
    world.say(slice_of(
        "1",
        "s",
        "IPv4",
        &json!([{"name": "a", "port": 1}, {"name": "b", "port": 2}]),
        "1=rsl 2=rs 3=stl",
    ));
    world.say(slice_of("2", "s", "IPv4", &json!([{"name": "b", "port": 3}]), "1=rsl 4=rsl 5=rstl 6=l"));
    assert_eq!(health(&world), [(31000, 2)]);
    assert_eq!(world.port("default/s:a/TCP").local_ready, 1);
    assert_eq!(world.port("default/s:b/TCP").local_ready, 2);
    world.say(service("s", json!({"clusterIP": "10.96.0.1", "ports": [{"name": "a", "port": 80}]})));
    assert_eq!(health(&world), []);
}

#[test]
fn affinity() {
    for (spec, want) in [
        (json!({}), None),
        (json!({"sessionAffinity": "None", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}), None),
        (json!({"sessionAffinity": "ClientIP"}), Some(10_800)),
        (json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": null}), Some(10_800)),
        (json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}), Some(5)),
        (json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}}}), Some(1)),
        (
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 100_000}}}),
            Some(86_400),
        ),
    ] {
        let mut full = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
        spec.as_object().into_iter().flatten().for_each(|(name, value)| full[name] = value.clone());
        let mut world = planned(full, json!({}));
        world.say(slice("s", "s", "1"));
        assert_eq!(only(&world, Family::V4).expect("planned").affinity, want, "{spec}");
        assert_eq!(world.forward("203.0.113.9", "10.96.0.1", 80).affinity, want, "{spec}");
    }
}

/// The list of a family: `open`, or the allowed ranges.
#[test]
fn source_ranges() {
    for (ranges, four, six) in [
        (json!([]), "open", "open"),
        (json!(["", " "]), "open", "open"),
        (json!(["10.0.0.0/8", "2001:db8::/32"]), "10.0.0.0/8", "2001:db8::/32"),
        (json!(["10.0.0.0/8"]), "10.0.0.0/8", ""),
        (json!(["2001:db8::/32"]), "", "2001:db8::/32"),
        (json!([" 10.0.0.0/8 ", "\t192.0.2.9/24", "010.1.0.0/16", "x"]), "10.0.0.0/8 192.0.2.0/24", ""),
        (json!(["10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32"]), "open", "2001:db8::/32"),
        (json!(["0.0.0.0/0"]), "open", "open"),
        (json!(["10.0.0.0/8", "::/0"]), "10.0.0.0/8", "open"),
        (json!(["x"]), "", ""),
    ] {
        let spec = json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.1", "fd00:10:96::1"],
            "ports": [{"port": 80}], "loadBalancerSourceRanges": ranges});
        let world = planned(spec, json!({}));
        let says = |family| {
            let list = &only(&world, family).expect("planned").source_ranges;
            let text = |all: &Vec<_>| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            list.as_ref().map_or_else(|| "open".to_owned(), text)
        };
        assert_eq!((&*says(Family::V4), &*says(Family::V6)), (four, six), "{ranges}");
    }
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.1", "ports": [{"port": 80}],
        "loadBalancerSourceRanges": ["10.0.0.0/8"]});
    assert_eq!(only(&planned(spec, json!({})), Family::V4).expect("planned").source_ranges, None);
}
