//! The rules of Services, driven through a small cluster in memory.

mod cluster;
mod dual_stack;
mod ledger;
mod node_ports;
mod status;
mod transitions;
mod update;
mod validation;

use cluster::{Answer, Cluster};
use serde_json::{Value, json};

use crate::value::ValueExt as _;

/// A Service called `web` with this spec.
fn service(spec: &Value) -> Value {
    json!({"metadata": {"name": "web"}, "spec": spec})
}

/// The message of a refusal without its prefix, or nothing.
fn complaint(answer: &Answer) -> String {
    let message = answer.as_ref().err().map(|status| status.message.clone()).unwrap_or_default();
    message.strip_prefix("Service \"web\" is invalid: ").map(str::to_owned).unwrap_or(message)
}

/// The object of an answer that must be good.
fn object(answer: Answer) -> Value {
    answer.expect("accepted").0
}

/// What a new Service with this spec becomes on a cluster with both families.
fn created(spec: &Value) -> Value {
    object(Cluster::dual().create(service(spec)))
}

#[test]
fn a_minimal_service_is_filled_in() {
    let got = created(&json!({"ports": [{"port": 80}]}));
    let ip = got.text("spec.clusterIP").to_owned();
    assert_eq!(
        got.at("spec"),
        &json!({
            "clusterIP": ip, "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        })
    );
    assert_eq!(got.at("status"), &json!({"loadBalancer": {}}));
}

#[test]
fn an_external_name_gets_no_address() {
    let got = created(&json!({"type": "ExternalName", "externalName": "example.com."}));
    assert_eq!(
        got.at("spec"),
        &json!({"type": "ExternalName", "externalName": "example.com.", "sessionAffinity": "None"})
    );
    // Stored by clients that send it, but never shown.
    let got = created(&json!({"type": "ExternalName", "externalName": "a.b", "internalTrafficPolicy": "Local"}));
    assert!(!got.has("spec.internalTrafficPolicy"));
}

#[test]
fn a_load_balancer_with_local_traffic_gets_a_health_check_port() {
    let got = created(&json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "targetPort": "http"}],
    }));
    assert_eq!(got.at("spec.allocateLoadBalancerNodePorts"), true);
    assert!(got.int("spec.healthCheckNodePort") > 0);
    assert!(got.items("spec.ports")[0].int("nodePort") > 0);
    let cluster = created(&json!({"type": "LoadBalancer", "ports": [{"port": 80}]}));
    assert_eq!(cluster.text("spec.externalTrafficPolicy"), "Cluster");
    assert!(!cluster.has("spec.healthCheckNodePort"));
}

#[test]
fn affinity_is_completed_or_dropped() {
    let ports = json!([{"port": 80}]);
    let sticky = created(&json!({"ports": ports, "sessionAffinity": "ClientIP"}));
    assert_eq!(sticky.int("spec.sessionAffinityConfig.clientIP.timeoutSeconds"), 10_800);
    let config = json!({"clientIP": {"timeoutSeconds": 5}});
    let plain = created(&json!({"ports": ports, "sessionAffinity": "None", "sessionAffinityConfig": config}));
    assert!(!plain.has("spec.sessionAffinityConfig"));
}

#[test]
fn claims_are_refused_in_the_words_of_the_original() {
    let ports = json!([{"port": 80}]);
    let mut cluster = Cluster::dual();
    object(cluster.create(json!({"metadata": {"name": "one"}, "spec": {"ports": ports, "clusterIP": "10.96.0.5"}})));
    let create = |cluster: &mut Cluster, spec: Value| complaint(&cluster.create(service(&spec)));
    assert_eq!(
        create(&mut cluster, json!({"ports": ports, "clusterIP": "10.96.0.5"})),
        "spec.clusterIPs: Invalid value: [\"10.96.0.5\"]: failed to allocate IP 10.96.0.5: provided IP is already allocated"
    );
    assert_eq!(
        create(&mut cluster, json!({"ports": ports, "clusterIP": "1.2.3.4"})),
        "spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: \
         the provided network does not match the current range"
    );
    let nameless = cluster.create(json!({"spec": {"ports": ports}}));
    assert_eq!(
        complaint(&nameless),
        "Service \"\" is invalid: spec.clusterIPs: Invalid value: [\"\"]: failed to allocate IP: \
         IPAddress.networking.k8s.io \"10.96.128.1\" is invalid: spec.parentRef.name: Required value"
    );
    cluster.pool.left = 0;
    let full = cluster.create(service(&json!({"ports": ports}))).expect_err("full");
    assert_eq!((full.code, full.reason), (500, Some("InternalError")));
    assert_eq!(
        full.message,
        "Internal error occurred: failed to allocate a serviceIP for Service \"web\": range is full"
    );
    assert_eq!(cluster.pool.addresses.len(), 1, "a refused Service holds nothing");
}

#[test]
fn a_row_says_where_the_service_is() {
    let now = "2024-01-01T00:01:00Z".parse().expect("a time");
    let mut lb = created(&json!({
        "type": "LoadBalancer", "selector": {"b": "2", "a": "1"}, "externalIPs": ["203.0.113.9"], "clusterIP": "10.96.0.7",
        "ports": [{"port": 80, "nodePort": 30080}],
    }));
    lb.put("metadata.creationTimestamp", "2024-01-01T00:00:00Z");
    lb.put("status.loadBalancer.ingress", json!([{"hostname": "z.example"}, {"ip": "192.0.2.1"}, {"ip": "192.0.2.1"}]));
    let row = super::KIND.table_view.row;
    assert_eq!(
        row(&lb, now),
        ["web", "LoadBalancer", "10.96.0.7", "192.0.2.1,z.example,203.0.113.9", "80:30080/TCP", "60s", "a=1,b=2"]
    );
    let name = created(&json!({"type": "ExternalName", "externalName": "a.b"}));
    assert_eq!(row(&name, now), ["web", "ExternalName", "<none>", "a.b", "<none>", "<unknown>", "<none>"]);
    let facts = super::KIND.facts(&lb);
    assert_eq!(facts.fields.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["10.96.0.7", "LoadBalancer"]);
}
