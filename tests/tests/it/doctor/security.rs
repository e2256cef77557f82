//! `waypost doctor --security`: every exposure is made by hand and found, and a server without any has none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::net::eventually;
use testbed::{Home, Server, binary, run};

/// What the doctor reports, and its exit code.
fn report(kubeconfig: &Path, more: &[&str]) -> (Value, i32) {
    let mut command = Command::new(binary());
    command.args(["doctor", "--security", "-o", "json", "--kubeconfig"]).arg(kubeconfig).args(more);
    let output = command.output().expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let code = output.status.code().expect("an exit code");
    (serde_json::from_str(&text).unwrap_or_else(|_| json!({"text": text})), code)
}

/// `severity check object`, for findings worse than a note.
fn findings(report: &Value) -> Vec<String> {
    let text = |finding: &Value, field: &str| finding[field].as_str().expect("a text").to_owned();
    let all = report["findings"].as_array().unwrap_or_else(|| panic!("{report}"));
    let line = |finding: &Value| ["severity", "check", "object"].map(|field| text(finding, field)).join(" ");
    let mut out: Vec<String> = all.iter().filter(|finding| finding["severity"] != "note").map(line).collect();
    out.sort_unstable();
    out
}

fn kubectl(server: &Server, line: &str, input: &str) -> String {
    let mut command = Command::new("kubectl");
    command.arg("--kubeconfig").arg(server.kubeconfig()).arg("--cache-dir").arg(server.home().join("cache"));
    run(command.args(line.split(' ')), input).success()
}

/// Waits for the account that Pods have.
fn until_account(server: &Server) {
    let names = || kubectl(server, "get serviceaccounts -o name", "");
    eventually("the account is there", || names().contains("serviceaccount/default"));
}

/// A server that encrypts Secrets and records requests.
fn safe(place: &Path) -> Server {
    let keys = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
        {"resources": ["secrets"], "providers": [{"aesgcm": {"keys": [{"name": "k", "secret": STANDARD.encode([7; 32])}]}}]},
    ]});
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
    let file = |name: &str, text: &Value| {
        let path = place.join(name);
        fs::write(&path, text.to_string()).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        path.display().to_string()
    };
    let (keys, policy) = (file("keys.yaml", &keys), file("policy.yaml", &policy));
    let log = place.join("audit.log").display().to_string();
    let arguments = ["--encryption-provider-config", &keys, "--audit-policy-file", &policy, "--audit-log-path", &log];
    Server::start_with(Home::Kept(place.join("data")), &arguments)
}

#[test]
fn b05_a_server_that_exposes_nothing_has_no_findings() {
    let place = TempDir::new().expect("a folder");
    let server = safe(place.path());
    let (found, code) = report(&server.kubeconfig(), &[]);
    assert_eq!((findings(&found), code), (vec![], 0), "{found}");
    assert_eq!(found["notMeasured"], json!([]), "{found}");
    // A user without rights gets an error.
    until_account(&server);
    let token = kubectl(&server, "create token default --duration=30m", "");
    let ours = fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let theirs: Vec<String> =
        ours.lines()
            .filter(|line| !line.contains("client-certificate-data:"))
            .map(|line| {
                if line.contains("client-key-data:") { format!("    token: {}", token.trim()) } else { line.to_owned() }
            })
            .collect();
    let other = place.path().join("other");
    fs::write(&other, theirs.join("\n")).expect("written");
    let (found, code) = report(&other, &[]);
    let unknown: Vec<&str> =
        found["notMeasured"].as_array().expect("a list").iter().filter_map(|one| one["check"].as_str()).collect();
    assert_eq!(code, 2, "{found}");
    for check in
        ["anonymous-access", "wide-bindings", "privileged-pods", "join-tokens", "encryption-at-rest", "audit-log"]
    {
        assert!(unknown.contains(&check), "{check}: {found}");
    }
    drop(server);
    assert_eq!(report(&other, &[]).1, 2, "nobody answers");
}

