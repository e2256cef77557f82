//! How Services are found: by variables and by names.

pub(crate) mod dig;
mod env;

use std::process::Command;

use serde_json::{Value, json};
use testbed::session::Session;
use testbed::{Run, Server, binary, run};

/// A command of the binary for a server; the arguments are split at spaces.
fn ask(server: &Server, arguments: &str) -> Run {
    let mut command = Command::new(binary());
    command.args(arguments.split_whitespace()).env("KUBECONFIG", server.kubeconfig());
    run(&mut command, "")
}

fn make_namespace(api: &mut Session, name: &str) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let _ = api.post("/api/v1/namespaces", &namespace).success();
}

/// A Service in any namespace.
fn make_service(api: &mut Session, namespace: &str, name: &str, spec: Value) -> Value {
    let path = format!("/api/v1/namespaces/{namespace}/services");
    api.post(&path, &testbed::session::service(name, spec)).success()
}

/// A Pod in `default` with these settings beside its container.
#[expect(clippy::needless_pass_by_value, reason = "a spec is written where it is used")]
fn make_pod(api: &mut Session, name: &str, settings: Value) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                         "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in settings.as_object().expect("settings") {
        pod["spec"][key] = value.clone();
    }
    let _ = api.post("/api/v1/namespaces/default/pods", &pod).success();
}
