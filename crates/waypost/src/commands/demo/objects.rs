//! The objects of the demo. Pure: a name and a version go in, manifests come out.

use serde_json::{Value, json};

/// The port of the backends.
const PORT: u16 = 8080;
/// Seconds that a terminating Pod keeps serving, until all proxies have removed it.
const GOES_ON: u16 = 2;
/// The target of the Service `archive`.
pub(super) const ARCHIVE: &str = "archive.example.com";
/// The Deployment, the Service and the label of the canary.
pub(super) const NEXT: &str = "images-next";
/// The route of the canary.
pub(super) const ROUTE: &str = "images-canary";

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
            // Where all processors are busy, a Pod without requests gets almost no CPU time.
            "resources": {"requests": {"cpu": "100m"}},
            "ports": [{"name": "http", "containerPort": PORT}],
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 1},
            "lifecycle": {"preStop": {"sleep": {"seconds": GOES_ON}}},
        }],
    })
}

/// The Deployment of the backend, of this version.
pub(super) fn deployment(program: &str, version: &str) -> Value {
    replicas("images", 3, pod(program, version))
}

/// The Deployment of the canary: one Pod of the next version.
pub(super) fn next(program: &str) -> Value {
    replicas(NEXT, 1, pod(program, "v3"))
}

fn replicas(app: &str, count: u8, pod: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": app},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": app}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": pod},
        },
    })
}

/// The client Pod.
pub(super) fn visitor(program: &str) -> Value {
    let mut spec = pod(program, "visitor");
    // It is no endpoint, so it needs no grace period.
    spec["terminationGracePeriodSeconds"] = json!(1);
    spec["containers"][0]["lifecycle"] = json!({});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "visitor", "labels": {"app": "visitor"}}, "spec": spec})
}

fn service(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

/// The spec of a Service that selects the backends.
fn to_images(extra: &Value) -> Value {
    let mut spec =
        json!({"selector": {"app": "images"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]});
    for (key, value) in extra.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

/// A cluster IP for all backends.
pub(super) fn images() -> Value {
    service("images", &to_images(&json!({})))
}

/// The same, with a node port.
pub(super) fn outside() -> Value {
    service("images-outside", &to_images(&json!({"type": "NodePort"})))
}

/// A headless Service: the addresses of the backends.
pub(super) fn direct() -> Value {
    service("images-direct", &to_images(&json!({"clusterIP": "None"})))
}

/// With session affinity: a client always reaches the same backend.
pub(super) fn sticky() -> Value {
    service("images-sticky", &to_images(&json!({"sessionAffinity": "ClientIP"})))
}

/// A Service for the Pods of the canary.
pub(super) fn next_images() -> Value {
    service(NEXT, &to_images(&json!({"selector": {"app": NEXT}})))
}

/// The HTTPRoute of the Service `images` that sends this share of its requests to the canary, in percent.
pub(super) fn canary(weight: usize) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": ROUTE},
        "spec": {
            "parentRefs": [{"group": "", "kind": "Service", "name": "images", "port": 80}],
            "rules": [{"backendRefs": [
                {"name": "images", "port": 80, "weight": 100 - weight}, {"name": NEXT, "port": 80, "weight": weight},
            ]}],
        },
    })
}

/// A CNAME for an external name.
pub(super) fn archive() -> Value {
    service("archive", &json!({"type": "ExternalName", "externalName": ARCHIVE}))
}

/// The names of all Services of the demo.
pub(super) const SERVICES: [&str; 6] = ["images", "images-outside", "images-direct", "images-sticky", "archive", NEXT];
/// The names of its Deployments.
pub(super) const DEPLOYMENTS: [&str; 2] = ["images", NEXT];
