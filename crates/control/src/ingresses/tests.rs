//! Ingresses and their classes in; Services, addresses and Events out.

mod addresses;
mod classes;
mod events;
mod property;

use std::sync::Arc;

use api::value::ValueExt as _;
use serde_json::{Value, json};

use super::*;
use crate::cache::{CLASSES, INGRESSES};
use crate::frontend::TABLE as SERVICES;
use crate::load_balancer;
use crate::settings::{CertificateChecks, ClassCreation, LoadBalancing};
use crate::testing::{Cluster, Good};

const SERVICE: &str = "waypost-system/ingress-waypost";
const CONTROLLER: &str = "waypost.dev/ingress-controller";

/// A cluster with a pool of addresses and the class `waypost`.
fn cluster() -> Cluster {
    let mut cluster = without_pool();
    pool(&mut cluster);
    converge(&mut cluster);
    cluster
}

fn without_pool() -> Cluster {
    let mut cluster = Cluster::new(&[&class::CONTROLLER, &ingress::CONTROLLER, &load_balancer::CONTROLLER]);
    cluster.settings.load_balancer = LoadBalancing { enabled: true, ..LoadBalancing::default() };
    cluster.settings.certificate_checks = CertificateChecks(Some(Arc::new(Good)));
    cluster.settings.ingress_class = ClassCreation::On;
    cluster.put(
        "servicecidrs",
        json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00:10:96::/112"]}}),
    );
    cluster.restart();
    converge(&mut cluster);
    cluster
}

fn pool(cluster: &mut Cluster) {
    cluster.put("ippools", json!({"metadata": {"name": "lan"}, "spec": {"addresses": ["192.0.2.0/28"]}}));
}

fn put_class(cluster: &mut Cluster, name: &str, controller: &str, annotations: &Value) {
    cluster.put(
        CLASSES,
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"controller": controller}}),
    );
}

/// The record of who wrote the spec or the status of an Ingress.
fn record(manager: &str, subresource: &str) -> Value {
    let fields = match subresource {
        "" => json!({"f:spec": {"f:ingressClassName": {}}}),
        _ => json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}}),
    };
    let mut record = json!({
        "manager": manager, "operation": "Update", "apiVersion": "networking.k8s.io/v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
    });
    if !subresource.is_empty() {
        record.put("subresource", subresource);
    }
    record
}

/// An Ingress of a class with one path, to port 80 of Service `web`.
fn with_class(name: &str, class: &str) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    json!({
        "metadata": {"name": name, "namespace": "default", "generation": 1, "managedFields": [record("kubectl", "")]},
        "spec": {
            "ingressClassName": class,
            "rules": [{"host": format!("{name}.example.com"), "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        },
    })
}

/// Stores an Ingress; one that exists keeps its status, and who wrote it.
fn put(cluster: &mut Cluster, mut ingress: Value) {
    if let Some(before) = cluster.get(INGRESSES, &format!("default/{}", ingress.text("metadata.name"))) {
        for path in ["status", "metadata.managedFields"].into_iter().filter(|path| before.has(path)) {
            ingress.put(path, before.at(path).clone());
        }
        ingress.put("metadata.generation", before.int("metadata.generation") + 1);
    }
    cluster.put(INGRESSES, ingress);
}

/// Stores addresses of an Ingress as another controller does.
fn put_foreign_address(cluster: &mut Cluster, name: &str, address: &str) {
    let mut ingress = cluster.get(INGRESSES, &format!("default/{name}")).expect("an Ingress");
    ingress.put("status.loadBalancer.ingress", json!([{"ip": address}]));
    ingress.put("metadata.managedFields", json!([record("kubectl", ""), record("another-controller", "status")]));
    cluster.put(INGRESSES, ingress);
}

fn put_backend(cluster: &mut Cluster) {
    cluster.put(SERVICES, crate::testing::service("web", "web"));
}

fn converge(cluster: &mut Cluster) {
    cluster.converge();
    cluster.wait();
    cluster.converge();
}

/// The addresses of an Ingress.
fn addresses(cluster: &Cluster, name: &str) -> Value {
    let ingress = cluster.get(INGRESSES, &format!("default/{name}")).expect("an Ingress");
    ingress.at("status.loadBalancer.ingress").clone()
}

/// The addresses of an Ingress that has this one of its class.
fn at(ip: &str) -> Value {
    json!([{"ip": ip, "ports": [{"port": 80, "protocol": "TCP"}, {"port": 443, "protocol": "TCP"}]}])
}

fn service(cluster: &Cluster) -> Value {
    cluster.get(SERVICES, SERVICE).expect("a Service")
}
