//! The objects that are created: Gateways, ListenerSets, routes, and the Services behind them.
//!
//! Services have no selector, so that their slices are those that are made here.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::lb::stage::TARGET;

/// The namespace of the Gateways.
pub const NAMESPACE: &str = "default";

/// The collection of a kind of the Gateway API in a namespace.
#[must_use]
pub fn collection(namespace: &str, plural: &str) -> String {
    format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/{plural}")
}

/// The Services of a namespace.
#[must_use]
pub fn services(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services")
}

/// The slices of a namespace.
#[must_use]
pub fn slices(namespace: &str) -> String {
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")
}

/// A namespace.
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// A Gateway with these listeners; ListenerSets and routes of all namespaces may attach.
#[must_use]
pub fn gateway(name: &str, listeners: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"gatewayClassName": "waypost", "listeners": listeners, "allowedListeners": {"namespaces": {"from": "All"}}},
    })
}

/// A listener for HTTP that routes of all namespaces may attach to.
#[must_use]
pub fn http_listener(port: u16) -> Value {
    json!({"name": "http", "port": port, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}})
}

/// A listener that terminates TLS with the certificate of a Secret.
#[must_use]
pub fn https_listener(port: u16, secret: &str) -> Value {
    json!({"name": "https", "port": port, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": secret}]}})
}

/// A ListenerSet with one listener for HTTP on port 80.
#[must_use]
pub fn listener_set(name: &str, gateway: &str, hostname: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parentRef": {"name": gateway},
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP", "hostname": hostname}],
        },
    })
}

/// The parent of a route.
#[derive(Clone, Copy, Debug)]
pub enum Parent<'a> {
    /// A Gateway of [`NAMESPACE`].
    Gateway(&'a str),
    /// A ListenerSet of [`NAMESPACE`].
    ListenerSet(&'a str),
}

/// An HTTPRoute for a hostname and a path to one port of a Service.
#[must_use]
pub fn http_route(
    (namespace, name): (&str, &str),
    parent: Parent<'_>,
    (host, path): (&str, &str),
    service: &str,
) -> Value {
    let parent = match parent {
        Parent::Gateway(name) => json!({"name": name, "namespace": NAMESPACE}),
        Parent::ListenerSet(name) => {
            json!({"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": name, "namespace": NAMESPACE})
        }
    };
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [parent], "hostnames": [host], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": path}}],
            "backendRefs": [{"name": service, "port": 80}],
        }]},
    })
}

/// The same route with a filter that adds a header to requests.
#[must_use]
pub fn with_header(mut route: Value, value: &str) -> Value {
    let add = json!([{"name": "x-bench", "value": value}]);
    route["spec"]["rules"][0]["filters"] =
        json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"add": add}}]);
    route
}

/// A GRPCRoute for a hostname.
#[must_use]
pub fn grpc_route(name: &str, gateway: &str, host: &str, service: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GRPCRoute", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"parentRefs": [{"name": gateway}], "hostnames": [host], "rules": [{"backendRefs": [{"name": service, "port": 80}]}]},
    })
}

/// A Service with port 80.
#[must_use]
pub fn service((namespace, name): (&str, &str), app_protocol: Option<&str>) -> Value {
    let mut port = json!({"name": "web", "port": 80, "targetPort": TARGET});
    if let Some(protocol) = app_protocol {
        port["appProtocol"] = json!(protocol);
    }
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": {"ports": [port]}})
}

/// Its slice, with one endpoint.
#[must_use]
pub fn slice((namespace, service): (&str, &str), address: IpAddr, port: u16, serving: bool) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": service, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": serving, "serving": serving}}],
        "ports": [{"name": "web", "port": port}],
    })
}
