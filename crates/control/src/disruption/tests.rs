use api::kinds::customresourcedefinition;
use serde_json::json;

use super::*;
use crate::testing::{Cluster, pod};

const BUDGETS: &str = "poddisruptionbudgets";

fn cluster(spec: &Value) -> Cluster {
    let mut cluster = Cluster::new(&[&CONTROLLER, &STALE_TARGETS]);
    put_budget(&mut cluster, spec, &json!({}));
    cluster
}

fn put_budget(cluster: &mut Cluster, spec: &Value, status: &Value) {
    let mut spec = spec.clone();
    if !spec.has("selector") {
        spec.put("selector", json!({"matchLabels": {"app": "web"}}));
    }
    let metadata = json!({"name": "b", "namespace": "default", "generation": 1});
    cluster.put(BUDGETS, json!({"metadata": metadata, "spec": spec, "status": status}));
}

/// A controller of three Pods.
fn owner(kind: &str, owner: Option<&Value>) -> Value {
    let mut object = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 3}});
    if let Some(owner) = owner {
        object.put("metadata.ownerReferences", json!([owner]));
    }
    object.put("metadata.uid", format!("uid of {kind}"));
    object
}

fn reference(api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": "web", "uid": format!("uid of {kind}"), "controller": true,
    })
}

fn put_pods(cluster: &mut Cluster, ready: &[bool], owner: Option<&Value>) {
    for (number, ready) in ready.iter().enumerate() {
        let mut pod = pod(&format!("p{number}"), "web", number, *ready);
        if let Some(owner) = owner {
            pod.put("metadata.ownerReferences", json!([owner]));
        }
        cluster.put("pods", pod);
    }
}

/// Expected, desired, healthy and allowed.
fn counts(cluster: &Cluster) -> [i64; 4] {
    let budget = cluster.get(BUDGETS, "default/b").expect("a budget");
    ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"]
        .map(|field| budget.at("status").int(field))
}

fn condition(cluster: &Cluster) -> (String, String, String) {
    let budget = cluster.get(BUDGETS, "default/b").expect("a budget");
    let condition = &budget.items("status.conditions")[0];
    ["status", "reason", "message"].map(|field| condition.text(field).to_owned()).into()
}

fn reasons(cluster: &Cluster) -> Vec<&str> {
    cluster.events.iter().map(|(reason, _)| reason.as_str()).collect()
}

#[test]
fn a_budget_without_pods_allows_nothing() {
    let mut cluster = cluster(&json!({"minAvailable": 0}));
    cluster.converge();
    assert_eq!(counts(&cluster), [0, 0, 0, 0]);
    assert_eq!(cluster.events, [("NoPods".to_owned(), "No matching pods found".to_owned())]);
    let budget = cluster.get(BUDGETS, "default/b").expect("a budget");
    assert_eq!(budget.int("status.observedGeneration"), 1);
    cluster.writes_to(BUDGETS);
    cluster.restart();
    cluster.converge();
    assert_eq!(cluster.writes_to(BUDGETS), 0, "what is right stays as it is");
}

#[test]
fn a_number_of_available_pods_needs_no_controller() {
    let mut cluster = cluster(&json!({"minAvailable": 2}));
    put_pods(&mut cluster, &[true, true, true, false], None);
    cluster.put("pods", pod("other", "db", 9, true));
    cluster.converge();
    assert_eq!(counts(&cluster), [4, 2, 3, 1]);
    assert_eq!(condition(&cluster), ("True".into(), "SufficientPods".into(), String::new()));
    cluster.put("pods", pod("p0", "web", 0, false));
    cluster.converge();
    assert_eq!(counts(&cluster), [4, 2, 2, 0]);
    assert_eq!(condition(&cluster), ("False".into(), "InsufficientPods".into(), String::new()));
    cluster.remove("pods", "default/p3");
    cluster.converge();
    assert_eq!(counts(&cluster), [3, 2, 2, 0]);
    let relabelled = pod("p1", "db", 1, true);
    cluster.put("pods", relabelled);
    cluster.converge();
    assert_eq!(counts(&cluster), [2, 2, 1, 0], "a Pod that left counts no longer");
}

