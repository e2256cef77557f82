//! Telling people what a controller found: Kubernetes Events about the object concerned.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::json;

use crate::snapshot::Reference;
use crate::write::Write;

/// What was found, by whom, when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Finding<'a> {
    /// The name of the controller.
    pub(crate) controller: &'a str,
    /// One word.
    pub(crate) reason: &'a str,
    /// A sentence.
    pub(crate) message: &'a str,
    /// The time, as objects write it.
    pub(crate) now: &'a str,
}

/// An Event about an object of a kind. The same finding on the same object has the same name, so what stays wrong is said
/// once while the Event lives; it stands in a transaction of its own, because that name may be taken.
pub(crate) fn about(kind: &str, api_version: &str, object: &Reference, finding: &Finding<'_>) -> Vec<Write> {
    let Finding { controller, reason, message, now } = *finding;
    let Reference { name, namespace: home, uid } = object;
    let namespace = if home.is_empty() { "default" } else { home };
    let mut hasher = DefaultHasher::new();
    (uid, reason, message).hash(&mut hasher);
    let event = json!({
        "metadata": {
            "name": format!("{name}.{:016x}", hasher.finish()), "namespace": namespace,
            "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": now,
        },
        "involvedObject": {
            "kind": kind, "apiVersion": api_version, "namespace": home, "name": name, "uid": uid,
        },
        "reason": reason, "message": message, "type": "Warning", "action": "Repair",
        "source": {"component": controller}, "reportingComponent": controller, "reportingInstance": controller,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": null,
    });
    vec![Write::create("events", event)]
}
