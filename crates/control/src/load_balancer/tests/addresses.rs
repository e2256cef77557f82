//! Assignment of addresses from pools.

use super::*;
use crate::objects::load_balancer::annotations;

#[test]
fn s43_a_requested_address_is_assigned_if_possible() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/29"], &json!({})));
    cluster.put(SERVICES, balancer("wish", &[("spec.loadBalancerIP", json!("192.0.2.5"))]));
    cluster.put(SERVICES, balancer("late", &[("spec.loadBalancerIP", json!("192.0.2.5"))]));
    cluster.put(SERVICES, balancer("far", &[("spec.loadBalancerIP", json!("78.11.24.19"))]));
    cluster.put(SERVICES, annotated("modern", "metallb.universe.tf/loadBalancerIPs", "192.0.2.6"));
    cluster.converge();
    let wishes = [shown(&cluster, "wish"), shown(&cluster, "late")];
    assert!(wishes.contains(&"192.0.2.5".to_owned()) && wishes[0] != wishes[1] && !wishes.contains(&String::new()));
    assert!(!shown(&cluster, "far").is_empty(), "another address");
    assert!(has_event(&cluster, "LoadBalancerIPIgnored", "78.11.24.19 is not in pool office; it gets another address"));
    assert!(has_event(&cluster, "LoadBalancerIPIgnored", "192.0.2.5 is used by Service default/"));
    assert_eq!(shown(&cluster, "modern"), "192.0.2.6");
    assert_agreed(&cluster);
}

#[test]
fn addresses_of_the_annotation_are_mandatory() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/29"], &json!({})));
    for (name, text, why) in [
        ("outside", "198.51.100.1", "198.51.100.1 is not in pool office"),
        ("nonsense", "x", "\"x\" is no address"),
        ("twice", "192.0.2.1,192.0.2.2", "names two IPv4 addresses"),
        ("family", "2001:db8::1", "the Service has no IPv6"),
    ] {
        cluster.put(SERVICES, annotated(name, annotations::ADDRESSES, text));
        cluster.converge();
        let (reason, message) = condition(&cluster, name);
        assert_eq!((shown(&cluster, name).as_str(), reason.as_str()), ("", "AddressRefused"), "{name}");
        assert!(message.contains(why), "{message}");
        assert!(has_event(&cluster, "AddressRefused", why));
    }
    let mut both = annotated("both", annotations::ADDRESSES, "192.0.2.3");
    both.put("spec.loadBalancerIP", "192.0.2.4");
    cluster.put(SERVICES, both.clone());
    cluster.converge();
    assert!(condition(&cluster, "both").1.ends_with("remove one of them"));
    both.put("spec.loadBalancerIP", "192.0.2.3");
    cluster.put(SERVICES, both);
    cluster.converge();
    assert_eq!(shown(&cluster, "both"), "192.0.2.3", "the same twice is once");
}

#[test]
fn pools_are_used_by_priority_and_selector() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("a-last", &["192.0.2.10"], &json!({"priority": 5})));
    cluster.put(POOLS, pool("manual", &["192.0.2.20-192.0.2.21"], &json!({"autoAssign": false, "priority": -9})));
    cluster.put(POOLS, pool("others", &["192.0.2.30"], &json!({"namespaces": ["kube-system"], "priority": -9})));
    cluster.put(POOLS, pool("web", &["192.0.2.40"], &json!({"serviceSelector": {"matchLabels": {"tier": "web"}}})));
    cluster.put(SERVICES, balancer("labelled", &[("metadata.labels", json!({"tier": "web"}))]));
    cluster.converge();
    cluster.put(SERVICES, balancer("plain", &[]));
    cluster.put(SERVICES, annotated("named", "waypost.dev/pool", "manual"));
    cluster.put(SERVICES, annotated("closed", "metallb.io/address-pool", "others"));
    cluster.put(SERVICES, annotated("unknown", "waypost.dev/pool", "none"));
    cluster.put(SERVICES, annotated("exact", annotations::ADDRESSES, "192.0.2.21"));
    cluster.converge();
    assert_eq!(shown(&cluster, "labelled"), "192.0.2.40");
    assert_eq!(shown(&cluster, "plain"), "192.0.2.10");
    assert_eq!(shown(&cluster, "named"), "192.0.2.20");
    assert_eq!(shown(&cluster, "exact"), "192.0.2.21", "whoever asks for an address has named its pool");
    assert!(condition(&cluster, "closed").1.contains("pool others, which is not for Services like this one"));
    assert!(condition(&cluster, "unknown").1.contains("pool \"none\", which does not exist"));
    assert_agreed(&cluster);
}

