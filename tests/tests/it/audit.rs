//! The audit log of a fixed session, compared with the one that kube-apiserver wrote of the same session.

use std::process::Command;

use testbed::{Home, Server};

#[test]
fn b05_the_audit_log_of_a_session_is_that_of_kubernetes() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/audit");
    let folder = tempfile::tempdir().expect("a directory");
    let (log, policy) = (folder.path().join("audit.log"), format!("{golden}/policy.yaml"));
    let log = log.to_str().expect("a path in UTF-8");
    let plugin = ["--disable-admission-plugins", "ServiceAccount"];
    let server = Server::start_with(
        Home::temporary(),
        &[&["--audit-policy-file", &policy, "--audit-log-path", log], plugin.as_slice()].concat(),
    );
    let session = Command::new("python3")
        .arg(format!("{golden}/session"))
        .args(["--log", log, "--kubeconfig"])
        .arg(server.home().join("kubeconfig"))
        .output()
        .expect("python3");
    assert!(session.status.success(), "{}", String::from_utf8_lossy(&session.stderr));
    let recorded = std::fs::read_to_string(format!("{golden}/recorded.jsonl")).expect("a recording");
    let written = String::from_utf8(session.stdout).expect("text");
    let (recorded, written): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), written.lines().collect());
    for (recorded, written) in recorded.iter().zip(&written) {
        assert_eq!(written, recorded);
    }
    assert_eq!(written.len(), recorded.len());
}
