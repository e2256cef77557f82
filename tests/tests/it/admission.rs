//! Admission plugins where a recorded answer cannot show them: Pods that controllers make, and many requests at once.

use std::thread;

use serde_json::{Value, json};
use testbed::net::eventually;
use testbed::session::{Session, text};
use testbed::{Home, Server};

const RESTRICTED: &str = "/api/v1/namespaces/limited";

/// A namespace with labels.
fn namespace(api: &mut Session, name: &str, labels: &Value) {
    let _ = api.post("/api/v1/namespaces", &json!({"metadata": {"name": name, "labels": labels}})).success();
}

fn deployment(name: &str, replicas: u32, security: &Value) -> Value {
    let labels = json!({"app": name});
    let container = json!({"name": "c", "image": "i", "securityContext": security});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    })
}

fn deploy(api: &mut Session, deployment: &Value) {
    let _ = api.post("/apis/apps/v1/namespaces/limited/deployments", deployment).success();
}

fn pods(api: &mut Session) -> Vec<Value> {
    api.items(&format!("{RESTRICTED}/pods"))
}

/// Whether a ReplicaSet has such an Event.
fn has_event(api: &mut Session, part: &str) -> bool {
    let events = api.items(&format!("{RESTRICTED}/events"));
    events.iter().any(|event| text(event, "/reason") == "FailedCreate" && text(event, "/message").contains(part))
}

#[test]
fn b04_pods_of_a_deployment_pass_admission() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    namespace(&mut api, "limited", &json!({"pod-security.kubernetes.io/enforce": "baseline"}));
    deploy(&mut api, &deployment("bad", 1, &json!({"privileged": true})));
    eventually("its ReplicaSet says why there is no Pod", || {
        has_event(&mut api, "is forbidden: violates PodSecurity \"baseline:latest\": privileged (container \"c\"")
    });
    assert!(pods(&mut api).is_empty());
    deploy(&mut api, &deployment("good", 1, &json!({})));
    eventually("there is a Pod", || pods(&mut api).len() == 1);
    let pod = &pods(&mut api)[0];
    assert_eq!(text(pod, "/spec/serviceAccountName"), "default");
    assert!(text(pod, "/spec/volumes/0/name").starts_with("kube-api-access-"), "{pod}");
    assert_eq!(
        text(pod, "/spec/containers/0/volumeMounts/0/mountPath"),
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
}

#[test]
fn b04_a_deployment_makes_no_more_pods_than_its_quota_allows() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    namespace(&mut api, "limited", &json!({}));
    let quotas = format!("{RESTRICTED}/resourcequotas");
    let _ = api.post(&quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})).success();
    eventually("the quota counts", || {
        let quota = api.get(&format!("{quotas}/q")).success();
        quota["status"]["used"]["pods"] == "0"
    });
    deploy(&mut api, &deployment("web", 3, &json!({})));
    eventually("there are as many Pods as may be", || pods(&mut api).len() == 2);
    eventually("its ReplicaSet says why there is no third Pod", || {
        has_event(&mut api, "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")
    });
    assert_eq!(pods(&mut api).len(), 2);
    let _ = api.merge(&format!("{quotas}/q"), &json!({"spec": {"hard": {"pods": "3"}}})).success();
    eventually("the third Pod comes with the room for it", || pods(&mut api).len() == 3);
}

#[test]
fn b04_requests_at_once_do_not_exceed_a_quota() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    namespace(&mut api, "limited", &json!({}));
    let quota = format!("{RESTRICTED}/resourcequotas");
    let _ = api.post(&quota, &json!({"metadata": {"name": "q"}, "spec": {"hard": {"services": "7"}}})).success();
    eventually("the quota counts", || api.get(&format!("{quota}/q")).success()["status"]["used"]["services"] == "0");
    let codes: Vec<u16> = thread::scope(|scope| {
        let create = |number: usize| {
            let service = json!({"metadata": {"name": format!("s{number}")}, "spec": {"ports": [{"port": 80}]}});
            server.session().post(&format!("{RESTRICTED}/services"), &service).code
        };
        let running: Vec<_> = (0..30).map(|number| scope.spawn(move || create(number))).collect();
        running.into_iter().map(|one| one.join().expect("an answer")).collect()
    });
    let count = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
    assert_eq!((count(201), count(403)), (7, 23), "{codes:?}");
    assert_eq!(api.items(&format!("{RESTRICTED}/services")).len(), 7);
    assert_eq!(api.get(&format!("{quota}/q")).success()["status"]["used"]["services"], "7");
}
