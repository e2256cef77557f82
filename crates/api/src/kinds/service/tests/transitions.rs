//! What happens to the linked fields when only `type` changes.

use serde_json::{Value, json};

use super::{Cluster, complaint, object, service};
use crate::value::ValueExt as _;

fn start(spec: Value) -> Cluster {
    let mut spec = spec;
    if !spec.has("ports") {
        spec.put("ports", json!([{"port": 80}]));
    }
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&spec)));
    cluster
}

fn change(cluster: &mut Cluster, spec: &Value) -> Value {
    object(cluster.patch("web", &json!({ "spec": spec })))
}

#[test]
fn between_types_with_addresses_the_address_stays() {
    let types = ["ClusterIP", "NodePort", "LoadBalancer"];
    for from in types {
        for to in types {
            let mut cluster = start(json!({"type": from}));
            let old = cluster.services["web"].clone();
            let new = change(&mut cluster, &json!({"type": to}));
            assert_eq!(new.at("spec.clusterIPs"), old.at("spec.clusterIPs"), "{from} to {to}");
            let (np, was) = (new.items("spec.ports")[0].int("nodePort"), old.items("spec.ports")[0].int("nodePort"));
            let policy = new.text("spec.externalTrafficPolicy");
            if to == "ClusterIP" {
                assert_eq!((np, policy), (0, ""), "{from} to {to}");
                assert!(cluster.pool.ports.is_empty());
            } else {
                assert!(np > 0 && (was == 0 || np == was), "{from} to {to}");
                assert_eq!(policy, "Cluster");
            }
            assert_eq!(new.has("spec.allocateLoadBalancerNodePorts"), to == "LoadBalancer");
        }
    }
}

#[test]
fn an_external_name_gives_everything_back() {
    let mut cluster = start(json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ipFamilyPolicy": "PreferDualStack",
        "loadBalancerClass": "x.io/lb",
    }));
    let new = change(&mut cluster, &json!({"type": "ExternalName", "externalName": "a.b"}));
    assert_eq!(
        new.at("spec"),
        &json!({
            "type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        })
    );
    assert!(cluster.pool.addresses.is_empty() && cluster.pool.ports.is_empty());
    let back = change(&mut cluster, &json!({"type": "ClusterIP", "clusterIP": "10.96.0.77"}));
    assert_eq!(back.at("spec.clusterIPs"), &json!(["10.96.0.77"]));
    assert_eq!(back.text("spec.internalTrafficPolicy"), "Cluster");
}

#[test]
fn local_traffic_comes_and_goes_with_its_port() {
    let mut cluster = start(json!({"type": "LoadBalancer"}));
    let local = change(&mut cluster, &json!({"externalTrafficPolicy": "Local"}));
    assert!(local.int("spec.healthCheckNodePort") > 0);
    assert_eq!(cluster.pool.ports.len(), 2);
    let wide = change(&mut cluster, &json!({"externalTrafficPolicy": "Cluster"}));
    assert!(!wide.has("spec.healthCheckNodePort"));
    assert_eq!(cluster.pool.ports.len(), 1);
}

#[test]
fn what_the_client_changes_too_is_not_wiped_but_refused() {
    for (from, patch, want) in [
        (
            json!({"type": "NodePort"}),
            json!({"type": "ClusterIP", "externalTrafficPolicy": "Local"}),
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
        ),
        (
            json!({"type": "NodePort"}),
            json!({"type": "ClusterIP", "ports": [{"port": 80, "nodePort": 30999}]}),
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ),
        (
            json!({"type": "LoadBalancer"}),
            json!({"type": "ClusterIP", "allocateLoadBalancerNodePorts": false}),
            "spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            json!({"type": "ClusterIP"}),
            "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
        ),
        (
            json!({}),
            json!({"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.96.0.9"}),
            "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
        ),
    ] {
        let mut cluster = start(from);
        let pool = cluster.pool.clone();
        assert_eq!(complaint(&cluster.patch("web", &json!({ "spec": patch }))), want);
        assert_eq!((cluster.pool.addresses, cluster.pool.ports), (pool.addresses, pool.ports));
    }
}

#[test]
fn headless_stays_headless() {
    let mut cluster = start(json!({"clusterIP": "None"}));
    for (patch, want) in [
        (
            json!({"clusterIP": "10.96.0.5"}),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.5\"]: may not change once set",
        ),
        (
            json!({"type": "NodePort"}),
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        ),
        (
            json!({"type": "LoadBalancer"}),
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for LoadBalancer services",
        ),
    ] {
        assert_eq!(complaint(&cluster.patch("web", &json!({ "spec": patch }))), want);
    }
    let name = change(&mut cluster, &json!({"type": "ExternalName", "externalName": "a.b"}));
    assert!(!name.has("spec.clusterIP") && !name.has("spec.ipFamilies"));
    let mut headful = start(json!({}));
    assert_eq!(
        complaint(&headful.patch("web", &json!({"spec": {"clusterIP": "None"}}))),
        "spec.clusterIPs[0]: Invalid value: [\"None\"]: may not change once set"
    );
}

#[test]
fn the_policy_goes_with_the_last_external_address() {
    let mut cluster = start(json!({"externalIPs": ["203.0.113.1"]}));
    assert_eq!(cluster.services["web"].text("spec.externalTrafficPolicy"), "Cluster");
    let gone = change(&mut cluster, &json!({"externalIPs": null}));
    assert!(!gone.has("spec.externalTrafficPolicy"));
}
