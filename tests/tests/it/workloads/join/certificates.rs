//! Machines that have joined serve TLS with the certificates that Services ask for, and can read no others.

use serde_json::json;
use testbed::net::eventually;
use testbed::run;

use super::*;

const HERE: &str = "/api/v1/namespaces/default";
const ARN: &str = "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012";
const ASKED: &str = "service.beta.kubernetes.io/aws-load-balancer-ssl-cert";
const PROTOCOL: &str = "service.beta.kubernetes.io/aws-load-balancer-backend-protocol";
const VIP: &str = "203.0.113.1";

/// A Secret with a certificate for `web.example`, which also lies in a file of this name; with these annotations.
fn secret(stage: &mut Stage, files: &TempDir, name: &str, annotations: &Value) {
    let path = |ending: &str| files.path().join(format!("{name}.{ending}"));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "7"]);
    command.args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:web.example"]);
    command.arg("-keyout").arg(path("key")).arg("-out").arg(path("crt"));
    let _ = run(&mut command, "").success();
    let read = |ending: &str| std::fs::read_to_string(path(ending)).expect("a file");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "annotations": annotations},
        "stringData": {"tls.crt": read("crt"), "tls.key": read("key")},
    });
    let _ = stage.post(&format!("{HERE}/secrets"), &secret);
}

/// Whether a client that trusts this certificate gets a page through the load balancer.
fn is_served(stage: &Stage, files: &TempDir, name: &str) -> bool {
    let mut command = Command::new("curl");
    command.args(["--silent", "--fail", "--max-time", "5", "--resolve", &format!("web.example:443:{VIP}"), "--cacert"]);
    command.arg(files.path().join(format!("{name}.crt"))).arg("https://web.example/");
    stage.api.run(command).ok
}

#[test]
fn s48_joined_machines_find_a_certificate_by_its_arn_and_read_no_other() {
    let mut stage = Stage::start(&["--load-balancer", "on", "--load-balancer-pool", "203.0.113.1"]);
    let files = testbed::folder();
    let token = stage.token();
    for name in ["n1", "n2"] {
        let place = stage.machine(name);
        stage.join(place, &["--token", &token]);
        stage.until("/api/v1/nodes", name, |node| is_true(node, "Ready"));
    }
    // The pod is on one machine, clients come by the other.
    let web = json!({
        "name": "web", "image": "host", "command": ["python3", "-m", "http.server", "8080", "--bind", "::", "--directory", "/tmp"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    });
    let _ = stage.post(&format!("{HERE}/pods"), &pod("web", "n1", web));
    stage.until(&format!("{HERE}/pods"), "web", |pod| is_true(pod, "Ready"));
    for name in ["of-the-arn", "by-name", "of-nobody"] {
        let claim = if name == "of-the-arn" { json!({"waypost.dev/certificate-arn": ARN}) } else { json!({}) };
        secret(&mut stage, &files, name, &claim);
    }
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "annotations": {ASKED: ARN, PROTOCOL: "http"}},
        "spec": {
            "type": "LoadBalancer", "selector": {"app": "web"},
            "ports": [{"name": "https", "port": 443, "targetPort": 8080}],
        },
    });
    let _ = stage.post(&format!("{HERE}/services"), &service);
    stage.api.route("203.0.113.0/24", &stage.nodes[1].node);
    eventually("the certificate that claims the ARN is served", || is_served(&stage, &files, "of-the-arn"));
    stage.nodes[1].as_itself(|session| {
        let code = |session: &mut Session, path: &str| session.get(&format!("{HERE}/secrets{path}")).code;
        assert_eq!(code(session, "/of-the-arn"), 200);
        assert_eq!(code(session, "/by-name"), 403, "no load balancer asks for it yet");
        assert_eq!(code(session, "/of-nobody"), 403);
        assert_eq!(code(session, ""), 403, "nor may it look through them");
    });
    let named = json!({"metadata": {"annotations": {ASKED: "secret://default/by-name"}}});
    let _ = stage.api(|session| session.merge(&format!("{HERE}/services/web"), &named)).success();
    eventually("the one that is named is served", || is_served(&stage, &files, "by-name"));
    let hint =
        stage.get(&format!("{HERE}/services/web"))["metadata"]["annotations"]["waypost.dev/certificate-secret"].take();
    assert_eq!(hint, Value::Null, "nothing is left of the ARN");
    let code = stage.nodes[1].as_itself(|session| session.get(&format!("{HERE}/secrets/of-the-arn")).code);
    assert_eq!(code, 403, "nobody asks for it any more");
}