#[test]
fn s47_internal_load_balancers_have_pools_of_their_own() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("public", &["198.51.100.0/29"], &json!({})));
    cluster.put(SERVICES, annotated("inside", "service.beta.kubernetes.io/aws-load-balancer-internal", "0.0.0.0/0"));
    cluster.converge();
    let (reason, message) = condition(&cluster, "inside");
    assert_eq!(reason, "NoInternalPool");
    assert!(
        message.contains("aws-load-balancer-internal asks for an internal load balancer")
            && message.contains("kubectl apply")
    );
    cluster.put(POOLS, pool("private", &["10.9.0.0/29"], &json!({"internal": true, "priority": -9})));
    cluster.put(SERVICES, balancer("outside", &[]));
    cluster.converge();
    assert_eq!((shown(&cluster, "inside").as_str(), shown(&cluster, "outside").as_str()), ("10.9.0.0", "198.51.100.0"));
    cluster.put(SERVICES, annotated("crossed", "waypost.dev/pool", "private"));
    cluster.converge();
    assert!(condition(&cluster, "crossed").1.contains("is internal, and no annotation"));
}

#[test]
fn an_exhausted_pool_is_reported_and_freed_addresses_are_reused() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("tiny", &["192.0.2.1"], &json!({})));
    cluster.put(SERVICES, balancer("one", &[]));
    cluster.converge();
    cluster.put(SERVICES, balancer("two", &[]));
    cluster.converge();
    let (reason, message) = condition(&cluster, "two");
    assert_eq!((shown(&cluster, "two").as_str(), reason.as_str()), ("", "Exhausted"));
    assert!(message.contains("no IPv4 address is free in pool tiny (of 1, all in use)"), "{message}");
    assert!(message.ends_with("kubectl edit ippool tiny"), "{message}");
    assert!(has_event(&cluster, "Exhausted", "pool tiny"));
    let _ = cluster.writes_to(SERVICES);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to(SERVICES), 0, "what was said is not said again");
    let mut going = cluster.get(SERVICES, "default/one").expect("the Service");
    going.put("metadata.deletionTimestamp", "2026-01-01T00:00:00Z");
    cluster.put(SERVICES, going);
    cluster.converge();
    assert_eq!(shown(&cluster, "two"), "192.0.2.1");
    cluster.put(SERVICES, balancer("three", &[]));
    cluster.converge();
    cluster.put(POOLS, pool("tiny", &["192.0.2.1-192.0.2.2"], &json!({})));
    cluster.converge();
    assert_eq!(shown(&cluster, "three"), "192.0.2.2", "a larger pool serves at once");
    assert_agreed(&cluster);
}

#[test]
fn addresses_that_left_their_pool_are_replaced() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/30"], &json!({})));
    cluster.put(SERVICES, balancer("a", &[]));
    cluster.put(SERVICES, balancer("b", &[]));
    cluster.converge();
    cluster.put(POOLS, pool("office", &["192.0.2.1", "192.0.2.8/30"], &json!({})));
    cluster.converge();
    assert_eq!((shown(&cluster, "a").as_str(), shown(&cluster, "b").as_str()), ("192.0.2.8", "192.0.2.1"));
    assert!(has_event(&cluster, "LoadBalancerAddressChanged", "was 192.0.2.0 and is 192.0.2.8 now"));
    assert_agreed(&cluster);
    cluster.remove(POOLS, "office");
    cluster.converge();
    assert_eq!(shown(&cluster, "a"), "");
    assert_eq!(condition(&cluster, "a").0, "NoPool");
    assert!(claimed(&cluster).is_empty());
}

#[test]
fn addresses_are_shared_under_one_key_port_by_port() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/29"], &json!({})));
    let sharing = |name: &str, port: u16, key: &str| {
        let mut service = annotated(name, key, "one-key");
        service.put("spec.ports", json!([{"port": port, "protocol": "TCP", "targetPort": 80}]));
        service
    };
    for service in [
        sharing("http", 80, "waypost.dev/sharing-key"),
        sharing("https", 443, "metallb.io/allow-shared-ip"),
        sharing("again", 80, "waypost.dev/sharing-key"),
        balancer("alone", &[("spec.loadBalancerIP", json!("192.0.2.0"))]),
    ] {
        cluster.put(SERVICES, service);
        cluster.converge();
    }
    assert_eq!((shown(&cluster, "http").as_str(), shown(&cluster, "https").as_str()), ("192.0.2.0", "192.0.2.0"));
    assert_ne!(shown(&cluster, "again"), "192.0.2.0", "its port is taken");
    assert_ne!(shown(&cluster, "alone"), "192.0.2.0");
    // On a later port conflict, the newer Service loses the address.
    let mut moved = cluster.get(SERVICES, "default/https").expect("the Service");
    moved.put("spec.ports", json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
    cluster.put(SERVICES, moved);
    cluster.converge();
    assert_ne!(shown(&cluster, "https"), "192.0.2.0");
    assert!(has_event(&cluster, "LoadBalancerAddressChanged", "was 192.0.2.0"));
    assert_agreed(&cluster);
}

