//! The `status` subresource.

use serde_json::{Value, json};

use super::{Cluster, complaint, object, service};
use crate::value::ValueExt as _;

fn balanced() -> Cluster {
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&json!({"type": "LoadBalancer", "ports": [{"port": 80}]}))));
    cluster
}

fn with_ingress(ingress: &Value) -> Value {
    let status = json!({"loadBalancer": {"ingress": [ingress]}});
    json!({"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "clusterIP": "1.1.1.1"}, "status": status})
}

#[test]
fn the_status_changes_and_the_spec_does_not() {
    let mut cluster = balanced();
    let before = cluster.services["web"].at("spec").clone();
    let (got, warnings) = cluster.update_status(with_ingress(&json!({"ip": "192.0.2.1"}))).expect("accepted");
    assert_eq!(got.at("spec"), &before);
    assert_eq!(got.at("status.loadBalancer.ingress"), &json!([{"ip": "192.0.2.1", "ipMode": "VIP"}]));
    assert!(warnings.is_empty());
    let kept = object(cluster.patch("web", &json!({"status": {"loadBalancer": {}}})));
    assert_eq!(kept.items("status.loadBalancer.ingress").len(), 1, "the main resource does not change the status");
    let gone = object(cluster.patch("web", &json!({"spec": {"type": "ClusterIP"}})));
    assert_eq!(gone.at("status"), &json!({"loadBalancer": {}}));
}

#[test]
fn each_ingress_is_checked() {
    let at = "status.loadBalancer.ingress[0]";
    for (ingress, want) in [
        (json!({"ip": "192.000.2.1"}), ".ip: Invalid value: \"192.000.2.1\": must not have leading 0s"),
        (json!({"ipMode": "VIP"}), ".ipMode: Forbidden: may not be specified when `ip` is not set"),
        (
            json!({"ip": "192.0.2.1", "ipMode": "X"}),
            ".ipMode: Unsupported value: \"X\": supported values: \"Proxy\", \"VIP\"",
        ),
        (
            json!({"hostname": "192.0.2.1"}),
            ".hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address",
        ),
    ] {
        assert_eq!(complaint(&balanced().update_status(with_ingress(&ingress))), format!("{at}{want}"));
    }
    let mut other = with_ingress(&json!({"ip": "192.0.2.1"}));
    other.put("spec.type", "ClusterIP");
    assert_eq!(
        complaint(&balanced().update_status(other)),
        format!("{at}.ipMode: Required value: must be specified when `ip` is set"),
        "the default looks at the type in the request"
    );
}

#[test]
fn only_load_balancers_have_ingress() {
    let mut cluster = Cluster::dual();
    object(cluster.create(service(&json!({"ports": [{"port": 80}]}))));
    assert_eq!(
        complaint(&cluster.update_status(with_ingress(&json!({"hostname": "a.b"})))),
        "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
    );
}

#[test]
fn unusual_addresses_are_warned_of() {
    let (_, warnings) = balanced().update_status(with_ingress(&json!({"ip": "2001:DB8::1"}))).expect("accepted");
    assert_eq!(
        warnings,
        ["status.loadBalancer.ingress[0]: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format \
          (\"2001:db8::1\")"]
    );
}
