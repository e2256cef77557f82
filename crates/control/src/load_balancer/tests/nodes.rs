//! Addresses of Nodes as load balancer addresses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::settings::PortsInUse;

#[test]
fn a_single_machine_needs_no_pool() {
    let mut cluster = cluster();
    cluster.put("minions", node("laptop", "192.168.1.5"));
    cluster.put(SERVICES, balancer("web", &[("spec.loadBalancerIP", json!("78.11.24.19"))]));
    cluster.converge();
    assert_eq!(shown(&cluster, "web"), "192.168.1.5");
    assert!(condition(&cluster, "web").1.starts_with("192.168.1.5 from the own address of Node laptop"));
    assert!(has_event(&cluster, "LoadBalancerIPIgnored", "78.11.24.19 is no address of Node laptop"));
    cluster.put(SERVICES, balancer("again", &[]));
    cluster.put(SERVICES, balancer("beside", &[("spec.ports", json!([{"port": 81, "protocol": "TCP"}]))]));
    cluster.converge();
    assert!(condition(&cluster, "again").1.contains("192.168.1.5 is used by Service default/web on port TCP/80"));
    assert_eq!(shown(&cluster, "beside"), "192.168.1.5");
    assert_agreed(&cluster);
    // With more Nodes, existing Services keep their address and new ones need a pool.
    cluster.put("minions", node("second", "192.168.1.6"));
    cluster.put(SERVICES, balancer("third", &[("spec.ports", json!([{"port": 82, "protocol": "TCP"}]))]));
    cluster.converge();
    assert_eq!((shown(&cluster, "web").as_str(), shown(&cluster, "third").as_str()), ("192.168.1.5", ""));
    assert!(
        condition(&cluster, "third")
            .1
            .contains("there is no pool of addresses, and the cluster has 2 Nodes; create one: echo")
    );
    // A pool takes over.
    cluster.put(POOLS, pool("lan", &["192.168.1.64/26"], &json!({})));
    cluster.converge();
    assert!(shown(&cluster, "web").starts_with("192.168.1.") && shown(&cluster, "web") != "192.168.1.5");
    assert_agreed(&cluster);
}

#[test]
fn ports_in_use_and_node_ports_are_not_assigned() {
    let mut cluster = cluster();
    let busy = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&busy);
    let in_use = move |protocol: &str, port: u16| protocol == "TCP" && port == 80 && seen.load(Ordering::Relaxed);
    cluster.settings.load_balancer.ports_in_use = PortsInUse::checked_by(in_use);
    cluster.put("minions", node("laptop", "192.168.1.5"));
    cluster.put(SERVICES, balancer("web", &[]));
    cluster.converge();
    let (reason, message) = condition(&cluster, "web");
    assert_eq!((shown(&cluster, "web").as_str(), reason.as_str()), ("", "PortInUse"));
    assert!(
        message.contains("a program of this machine has port 80 (TCP)") && message.contains("ss -ltnp"),
        "{message}"
    );
    assert!(
        cluster.reconcile(&CONTROLLER, "default/web").requeue_after.is_some(),
        "the end of a program is not watched"
    );
    busy.store(false, Ordering::Relaxed);
    cluster.run(0, "default/web");
    cluster.converge();
    assert_eq!(shown(&cluster, "web"), "192.168.1.5");
    // From now on the port is in use by our own rule.
    busy.store(true, Ordering::Relaxed);
    cluster.run(0, "default/web");
    cluster.converge();
    assert_eq!(shown(&cluster, "web"), "192.168.1.5");

    let ports = json!([{"port": 30080, "protocol": "TCP", "nodePort": 30080}]);
    cluster.put(SERVICES, balancer("own", &[("spec.ports", ports)]));
    cluster.put(SERVICES, balancer("other", &[("spec.ports", json!([{"port": 30081, "protocol": "TCP"}]))]));
    for (port, owner) in [(30080, "own"), (30081, "somebody")] {
        cluster.put_raw(store::allocation::port_key(port), store::allocation::port_owner_value("default", owner));
    }
    cluster.converge();
    assert_eq!(shown(&cluster, "own"), "192.168.1.5");
    assert!(
        condition(&cluster, "other").1.contains("port 30081 of 192.168.1.5 is a node port of Service default/somebody")
    );
}

#[test]
fn a_node_without_addresses_assigns_none() {
    let mut cluster = cluster();
    cluster.put("minions", node("alone", "127.0.0.1"));
    cluster.put(SERVICES, balancer("web", &[]));
    cluster.converge();
    let (reason, message) = condition(&cluster, "web");
    assert_eq!((shown(&cluster, "web").as_str(), reason.as_str()), ("", "NoFamily"));
    assert!(message.contains("Node alone has no IPv4 address that others reach"), "{message}");
}

#[test]
fn the_class_proxy_shows_every_node_that_takes_traffic() {
    let mut cluster = cluster();
    cluster.put(POOLS, pool("unused", &["192.0.2.0/29"], &json!({})));
    cluster.put("minions", node("a", "192.168.1.5"));
    cluster.put("minions", node("b", "192.168.1.6"));
    let mut silent = node("c", "192.168.1.7");
    silent.put("status.conditions", json!([{"type": "Ready", "status": "Unknown"}]));
    cluster.put("minions", silent);
    let mut excluded = node("d", "192.168.1.8");
    excluded.put("metadata.labels", json!({"node.kubernetes.io/exclude-from-external-load-balancers": ""}));
    cluster.put("minions", excluded);
    cluster.put(SERVICES, balancer("web", &[("spec.loadBalancerClass", json!(CLASS_PROXY))]));
    cluster.put(
        SERVICES,
        balancer(
            "near",
            &[
                ("spec.loadBalancerClass", json!(CLASS_PROXY)),
                ("spec.externalTrafficPolicy", json!("Local")),
                ("spec.ports", json!([{"port": 81, "protocol": "TCP"}])),
            ],
        ),
    );
    cluster.converge();
    assert_eq!(shown(&cluster, "web"), "192.168.1.5,192.168.1.6");
    assert_eq!(condition(&cluster, "near").0, "NoNode");
    cluster.put(
        "endpointslices",
        json!({
            "metadata": {"name": "near-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "near"}},
            "addressType": "IPv4", "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "b", "conditions": {"ready": true}}],
        }),
    );
    cluster.converge();
    assert_eq!(shown(&cluster, "near"), "192.168.1.6");
    cluster.remove("minions", "a");
    cluster.converge();
    assert_eq!(shown(&cluster, "web"), "192.168.1.6");
    assert_agreed(&cluster);
}
