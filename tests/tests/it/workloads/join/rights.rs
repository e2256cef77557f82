//! What a node may do, and what it may not; and certificates that people grant.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rest::pki::OwnKey;
use serde_json::json;

use super::*;

const HERE: &str = "/api/v1/namespaces/default";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Two Nodes with a Pod each that uses a Secret; the first of them joined.
fn two_nodes() -> (Stage, usize) {
    let mut stage = Stage::start(&["--node-monitor-grace-period", "600s"]);
    for name in ["n1", "n2"] {
        let _ = stage.post("/api/v1/nodes", &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}));
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("for-{name}")}});
        let _ = stage.post(&format!("{HERE}/secrets"), &secret);
        let mut made = pod(name, name, json!({"name": "c", "image": "i"}));
        made["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": format!("for-{name}")}}]);
        let _ = stage.post(&format!("{HERE}/pods"), &made);
    }
    let place = stage.machine("n1");
    let token = stage.token();
    stage.join(place, &["--roles", "proxy,dns", "--token", &token]);
    (stage, place)
}

#[test]
fn a_node_reaches_what_is_its_own_and_nothing_else() {
    let (stage, place) = two_nodes();
    let cannot = |verb: &str, what: &str| format!("User \"system:node:n1\" cannot {verb} resource \"{what}\"");
    stage.nodes[place].as_itself(|session| {
        for path in [
            "/api/v1/services",
            "/api/v1/nodes",
            "/api/v1/nodes/n2",
            "/api/v1/namespaces",
            "/apis/discovery.k8s.io/v1/endpointslices",
            "/apis/networking.k8s.io/v1/servicecidrs",
            "/api/v1/pods?fieldSelector=spec.nodeName=n1",
            "/api/v1/namespaces/default/pods/n1",
            "/api/v1/namespaces/default/secrets/for-n1",
            "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name=for-n1",
        ] {
            assert_eq!(session.get(path).code, 200, "{path}");
        }
        for (path, verb, what, why) in [
            ("/api/v1/pods", "list", "pods", "can only list/watch pods with spec.nodeName field selector"),
            ("/api/v1/pods?fieldSelector=spec.nodeName=n2", "list", "pods", "can only list/watch pods"),
            ("/api/v1/pods?fieldSelector=spec.nodeName!=n1", "list", "pods", "can only list/watch pods"),
            (
                "/api/v1/namespaces/default/pods/n2",
                "get",
                "pods",
                "no relationship found between node 'n1' and this object",
            ),
            ("/api/v1/namespaces/default/secrets/for-n2", "get", "secrets", "no relationship found"),
            ("/api/v1/namespaces/default/secrets", "list", "secrets", "No Object name found"),
            ("/api/v1/namespaces/kube-system/configmaps", "list", "configmaps", "No Object name found"),
            ("/apis/apps/v1/deployments", "list", "deployments", ""),
        ] {
            let said = session.get(path).refused(403);
            assert!(said.contains(&cannot(verb, what)) && said.contains(why), "{path}: {said}");
        }

        let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
        let _ = session.merge("/api/v1/nodes/n1", &label("mine")).success();
        let own = session.merge("/api/v1/nodes/n1", &label("node-role.kubernetes.io/control-plane")).refused(403);
        assert!(own.contains("is not allowed to modify labels: node-role.kubernetes.io/control-plane"), "{own}");
        let taints = session.merge("/api/v1/nodes/n1", &json!({"spec": {"taints": []}})).refused(403);
        assert!(taints.contains("node \"n1\" is not allowed to modify taints"), "{taints}");
        let other = session.merge("/api/v1/nodes/n2", &label("mine")).refused(403);
        assert!(other.contains("node \"n1\" is not allowed to modify node \"n2\""), "{other}");
        assert_eq!(session.merge("/api/v1/nodes/n2/status", &json!({"status": {}})).code, 403);
        let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        assert_eq!(session.post("/api/v1/nodes", &node("n3")).code, 403);
        assert_eq!(session.post("/api/v1/nodes", &node("n1")).code, 409, "its own is there already");
        assert_eq!(session.delete("/api/v1/nodes/n1").code, 403);

        let lease =
            |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
        let _ = session.post(LEASES, &lease("n1")).success();
        assert_eq!(session.post(LEASES, &lease("n2")).code, 403);
        assert_eq!(session.get(&format!("{LEASES}/n2")).code, 403);

        let status = json!({"status": {"message": "said by its node"}});
        let _ = session.merge(&format!("{HERE}/pods/n1/status"), &status).success();
        let theirs = session.merge(&format!("{HERE}/pods/n2/status"), &status).refused(403);
        assert!(theirs.contains("can only update pod status for pods with spec.nodeName set to itself"), "{theirs}");
        assert_eq!(session.delete(&format!("{HERE}/pods/n2")).code, 403);
        assert_eq!(session.delete(&format!("{HERE}/pods/nobody")).code, 404);
        assert_eq!(
            session.post(&format!("{HERE}/pods"), &pod("new", "n1", json!({"name": "c", "image": "i"}))).code,
            403
        );
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        assert_eq!(session.post("/api/v1/namespaces/kube-system/serviceaccounts/default/token", &token).code, 403);
        assert_eq!(session.delete(&format!("{HERE}/pods/n1?gracePeriodSeconds=0")).code, 200);
    });
}

