//! Objects of a scenario, as the API lists them.

#![expect(clippy::needless_pass_by_value, reason = "objects are written where they are used")]

use std::collections::BTreeMap;

use api::value::ValueExt as _;
use serde_json::{Value, json};

use crate::layer7::{Kind, Layer7, Lists, MaterialObject, Materials, materials};
use crate::{Object, Objects, Snapshot};

/// The namespace of objects whose name has none.
const OWN: &str = "default";

/// Objects by kind. Every scenario starts with the class `waypost`, the Gateway `gw` with an address, and the Service `web`
/// with a ready endpoint.
pub(super) struct World(Vec<Value>);

impl World {
    pub(super) fn new() -> Self {
        let mut world = Self(Vec::new());
        let controller = api::view::gateway_api::CONTROLLER;
        world.add("GatewayClass", "/waypost", json!({"controllerName": controller}));
        world.add("GatewayClass", "/foreign", json!({"controllerName": "example.com/other"}));
        world.add("Namespace", "/apps", json!({}));
        world.gateway(json!([{"name": "http", "port": 80, "protocol": "HTTP"}]));
        world.service("web", json!([{"name": "http", "port": 80, "targetPort": 8080}]), &[("10.0.0.1", true)]);
        world.address("gw", Some("192.0.2.1"));
        world
    }

    /// Adds or replaces an object.
    pub(super) fn add(&mut self, kind: &str, name: &str, spec: Value) -> &mut Self {
        self.object(kind, name, json!({ "spec": spec }))
    }

    /// The same with everything but kind and name.
    pub(super) fn object(&mut self, kind: &str, name: &str, mut object: Value) -> &mut Self {
        let (namespace, name) = name.split_once('/').unwrap_or((OWN, name));
        object.put("kind", kind);
        object.put("metadata.namespace", namespace);
        object.put("metadata.name", name);
        if !object.has("metadata.creationTimestamp") {
            object.put("metadata.creationTimestamp", "2026-01-01T00:00:00Z");
        }
        let is_same = |one: &Value| {
            [("kind", kind), ("metadata.namespace", namespace), ("metadata.name", name)]
                .iter()
                .all(|(path, value)| one.text(path) == *value)
        };
        self.0.retain(|one| !is_same(one));
        self.0.push(object);
        self
    }

    /// The Gateway `gw` with these listeners.
    pub(super) fn gateway(&mut self, listeners: Value) -> &mut Self {
        self.add("Gateway", "gw", json!({"gatewayClassName": "waypost", "listeners": listeners}))
    }

    /// The Service of a Gateway, with or without an address.
    pub(super) fn address(&mut self, gateway: &str, ip: Option<&str>) -> &mut Self {
        let ingress: Vec<Value> = ip.iter().map(|ip| json!({ "ip": ip })).collect();
        let why = json!([{"type": "LoadBalancerReady", "status": "False", "reason": "PoolExhausted",
            "message": "no address is free in pool a; add addresses: kubectl edit ippool a"}]);
        let conditions = if ip.is_some() { json!([]) } else { why };
        self.object("Service", &format!("{gateway}-waypost"), json!({
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2"], "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions},
        }))
    }

    /// A Service with a slice for its first port.
    pub(super) fn service(&mut self, name: &str, ports: Value, endpoints: &[(&str, bool)]) -> &mut Self {
        let (namespace, plain) = name.split_once('/').unwrap_or((OWN, name));
        let endpoints: Vec<Value> =
            endpoints.iter().map(|(ip, ready)| json!({"addresses": [ip], "conditions": {"ready": ready}})).collect();
        let port = json!([{"name": ports[0].text("name"), "port": 8080}]);
        self.add("Service", name, json!({"clusterIP": "10.96.0.1", "selector": {"app": plain}, "ports": ports}));
        self.object(
            "EndpointSlice",
            &format!("{namespace}/{plain}-1"),
            json!({
                "metadata": {"labels": {"kubernetes.io/service-name": plain}},
                "addressType": "IPv4", "ports": port, "endpoints": endpoints,
            }),
        )
    }

    /// An HTTPRoute at the Gateway `gw`, whose spec has these members besides.
    pub(super) fn route(&mut self, name: &str, spec: Value) -> &mut Self {
        let mut whole = json!({
            "parentRefs": [{"name": "gw", "namespace": OWN}], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
        });
        for (member, value) in spec.as_object().expect("a spec") {
            whole.put(member, value.clone());
        }
        self.add("HTTPRoute", name, whole)
    }

    /// Does something with the diagnosis. Secrets and ConfigMaps that are not in the scenario do not exist.
    pub(super) fn with<R>(&self, ask: impl FnOnce(&Layer7<'_>) -> R) -> R {
        let mut by_kind: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for object in &self.0 {
            by_kind.entry(object.text("kind")).or_default().push(object.clone());
        }
        let list = |kind: &str| by_kind.get(kind).map(|list| Object::listed(list)).unwrap_or_default();
        let lists: Lists<'_> = Kind::ALL.into_iter().map(|kind| (kind, list(kind.name()))).collect();
        let objects = [list("Service"), list("EndpointSlice"), list("Pod"), list("Node"), Vec::new()];
        let snapshot = Snapshot::new(Objects::new(objects, "cluster.local"));
        let find = |kind: &str, key: &str| {
            let mut all = self.0.iter().filter(|one| one.text("kind") == kind);
            all.find(|one| format!("{}/{}", one.text("metadata.namespace"), one.text("metadata.name")) == key)
        };
        let known: Materials<'_> = materials(&lists)
            .into_iter()
            .map(|material| {
                let object = match &material {
                    super::super::Material::Secret(key) => find("Secret", key),
                    super::super::Material::ConfigMap(key) => find("ConfigMap", key),
                };
                (material, object.map_or(MaterialObject::Missing, MaterialObject::Found))
            })
            .collect();
        ask(&Layer7::new(&lists, &known, &snapshot, true))
    }

    /// The findings for an object, as `code: message`.
    pub(super) fn findings(&self, kind: Kind, name: &str) -> Vec<String> {
        let key = if name.contains('/') { name.to_owned() } else { format!("{OWN}/{name}") };
        let found = self.with(|layer7| layer7.of(kind, &key));
        found.iter().map(|one| format!("{}: {}", one.code, one.message)).collect()
    }
}
