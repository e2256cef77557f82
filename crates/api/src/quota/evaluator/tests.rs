use serde_json::json;

use super::*;

fn usage(evaluator: Evaluator<'_>, object: &Value) -> String {
    evaluator.usage(object, "2026-01-01T00:01:00Z".parse().expect("a time")).to_string()
}

#[test]
fn kinds_use_their_resources() {
    let tracks = |group, plural, resource| Evaluator::find(group, plural).is_some_and(|one| one.tracks(resource));
    assert!(tracks("", "secrets", "secrets") && tracks("", "secrets", "count/secrets"));
    assert!(tracks("apps", "deployments", "count/deployments.apps") && !tracks("apps", "deployments", "deployments"));
    assert!(!tracks("", "serviceaccounts", "serviceaccounts") && !tracks("", "events", "count/events"));
    assert!(tracks("", "pods", "requests.example.com/gpu") && tracks("", "pods", "limits.ephemeral-storage"));
    assert!(tracks("", "pods", "requests.hugepages-2Mi") && !tracks("", "pods", "requests.storage"));
    assert!(tracks("", CLAIMS, "gold.storageclass.storage.k8s.io/requests.storage") && !tracks("", CLAIMS, "pods"));
}

#[test]
fn services_count_by_type() {
    let service = |spec: Value| usage(Evaluator::Services, &json!({"spec": spec}));
    let ports = json!([{"port": 1}, {"port": 2, "nodePort": 30000}]);
    let counts = |text: &str| text.replace("count/services=1,services=1,services.", "").replace("services.", "");
    let of_type = |kind: &str| counts(&service(json!({"type": kind, "ports": ports})));
    assert_eq!(of_type("ClusterIP"), "loadbalancers=0,nodeports=0");
    assert_eq!(of_type("NodePort"), "loadbalancers=0,nodeports=2");
    assert_eq!(of_type("LoadBalancer"), "loadbalancers=1,nodeports=2");
    let bare = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false});
    assert_eq!(counts(&service(bare)), "loadbalancers=1,nodeports=1");
}

#[test]
fn pods_count_while_they_run() {
    let mut pod = json!({"spec": {"containers": [{"resources": {
        "requests": {"cpu": "1", "example.com/x": "2", "hugepages-2Mi": "4Mi"}, "limits": {"memory": "1Gi"},
    }}]}});
    assert_eq!(
        usage(Evaluator::Pods, &pod),
        "count/pods=1,cpu=1,hugepages-2Mi=4Mi,limits.memory=1Gi,pods=1,requests.cpu=1,requests.example.com/x=2,\
         requests.hugepages-2Mi=4Mi"
    );
    pod.put("metadata.deletionTimestamp", "2026-01-01T00:00:30Z");
    pod.put("metadata.deletionGracePeriodSeconds", 30);
    assert!(usage(Evaluator::Pods, &pod).contains("pods=1,requests"));
    pod.put("metadata.deletionGracePeriodSeconds", 29);
    assert_eq!(usage(Evaluator::Pods, &pod), "count/pods=1");
    assert_eq!(usage(Evaluator::Pods, &json!({"status": {"phase": "Succeeded"}})), "count/pods=1");
}

#[test]
fn claims_count_by_class() {
    let claim = json!({
        "spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1.1Ki"}}},
        "status": {"allocatedResources": {"storage": "2Ki"}},
    });
    assert_eq!(
        usage(Evaluator::Claims, &claim),
        "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
         gold.storageclass.storage.k8s.io/requests.storage=2Ki,persistentvolumeclaims=1,requests.storage=2Ki"
    );
    assert_eq!(
        storage_of(&json!({"spec": {"resources": {"requests": {"storage": "1.1Ki"}}}})),
        Some(Amount::whole(1127))
    );
}

#[test]
fn containers_must_specify_limited_resources() {
    let pod = |containers: Value| json!({"spec": {"containers": containers, "initContainers": [{"name": "i"}]}});
    let missing = |pod: &Value| Evaluator::Pods.missing(["limits.memory", "pods", "requests.cpu"].into_iter(), pod);
    let silent = pod(json!([{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]));
    assert_eq!(missing(&silent).as_deref(), Some("must specify limits.memory for: a,b,i; requests.cpu for: b,i"));
    let mut whole = silent;
    whole.put("spec.resources", json!({"requests": {"cpu": "1"}}));
    assert_eq!(missing(&whole), None, "resources of the Pod are enough");
}