#[test]
fn b05_every_exposure_is_found_with_its_object_and_the_next_step() {
    let server = Server::start();
    until_account(&server);
    let made = |line: &str| kubectl(&server, line, "");
    made("create clusterrolebinding open --clusterrole=view --group=system:unauthenticated");
    made("create clusterrolebinding wide --clusterrole=cluster-admin --group=system:authenticated");
    made("create clusterrole escalator --verb=impersonate --resource=users");
    made("create clusterrolebinding climb --clusterrole=escalator --user=ada");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "root"}, "spec": {"containers": [
        {"name": "c", "image": "web:1", "securityContext": {"privileged": true}},
    ]}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {
        "name": "old", "annotations": {"kubernetes.io/service-account.name": "default"},
    }});
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]});
    let webhook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [{
            "name": "guard.example.org", "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule], "timeoutSeconds": 1,
            "namespaceSelector": {"matchLabels": {"guarded": "yes"}},
    }]});
    for object in [&pod, &secret, &webhook] {
        kubectl(&server, "create -f -", &object.to_string());
    }
    let mut token = Command::new(binary());
    token.args(["token", "create", "--ttl", "0s", "--kubeconfig"]).arg(server.kubeconfig());
    let token = run(&mut token, "").success();
    let id = token.split('.').next().expect("an id").to_owned();
    let (found, code) = report(&soon_ending(&server), &[]);
    let join = format!("warning join-tokens join token {id}");
    let wanted = [
        "critical anonymous-access ClusterRoleBinding open",
        "critical wide-bindings ClusterRoleBinding wide",
        "warning audit-log API server",
        "warning encryption-at-rest store of the API server",
        "warning ignored-webhooks ValidatingWebhookConfiguration guard",
        &join,
        "warning legacy-tokens Secret default/old",
        "warning privileged-pods Pod default/root",
        "warning wide-bindings ClusterRoleBinding climb",
    ];
    let found_lines = findings(&found);
    let certificate = |line: &&String| line.starts_with("warning certificates client certificate in ");
    assert_eq!(found_lines.iter().filter(certificate).count(), 1, "{found}");
    let rest: Vec<&str> = found_lines.iter().filter(|line| !certificate(line)).map(String::as_str).collect();
    assert_eq!((rest, code), (wanted.to_vec(), 1), "{found}");
    let fix = |object: &str| {
        let all = found["findings"].as_array().expect("a list");
        let of = |finding: &&Value| finding["object"].as_str().is_some_and(|own| own.contains(object));
        all.iter().find(of).and_then(|finding| finding["fix"].as_str()).expect("a fix").to_owned()
    };
    assert!(fix("ClusterRoleBinding wide").contains("kubectl delete clusterrolebinding wide"));
    assert!(fix(&id).contains(&format!("waypost token delete {id}")));
    assert!(
        fix("Pod default/root").contains("kubectl label namespace default pod-security.kubernetes.io/enforce=baseline")
    );
}

/// A kubeconfig whose certificate expires tomorrow.
fn soon_ending(server: &Server) -> std::path::PathBuf {
    let at = |name: &str| server.home().join(name);
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/O=ops/CN=ada",
    ]);
    let request = run(command.arg("-keyout").arg(at("ada.key")), "").success();
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "ada"},
        "spec": {"request": STANDARD.encode(request), "signerName": "kubernetes.io/kube-apiserver-client",
                 "expirationSeconds": 86_400, "usages": ["client auth"]}});
    kubectl(server, "create -f -", &request.to_string());
    kubectl(server, "certificate approve ada", "");
    kubectl(server, "create clusterrolebinding ops --clusterrole=cluster-admin --group=ops", "");
    let signed = || kubectl(server, "get csr ada -o jsonpath={.status.certificate}", "");
    eventually("it is signed", || !signed().is_empty());
    let key = STANDARD.encode(fs::read(at("ada.key")).expect("a key"));
    let ours = fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
    let replaced = |line: &str| match line.split_once(':') {
        Some((name, _)) if name.trim() == "client-certificate-data" => format!("{name}: {}", signed()),
        Some((name, _)) if name.trim() == "client-key-data" => format!("{name}: {key}"),
        _ => line.to_owned(),
    };
    fs::write(at("ada"), ours.lines().map(replaced).collect::<Vec<_>>().join("\n")).expect("written");
    at("ada")
}
