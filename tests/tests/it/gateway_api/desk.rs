//! A server with load balancers and the GatewayClass `waypost`, and what a user of Gateways does.

use serde_json::{Value, json};
use testbed::net::eventually;
use testbed::session::{Session, text};
use testbed::{Home, Server};

/// Gateways of the namespace `default`.
pub(super) const GATEWAYS: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways";
/// HTTPRoutes of the namespace `default`.
pub(super) const ROUTES: &str = "/apis/gateway.networking.k8s.io/v1/namespaces/default/httproutes";

/// See the module.
pub(super) struct Desk {
    pub(super) server: Server,
    pub(super) session: Session,
}

impl Desk {
    /// With a pool of addresses.
    pub(super) fn new(home: &tempfile::TempDir) -> Self {
        let arguments = ["--load-balancer-pool", "192.0.2.0/28", "--gateway-class"];
        let server = Server::start_with(Home::Kept(home.path().to_owned()), &arguments);
        let session = server.session();
        Self { server, session }
    }

    /// Applies objects in YAML.
    #[track_caller]
    pub(super) fn apply(&self, yaml: &str) {
        let _ = self.server.kubectl_with(&["apply", "-f", "-"], yaml).success();
    }

    /// Waits until an object is as it should be, and answers it.
    #[track_caller]
    pub(super) fn until(&mut self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        eventually(&format!("{path}: {what}"), || {
            found = self.session.get(path).body;
            wanted(&found)
        });
        found
    }

    /// Waits until a Gateway has a condition, in the form `Type=Status/Reason`.
    #[track_caller]
    pub(super) fn gateway(&mut self, name: &str, condition: &str) -> Value {
        self.until(&format!("{GATEWAYS}/{name}"), condition, |found| has(&found["status"], condition))
    }

    /// Waits until the first parent of an HTTPRoute has a condition.
    #[track_caller]
    pub(super) fn route(&mut self, name: &str, condition: &str) -> Value {
        self.until(&format!("{ROUTES}/{name}"), condition, |found| has(&found["status"]["parents"][0], condition))
    }
}

/// Whether an object with conditions has this one, `Type=Status/Reason`, of the current generation.
pub(super) fn has(object: &Value, condition: &str) -> bool {
    let all = object["conditions"].as_array();
    all.into_iter()
        .flatten()
        .any(|one| format!("{}={}/{}", text(one, "/type"), text(one, "/status"), text(one, "/reason")) == condition)
}

/// The message of a condition.
pub(super) fn message<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["conditions"].as_array();
    all.into_iter().flatten().find(|one| one["type"] == kind).map_or("", |one| text(one, "/message"))
}

/// A Gateway with an HTTP listener on port 80.
pub(super) fn gateway(name: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}}}\n\
         spec: {{gatewayClassName: waypost, listeners: [{{name: http, port: 80, protocol: HTTP}}]}}\n---\n"
    )
}

/// An HTTPRoute that leads from the Gateway `public` to a port of a Service.
pub(super) fn route(name: &str, backend: &str, port: u16) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"parentRefs": [{"name": "public"}], "rules": [{"backendRefs": [{"name": backend, "port": port}]}]},
    })
}
