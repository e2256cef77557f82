//! What conditions need of a stored Service beyond its small form: its kind of address, its port numbers, its conditions.

use serde::Deserialize;
use serde_json::Value;

use crate::objects::{or_default, read};

/// A Service.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(super) struct Stored {
    /// What was asked for.
    #[serde(deserialize_with = "or_default")]
    pub(super) spec: Spec,
    /// What was said of it.
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Status,
}

/// What was asked for.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub(super) kind: String,
    /// The name behind an `ExternalName`.
    #[serde(deserialize_with = "or_default")]
    pub(super) external_name: String,
    /// Whether both families are needed, or only nice to have.
    #[serde(deserialize_with = "or_default")]
    pub(super) ip_family_policy: String,
    /// Its ports, in the order of the small form.
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<Port>,
}

/// A port.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Port {
    /// Its name, if it has one.
    #[serde(deserialize_with = "or_default")]
    pub(super) name: String,
    /// Its number.
    pub(super) port: u16,
    /// Its number on every node, or 0.
    #[serde(deserialize_with = "or_default")]
    pub(super) node_port: u16,
}

impl Port {
    /// How people call it: by its name, or else by its number.
    pub(super) fn called(&self) -> String {
        if self.name.is_empty() { self.port.to_string() } else { self.name.clone() }
    }
}

/// What was said of it.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    /// What a load balancer answered.
    #[serde(deserialize_with = "or_default")]
    pub(super) load_balancer: LoadBalancer,
    /// Conditions, ours and those of others.
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<Value>,
}

/// What a load balancer answered.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(super) struct LoadBalancer {
    /// Where it is.
    #[serde(deserialize_with = "or_default")]
    pub(super) ingress: Vec<Ingress>,
}

/// Where a load balancer is.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(super) struct Ingress {
    /// Its address.
    #[serde(deserialize_with = "or_default")]
    pub(super) ip: String,
    /// Or its name.
    #[serde(deserialize_with = "or_default")]
    pub(super) hostname: String,
}

impl Stored {
    /// Reads a stored Service.
    pub(super) fn read(stored: &[u8]) -> Self {
        read(stored)
    }
}
