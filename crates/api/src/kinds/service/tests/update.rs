//! Sending a Service again, in part or as a whole.

use serde_json::json;

use super::{Cluster, complaint, object, service};
use crate::value::ValueExt as _;

#[test]
fn the_same_manifest_again_keeps_what_was_allocated() {
    let manifest = service(&json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}], "ipFamilyPolicy": "RequireDualStack",
    }));
    let mut cluster = Cluster::dual();
    let mut first = object(cluster.create(manifest.clone()));
    let mut again = object(cluster.update(manifest));
    for object in [&mut first, &mut again] {
        object.drop_path("metadata.resourceVersion");
    }
    assert_eq!(again, first);
    assert_eq!((cluster.pool.addresses.len(), cluster.pool.ports.len()), (2, 2));
}

#[test]
fn the_first_address_does_not_change() {
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.1"}))));
    for (patch, want) in [
        (
            json!({"clusterIP": "10.96.0.2"}),
            "spec.clusterIPs[0]: Invalid value: [\"10.96.0.2\"]: may not change once set",
        ),
        (
            json!({"clusterIPs": ["10.96.0.2"]}),
            "spec.clusterIPs: Invalid value: [\"10.96.0.2\"]: first value must match `clusterIP`",
        ),
    ] {
        assert_eq!(complaint(&cluster.patch("web", &json!({ "spec": patch }))), want);
    }
    let cleared = object(cluster.patch("web", &json!({"spec": {"clusterIP": null, "clusterIPs": null}})));
    assert_eq!(cleared.text("spec.clusterIP"), "10.96.0.1");
}

#[test]
fn a_class_is_for_life() {
    let mut cluster = Cluster::dual();
    object(
        cluster
            .create(service(&json!({"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": "x.io/a"}))),
    );
    let answer = cluster.patch("web", &json!({"spec": {"loadBalancerClass": "Bad Class"}}));
    let message = complaint(&answer);
    assert!(
        message.starts_with("[spec.loadBalancerClass: Invalid value: \"Bad Class\": may not change once set, spec.")
    );
    let causes = answer.expect_err("refused").details.unwrap_or_default().items("causes").len();
    assert_eq!(causes, 2, "the syntax is checked twice and reported once");
    assert_eq!(
        complaint(&cluster.patch("web", &json!({"spec": {"loadBalancerClass": null}}))),
        "spec.loadBalancerClass: Invalid value: null: may not change once set"
    );
}

#[test]
fn the_health_check_port_is_immutable() {
    let mut cluster = Cluster::dual();
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    object(cluster.create(service(&spec)));
    assert_eq!(
        complaint(&cluster.patch("web", &json!({"spec": {"healthCheckNodePort": 30123}}))),
        "spec.healthCheckNodePort: Forbidden: field is immutable"
    );
}

#[test]
fn addresses_that_were_accepted_once_are_accepted_again() {
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&json!({"ports": [{"port": 80}], "externalIPs": ["203.0.113.1"]}))));
    cluster.services.get_mut("web").expect("stored").put("spec.externalIPs", json!(["203.000.113.001"]));
    object(cluster.patch("web", &json!({"metadata": {"labels": {"a": "b"}}})));
    let worse = json!({"spec": {"externalIPs": ["203.000.113.001", "203.000.113.002"]}});
    assert_eq!(
        complaint(&cluster.patch("web", &worse)),
        "spec.externalIPs[1]: Invalid value: \"203.000.113.002\": must not have leading 0s"
    );
}

#[test]
fn objects_of_older_servers_are_completed() {
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&json!({"ports": [{"port": 80}], "clusterIP": "10.96.0.1"}))));
    let stored = cluster.services.get_mut("web").expect("stored");
    for field in ["spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy"] {
        stored.drop_path(field);
    }
    let got = object(cluster.patch("web", &json!({"metadata": {"labels": {"a": "b"}}})));
    assert_eq!(got.at("spec.clusterIPs"), &json!(["10.96.0.1"]));
    assert_eq!(got.at("spec.ipFamilies"), &json!(["IPv4"]));
    assert_eq!(cluster.pool.addresses.len(), 1);
}
