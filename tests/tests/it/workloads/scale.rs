//! The subresources of workloads and of where Pods go: scale, binding, eviction.

use serde_json::json;

use super::{PODS, Stage, manifest};

#[test]
fn s01_every_kind_that_has_pods_can_be_scaled() {
    let stage = Stage::start();
    for (kind, name, extra) in [
        ("Deployment", "web", ""),
        ("ReplicaSet", "set", ""),
        ("StatefulSet", "db", "  serviceName: db\n"),
        ("ReplicationController", "old", ""),
    ] {
        stage.ok_with("apply -f -", &manifest(kind, name, 1, extra));
        stage.ok(&format!("scale {kind}/{name} --replicas=3"));
        stage.pods_until(&format!("app={name}"), |pods| {
            pods.len() == 3 && pods.iter().all(|pod| pod["status"]["phase"] == "Running")
        });
        let said = stage.fails(&format!("scale {kind}/{name} --current-replicas=1 --replicas=5"));
        assert!(said.contains("Expected replicas to be 1, was 3"), "{said}");
        stage.ok(&format!("scale {kind}/{name} --current-replicas=3 --replicas=0"));
        stage.pods_until(&format!("app={name}"), <[_]>::is_empty);
    }
}

#[test]
fn s01_a_scale_can_be_read_and_written() {
    let stage = Stage::without_kubelet(&[]);
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    let mut session = stage.server.session();
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let mut scale = session.get(path).success();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("app=web")));
    let old = scale.clone();
    scale["metadata"]["resourceVersion"] = json!(null);
    scale["spec"]["replicas"] = json!(4);
    let changed = session.put(path, &scale).success();
    assert_eq!(changed["spec"]["replicas"], 4);
    let said = session.put(path, &old).refused(409);
    assert!(said.contains("the object has been modified"), "{said}");
    let said = session.merge(path, &json!({"spec": {"replicas": -1}})).refused(422);
    assert!(said.starts_with("Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1"), "{said}");
    let deployment = session.get("/apis/apps/v1/namespaces/default/deployments/web").success();
    let managers = deployment["metadata"]["managedFields"].as_array().expect("managers");
    assert!(managers.iter().any(|entry| entry["subresource"] == "scale"), "{managers:?}");
    let _ = session.merge(path, &json!({"spec": {"replicas": 0}})).success();
    assert_eq!(stage.ok("get deployment web -o jsonpath={.spec.replicas}"), "0");
    let said = session.get("/apis/apps/v1/namespaces/default/deployments/none/scale").refused(404);
    assert!(said.contains("deployments.apps \"none\" not found"), "{said}");
}

#[test]
fn s01_pods_are_bound_once() {
    let stage = Stage::without_kubelet(&[]);
    let mut session = stage.server.session();
    for name in ["a", "b"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"schedulerName": "mine",
            "containers": [{"name": "c", "image": "i"}]}});
        let _ = session.post(PODS, &pod).success();
    }
    let binding = |name: &str| json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "one"}});
    let answer = session.post(&format!("{PODS}/a/binding"), &binding("a"));
    assert_eq!((answer.code, &answer.body["status"]), (201, &json!("Success")));
    let answer = session.post("/api/v1/namespaces/default/bindings", &binding("b"));
    assert_eq!(answer.code, 201, "{}", answer.body);
    for name in ["a", "b"] {
        let pod = stage.json(&format!("pod {name}"));
        assert_eq!((&pod["spec"]["nodeName"], &pod["metadata"]["generation"]), (&json!("one"), &json!(1)));
        let scheduled = &pod["status"]["conditions"][0];
        assert_eq!((&scheduled["type"], &scheduled["status"]), (&json!("PodScheduled"), &json!("True")));
    }
    let said = session.post(&format!("{PODS}/a/binding"), &binding("a")).refused(409);
    assert_eq!(said, "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"one\"");
    let said = session.post(&format!("{PODS}/none/binding"), &binding("none")).refused(404);
    assert!(said.contains("\"none\" not found"), "{said}");
    let nowhere = json!({"metadata": {"name": "a"}, "target": {"kind": "Node"}});
    let said = session.post(&format!("{PODS}/a/binding"), &nowhere).refused(422);
    assert!(said.contains("target.name: Required value"), "{said}");
}

#[test]
fn s18_an_evicted_pod_has_its_time_to_end() {
    let stage = Stage::without_kubelet(&[]);
    let mut session = stage.server.session();
    let pod =
        json!({"metadata": {"name": "a"}, "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "i"}]}});
    let _ = session.post(PODS, &pod).success();
    let eviction = |options: serde_json::Value| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options});
    let path = format!("{PODS}/a/eviction");
    let answer = session.post(&path, &eviction(json!({"dryRun": ["All"]})));
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert!(stage.json("pod a")["metadata"]["deletionTimestamp"].is_null());
    let said = session.post(&path, &eviction(json!({"preconditions": {"uid": "other"}}))).refused(409);
    assert!(said.contains("the UID in the precondition"), "{said}");
    let answer = session.post(&path, &eviction(json!({"gracePeriodSeconds": 7})));
    assert_eq!(answer.code, 201, "{}", answer.body);
    assert_eq!(stage.json("pod a")["metadata"]["deletionGracePeriodSeconds"], 7);
    let said = session.post(&format!("{PODS}/b/eviction"), &eviction(json!({}))).refused(400);
    assert!(said.contains("name in URL does not match name in Eviction object"), "{said}");
}
