//! Services as `kubectl get` shows them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::fields::kind_of;
use crate::table::{AGE, NAME, Table, age, column, no_conditions, or, wide_column};
use crate::value::ValueExt as _;

/// The columns and how they are filled.
pub(super) static TABLE: Table = Table {
    columns: &[
        NAME,
        column("Type", "How the Service is reached."),
        column("Cluster-IP", "The address inside the cluster."),
        column("External-IP", "The addresses or the name outside the cluster."),
        column("Port(s)", "The ports, with node ports after a colon."),
        AGE,
        wide_column("Selector", "The labels of the Pods that traffic goes to."),
    ],
    row,
    conditions: no_conditions,
};

fn row(service: &Value, now: Timestamp) -> Vec<Value> {
    let address = service.items("spec.clusterIPs").first().and_then(Value::as_str).unwrap_or_default();
    vec![
        service.text("metadata.name").into(),
        kind_of(service).into(),
        or(address, "<none>").into(),
        external(service).into(),
        or(&ports(service), "<none>").into(),
        age(service, now).into(),
        or(&selector(service), "<none>").into(),
    ]
}

fn external(service: &Value) -> String {
    let given = service.texts("spec.externalIPs");
    match kind_of(service) {
        "ClusterIP" | "NodePort" => or(&given.join(","), "<none>").to_owned(),
        "LoadBalancer" => {
            let ingress = service.items("status.loadBalancer.ingress");
            let balancers: BTreeSet<&str> = ingress
                .iter()
                .map(|ingress| or(ingress.text("ip"), ingress.text("hostname")))
                .filter(|text| !text.is_empty())
                .collect();
            let all: Vec<&str> = balancers.into_iter().chain(given).collect();
            or(&all.join(","), "<pending>").to_owned()
        }
        "ExternalName" => service.text("spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

fn ports(service: &Value) -> String {
    let show = |port: &Value| {
        let (number, protocol) = (port.int("port"), port.text("protocol"));
        match port.int("nodePort") {
            1.. => format!("{number}:{}/{protocol}", port.int("nodePort")),
            _ => format!("{number}/{protocol}"),
        }
    };
    service.items("spec.ports").iter().map(show).collect::<Vec<_>>().join(",")
}

fn selector(service: &Value) -> String {
    let labels = service.map("spec.selector").into_iter().flatten();
    let pairs: Vec<String> =
        labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    pairs.join(",")
}
