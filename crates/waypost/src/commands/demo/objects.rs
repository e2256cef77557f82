//! The objects of the demo. Pure: a name and a version go in, manifests come out.

use serde_json::{Value, json};

/// The port of the backends.
const PORT: u16 = 8080;
/// Seconds that a terminating Pod keeps serving, until all proxies have removed it.
const GOES_ON: u16 = 2;
/// What the Service `archive` stands for.
pub(super) const ARCHIVE: &str = "archive.example.com";

/// The Pod of a backend: this program.
fn pod(program: &str, version: &str) -> Value {
    json!({
        "terminationGracePeriodSeconds": 5,
        "containers": [{
            "name": "images",
            "image": "host",
            "command": [program, "demo", "backend", format!("--port={PORT}")],
            "env": [
                {"name": "VERSION", "value": version},
                {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            // Beside something that uses every processor, a Pod that requests nothing gets next to nothing.
            "resources": {"requests": {"cpu": "100m"}},
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"sleep": {"seconds": GOES_ON}}},
        }],
    })
}

/// The backend with its replicas, of this version.
pub(super) fn deployment(program: &str, version: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "images"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "images"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": "images"}}, "spec": pod(program, version)},
        },
    })
}

/// A Pod that asks.
pub(super) fn visitor(program: &str) -> Value {
    let mut spec = pod(program, "visitor");
    // It is no endpoint, so it can end at once.
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["lifecycle"] = json!({});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "visitor", "labels": {"app": "visitor"}}, "spec": spec})
}

fn service(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// Leads to the backends.
fn to_images(extra: &Value) -> Value {
    let mut spec =
        json!({"selector": {"app": "images"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

/// One address for all backends.
pub(super) fn images() -> Value {
    service("images", &to_images(&json!({})))
}

/// The same, on a port of every node.
pub(super) fn outside() -> Value {
    service("images-outside", &to_images(&json!({"type": "NodePort"})))
}

/// The backends themselves.
pub(super) fn direct() -> Value {
    service("images-direct", &to_images(&json!({"clusterIP": "None"})))
}

/// Whoever came before is led to the same backend.
pub(super) fn sticky() -> Value {
    service("images-sticky", &to_images(&json!({"sessionAffinity": "ClientIP"})))
}

/// Another name for something that is not here.
pub(super) fn archive() -> Value {
    service("archive", &json!({"type": "ExternalName", "externalName": ARCHIVE}))
}

/// The names of all Services of the demo.
pub(super) const SERVICES: [&str; 5] = ["images", "images-outside", "images-direct", "images-sticky", "archive"];
