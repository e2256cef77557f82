//! Objects of the Gateway API in; Services, addresses and statuses out.

mod addresses;
mod classes;
mod mesh;
mod property;
mod references;
mod routes;
mod storm;
mod traffic;

use api::gateway_api::{Channel, builders, install};
use api::kinds::customresourcedefinition;
use api::view::Secret;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::load_balancer;
use crate::objects::gateway_api::{CLASSES, GATEWAYS, LISTENER_SETS, ROUTES};
use crate::settings::{CertificateChecks, CheckCertificates, LoadBalancing};
use crate::testing::{Cluster, Good};

const HTTP_ROUTES: &str = ROUTES[0].0;
const GRANTS: &str = "gateway.networking.k8s.io/referencegrants";
const SERVICE: &str = "default/public-waypost";

/// A cluster with the definitions, and a pool of addresses.
fn cluster() -> Cluster {
    let mut cluster = without_pool();
    pool(&mut cluster, "192.0.2.0/28");
    cluster
}

fn without_pool() -> Cluster {
    let controllers = [
        &class::CONTROLLER,
        &gateway::CONTROLLER,
        &listener_set::CONTROLLER,
        &route::CONTROLLER,
        &policy::CONTROLLER,
        &traffic_policy::CONTROLLER,
        &load_balancer::CONTROLLER,
    ];
    let mut cluster = Cluster::new(&controllers);
    cluster.settings.load_balancer = LoadBalancing { enabled: true, ..LoadBalancing::default() };
    cluster.settings.certificate_checks = CertificateChecks(Some(Arc::new(Good)));
    cluster.settings.gateway_class = true;
    cluster.restart();
    cluster.put(
        "servicecidrs",
        json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}}),
    );
    let mut definitions: Vec<Value> = Vec::new();
    for builder in builders(Channel::Standard) {
        let others: Vec<&Value> = definitions.iter().collect();
        let object = install::object(builder, Channel::Standard, None, &others, Timestamp::UNIX_EPOCH, builder.name);
        cluster.put(customresourcedefinition::KIND.table, object.clone());
        definitions.push(object);
    }
    // Objects of a kind can be stored when its definition is known.
    cluster.deliver_all();
    cluster
}

fn pool(cluster: &mut Cluster, addresses: &str) {
    cluster.put("ippools", json!({"metadata": {"name": "lan"}, "spec": {"addresses": [addresses]}}));
}

/// Stores an object of the Gateway API; one that exists is replaced with the next generation, and keeps its status.
fn put(cluster: &mut Cluster, table: &'static str, name: &str, spec: Value) {
    let kind = cluster.cache.kinds.kinds().by_table(table).expect("a kind");
    let key = if kind.namespaced { format!("default/{name}") } else { name.to_owned() };
    let before = cluster.get(table, &key);
    let mut object = before.clone().unwrap_or_else(|| json!({"metadata": {"name": name}}));
    if kind.namespaced {
        object.put("metadata.namespace", "default");
    }
    object.put("kind", kind.kind);
    object.put("apiVersion", kind.api_version());
    object.put("metadata.generation", before.map_or(0, |before| before.int("metadata.generation")) + 1);
    object.put("spec", spec);
    kind.rules.default(&mut object);
    cluster.put(table, object);
}

fn listener(name: &str, port: u16, protocol: &str) -> Value {
    json!({"name": name, "port": port, "protocol": protocol})
}

/// A Gateway `public` of class `waypost`.
fn put_gateway(cluster: &mut Cluster, listeners: &[Value]) {
    put(cluster, GATEWAYS, "public", json!({"gatewayClassName": "waypost", "listeners": listeners}));
}

/// An HTTPRoute for `public`, to port 80 of Service `web`.
fn put_route(cluster: &mut Cluster, name: &str) {
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    put(cluster, HTTP_ROUTES, name, json!({"parentRefs": [{"name": "public"}], "rules": rules}));
}

fn converge(cluster: &mut Cluster) {
    cluster.converge();
    cluster.wait();
    cluster.converge();
}

/// `Type=Status/Reason` of conditions, sorted.
fn conditions(object: &Value) -> Vec<String> {
    let one = |one: &Value| format!("{}={}/{}", one.text("type"), one.text("status"), one.text("reason"));
    let mut all: Vec<String> = object.items("conditions").iter().map(one).collect();
    all.sort();
    all
}

fn condition(object: &Value, kind: &str) -> Value {
    object.items("conditions").iter().find(|one| one.text("type") == kind).cloned().unwrap_or_default()
}

/// The status of Gateway `public`.
fn status(cluster: &Cluster) -> Value {
    cluster.get(GATEWAYS, "default/public").expect("a Gateway").at("status").clone()
}

fn assert_condition(object: &Value, expected: &str) {
    let all = conditions(object);
    assert!(all.iter().any(|one| one == expected), "{expected} is not among {all:?}: {object}");
}
