//! kube-rs against this server: typed reads and writes, and the reflectors that controllers are built on.
//!
//! Nothing here knows the wire: when these pass, programs written for Kubernetes in Rust work unchanged.

mod controller;
mod crud;
mod reflector;
mod restart;
mod watch;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use testbed::Server;

/// A new client, as the administrator.
async fn client(server: &Server) -> Client {
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

/// An object in the form in which people write it.
#[track_caller]
fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of this type")
}

/// A Service with one port.
fn service(name: &str) -> Service {
    typed(
        json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": 80}], "selector": {"app": name}}}),
    )
}

/// Creates a Service with one port.
async fn create(services: &Api<Service>, name: &str) -> Service {
    services.create(&PostParams::default(), &service(name)).await.expect("created")
}

/// All Services by name, as a list shows them.
async fn listed(services: &Api<Service>) -> BTreeMap<String, Service> {
    let list = services.list(&ListParams::default()).await.expect("a list");
    list.items.into_iter().map(|service| (service.name_any(), service)).collect()
}

/// The refusal in an error.
#[track_caller]
fn refusal<T>(answer: kube::Result<T>) -> Box<kube::core::Status> {
    match answer {
        Err(kube::Error::Api(status)) => status,
        Err(other) => panic!("no answer: {other}"),
        Ok(_) => panic!("it should have been refused"),
    }
}
