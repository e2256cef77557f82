//! CAs are replaced while machines have joined: they follow by themselves, and nothing is interrupted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rest::pki;
use testbed::net::eventually;

use super::*;

const NODES: &str = "/api/v1/nodes";
const PODS_HERE: &str = "/api/v1/namespaces/default/pods";

/// What an entry of a kubeconfig holds.
fn entry(kubeconfig: &Path, name: &str) -> String {
    let file = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let encoded = file.lines().find_map(|line| line.trim().strip_prefix(name)).expect("an entry").to_owned();
    String::from_utf8(STANDARD.decode(encoded).expect("base64")).expect("PEM")
}

/// The CAs that a machine trusts, and its certificate.
fn credentials(machine: &Machine) -> (String, String) {
    let path = machine.kubeconfig();
    (entry(&path, "certificate-authority-data: "), entry(&path, "client-certificate-data: "))
}

#[test]
fn b05_joined_machines_follow_new_cas_without_an_interruption() {
    let mut stage = Stage::start(&[]);
    let place = stage.machine("n1");
    let token = stage.token();
    stage.join(place, &["--token", &token]);
    let node = stage.until(NODES, "n1", |node| is_true(node, "Ready"));
    let script = "echo hello; while true; do sleep 1; done";
    let container = json!({"name": "c", "image": "host", "command": ["sh", "-c", script]});
    let _ = stage.post(PODS_HERE, &pod("here", "n1", container));
    stage.until(PODS_HERE, "here", |pod| is_true(pod, "Ready"));
    let logs = |stage: &Stage| stage.kubectl(&["logs", "here"], "");
    assert_eq!(logs(&stage).success(), "hello\n");
    let serving = stage.nodes[place].home.path().join("node/serving.crt");
    let served = || pki::issuer_key_id(&std::fs::read_to_string(&serving).unwrap_or_default());
    let (before, old_issuer) = (credentials(&stage.nodes[place]), served());

    let _ = stage.waypost("certs rotate ca").success();
    let _ = stage.waypost("certs rotate agent-ca").success();
    eventually("the machine has a certificate of the new CA", || {
        assert_eq!(logs(&stage).success(), "hello\n");
        let (trusted, certificate) = credentials(&stage.nodes[place]);
        trusted.ends_with(&before.0) && trusted != before.0 && pki::signed_by(&certificate, &trusted)
    });
    eventually("its agent has one of the new agent CA", || {
        assert_eq!(logs(&stage).success(), "hello\n");
        served() != old_issuer
    });
    eventually("nobody is cut off", || {
        assert_eq!(logs(&stage).success(), "hello\n");
        stage.waypost("certs finish ca").ok
    });
    let _ = stage.waypost("certs finish agent-ca").success();
    eventually("the machine does not trust the old CA any more", || {
        assert_eq!(logs(&stage).success(), "hello\n");
        !credentials(&stage.nodes[place]).0.contains(&before.0)
    });
    stage.session = session(&stage.api, &stage.home.path().join("kubeconfig"));
    let now = stage.get(&format!("{NODES}/n1"));
    let ready = |node: &Value| {
        let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "Ready").expect("a condition")
    };
    assert_eq!(ready(&now)["status"], "True");
    assert_eq!(ready(&now)["lastTransitionTime"], ready(&node)["lastTransitionTime"], "it was ready all the time");
    assert_eq!(stage.kubectl(&["exec", "here", "--", "echo", "inside"], "").success(), "inside\n");
    let container = json!({"name": "c", "image": "host", "command": ["sleep", "1000"]});
    let _ = stage.post(PODS_HERE, &pod("later", "n1", container));
    stage.until(PODS_HERE, "later", |pod| is_true(pod, "Ready"));
}
