//! `waypost label`, `annotate`, `expose`, `scale`, `run` and `rollout`, as far as objects go.

use serde_json::json;

use super::Desk;

#[test]
fn labels_and_annotations_are_set_kept_and_removed() {
    let desk = Desk::start();
    desk.pod("web", "{app: web}");
    assert_eq!(desk.ok("label pod web tier=front"), "pod/web labeled\n");
    assert_eq!(desk.ok("label pod/web tier=front"), "pod/web not labeled\n");
    let said = desk.fails("label pod web tier=back");
    assert!(said.contains("tier=front") && said.contains("--overwrite"), "{said}");
    assert_eq!(desk.ok("label pod web tier=back --overwrite"), "pod/web labeled\n");
    assert_eq!(desk.ok("label pod web --list"), "app=web\ntier=back\n");
    assert_eq!(desk.ok("label pods -l app=web tier-"), "pod/web unlabeled\n");
    assert_eq!(desk.json("pod web")["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(desk.ok("annotate pods --all note=x url=a=b"), "pod/web annotated\n");
    assert_eq!(desk.json("pod web")["metadata"]["annotations"], json!({"note": "x", "url": "a=b"}));
    assert_eq!(desk.ok("annotate pod web note- url-"), "pod/web annotated\n");
}

#[test]
fn services_are_made_for_what_has_pods_as_kubectl_makes_them() {
    let desk = Desk::start();
    desk.pod("web", "{app: web}");
    desk.ok_with("apply -f -", &super::deployment("api"));
    for line in [
        "expose pod web --port=80 --target-port=8080 --name=one",
        "expose pod web --name=one",
        "expose deployment api --name=one",
        "expose deployment/api --port=80 --target-port=http --type=NodePort --name=one --session-affinity=ClientIP",
        "expose deployment api --port=53 --protocol=UDP --name=one --labels=a=b --selector=c=d --cluster-ip=None",
    ] {
        let spec = |text: &str| -> serde_json::Value {
            let mut object: serde_json::Value = serde_json::from_str(text).expect("JSON");
            for field in ["clusterIP", "clusterIPs"] {
                let spec = object["spec"].as_object_mut().expect("a spec");
                if spec.get(field).is_some_and(|ip| *ip != json!("None")) {
                    spec.remove(field);
                }
            }
            for port in object["spec"]["ports"].as_array_mut().expect("ports") {
                port.as_object_mut().expect("a port").remove("nodePort");
            }
            json!([object["spec"], object["metadata"]["labels"]])
        };
        let ours = spec(&desk.ok(&format!("{line} --dry-run=server -o json")));
        let theirs = spec(&desk.kubectl(&format!("{line} --dry-run=server -o json")));
        assert_eq!(ours, theirs, "{line}");
    }
    assert_eq!(desk.ok("expose deployment api --port=80"), "service/api exposed\n");
    assert!(desk.fails("expose deployment api --port=80").contains("--name"));
    assert!(desk.fails("expose ns default --port=80").contains("cannot be exposed"));
    desk.ok("label pod web app-");
    assert!(desk.fails("expose pod web --port=80").contains("waypost label pod/web"));
}

#[test]
fn pods_are_counted_anew_only_if_they_were_so_many() {
    let desk = Desk::start();
    desk.ok_with("apply -f -", &super::deployment("api"));
    let said = desk.fails("scale deployment api --replicas=5 --current-replicas=3");
    assert!(said.contains("2 Pods, not 3"), "{said}");
    assert_eq!(desk.ok("scale deployment/api --replicas=5 --current-replicas=2"), "deployment.apps/api scaled\n");
    assert_eq!(desk.json("deploy api")["spec"]["replicas"], 5);
    desk.service("web", "{ports: [{port: 80}]}");
    assert!(desk.fails("scale svc web --replicas=2").contains("cannot be scaled"));
}

#[test]
fn a_command_becomes_a_pod() {
    let desk = Desk::start();
    let line = "run web --port 8080 --expose -l app=web --env A=b -- ./serve --config x";
    assert_eq!(desk.ok(line), "pod/web created\nservice/web created\n");
    let pod = desk.json("pod web");
    let container = &pod["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["command"]), (&json!("host"), &json!(["./serve", "--config", "x"])));
    let here = std::env::current_dir().expect("a folder");
    assert_eq!(container["workingDir"], json!(here));
    assert_eq!(desk.json("svc web")["spec"]["selector"], json!({"app": "web"}));
    assert!(desk.fails("run web -- true").contains("waypost delete pod/web"));
    assert!(desk.fails("run other").contains("waypost run other -- "));
}

#[test]
fn updates_are_paused_resumed_restarted_and_taken_back() {
    let desk = Desk::start();
    desk.ok_with("apply -f -", &super::deployment("api"));
    desk.ok("wait deploy/api --for=jsonpath={.metadata.annotations.deployment\\.kubernetes\\.io/revision}=1");
    let waiting = desk.ok("rollout status deploy/api --watch=false");
    assert!(waiting.starts_with("Waiting for deployment"), "{waiting}");
    assert_eq!(desk.ok("rollout pause deployment api"), "deployment.apps/api paused\n");
    assert!(desk.fails("rollout pause deployment api").contains("already"));
    assert!(desk.fails("rollout restart deploy/api").contains("waypost rollout resume"));
    assert_eq!(desk.ok("rollout resume deploy/api"), "deployment.apps/api resumed\n");
    assert_eq!(desk.ok("rollout restart deploy/api"), "deployment.apps/api restarted\n");
    desk.ok("wait deploy/api --for=jsonpath={.metadata.annotations.deployment\\.kubernetes\\.io/revision}=2");
    let history = desk.ok("rollout history deploy/api");
    assert_eq!(
        history.lines().collect::<Vec<_>>(),
        ["deployment.apps/api", "REVISION   CHANGE-CAUSE", "1          <none>", "2          <none>", ""]
    );
    assert!(desk.ok("rollout history deploy/api --revision=1").contains("image: image:1"));
    assert_eq!(desk.ok("rollout undo deploy/api"), "deployment.apps/api rolled back\n");
    assert!(desk.json("deploy api")["spec"]["template"]["metadata"]["annotations"].is_null());
    assert!(desk.fails("rollout undo deploy/api --to-revision=9").contains("waypost rollout history"));
    desk.service("web", "{ports: [{port: 80}]}");
    assert!(desk.fails("rollout status svc/web").contains("no updates"));
}
