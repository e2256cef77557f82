//! Policies and webhooks against a running server: the way of Pods from a template, and webhooks over HTTPS.

use serde_json::{Value, json};
use testbed::net::eventually;
use testbed::session::{Session, text};
use testbed::webhook::Webhook;
use testbed::{Home, Server};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn rules(resource: &str) -> Value {
    json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}])
}

/// A policy that requires something of a resource, and its binding.
fn require(api: &mut Session, resource: &str, expression: &str) {
    let spec = json!({
        "matchConstraints": {"resourceRules": rules(resource)},
        "validations": [{"expression": expression, "message": "not allowed here"}],
    });
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    let _ = api.post(&format!("{GROUP}/validatingadmissionpolicies"), &policy).success();
    let binding =
        json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny", "Audit"]}});
    let _ = api.post(&format!("{GROUP}/validatingadmissionpolicybindings"), &binding).success();
}

fn configure(api: &mut Session, kind: &str, webhook: &Webhook, resource: &str) {
    let one = json!({
        "name": "check.example.com", "clientConfig": webhook.client_config(), "rules": rules(resource),
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail", "timeoutSeconds": 5,
    });
    let configuration = json!({"metadata": {"name": "w"}, "webhooks": [one]});
    let _ = api.post(&format!("{GROUP}/{kind}"), &configuration).success();
}

fn deploy(api: &mut Session) {
    let labels = json!({"app": "web"});
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": spec});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let deployment = json!({"metadata": {"name": "web"}, "spec": spec});
    let _ = api.post("/apis/apps/v1/namespaces/default/deployments", &deployment).success();
}

fn has_event(api: &mut Session, part: &str) -> bool {
    let events = api.items("/api/v1/namespaces/default/events");
    events.iter().any(|event| text(event, "/reason") == "FailedCreate" && text(event, "/message").contains(part))
}

fn config_map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

#[test]
fn b04_a_policy_decides_about_pods_of_a_deployment() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    require(&mut api, "pods", "object.spec.containers.all(c, c.image.startsWith('registry.example/'))");
    deploy(&mut api);
    eventually("its ReplicaSet says why there is no Pod", || has_event(&mut api, "not allowed here"));
    assert!(api.items(PODS).is_empty());
    let _ = api.delete(&format!("{GROUP}/validatingadmissionpolicybindings/p")).success();
    eventually("there is a Pod", || api.items(PODS).len() == 1);
}

#[test]
fn b04_a_webhook_changes_and_refuses_objects() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    let patch = json!([{"op": "add", "path": "/data/added", "value": "yes"}]).to_string();
    let patch = testbed::webhook::base64(patch.as_bytes());
    let adds = Webhook::start(move |_| json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}));
    configure(&mut api, "mutatingwebhookconfigurations", &adds, "configmaps");
    let refuses = Webhook::start(|request| {
        let allowed = text(request, "/name") != "bad";
        json!({"allowed": allowed, "status": {"message": "it is bad", "code": 403}, "warnings": ["look out"]})
    });
    configure(&mut api, "validatingwebhookconfigurations", &refuses, "configmaps");
    let good = api.post(CONFIG_MAPS, &config_map("good")).success();
    assert_eq!((text(&good, "/data/a"), text(&good, "/data/added")), ("b", "yes"));
    let why = "admission webhook \"check.example.com\" denied the request: it is bad";
    assert_eq!(api.post(CONFIG_MAPS, &config_map("bad")).refused(403), why);
    let _ = api.get(&format!("{CONFIG_MAPS}/bad")).refused(404);
    // The second received the object as modified by the first, and the user. Controllers publish the CA in ConfigMaps of their own.
    let mut asked = refuses.requests();
    asked.retain(|request| text(request, "/userInfo/username") == "waypost-admin");
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(text(&asked[0], "/object/data/added"), "yes");
    assert_eq!((text(&asked[0], "/operation"), text(&asked[0], "/namespace")), ("CREATE", "default"));
    assert!(asked[0]["userInfo"]["groups"].as_array().is_some_and(|all| all.contains(&json!("system:masters"))));
    assert_ne!(asked[0]["uid"], asked[1]["uid"]);
}

#[test]
fn b04_a_webhook_decides_about_pods_of_a_deployment() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    let patch = json!([{"op": "add", "path": "/metadata/labels/seen", "value": "yes"}]).to_string();
    let patch = testbed::webhook::base64(patch.as_bytes());
    let adds = Webhook::start(move |_| json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}));
    configure(&mut api, "mutatingwebhookconfigurations", &adds, "pods");
    deploy(&mut api);
    eventually("there is a Pod", || api.items(PODS).len() == 1);
    assert_eq!(text(&api.items(PODS)[0], "/metadata/labels/seen"), "yes");
    assert_eq!(text(&adds.requests()[0], "/userInfo/username"), "system:kube-controller-manager");
}

#[test]
fn b04_a_webhook_that_cannot_be_called_refuses_unless_failures_are_ignored() {
    let server = Server::start_with(Home::temporary(), &[]);
    let mut api = server.session();
    // Nothing listens there any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|all| all.local_addr()).expect("a port").port();
    let mut one = json!({
        "name": "gone.example.com", "clientConfig": {"url": format!("https://127.0.0.1:{port}/")},
        "rules": rules("configmaps"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    let path = format!("{GROUP}/validatingwebhookconfigurations");
    let _ = api.post(&path, &json!({"metadata": {"name": "w"}, "webhooks": [one]})).success();
    let message = api.post(CONFIG_MAPS, &config_map("a")).refused(500);
    let start = "Internal error occurred: failed calling webhook \"gone.example.com\": failed to call webhook: Post ";
    assert!(message.starts_with(start) && message.ends_with("connect: connection refused"), "{message}");
    one["failurePolicy"] = json!("Ignore");
    let patch = json!({"webhooks": [one]});
    let _ = api.merge(&format!("{path}/w"), &patch).success();
    let _ = api.post(CONFIG_MAPS, &config_map("a")).success();
}
