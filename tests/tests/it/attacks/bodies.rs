//! What may happen between the headers of a request and the end of its body.

use testbed::wire::Wire;

use super::*;

const STATUS: &str = r#"{"status": {"podIP": "10.245.9.9", "podIPs": [{"ip": "10.245.9.9"}], "phase": "Running"}}"#;

#[test]
fn b03_a_pod_of_another_node_that_is_created_while_a_body_arrives_is_not_written() {
    let (server, _folder) = server(&[]);
    let path = format!("{PODS}/victim/status");
    let merge = Half::send(&server, "n1", "PATCH", &path, MERGE, STATUS);
    let whole =
        pod("victim", "n2").replace("\"spec\"", r#""status": {"phase": "Running", "podIP": "10.245.9.9"}, "spec""#);
    let put = Half::send(&server, "n1", "PUT", &path, JSON, &whole);
    let apply = Half::send(&server, "n1", "PATCH", &format!("{path}?fieldManager=m&force=true"), APPLY, &whole);
    make(&server, PODS, &pod("victim", "n2"));
    for half in [merge, put, apply] {
        let why = "pods \"victim\" is forbidden: node \"n1\" can only update pod status for pods with spec.nodeName set to itself";
        assert_eq!(half.finish().refused(403), why);
    }
    assert_eq!(stored(&server, "victim"), ("n2".into(), String::new(), "Pending".into()));
}

#[test]
fn b03_a_pod_of_another_node_that_is_created_while_a_body_arrives_is_not_deleted() {
    let (server, _folder) = server(&[]);
    let now = r#"{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}"#;
    let delete = Half::send(&server, "n1", "DELETE", &format!("{PODS}/victim"), JSON, now);
    let eviction = r#"{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "victim"}}"#;
    let evict = Half::send(&server, "n1", "POST", &format!("{PODS}/victim/eviction"), JSON, eviction);
    make(&server, PODS, &pod("victim", "n2"));
    let set = "pods with spec.nodeName set to itself";
    assert_eq!(
        delete.finish().refused(403),
        format!("pods \"victim\" is forbidden: node \"n1\" can only delete {set}")
    );
    assert_eq!(evict.finish().refused(403), format!("pods \"victim\" is forbidden: node n1 can only evict {set}"));
    let pod = Wire::admin(&server).ask("GET", &format!("{PODS}/victim"), &[], b"").success();
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    // Its own Pods it may delete and evict, as machines that are drained do.
    for name in ["first", "second"] {
        make(&server, PODS, &super::pod(name, "n1"));
    }
    assert_eq!(ask(&server, "n1", "DELETE", &format!("{PODS}/first"), JSON, now).code, 200);
    let eviction = eviction.replace("victim", "second");
    assert_eq!(ask(&server, "n1", "POST", &format!("{PODS}/second/eviction"), JSON, &eviction).code, 201);
}

#[test]
fn b01_a_token_that_ends_while_a_body_arrives_is_not_accepted() {
    let (server, _folder) = server(&[]);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account = r#"{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}"#;
    make(&server, accounts, account);
    let request = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}"#;
    let mut admin = Wire::admin(&server);
    let issued = admin.ask("POST", &format!("{accounts}/robot/token"), &[JSON], request.as_bytes()).success();
    let token = text(&issued, "/status/token");
    let review = r#"{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}"#;
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let [good, late] = [(); 2].map(|()| Half::send(&server, token, "POST", path, JSON, review));
    // The credential is checked again when a body took longer than a second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(good.finish().code, 201);
    assert_eq!(admin.ask("DELETE", &format!("{accounts}/robot"), &[], b"").code, 200);
    assert_eq!(late.finish().refused(401), "Unauthorized");
}

/// More than `--max-requests-inflight` is by default.
const SLOW: usize = 450;

#[test]
fn b06_an_account_whose_bodies_arrive_slowly_locks_nobody_out() {
    let (server, _folder) = server(&[]);
    let review = r#"{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}"#;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let slow: Vec<Half> = (0..SLOW).map(|_| Half::send(&server, "mallory", "POST", path, JSON, review)).collect();
    let mut admin = Wire::admin(&server);
    for _ in 0..20 {
        assert_eq!(admin.ask("GET", "/api/v1/services", &[], b"").code, 200);
    }
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n1"}, "spec": {}}"#;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(ask(&server, "n1", "POST", leases, JSON, lease).code, 201);
    assert_eq!(ask(&server, "mallory", "GET", "/version", JSON, "").code, 200);
    drop(slow);
}
