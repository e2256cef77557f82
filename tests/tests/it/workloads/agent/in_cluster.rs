//! Programs made for Kubernetes find the API from inside of a Pod without configuration, and lose it with their Pod.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use testbed::net::eventually;

use super::machine::{Machine, script};
use crate::python_client;

const HERE: &str = "/api/v1/namespaces/default";
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

const PYTHON: &str = "\
from kubernetes import client, config
config.load_incluster_config()
core = client.CoreV1Api()
names = [item.metadata.name for item in core.list_namespaced_service('default').items]
print('python lists', *names, flush=True)
";

#[test]
fn b01_clients_of_kubernetes_find_the_api_in_a_pod() {
    let mut machine = Machine::new();
    machine.post(&format!("{HERE}/serviceaccounts"), &json!({"metadata": {"name": "robot"}}));
    let binding = json!({
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    machine.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding);
    let python = json!({
        "name": "python", "image": "host", "command": [python_client::interpreter(), "-c", PYTHON],
    });
    let rust = json!({"name": "rust", "image": "host", "command": [env!("CARGO_BIN_EXE_list_services")]});
    let spec = |containers| json!({"serviceAccountName": "robot", "restartPolicy": "Never", "containers": containers});
    machine.pod("clients", spec(json!([python, rust])));
    eventually("both have asked", || {
        let pod = machine.get("clients");
        matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
    });
    assert_eq!(machine.log("clients", "python", 0), "python lists kubernetes\n");
    assert_eq!(machine.log("clients", "rust", 0), "kube-rs lists kubernetes\n");

    machine.pod("holder", spec(json!([script("c", "exec sleep 1000")])));
    machine.until_ready("holder");
    let token = machine.exec("holder", "c", &format!("cat {FOLDER}/token"));
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let code = |machine: &Machine| {
        let mut command = Command::new("curl");
        command.args(["-sk", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", "-H", &bearer]);
        command.arg(format!("https://127.0.0.1:6443{HERE}/services"));
        machine.node.run(command).out
    };
    assert_eq!(code(&machine), "200");
    let _ = machine.delete("holder", "?gracePeriodSeconds=0").success();
    let begun = Instant::now();
    assert_eq!(code(&machine), "401", "the token ends with its Pod");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
