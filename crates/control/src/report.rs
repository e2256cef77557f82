//! Telling people what a controller found: Kubernetes Events about the object concerned.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::lifecycle;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::write::{Refusal, Write};

/// Enough of an object to speak about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reference {
    /// Its namespace, if it has one.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Reference {
    /// The reference to an object.
    #[must_use]
    pub fn to(object: &Value) -> Self {
        let text = |path: &str| object.text(path).to_owned();
        Self { namespace: text("metadata.namespace"), name: text("metadata.name"), uid: text("metadata.uid") }
    }

    /// The reference to what a key and a uid name.
    #[must_use]
    pub fn new(key: &str, uid: &str) -> Self {
        let (namespace, name) = crate::objects::split(key);
        Self { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }
}

/// What was found, by whom, when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Finding<'a> {
    /// The name of the controller.
    pub(crate) controller: &'a str,
    /// Whether it is only news.
    pub(crate) normal: bool,
    /// One word.
    pub(crate) reason: &'a str,
    /// A sentence.
    pub(crate) message: &'a str,
    /// The time, as objects write it.
    pub(crate) now: &'a str,
}

/// An Event about the owner of a new object that admission refused.
pub(crate) fn refused(controller: &str, refusal: &Refusal, now: Timestamp) -> Write {
    let Refusal { namespace, owner, why } = refusal;
    let object =
        Reference { namespace: namespace.clone(), name: owner.text("name").into(), uid: owner.text("uid").into() };
    let (message, now) = (format!("Error creating: {why}"), lifecycle::seconds(now));
    let finding = Finding { controller, normal: false, reason: "FailedCreate", message: &message, now: &now };
    about(owner.text("kind"), owner.text("apiVersion"), &object, &finding)
}

/// An Event about an object of a kind. The same finding on the same object has the same name, so what stays wrong is said
/// once while the Event lives; it stands in a transaction of its own, because that name may be taken.
pub(crate) fn about(kind: &str, api_version: &str, object: &Reference, finding: &Finding<'_>) -> Write {
    let Finding { controller, normal, reason, message, now } = *finding;
    let Reference { name, namespace: home, uid } = object;
    let namespace = if home.is_empty() { "default" } else { home };
    let mut hasher = DefaultHasher::new();
    (uid, reason, message).hash(&mut hasher);
    let mut involved = json!({"kind": kind, "apiVersion": api_version, "name": name, "uid": uid});
    if !home.is_empty() {
        involved.put("namespace", home.as_str());
    }
    let event = json!({
        "metadata": {"name": format!("{name}.{:016x}", hasher.finish()), "namespace": namespace},
        "involvedObject": involved,
        "reason": reason, "message": message, "type": if normal { "Normal" } else { "Warning" }, "action": reason,
        "source": {"component": controller}, "reportingComponent": controller, "reportingInstance": controller,
        "firstTimestamp": now, "lastTimestamp": now, "count": 1, "eventTime": null,
    });
    Write::create("events", event)
}
