//! Tokens of ServiceAccounts: how long they live, what they end with, and which of them a node may have.

use serde_json::{Value, json};
use testbed::session::{SERVICES, text};
use testbed::wire::{Reply, Wire};
use testbed::{Home, Server};

const HERE: &str = "/api/v1/namespaces/default";
const ROBOT_TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/robot/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const JSON: (&str, &str) = ("Content-Type", "application/json");
const AS_N1: [(&str, &str); 3] = [JSON, ("Impersonate-User", "system:node:n1"), ("Impersonate-Group", "system:nodes")];

fn post(wire: &mut Wire, path: &str, object: &Value) -> Value {
    wire.ask("POST", path, &[JSON], object.to_string().as_bytes()).success()
}

/// The account `robot`, and Pods of it on two Nodes.
fn cluster(admin: &mut Wire) -> Value {
    post(admin, &format!("{HERE}/serviceaccounts"), &json!({"metadata": {"name": "robot"}}));
    let node = post(admin, "/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
    for name in ["n1", "n2"] {
        let volume = json!({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}});
        let spec = json!({
            "serviceAccountName": "robot", "nodeName": name, "containers": [{"name": "c", "image": "i"}],
            "volumes": [volume],
        });
        post(admin, &format!("{HERE}/pods"), &json!({"metadata": {"name": format!("on-{name}")}, "spec": spec}));
    }
    node
}

fn pod(admin: &mut Wire, name: &str) -> Value {
    admin.ask("GET", &format!("{HERE}/pods/{name}"), &[], b"").success()
}

fn bound(kind: &str, object: &Value) -> Value {
    let (name, uid) = (text(object, "/metadata/name"), text(object, "/metadata/uid"));
    json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}})
}

fn token(admin: &mut Wire, request: &Value) -> String {
    text(&post(admin, ROBOT_TOKEN, request), "/status/token").to_owned()
}

fn with_token(server: &Server, token: &str) -> Reply {
    Wire::anonymous(server).ask("GET", SERVICES, &[("Authorization", &format!("Bearer {token}"))], b"")
}

#[test]
fn b01_a_bound_token_is_refused_once_its_object_is_gone() {
    let server = Server::start();
    let mut admin = Wire::admin(&server);
    let node = cluster(&mut admin);
    let secret = post(&mut admin, &format!("{HERE}/secrets"), &json!({"metadata": {"name": "s"}}));
    let on_n1 = pod(&mut admin, "on-n1");
    let of_pod = token(&mut admin, &bound("Pod", &on_n1));
    let of_secret = token(&mut admin, &bound("Secret", &secret));
    let of_node = token(&mut admin, &bound("Node", &node));
    admin.bind("view", "system:serviceaccount:default:robot");

    let review = post(&mut admin, REVIEWS, &json!({"spec": {"token": of_pod}}));
    let extra = &review["status"]["user"]["extra"];
    for (key, value) in [
        ("pod-name", "on-n1"),
        ("pod-uid", text(&on_n1, "/metadata/uid")),
        ("node-name", "n1"),
        ("node-uid", text(&node, "/metadata/uid")),
    ] {
        assert_eq!(extra[format!("authentication.kubernetes.io/{key}")], json!([value]), "{review}");
    }
    assert_eq!(review["status"]["audiences"], json!(["https://kubernetes.default.svc.cluster.local"]));

    for (held, path) in [
        (of_pod, format!("{HERE}/pods/on-n1?gracePeriodSeconds=0")),
        (of_secret, format!("{HERE}/secrets/s")),
        (of_node, "/api/v1/nodes/n1".to_owned()),
    ] {
        assert_eq!(with_token(&server, &held).code, 200, "{path}");
        assert_eq!(admin.ask("DELETE", &path, &[], b"").code, 200, "{path}");
        assert_eq!(with_token(&server, &held).code, 401, "{path}");
        let review = post(&mut admin, REVIEWS, &json!({"spec": {"token": held}}));
        let error = "[invalid bearer token, service account token has been invalidated]";
        assert_eq!(review["status"], json!({"user": {}, "error": error}), "{path}");
    }
}

