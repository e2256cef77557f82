//! The Gateways of a class: one for each namespace, because its certificates and routes are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::VirtualGateway;
use super::super::certificates::covers;
use super::slug;

/// Hosts of the Ingresses of each namespace.
pub(super) fn hosts(gateway: &VirtualGateway) -> BTreeMap<String, BTreeSet<Option<Arc<str>>>> {
    let mut all = BTreeMap::<String, BTreeSet<_>>::new();
    for (host, _, rule) in gateway.table.rules() {
        all.entry(namespace(&rule.route.key).to_owned()).or_default().insert(host.cloned());
    }
    all
}

/// The namespace of a key.
pub(super) fn namespace(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// The Secrets of a namespace with certificates for a host.
pub(super) fn certificates(gateway: &VirtualGateway, namespace: &str, host: Option<&str>) -> BTreeSet<String> {
    let entries = gateway.certificates.hosts.iter();
    let is_for = |entry: &str| host.is_none_or(|host| covers(entry, host));
    let found = entries.filter(|(entry, _)| is_for(entry)).filter_map(|(_, secret)| secret.as_ref()?.split_once('/'));
    found.filter(|(have, _)| *have == namespace).map(|(_, name)| name.to_owned()).collect()
}

/// The Gateways of a class.
pub(super) fn gateways(gateway: &VirtualGateway, gateway_class: &str) -> Vec<Value> {
    let all = hosts(gateway).into_iter().map(|(namespace, hosts)| {
        let mut listeners = Vec::new();
        for host in &hosts {
            let host = host.as_deref();
            listeners.push(listener(host, "http", &BTreeSet::new()));
            let secrets = certificates(gateway, &namespace, host);
            if !secrets.is_empty() {
                listeners.push(listener(host, "https", &secrets));
            }
        }
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"name": &*gateway.class, "namespace": namespace},
            "spec": {"gatewayClassName": gateway_class, "listeners": listeners},
        })
    });
    all.collect()
}

/// The name of the listener of a host.
pub(super) fn listener_name(host: Option<&str>, scheme: &str) -> String {
    format!("{scheme}-{}", slug(host))
}

fn listener(host: Option<&str>, scheme: &str, secrets: &BTreeSet<String>) -> Value {
    let is_tls = scheme == "https";
    let mut listener = json!({
        "name": listener_name(host, scheme),
        "port": if is_tls { 443 } else { 80 },
        "protocol": if is_tls { "HTTPS" } else { "HTTP" },
    });
    if let Some(host) = host {
        listener["hostname"] = host.into();
    }
    if is_tls {
        let secrets: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
        listener["tls"] = json!({"mode": "Terminate", "certificateRefs": secrets});
    }
    listener
}
