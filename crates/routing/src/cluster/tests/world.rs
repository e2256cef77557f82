//! Objects of a scenario as JSON, and what became of them.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::cluster::{
    CaState, Change, Cluster, GatewayState, ListenerSetState, ListenerState, Options, ParentState, PolicyState,
    RouteState, SecretState, Touched, TrafficPolicyState, Tri, Verdict,
};
use crate::model::{ListenerId, RouteId, RouteKind};

/// The namespace of objects whose key has none.
pub(super) const OWN: &str = "infra";

/// A cluster with a class `ours`, namespaces, a backend Service `web` and a certificate `cert`.
pub(super) struct World(pub(super) Cluster);

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self(Cluster::new(Options::default()));
        world.put("GatewayClass", "ours", json!({ "controllerName": api::view::gateway_api::CONTROLLER }));
        for (namespace, label) in [(OWN, "infra"), ("apps", "apps"), ("other", "other")] {
            let labels = [("team", label)].into_iter().collect();
            world.0.apply(Change::Namespace(namespace.into(), Some(labels)));
        }
        world.secret("cert", Some(SecretState::Certificate));
        for key in ["infra/web", "apps/web"] {
            world.put(
                "Service",
                key,
                json!({ "ports": [{ "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }] }),
            );
        }
        world
    }

    /// Creates or replaces an object.
    pub(super) fn put(&mut self, kind: &str, name: &str, spec: Value) -> Touched {
        self.put_with(kind, name, json!({ "spec": spec, "metadata": { "generation": 1 } }))
    }

    /// The same with metadata and status.
    pub(super) fn put_with(&mut self, kind: &str, name: &str, object: Value) -> Touched {
        self.0.apply(change(kind, name, Some(object)))
    }

    pub(super) fn delete(&mut self, kind: &str, name: &str) -> Touched {
        self.0.apply(change(kind, name, None))
    }

    /// A Gateway of the class with these listeners, and an address for it.
    pub(super) fn gateway(&mut self, name: &str, listeners: Value) -> Touched {
        self.address(name, &["192.0.2.1"]);
        self.put(
            "Gateway",
            name,
            json!({ "gatewayClassName": "ours", "listeners": listeners,
            "allowedListeners": { "namespaces": { "from": "All" } } }),
        )
    }

    /// The addresses of the Service of a Gateway.
    pub(super) fn address(&mut self, gateway: &str, addresses: &[&str]) -> Touched {
        let ingress: Vec<_> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let service =
            json!({ "spec": { "type": "LoadBalancer" }, "status": { "loadBalancer": { "ingress": ingress } } });
        self.put_with("Service", &format!("{gateway}-waypost"), service)
    }

    pub(super) fn secret(&mut self, name: &str, state: Option<SecretState>) -> Touched {
        self.0.apply(Change::Secret(key(name), state))
    }

    pub(super) fn config_map(&mut self, name: &str, state: Option<CaState>) -> Touched {
        self.0.apply(Change::ConfigMap(key(name), state))
    }

    pub(super) fn state(&self, gateway: &str) -> &GatewayState {
        self.0.gateway(&key(gateway)).expect("a Gateway of ours")
    }

    pub(super) fn set(&self, name: &str) -> &ListenerSetState {
        self.0.listener_set(&key(name)).expect("a ListenerSet of ours")
    }

    pub(super) fn listener(&self, gateway: &str, name: &str) -> &ListenerState {
        named(&self.state(gateway).listeners, name)
    }

    pub(super) fn set_listener(&self, set: &str, name: &str) -> &ListenerState {
        named(&self.set(set).listeners, name)
    }

    pub(super) fn route(&self, kind: RouteKind, name: &str) -> &RouteState {
        self.0.route(&RouteId { kind, key: key(name) }).expect("a route")
    }

    /// The only parent of a route.
    pub(super) fn parent(&self, kind: RouteKind, name: &str) -> &ParentState {
        let parents = &self.route(kind, name).parents;
        assert_eq!(parents.len(), 1, "{parents:?}");
        &parents[0]
    }

    pub(super) fn policy(&self, name: &str) -> &PolicyState {
        self.0.policy(&key(name)).expect("a policy")
    }

    pub(super) fn traffic_policy(&self, name: &str) -> &TrafficPolicyState {
        self.0.traffic_policy(&key(name)).expect("a policy")
    }

    /// A route as it is served at a listener.
    pub(super) fn at(&self, listener: &ListenerId, kind: RouteKind, name: &str) -> RouteState {
        let id = RouteId { kind, key: key(name) };
        self.0.with_policies(&listener.clone().into(), &id).unwrap_or_else(|| self.route(kind, name).clone())
    }

    /// Names of the listeners that are served.
    pub(super) fn served(&self, gateway: &str) -> Vec<String> {
        let config = self.0.config(&key(gateway));
        config.iter().flat_map(|config| &config.listeners).map(|listener| listener.id.name.to_string()).collect()
    }
}

fn named<'a>(listeners: &'a [ListenerState], name: &str) -> &'a ListenerState {
    listeners.iter().find(|listener| &*listener.id.name == name).expect("a listener of this name")
}

pub(super) fn key(name: &str) -> Arc<str> {
    if name.contains('/') { name.into() } else { format!("{OWN}/{name}").into() }
}

fn change(kind: &str, name: &str, object: Option<Value>) -> Change {
    fn read<T: serde::de::DeserializeOwned>(object: Option<Value>) -> Option<Arc<T>> {
        object.map(|object| Arc::new(serde_json::from_value(object).expect("an object of the kind")))
    }
    match kind {
        "GatewayClass" => Change::GatewayClass(name.into(), read(object)),
        "Gateway" => Change::Gateway(key(name), read(object)),
        "ListenerSet" => Change::ListenerSet(key(name), read(object)),
        "HTTPRoute" => Change::HttpRoute(key(name), read(object)),
        "GRPCRoute" => Change::GrpcRoute(key(name), read(object)),
        "TLSRoute" => Change::TlsRoute(key(name), read(object)),
        "TCPRoute" => Change::TcpRoute(key(name), read(object)),
        "UDPRoute" => Change::UdpRoute(key(name), read(object)),
        "ReferenceGrant" => Change::ReferenceGrant(key(name), read(object)),
        "BackendTLSPolicy" => Change::BackendTlsPolicy(key(name), read(object)),
        "TrafficPolicy" => Change::TrafficPolicy(key(name), read(object)),
        "Service" => Change::Service(key(name), read(object)),
        other => panic!("no kind {other}"),
    }
}

/// Status and reason in short: `True/Accepted`.
pub(super) fn short(verdict: &Verdict) -> String {
    let status = match verdict.status {
        Tri::True => "True",
        Tri::False => "False",
        Tri::Unknown => "Unknown",
    };
    format!("{status}/{}", verdict.reason)
}

/// Accepted, Programmed and ResolvedRefs of a listener.
pub(super) fn conditions(listener: &ListenerState) -> [String; 3] {
    [short(&listener.accepted), short(&listener.programmed), short(&listener.resolved_refs)]
}

/// A ReferenceGrant from a kind of the Gateway API in a namespace to a core kind.
pub(super) fn grant(from: (&str, &str), to: (&str, Option<&str>)) -> Value {
    json!({
        "from": [{ "group": api::view::gateway_api::GROUP, "kind": from.0, "namespace": from.1 }],
        "to": [{ "group": "", "kind": to.0, "name": to.1 }],
    })
}
