//! A reduced workload: only its selector, to find possible owners of orphans.

use std::sync::Arc;

use api::selector::{self, Selector};
use serde::Deserialize;
use serde_json::Value;
use store::Entry;

use super::or_default;

/// A Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or ReplicationController.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// The selector; `None` when it selects nothing.
    pub selector: Option<Selector>,
}

impl Workload {
    /// Reads a stored object.
    #[must_use]
    pub fn read(entry: &Arc<Entry>) -> Self {
        let Raw { spec } = super::read(&entry.value);
        let plain = entry.key.table.as_str() == "controllers";
        let selector =
            if plain { Some(selector::from_map(&spec.selector)) } else { selector::from_object(&spec.selector) };
        Self { selector: selector.filter(|selector| !selector.is_everything()) }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    selector: Value,
}
