//! Node ports: who shares, who does not, and what is refused.

use serde_json::{Value, json};

use super::{Cluster, complaint, created, object, service};
use crate::value::ValueExt as _;

fn numbers(service: &Value) -> Vec<i64> {
    service.items("spec.ports").iter().map(|port| port.int("nodePort")).collect()
}

#[test]
fn ports_of_one_number_share_a_node_port_on_create_only() {
    let two = json!([
        {"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP", "nodePort": 30053},
    ]);
    assert_eq!(numbers(&created(&json!({"type": "NodePort", "ports": two}))), [30053, 30053]);

    let mut cluster = Cluster::dual();
    let tcp = json!({"name": "t", "port": 53, "protocol": "TCP"});
    let udp = json!({"name": "u", "port": 53, "protocol": "UDP"});
    let first = numbers(&object(cluster.create(service(&json!({"type": "NodePort", "ports": [tcp]})))))[0];
    let later = numbers(&object(cluster.update(service(&json!({"type": "NodePort", "ports": [tcp, udp]})))));
    assert_eq!(later[0], first, "kept by name");
    assert_ne!(later[1], first);
}

#[test]
fn node_ports_stay_with_the_name_of_the_port() {
    let mut cluster = Cluster::dual();
    let spec = |ports: Value| service(&json!({"type": "NodePort", "ports": ports}));
    object(cluster.create(spec(
        json!([{"name": "a", "port": 1, "nodePort": 30001}, {"name": "b", "port": 2, "nodePort": 30002}]),
    )));
    let got = object(cluster.update(spec(
        json!([{"name": "b", "port": 3}, {"name": "c", "port": 4, "nodePort": 30001}, {"name": "a", "port": 5}]),
    )));
    let got = numbers(&got);
    assert_eq!(got[..2], [30002, 30001]);
    assert!(got[2] > 30002, "its number moved to another port, so it gets a new one");
}

#[test]
fn load_balancers_may_do_without() {
    let spec = json!({
        "type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
        "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30002}],
    });
    assert_eq!(numbers(&created(&spec)), [0, 30002]);
}

#[test]
fn chosen_ports_may_be_refused() {
    let mut cluster = Cluster::dual();
    let np = |port: i64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    object(cluster.create(json!({"metadata": {"name": "one"}, "spec": np(30080)})));
    for (port, why) in [
        (30080, "provided port is already allocated"),
        (80, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (-1, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
        (70000, "provided port is not in the valid range. The range of valid ports is 30000-32767"),
    ] {
        assert_eq!(
            complaint(&cluster.create(service(&np(port)))),
            format!("spec.ports[0].nodePort: Invalid value: {port}: {why}")
        );
    }
    object(cluster.create(service(&np(30081))));
    assert_eq!(
        complaint(&cluster.update(service(&np(30080)))),
        "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated"
    );
    let twice = json!({"type": "NodePort", "ports": [
        {"name": "a", "port": 1, "nodePort": 30081}, {"name": "b", "port": 2, "nodePort": 30081},
    ]});
    let status = cluster.update(service(&twice)).expect_err("twice");
    assert_eq!((status.code, status.reason), (500, None));
    assert_eq!(status.message, "duplicate nodePort: {TCP 30081}");
}

#[test]
fn exhaustion_and_health_check_ports_are_internal_errors() {
    let mut cluster = Cluster::dual();
    cluster.pool.left = 1;
    assert_eq!(
        complaint(&cluster.create(service(&json!({"type": "NodePort", "ports": [{"port": 80}]})))),
        "Internal error occurred: failed to allocate a nodePort: range is full"
    );
    let local = |port: i64| {
        service(&json!({
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": port, "clusterIP": "10.96.0.3",
            "ports": [{"port": 80, "nodePort": 30080}],
        }))
    };
    assert_eq!(
        complaint(&cluster.create(local(30080))),
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30080: provided port is already allocated"
    );
    assert!(complaint(&cluster.create(local(1))).ends_with("The range of valid ports is 30000-32767"));
    assert!(cluster.pool.ports.is_empty());
}

#[test]
fn numbers_on_an_external_name_are_nobodys() {
    let mut cluster = Cluster::dual();
    let np = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]});
    object(cluster.create(json!({"metadata": {"name": "owner"}, "spec": np})));
    let name = json!({"type": "ExternalName", "externalName": "a.b", "ports": [{"port": 80, "nodePort": 30080}]});
    object(cluster.create(service(&name)));
    assert!(complaint(&cluster.patch("web", &json!({"spec": {"type": "NodePort"}}))).contains("already allocated"));
    cluster.delete("web");
    assert!(cluster.pool.ports.contains(&30080), "still the owner's");
}
