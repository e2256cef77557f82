//! What the credential of one node is worth against the Pods, Nodes and Secrets of others.

use serde_json::json;
use testbed::net::eventually;
use testbed::wire::Wire;

use super::*;

#[test]
fn b03_an_apply_to_the_status_of_a_missing_pod_creates_nothing() {
    let (server, _folder) = server(&[]);
    for node in ["n1", "n2"] {
        let status =
            ask(&server, "n1", "PATCH", &format!("{PODS}/evil/status?fieldManager=m"), APPLY, &pod("evil", node));
        assert_eq!(status.refused(404), "pods \"evil\" not found");
    }
    assert_eq!(Wire::admin(&server).ask("GET", &format!("{PODS}/evil"), &[], b"").code, 404);
    // Nor does any other user create an object by one of its subresources.
    let mut admin = Wire::admin(&server);
    let service =
        r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}"#;
    let part = "/api/v1/namespaces/default/services/web/status?fieldManager=m";
    assert_eq!(admin.ask("PATCH", part, &[APPLY], service.as_bytes()).code, 404);
}

#[test]
fn b03_an_apply_to_the_status_leaves_the_spec_alone() {
    let (server, _folder) = server(&[]);
    make(&server, PODS, &pod("own", "n1"));
    let wanted = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own"},
        "spec": {"nodeName": "n1", "serviceAccountName": "admin", "containers": [{"name": "c", "image": "theirs"}]},
        "status": {"phase": "Running"}}"#;
    let path = format!("{PODS}/own/status?fieldManager=m&force=true");
    let applied = ask(&server, "n1", "PATCH", &path, APPLY, wanted).success();
    assert_eq!(applied["status"]["phase"], "Running");
    let pod = Wire::admin(&server).ask("GET", &format!("{PODS}/own"), &[], b"").success();
    assert_eq!(
        (&pod["spec"]["containers"][0]["image"], &pod["spec"]["serviceAccountName"]),
        (&json!("i"), &json!("default"))
    );
    let owned = pod["metadata"]["managedFields"].to_string();
    assert!(!owned.contains("theirs") && owned.contains("f:phase"), "{owned}");
}

#[test]
fn b03_whoever_may_only_update_does_not_create_by_an_update() {
    let (server, _folder) = server(&[]);
    let lease = r#"{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "n2"}, "spec": {}}"#;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2";
    assert_eq!(ask(&server, "n1", "PUT", path, JSON, lease).code, 403);
    assert_eq!(Wire::admin(&server).ask("GET", path, &[], b"").code, 404);
}

#[test]
fn b03_a_node_does_not_choose_its_pod_cidrs() {
    let (server, _folder) = server(&["--allocate-node-cidrs", "--cluster-cidr", "10.245.0.0/16"]);
    let node =
        r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {"podCIDRs": ["0.0.0.0/1"]}}"#;
    let refused = ask(&server, "n1", "POST", "/api/v1/nodes", JSON, node).refused(403);
    assert_eq!(refused, "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set pod CIDRs");
    let plain = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}"#;
    let _ = ask(&server, "n1", "POST", "/api/v1/nodes", JSON, plain).success();
    let given = |server: &Server| {
        let node = Wire::admin(server).ask("GET", "/api/v1/nodes/n1", &[], b"").success();
        (node["spec"]["podCIDR"].clone(), node["spec"]["podCIDRs"].clone())
    };
    eventually("the cluster gives the node a range", || given(&server).0.is_string());
    let before = given(&server);
    for patch in [
        r#"{"spec": {"podCIDR": "0.0.0.0/1", "podCIDRs": ["0.0.0.0/1"]}}"#,
        r#"{"spec": {"podCIDR": null, "podCIDRs": null}}"#,
    ] {
        assert_eq!(ask(&server, "n1", "PATCH", "/api/v1/nodes/n1", MERGE, patch).code, 403);
        // The spec in a status update is not written.
        let _ = ask(&server, "n1", "PATCH", "/api/v1/nodes/n1/status", MERGE, patch);
        assert_eq!(given(&server), before);
    }
}

#[test]
fn b03_a_node_reads_the_password_of_a_bgp_peer_only_where_it_is_selected() {
    let (server, _folder) = server(&[]);
    for (node, rack) in [("n1", "a"), ("n2", "b")] {
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": {"rack": rack}}});
        make(&server, "/api/v1/nodes", &body.to_string());
    }
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    for name in ["for-rack-a", "for-all"] {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"p": "x"}});
        make(&server, secrets, &secret.to_string());
    }
    let peer = |name: &str, secret: &str| {
        json!({
            "apiVersion": "waypost.dev/v1", "kind": "BGPPeer", "metadata": {"name": name},
            "spec": {"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "password": {
                "secretRef": {"namespace": "kube-system", "name": secret, "key": "p"}}},
        })
    };
    let peers = "/apis/waypost.dev/v1/bgppeers";
    let mut selective = peer("rack-a", "for-rack-a");
    selective["spec"]["nodeSelector"] = json!({"matchLabels": {"rack": "a"}});
    make(&server, peers, &selective.to_string());
    make(&server, peers, &peer("all", "for-all").to_string());
    let code = |node: &str, secret: &str| ask(&server, node, "GET", &format!("{secrets}/{secret}"), JSON, "").code;
    assert_eq!((code("n1", "for-rack-a"), code("n1", "for-all"), code("n2", "for-all")), (200, 200, 200));
    assert_eq!(code("n2", "for-rack-a"), 403, "no session of n2 uses it");
}
