//! Telling people what a controller found: Kubernetes Events about the object concerned.

use api::value::ValueExt as _;
use serde_json::{Value, json};

use crate::write::Write;

/// An Event about a Service. The same finding on the same object has the same name, so it is not repeated while it lives.
pub(crate) fn about_service(service: &Value, controller: &str, reason: &str, message: &str, now: &str) -> Write {
    about("Service", "v1", service, controller, reason, message, now)
}

/// An Event about any object.
pub(crate) fn about(
    kind: &str,
    api_version: &str,
    object: &Value,
    controller: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> Write {
    let name = object.text("metadata.name");
    let namespace = match object.text("metadata.namespace") {
        "" => "default",
        namespace => namespace,
    };
    let uid = object.text("metadata.uid");
    let short_uid: String = uid.chars().filter(char::is_ascii_hexdigit).take(10).collect();
    let event = json!({
        "metadata": {
            "name": format!("{name}.{short_uid}.{}", reason.to_ascii_lowercase()), "namespace": namespace,
            "uid": uuid::Uuid::new_v4().to_string(), "creationTimestamp": now,
        },
        "involvedObject": {
            "kind": kind, "apiVersion": api_version, "namespace": object.text("metadata.namespace"), "name": name, "uid": uid,
        },
        "reason": reason, "message": message, "type": "Warning", "action": "Repair",
        "source": {"component": controller}, "reportingComponent": controller, "reportingInstance": controller,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": null,
    });
    Write::create("events", event)
}
