//! Updates: started, watched, paused, rolled back; and which objects are deleted with others.

use std::sync::atomic::Ordering;

use serde_json::Value;

use super::{Stage, manifest};

fn images(pods: &[Value]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect()
}

fn all_run(pods: &[Value], image: &str, count: usize) -> bool {
    pods.len() == count
        && images(pods).iter().all(|have| *have == image)
        && pods.iter().all(|pod| pod["status"]["phase"] == "Running")
}

#[test]
fn s05_an_update_can_be_watched_and_taken_back() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 3, ""));
    let said = stage.ok("rollout status deployment/web --timeout=60s");
    assert!(said.contains("deployment \"web\" successfully rolled out"), "{said}");
    stage.ok("set image deployment/web main=image:2");
    stage.ok("annotate deployment web kubernetes.io/change-cause=second");
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.pods_until("app=web", |pods| all_run(pods, "image:2", 3));
    let history = stage.ok("rollout history deployment/web");
    let lines: Vec<Vec<&str>> = history.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["1", "<none>"]) && lines.contains(&vec!["2", "second"]), "{history}");
    let old = stage.ok("rollout history deployment/web --revision=1");
    assert!(old.contains("image:1"), "{old}");
    stage.ok("rollout undo deployment/web");
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.pods_until("app=web", |pods| all_run(pods, "image:1", 3));
    let sets = stage.json("rs -l app=web");
    assert_eq!(sets["items"].as_array().map(Vec::len), Some(2), "the old set was found again");
    assert_eq!(stage.json("deployment web")["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    stage.ok("rollout restart deployment/web");
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.pods_until("app=web", |pods| all_run(pods, "image:1", 3));
}

#[test]
fn s05_a_paused_deployment_waits() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.ok("rollout pause deployment/web");
    stage.ok("set image deployment/web main=image:2");
    stage.ok("scale deployment/web --replicas=3");
    let pods = stage.pods_until("app=web", |pods| pods.len() == 3);
    assert_eq!(images(&pods), ["image:1"; 3]);
    stage.ok("wait deployment/web --for=condition=Progressing=Unknown --timeout=60s");
    stage.ok("rollout resume deployment/web");
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.pods_until("app=web", |pods| all_run(pods, "image:2", 3));
}

#[test]
fn s18_an_update_that_gets_nowhere_keeps_the_old_pods() {
    let stage = Stage::start();
    let manifest = manifest("Deployment", "web", 3, "  progressDeadlineSeconds: 2\n");
    stage.ok_with("apply -f -", &manifest);
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.stuck.store(true, Ordering::Relaxed);
    stage.ok("set image deployment/web main=image:2");
    let said = stage.run("rollout status deployment/web --timeout=60s", "");
    assert!(!said.ok && said.err.contains("exceeded its progress deadline"), "{said:?}");
    let pods = stage.json("pods -l app=web");
    let ready = pods["items"].as_array().into_iter().flatten().filter(|pod| pod["status"]["phase"] == "Running");
    assert_eq!(ready.count(), 3, "a quarter of three may be missing: none");
    let deployment = stage.json("deployment web");
    let progressing = deployment["status"]["conditions"].as_array().into_iter().flatten();
    let reasons: Vec<&str> = progressing.filter_map(|condition| condition["reason"].as_str()).collect();
    assert!(
        reasons.contains(&"ProgressDeadlineExceeded") && reasons.contains(&"MinimumReplicasAvailable"),
        "{reasons:?}"
    );
}

#[test]
fn s02_an_exposed_deployment_has_endpoints() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("expose deployment web --port=80");
    stage.ok("rollout status deployment/web --timeout=60s");
    let mut session = stage.server.session();
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let watching = stage.server.session();
    let mut watch = watching.watch(path, "");
    loop {
        let slices = session.items(path);
        let endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        let ready =
            endpoints.filter(|one| one["targetRef"]["name"].as_str().is_some_and(|name| name.starts_with("web-")));
        if ready.filter(|one| one["conditions"]["ready"] == true).count() == 2 {
            return;
        }
        watch.event().expect("the watch goes on");
    }
}