#[test]
fn parts_are_those_of_the_scale_of_controllers() {
    let deployment = reference("apps/v1", "Deployment");
    let cases = [
        ("replicasets", "apps/v1", "ReplicaSet"),
        ("statefulsets", "apps/v1", "StatefulSet"),
        ("controllers", "v1", "ReplicationController"),
    ];
    for (table, api_version, kind) in cases {
        let mut cluster = cluster(&json!({"maxUnavailable": "34%"}));
        cluster.put(table, owner(kind, None));
        put_pods(&mut cluster, &[true, true], Some(&reference(api_version, kind)));
        cluster.converge();
        assert_eq!(counts(&cluster), [3, 1, 2, 1], "{kind}");
    }
    let mut cluster = cluster(&json!({"minAvailable": "100%"}));
    cluster.put("deployments", owner("Deployment", None));
    let mut set = owner("ReplicaSet", Some(&deployment));
    set.put("spec.replicas", 1);
    cluster.put("replicasets", set);
    put_pods(&mut cluster, &[true, true, true], Some(&reference("apps/v1", "ReplicaSet")));
    cluster.converge();
    assert_eq!(counts(&cluster), [3, 3, 3, 0], "the Deployment counts, not its ReplicaSet");
    let mut scaled = owner("Deployment", None);
    scaled.put("spec.replicas", 2);
    cluster.put("deployments", scaled);
    cluster.converge();
    assert_eq!(counts(&cluster), [2, 2, 3, 1], "a scaled controller is seen");
    cluster.remove("deployments", "default/web");
    cluster.converge();
    assert_eq!(counts(&cluster), [1, 1, 3, 2], "an orphaned ReplicaSet counts itself");
}

#[test]
fn custom_resources_have_a_scale() {
    let mut cluster = cluster(&json!({"maxUnavailable": 1}));
    cluster.put(
        customresourcedefinition::KIND.table,
        definition(&json!({"scale": {
            "specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count",
        }})),
    );
    cluster.deliver_all();
    let table = cluster.cache.kinds.kinds().find("example.com", "v1", "farms").expect("the kind").table;
    let mut farm = owner("Farm", None);
    farm.put("spec", json!({"count": 4}));
    cluster.put(table, farm);
    put_pods(&mut cluster, &[true; 4], Some(&reference("example.com/v1", "Farm")));
    cluster.converge();
    assert_eq!(counts(&cluster), [4, 3, 4, 1]);
}

/// A definition that is established.
fn definition(subresources: &Value) -> Value {
    let names = json!({"plural": "farms", "singular": "farm", "kind": "Farm", "listKind": "FarmList"});
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {"name": "farms.example.com"},
        "spec": {
            "group": "example.com", "names": names, "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
        "status": {
            "acceptedNames": names, "storedVersions": ["v1"],
            "conditions": [
                {"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"},
            ],
        },
    })
}

#[test]
fn controllers_that_cannot_be_scaled_fail_the_sync() {
    let cases = [
        (reference("apps/v1", "ReplicaSet"), "found no controllers for pod \"p0\""),
        (reference("v1", "Node"), "nodes does not implement the scale subresource"),
        (reference("example.com/v1", "Farm"), "no matches for kind \"Farm\" in version \"example.com/v1\""),
    ];
    for (owner, why) in cases {
        let mut cluster = cluster(&json!({"maxUnavailable": 1}));
        put_pods(&mut cluster, &[true], Some(&owner));
        cluster.converge();
        assert_eq!(condition(&cluster), ("False".into(), "SyncFailed".into(), why.into()));
        assert_eq!(counts(&cluster)[3], 0);
        let message = format!("Failed to calculate the number of expected pods: {why}");
        assert_eq!(cluster.events, [("CalculateExpectedPodCountFailed".to_owned(), message)]);
    }
}

