//! Machines that join, run Pods, become unreachable, and return.

use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use rest::pki;
use serde_json::json;
use testbed::net::eventually;

use super::*;

const NODES: &str = "/api/v1/nodes";
const ALL_PODS: &str = "/api/v1/namespaces/default/pods";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

/// A container that serves, and prints something first.
fn web() -> Value {
    json!({
        "name": "web", "image": "host",
        "command": ["sh", "-c", "echo hello from $HOSTNAME; exec python3 -m http.server 8080 --bind :: --directory /tmp"],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    })
}

/// The names of the Pods that a Service leads to.
fn endpoints(stage: &mut Stage) -> Vec<String> {
    let slices = stage.api(|session| session.items(&format!("{SLICES}?labelSelector=kubernetes.io/service-name=web")));
    let mut names: Vec<String> = slices
        .iter()
        .filter_map(|slice| slice["endpoints"].as_array())
        .flatten()
        .filter(|endpoint| endpoint["conditions"]["ready"] == true)
        .map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn s18_machines_join_with_a_token_run_pods_and_may_fall_silent() {
    let mut stage = Stage::start(&["--node-monitor-grace-period", "25s"]);
    let command = stage.waypost("token create --print-join-command --description machines").success();
    let words: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(words[..4], ["waypost", "node", "--join", &stage.server()], "{command}");
    for (place, name) in ["n1", "n2"].into_iter().enumerate() {
        stage.machine(name);
        stage.join(place, &words[4..]);
        stage.until(NODES, name, |node| is_true(node, "Ready"));
    }
    let kubeconfig = stage.nodes[0].kubeconfig();
    let mode = std::fs::metadata(&kubeconfig).expect("a kubeconfig").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(&kubeconfig).expect("a kubeconfig");
    assert!(text.contains(&format!("server: \"https://{}\"", stage.server())) && !text.contains("token"), "{text}");

    let _ = stage.post(
        "/api/v1/namespaces/default/services",
        &json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }),
    );
    for name in ["n1", "n2"] {
        let _ = stage.post(ALL_PODS, &pod(&format!("on-{name}"), name, web()));
        stage.until(ALL_PODS, &format!("on-{name}"), |pod| is_true(pod, "Ready"));
    }
    eventually("both Pods are endpoints", || endpoints(&mut stage) == ["on-n1", "on-n2"]);

    // The agents serve with certificates of the cluster, which they requested themselves.
    let table = stage.kubectl(&["get", "csr"], "").success();
    let issued = table.lines().filter(|line| line.contains("Approved,Issued")).count();
    assert!(issued >= 4, "each node is a client and serves:\n{table}");
    for name in ["n1", "n2"] {
        let pod = format!("on-{name}");
        let log = stage.kubectl(&["logs", &pod], "").success();
        assert_eq!(log.lines().next(), Some(format!("hello from {pod}").as_str()), "{log}");
        assert_eq!(stage.kubectl(&["exec", &pod, "--", "echo", "inside"], "").success(), "inside\n");
    }

    // A start without a token finds what the first one has learned; Pods go on.
    stage.nodes[0].process.take().expect("it runs").kill();
    stage.join(0, &[]);
    let again = stage.get(&format!("{ALL_PODS}/on-n1"));
    assert_eq!(again["status"]["containerStatuses"][0]["restartCount"], 0);
    assert_eq!(stage.kubectl(&["exec", "on-n1", "--", "echo", "still"], "").success(), "still\n");

    // A machine that sends no heartbeats any more.
    stage.nodes[1].process.take().expect("it runs").kill();
    stage.until(NODES, "n2", |node| !is_true(node, "Ready"));
    eventually("its Pod has left", || endpoints(&mut stage) == ["on-n1"]);
    stage.join(1, &[]);
    stage.until(NODES, "n2", |node| is_true(node, "Ready"));
    eventually("it is back", || endpoints(&mut stage) == ["on-n1", "on-n2"]);
}

#[test]
fn certificates_of_nodes_are_renewed_before_they_end() {
    let mut stage = Stage::start(&["--cluster-signing-duration", "20s"]);
    let place = stage.machine("n1");
    let token = stage.token();
    stage.join(place, &["--roles", "proxy", "--token", &token]);
    let path = stage.nodes[place].kubeconfig();
    let end = || {
        let text = std::fs::read_to_string(&path).expect("a kubeconfig");
        let encoded = text.lines().find_map(|line| line.trim().strip_prefix("client-certificate-data: "));
        use base64::Engine as _;
        let pem = base64::engine::general_purpose::STANDARD.decode(encoded.expect("a certificate")).expect("base64");
        pki::validity(std::str::from_utf8(&pem).expect("PEM")).expect("a certificate").1
    };
    let first = end();
    eventually("the first certificate is over, and there is another", || {
        let now = Timestamp::now();
        now > first && end() > now
    });
    let services = stage.nodes[place].as_itself(|session| session.get("/api/v1/services").code);
    assert_eq!(services, 200);
    let name = stage.nodes[place].as_itself(|session| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        session.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).success()
    });
    assert_eq!(name["status"]["userInfo"]["username"], "system:node:n1");
}
