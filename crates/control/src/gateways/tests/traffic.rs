//! Statuses of TrafficPolicies.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use super::*;
use crate::objects::gateway_api::TRAFFIC_POLICIES;

/// A policy with these targets and a Secret with passwords.
fn put_policy(cluster: &mut Cluster, name: &str, targets: Value) {
    let basic = json!({"basic": {"secretName": "users"}});
    put(cluster, TRAFFIC_POLICIES, name, json!({"targetRefs": targets, "authentication": basic}));
}

fn put_secret(cluster: &mut Cluster, key: &str) {
    let metadata = json!({"name": "users", "namespace": "default"});
    cluster.put("secrets", json!({"metadata": metadata, "type": "Opaque", "data": {key: "YTpi"}}));
}

fn policy(cluster: &Cluster, name: &str) -> Value {
    cluster.get(TRAFFIC_POLICIES, &format!("default/{name}")).expect("a policy")
}

fn ancestors(cluster: &Cluster, name: &str) -> Vec<Value> {
    policy(cluster, name).items("status.ancestors").to_vec()
}

#[test]
fn a_policy_says_for_which_gateway_it_holds() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_route(&mut cluster, "web");
    put_secret(&mut cluster, "auth");
    put_policy(&mut cluster, "p", json!([{"kind": "HTTPRoute", "name": "web"}]));
    converge(&mut cluster);
    let found = ancestors(&cluster, "p");
    let gateway =
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "default", "name": "public"});
    assert_eq!((found.len(), &found[0]["ancestorRef"]), (1, &gateway));
    assert_eq!(found[0]["controllerName"], "waypost.dev/gateway-controller");
    assert_eq!(conditions(&found[0]), ["Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs"]);
    assert_eq!(condition(&found[0], "Accepted")["observedGeneration"], 1);
}

#[test]
fn a_policy_follows_its_secret_and_its_targets() {
    let mut cluster = cluster();
    put_policy(&mut cluster, "p", json!([{"kind": "Gateway", "name": "public"}]));
    converge(&mut cluster);
    let said = |cluster: &Cluster| conditions(&ancestors(cluster, "p")[0]);
    assert_eq!(said(&cluster), ["Accepted=False/TargetNotFound", "ResolvedRefs=False/InvalidSecretRef"]);
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_secret(&mut cluster, "other");
    converge(&mut cluster);
    assert_eq!(said(&cluster), ["Accepted=True/Accepted", "ResolvedRefs=False/InvalidSecretRef"]);
    put_secret(&mut cluster, "auth");
    converge(&mut cluster);
    assert_eq!(said(&cluster), ["Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs"]);
    cluster.remove("secrets", "default/users");
    converge(&mut cluster);
    assert_eq!(said(&cluster), ["Accepted=True/Accepted", "ResolvedRefs=False/InvalidSecretRef"]);
}

#[test]
fn the_younger_of_two_policies_is_in_conflict() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_policy(&mut cluster, "a", json!([{"kind": "Gateway", "name": "public"}]));
    put_policy(&mut cluster, "b", json!([{"kind": "Gateway", "name": "public"}]));
    converge(&mut cluster);
    assert_condition(&ancestors(&cluster, "a")[0], "Accepted=True/Accepted");
    assert_condition(&ancestors(&cluster, "b")[0], "Accepted=False/Conflicted");
    cluster.remove(TRAFFIC_POLICIES, "default/a");
    converge(&mut cluster);
    assert_condition(&ancestors(&cluster, "b")[0], "Accepted=True/Accepted");
}

#[test]
fn entries_of_other_controllers_stay_and_nothing_is_written_twice() {
    let mut cluster = cluster();
    put_gateway(&mut cluster, &[listener("http", 80, "HTTP")]);
    put_policy(&mut cluster, "p", json!([{"kind": "Gateway", "name": "public"}]));
    converge(&mut cluster);
    let condition = json!({
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "good",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let foreign = json!({
        "ancestorRef": {"name": "public"}, "controllerName": "example.com/other", "conditions": [condition],
    });
    let mut object = policy(&cluster, "p");
    object["status"]["ancestors"].as_array_mut().expect("a list").insert(0, foreign.clone());
    cluster.put(TRAFFIC_POLICIES, object);
    put_secret(&mut cluster, "auth");
    converge(&mut cluster);
    let before = policy(&cluster, "p");
    let found = before.items("status.ancestors");
    assert_eq!((found.len(), &found[0]), (2, &foreign));
    assert_condition(&found[1], "ResolvedRefs=True/ResolvedRefs");
    put_route(&mut cluster, "web");
    converge(&mut cluster);
    assert_eq!(policy(&cluster, "p"), before, "also not its resourceVersion");
}