#[test]
fn unmanaged_pods_are_reported() {
    let mut cluster = cluster(&json!({"maxUnavailable": 1}));
    put_pods(&mut cluster, &[true], None);
    cluster.converge();
    assert_eq!((counts(&cluster), reasons(&cluster)), ([0, 0, 1, 0], vec!["UnmanagedPods"]));
    let selector = "(selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:\
                    []LabelSelectorRequirement{},})";
    assert!(cluster.events[0].1.contains(selector), "{:?}", cluster.events);
}

#[test]
fn an_evicted_pod_is_not_healthy_until_it_was_to_be_deleted() {
    // The clock of the cluster is at the epoch.
    let mut cluster = cluster(&json!({"minAvailable": 1}));
    put_pods(&mut cluster, &[true, true], None);
    let disrupted = json!({"p0": "1969-12-31T23:58:30Z", "gone": "1969-12-31T23:58:30Z"});
    put_budget(&mut cluster, &json!({"minAvailable": 1}), &json!({"disruptedPods": disrupted}));
    cluster.converge();
    assert_eq!(counts(&cluster), [2, 1, 1, 0]);
    let budget = cluster.get(BUDGETS, "default/b").expect("a budget");
    assert_eq!(budget.at("status.disruptedPods"), &json!({"p0": "1969-12-31T23:58:30Z"}));
    let outcome = cluster.reconcile(&CONTROLLER, "default/b");
    assert_eq!(outcome.requeue_after, Some(Duration::from_secs(31)));
    let late = json!({"disruptedPods": {"p0": "1969-12-31T23:57:59Z"}});
    put_budget(&mut cluster, &json!({"minAvailable": 1}), &late);
    cluster.converge();
    assert_eq!(counts(&cluster), [2, 1, 2, 1]);
    assert_eq!(reasons(&cluster), ["NotDeleted"]);
}

#[test]
fn a_selector_is_for_all_pods_or_for_none() {
    let mut cluster = cluster(&json!({"minAvailable": 1, "selector": {}}));
    put_pods(&mut cluster, &[true, true], None);
    cluster.put("pods", pod("other", "db", 9, true));
    cluster.converge();
    assert_eq!(counts(&cluster), [3, 1, 3, 2]);
    let metadata = json!({"name": "b", "namespace": "default"});
    cluster.put(BUDGETS, json!({"metadata": metadata, "spec": {"minAvailable": 1}}));
    cluster.converge();
    assert_eq!(counts(&cluster), [0, 1, 0, 0]);
}

#[test]
fn the_condition_of_a_pod_that_was_not_deleted_is_reset() {
    let mut cluster = cluster(&json!({"minAvailable": 1}));
    let with_target = |name: &str, reason: &str, since: &str| {
        let mut pod = pod(name, "web", 1, true);
        let mut conditions = pod.items("status.conditions").to_vec();
        conditions.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": since,
        }));
        pod.put("status.conditions", conditions);
        pod
    };
    cluster.put("pods", with_target("stale", "EvictionByEvictionAPI", "1969-12-31T23:58:00Z"));
    cluster.put("pods", with_target("fresh", "EvictionByEvictionAPI", "1969-12-31T23:58:30Z"));
    cluster.put("pods", with_target("ended", "TerminationByKubelet", "1969-12-31T23:00:00Z"));
    cluster.deliver_all();
    let wait = cluster.reconcile(&STALE_TARGETS, "default/fresh").requeue_after;
    assert_eq!(wait, Some(Duration::from_secs(30)));
    cluster.converge();
    let status = |name: &str| {
        let pod = cluster.get("pods", &format!("default/{name}")).expect("a Pod");
        let mut conditions = pod.items("status.conditions").iter();
        conditions.find(|one| one.text("type") == "DisruptionTarget").map(|one| one.text("status").to_owned())
    };
    assert_eq!(["stale", "fresh", "ended"].map(|name| status(name).expect("a condition")), ["False", "True", "True"]);
}