#[test]
fn b01_a_bound_token_is_refused_to_an_object_of_the_same_name() {
    let server = Server::start();
    let mut admin = Wire::admin(&server);
    let secrets = format!("{HERE}/secrets");
    let _ = cluster(&mut admin);
    let first = post(&mut admin, &secrets, &json!({"metadata": {"name": "s"}}));
    let held = token(&mut admin, &bound("Secret", &first));
    assert_eq!(admin.ask("DELETE", &format!("{secrets}/s"), &[], b"").code, 200);
    let _ = post(&mut admin, &secrets, &json!({"metadata": {"name": "s"}}));
    assert_eq!(with_token(&server, &held).code, 401);
    let again = admin.ask("POST", ROBOT_TOKEN, &[JSON], bound("Secret", &first).to_string().as_bytes()).refused(409);
    assert!(again.contains("does not match the UID in record"), "{again}");
}

#[test]
fn b01_nobody_gets_a_token_that_outlives_the_limit() {
    let seconds = |answer: &Value| {
        let time = |path| text(answer, path).parse::<jiff::Timestamp>().expect("a time").as_second();
        time("/status/expirationTimestamp") - time("/metadata/creationTimestamp")
    };
    let long = json!({"spec": {"expirationSeconds": 3_600_000_000_i64}});
    let server = Server::start();
    let mut admin = Wire::admin(&server);
    let _ = cluster(&mut admin);
    assert_eq!(seconds(&post(&mut admin, ROBOT_TOKEN, &long)), 24 * 3600);
    let short = admin.ask("POST", ROBOT_TOKEN, &[JSON], br#"{"spec":{"expirationSeconds":599}}"#).refused(422);
    assert!(short.contains("may not specify a duration less than 10 minutes"), "{short}");

    let other = admin.ask("POST", ROBOT_TOKEN, &[JSON], br#"{"apiVersion":"v1","kind":"ServiceAccount"}"#).refused(400);
    assert!(other.starts_with("ServiceAccount in version \"v1\" cannot be handled as a TokenRequest: "), "{other}");

    let home = Home::Own(testbed::folder());
    let server = Server::start_with(home, &["--service-account-max-token-expiration", "2h"]);
    let mut admin = Wire::admin(&server);
    let _ = cluster(&mut admin);
    let answer = post(&mut admin, ROBOT_TOKEN, &long);
    assert_eq!((seconds(&answer), &answer["spec"]["expirationSeconds"]), (7200, &json!(7200)));
}

#[test]
fn b03_a_node_gets_tokens_of_its_own_pods_and_no_others() {
    let server = Server::start();
    let mut admin = Wire::admin(&server);
    let _ = cluster(&mut admin);
    let (ours, theirs) = (pod(&mut admin, "on-n1"), pod(&mut admin, "on-n2"));
    let mut ask = |request: &Value| admin.ask("POST", ROBOT_TOKEN, &AS_N1, request.to_string().as_bytes());
    let _ = ask(&bound("Pod", &ours)).success();
    // The machine is compromised: it requests a token that is not bound to a Pod, or that is for another machine.
    let mut other_audience = bound("Pod", &ours);
    other_audience["spec"]["audiences"] = json!(["vault"]);
    let mut guessed = bound("Pod", &ours);
    guessed["spec"]["boundObjectRef"]["uid"] = "11111111-1111-1111-1111-111111111111".into();
    for (request, why) in [
        (json!({"spec": {}}), "node requested token not bound to a pod"),
        (bound("Node", &json!({"metadata": {"name": "n1", "uid": "x"}})), "node requested token not bound to a pod"),
        (bound("Pod", &theirs), "node requested token bound to a pod scheduled on a different node"),
        (guessed, "does not match the UID in record"),
        (other_audience, "system:node:n1 is not authorized to request tokens for audience \"vault\""),
    ] {
        let said = ask(&request).refused(403);
        assert!(
            said.starts_with("serviceaccounts \"robot\" is forbidden: ") && said.contains(why),
            "{request}: {said}"
        );
    }
}
