//! What kubectl shows of workloads, and what the server refuses.

use super::{Stage, cells, manifest};

#[test]
fn s02_a_deployment_is_shown_with_all_below_it() {
    let stage = Stage::start();
    stage.ok("create deployment web --image=image:1 --replicas=2");
    stage.ok("rollout status deployment/web --timeout=60s");
    let out = stage.ok("get deploy");
    assert_eq!(cells(&out)[0], ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]);
    assert_eq!(cells(&out)[1][..4], ["web", "2/2", "2", "2"]);
    let out = stage.ok("get deployments.v1.apps web -o wide");
    assert_eq!(cells(&out)[0][5..], ["CONTAINERS", "IMAGES", "SELECTOR"]);
    assert_eq!(cells(&out)[1][5..], ["image", "image:1", "app=web"]);
    let out = stage.ok("get rs -o wide");
    assert_eq!(cells(&out)[0], ["NAME", "DESIRED", "CURRENT", "READY", "AGE", "CONTAINERS", "IMAGES", "SELECTOR"]);
    assert_eq!(cells(&out)[1][1..4], ["2", "2", "2"]);
    let all = stage.ok("get all");
    for kind in ["pod/web-", "deployment.apps/web", "replicaset.apps/web-"] {
        assert!(all.contains(kind), "{kind} in\n{all}");
    }
    let described = stage.ok("describe deployment web");
    for wanted in [
        "2 desired | 2 updated | 2 total | 2 available | 0 unavailable",
        "RollingUpdate",
        "25% max surge",
        "MinimumReplicasAvailable",
        "NewReplicaSetAvailable",
        "NewReplicaSet:",
        "ScalingReplicaSet",
    ] {
        assert!(described.contains(wanted), "{wanted} in\n{described}");
    }
    let pod = stage.json("pods -l app=web")["items"][0].clone();
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
    assert!(["one", "two"].contains(&pod["spec"]["nodeName"].as_str().expect("a node")), "{pod}");
}

#[test]
fn s02_stateful_sets_and_controllers_have_their_tables() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("StatefulSet", "db", 2, "  serviceName: db\n"));
    stage.ok_with("apply -f -", &manifest("ReplicationController", "old", 1, ""));
    stage.ok_with("apply -f -", &manifest("ReplicaSet", "set", 1, ""));
    stage.ok("rollout status statefulset/db --timeout=60s");
    stage.pods_until("app=old", |pods| pods.iter().any(|pod| pod["status"]["phase"] == "Running"));
    let out = stage.ok("get sts -o wide");
    assert_eq!(cells(&out)[0], ["NAME", "READY", "AGE", "CONTAINERS", "IMAGES"]);
    assert_eq!(cells(&out)[1][..2], ["db", "2/2"]);
    let out = stage.ok("get rc");
    assert_eq!(cells(&out)[0], ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]);
    let out = stage.ok("get controllerrevisions");
    assert_eq!(cells(&out)[0], ["NAME", "CONTROLLER", "REVISION", "AGE"]);
    assert_eq!(cells(&out)[1][1..3], ["statefulset.apps/db", "1"]);
    for what in ["sts db", "rc old", "rs set"] {
        let described = stage.ok(&format!("describe {what}"));
        assert!(described.contains("Pods Status:") && described.contains("SuccessfulCreate"), "{described}");
    }
    let resources = stage.ok("api-resources");
    for wanted in [
        "deployments deploy apps/v1 true Deployment",
        "replicasets rs apps/v1 true ReplicaSet",
        "statefulsets sts apps/v1 true StatefulSet",
        "replicationcontrollers rc v1 true ReplicationController",
        "controllerrevisions apps/v1 true ControllerRevision",
        "bindings v1 true Binding",
    ] {
        assert!(cells(&resources).iter().any(|row| row.join(" ") == wanted), "{wanted} in\n{resources}");
    }
    assert!(stage.ok("explain deployment.spec.strategy.rollingUpdate").contains("maxSurge"));
}

#[test]
fn s01_what_cannot_be_is_refused_with_its_place() {
    let stage = Stage::without_kubelet(&[]);
    let refused = |manifest: &str| stage.run("create -f -", manifest).failure();
    let other = manifest("Deployment", "web", 1, "").replace("labels: {app: web}", "labels: {app: other}");
    let said = refused(&other);
    assert!(
        said.contains("The Deployment \"web\" is invalid: spec.template.metadata.labels: Invalid value:")
            && said.contains("`selector` does not match template `labels`"),
        "{said}"
    );
    let said =
        refused(&manifest("Deployment", "web", 1, "  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}\n"));
    assert!(said.contains("may not be 0 when `maxSurge` is 0"), "{said}");
    let said = refused(&manifest("StatefulSet", "db", 1, "  volumeClaimTemplates: [{metadata: {name: data}}]\n"));
    assert!(said.contains("spec.volumeClaimTemplates: Forbidden: this server has no persistent volumes"), "{said}");
    let said = refused(&manifest("ReplicaSet", "web", 1, "").replace("name: main", "name: Main"));
    assert!(said.contains("spec.template.spec.containers[0].name: Invalid value: \"Main\""), "{said}");
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 0, ""));
    let patch = r#"{"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}}}}}"#;
    let said = stage.run(&format!("patch deployment web --type=merge -p {patch}"), "").failure();
    assert!(said.contains("spec.selector: Invalid value:") && said.contains("field is immutable"), "{said}");
}

#[test]
fn s01_containers_of_templates_merge_by_name() {
    let stage = Stage::without_kubelet(&[]);
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 0, ""));
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s:1"}]}}}}"#;
    stage.ok(&format!("patch deployment web -p {patch}"));
    let names = stage.ok("get deployment web -o jsonpath={.spec.template.spec.containers[*].name}");
    assert_eq!(names, "side main");
    let applied = manifest("Deployment", "web", 0, "").replace("image:1", "image:2");
    stage.ok_with("apply --server-side --force-conflicts -f -", &applied);
    let images = stage.ok("get deployment web -o jsonpath={.spec.template.spec.containers[*].image}");
    assert_eq!(images, "s:1 image:2");
    let generation = stage.ok("get deployment web -o jsonpath={.metadata.generation}");
    stage.ok("patch deployment web --subresource=status --type=merge -p {\"status\":{\"observedGeneration\":1}}");
    assert_eq!(stage.ok("get deployment web -o jsonpath={.metadata.generation}"), generation);
}