#[test]
fn s02_deleting_a_deployment_deletes_what_it_made() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.ok("delete deployment web --cascade=foreground --timeout=60s");
    assert_eq!(stage.json("rs,pods")["items"].as_array().map(Vec::len), Some(0), "foreground: all of it is gone");
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("rollout status deployment/web --timeout=60s");
    stage.ok("delete deployment web --timeout=60s");
    stage.pods_until("app=web", <[_]>::is_empty);
}

#[test]
fn s02_orphans_stay_and_are_found_again() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("rollout status deployment/web --timeout=60s");
    let uids = |stage: &Stage| -> Vec<String> {
        let pods = stage.json("pods -l app=web");
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().map(str::to_owned);
        let mut uids: Vec<String> = pods["items"].as_array().into_iter().flatten().filter_map(uid).collect();
        uids.sort();
        uids
    };
    let before = uids(&stage);
    stage.ok("delete deployment web --cascade=orphan --timeout=60s");
    let set = &stage.json("rs -l app=web")["items"][0];
    assert!(set["metadata"]["ownerReferences"].is_null(), "{set}");
    assert_eq!(uids(&stage), before);
    stage.ok_with("apply -f -", &manifest("Deployment", "web", 2, ""));
    stage.ok("rollout status deployment/web --timeout=60s");
    assert_eq!(uids(&stage), before, "the same Pods, under the same set");
    let set = &stage.json("rs -l app=web")["items"][0];
    assert_eq!(set["metadata"]["ownerReferences"][0]["kind"], "Deployment");
}

#[test]
fn s18_stateful_sets_keep_their_names_and_their_order() {
    let stage = Stage::start();
    stage.ok_with("apply -f -", &manifest("StatefulSet", "db", 3, "  serviceName: db\n"));
    stage.ok("rollout status statefulset/db --timeout=60s");
    let names = |stage: &Stage| stage.ok("get pods -l app=db -o jsonpath={.items[*].metadata.name}");
    assert_eq!(names(&stage), "db-0 db-1 db-2");
    let pod = stage.json("pod db-1");
    assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&"db-1".into(), &"db".into()));
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "1");
    stage.ok("set image statefulset/db main=image:2");
    stage.ok("rollout status statefulset/db --timeout=60s");
    stage.pods_until("app=db", |pods| all_run(pods, "image:2", 3));
    assert_eq!(names(&stage), "db-0 db-1 db-2");
    stage.ok("rollout undo statefulset/db");
    stage.ok("rollout status statefulset/db --timeout=60s");
    stage.pods_until("app=db", |pods| all_run(pods, "image:1", 3));
    let before = stage.json("pod db-1")["metadata"]["uid"].clone();
    // Its successor comes so soon that kubectl may take it for the one that it waits for.
    stage.ok("delete pod db-1 --wait=false");
    stage.pods_until("app=db", |pods| {
        all_run(pods, "image:1", 3) && pods.iter().all(|pod| pod["metadata"]["uid"] != before)
    });
    assert_eq!(names(&stage), "db-0 db-1 db-2");
    stage.ok("delete statefulset db --timeout=60s");
    stage.pods_until("app=db", <[_]>::is_empty);
}

#[test]
fn s19_pods_wait_for_a_node_that_they_want() {
    let stage = Stage::start();
    let choosy =
        manifest("Deployment", "web", 1, "").replace("    spec:\n", "    spec:\n      nodeSelector: {disk: fast}\n");
    stage.ok_with("apply -f -", &choosy);
    let pods = stage.pods_until("app=web", |pods| {
        pods.iter().any(|pod| pod["status"]["conditions"][0]["reason"] == "Unschedulable")
    });
    assert_eq!(
        pods[0]["status"]["conditions"][0]["message"],
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    );
    let name = pods[0]["metadata"]["name"].as_str().expect("a name");
    let said = stage.ok(&format!("describe pod {name}"));
    assert!(said.contains("FailedScheduling") && said.contains("default-scheduler"), "{said}");
    stage.ok("label node two disk=fast");
    stage.ok("rollout status deployment/web --timeout=60s");
    let pods = stage.pods_until("app=web", |pods| all_run(pods, "image:1", 1));
    assert_eq!(pods[0]["spec"]["nodeName"], "two");
}