#[test]
fn concurrent_services_share_an_address() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("office", &["192.0.2.0/29"], &json!({})));
    for (name, protocol) in [("a-first", "TCP"), ("b-tcp", "TCP"), ("c-udp", "UDP")] {
        let mut service = annotated(name, "waypost.dev/sharing-key", if name == "a-first" { "" } else { "dns" });
        service.put("spec.ports", json!([{"port": 53, "protocol": protocol, "targetPort": 53}]));
        cluster.put(SERVICES, service);
    }
    cluster.deliver_all();
    for (index, key) in cluster.queued.clone() {
        cluster.run(index, &key);
    }
    cluster.converge();
    assert_eq!((shown(&cluster, "b-tcp").as_str(), shown(&cluster, "c-udp").as_str()), ("192.0.2.1", "192.0.2.1"));
    assert_agreed(&cluster);
}

#[test]
fn families_are_assigned_by_policy() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("four", &["192.0.2.0/29"], &json!({})));
    cluster.put(SERVICES, dual("must", "RequireDualStack"));
    cluster.put(SERVICES, dual("would", "PreferDualStack"));
    cluster.converge();
    assert_eq!(shown(&cluster, "must"), "");
    assert!(condition(&cluster, "must").1.contains("pool four has no IPv6 addresses"));
    assert!(!shown(&cluster, "would").is_empty());
    assert!(has_event(&cluster, "SecondFamilyMissing", "no IPv6"));
    cluster.put(POOLS, pool("six", &["2001:db8::/126"], &json!({})));
    cluster.converge();
    for name in ["must", "would"] {
        let both = shown(&cluster, name);
        assert!(both.contains("192.0.2.") && both.contains(",2001:db8::"), "{name}: {both}");
    }
    assert_agreed(&cluster);
}

#[test]
fn addresses_in_use_are_not_assigned() {
    let mut cluster = cluster();
    cluster.put("minions", node("n1", "192.0.2.0"));
    cluster.put(SERVICES, crate::testing::service("inner", "x"));
    let mut inner = cluster.get(SERVICES, "default/inner").expect("the Service");
    inner.put("spec.clusterIPs", json!(["192.0.2.1"]));
    inner.put("spec.clusterIP", "192.0.2.1");
    cluster.put(SERVICES, inner);
    cluster.put(POOLS, pool("office", &["192.0.2.0/30"], &json!({})));
    cluster.put(SERVICES, balancer("web", &[]));
    cluster.put(SERVICES, annotated("node", annotations::ADDRESSES, "192.0.2.0"));
    cluster.converge();
    assert_eq!(shown(&cluster, "web"), "192.0.2.2");
    assert!(condition(&cluster, "node").1.contains("192.0.2.0 is the own address of a Node"));
}

#[test]
fn the_pool_of_the_command_line_is_an_object_that_follows_the_flag() {
    let range = |text: &str| api::pool::Range::parse(text).expect("a range");
    let mut cluster = cluster();
    cluster.settings.load_balancer.ranges = vec![range("192.0.2.9")];
    cluster.put(SERVICES, balancer("web", &[]));
    cluster.converge();
    assert_eq!(condition(&cluster, "web").1, "192.0.2.9 from pool command-line", "before the object is there");
    cluster.run(1, crate::controller::SINGLETON_KEY);
    cluster.converge();
    let stored = cluster.get(POOLS, "command-line").expect("the object");
    assert_eq!(stored.at("spec"), &json!({"addresses": ["192.0.2.9"], "autoAssign": true, "announce": ["l2", "bgp"]}));
    assert_eq!(stored.int("status.assigned"), 1);
    cluster.put(SERVICES, balancer("more", &[]));
    cluster.converge();
    assert!(condition(&cluster, "more").1.ends_with("give the server a larger --load-balancer-pool"));
    // A deleted pool is created again.
    cluster.remove(POOLS, "command-line");
    cluster.converge();
    assert!(cluster.get(POOLS, "command-line").is_some());
    assert_eq!(shown(&cluster, "web"), "192.0.2.9");
    // A restart with another flag, and one without.
    cluster.settings.load_balancer.ranges = vec![range("192.0.2.8/30")];
    cluster.restart();
    cluster.run(1, crate::controller::SINGLETON_KEY);
    cluster.converge();
    assert_eq!(cluster.get(POOLS, "command-line").expect("it").texts("spec.addresses"), ["192.0.2.8-192.0.2.11"]);
    assert_eq!((shown(&cluster, "web").as_str(), shown(&cluster, "more").as_str()), ("192.0.2.9", "192.0.2.8"));
    cluster.settings.load_balancer.ranges = Vec::new();
    cluster.restart();
    cluster.run(1, crate::controller::SINGLETON_KEY);
    cluster.converge();
    assert!(cluster.get(POOLS, "command-line").is_none());
    assert_eq!(shown(&cluster, "web"), "");
    // A pool of this name that a user created is not changed.
    cluster.put(POOLS, pool("command-line", &["192.0.2.1"], &json!({})));
    cluster.converge();
    cluster.run(1, crate::controller::SINGLETON_KEY);
    assert!(cluster.get(POOLS, "command-line").is_some());
}