#[test]
fn kubectl_says_what_a_node_may() {
    let (stage, _) = two_nodes();
    let can = |words: &str| {
        let mut all = vec!["auth", "can-i", "--as", "system:node:n1", "--as-group", "system:nodes"];
        all.extend(words.split_whitespace());
        stage.kubectl(&all, "").out.trim().to_owned()
    };
    for yes in [
        "get secrets/for-n1",
        "get pods/n1",
        "list services",
        "create nodes",
        "create pods",
        "patch nodes/n1",
        // Which Node and Pod is decided with the object available, as in kube-apiserver: the request itself is
        // rejected.
        "patch nodes/n2",
        "update leases/n1 -n kube-node-lease",
    ] {
        assert_eq!(can(yes), "yes", "{yes}");
    }
    let no = "no - node: no relationship found between node 'n1' and this object";
    assert_eq!((can("get secrets/for-n2").as_str(), can("get pods/n2").as_str()), (no, no));
    for word in ["list pods", "list secrets", "delete nodes/n1", "update leases/n2 -n kube-node-lease"] {
        assert!(can(word).starts_with("no"), "{word}: {}", can(word));
    }
}

#[test]
fn people_grant_and_refuse_certificates() {
    let mut stage = Stage::start(&[]);
    let ask = |name: &str, group: &str, signer: &str| {
        let request = OwnKey::generate().and_then(|key| key.request("alice", group, &[], &[])).expect("a request");
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {
                "request": STANDARD.encode(request), "signerName": signer, "expirationSeconds": 3600,
                "usages": ["client auth"], "username": "somebody-else",
            },
        })
    };
    let signer = "kubernetes.io/kube-apiserver-client";
    for name in ["yes", "no"] {
        let made = stage.kubectl(&["create", "-f", "-"], &ask(name, "dev", signer).to_string()).success();
        assert_eq!(made, format!("certificatesigningrequest.certificates.k8s.io/{name} created\n"));
    }
    let table = stage.kubectl(&["get", "csr"], "").success();
    let header: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "AGE", "SIGNERNAME", "REQUESTOR", "REQUESTEDDURATION", "CONDITION"]);
    assert!(table.contains("waypost-admin") && table.contains("60m") && table.contains("Pending"), "{table}");
    let _ = stage.kubectl(&["certificate", "approve", "yes"], "").success();
    let _ = stage.kubectl(&["certificate", "deny", "no"], "").success();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let issued = stage.until(path, "yes", |request| request["status"]["certificate"].is_string());
    let pem = STANDARD.decode(issued["status"]["certificate"].as_str().expect("a certificate")).expect("base64");
    assert!(pem.starts_with(b"-----BEGIN CERTIFICATE-----"));
    assert_eq!(issued["spec"]["username"], "waypost-admin", "the server says who asks");
    let table = stage.kubectl(&["get", "csr", "--no-headers"], "").success();
    assert!(table.contains("Approved,Issued") && table.contains("Denied"), "{table}");
    let described = stage.kubectl(&["describe", "csr", "yes"], "").success();
    assert!(described.contains("alice") && described.contains("Approved,Issued"), "{described}");

    let root = stage.kubectl(&["create", "-f", "-"], &ask("root", "system:masters", signer).to_string()).failure();
    assert!(root.contains("with system:masters group is not allowed"), "{root}");
    let mut odd = ask("odd", "dev", "signer");
    odd["spec"]["request"] = json!("AAAA");
    odd["spec"]["expirationSeconds"] = json!(60);
    let odd = stage.kubectl(&["create", "-f", "-"], &odd.to_string()).failure();
    for part in
        ["PEM block type must be CERTIFICATE REQUEST", "of the form 'example.com/signer-name'", "less than 600 seconds"]
    {
        assert!(odd.contains(part), "{odd}");
    }
}
