//! Kubernetes Events of controllers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use api::lifecycle;
use api::value::ValueExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::Store;

use crate::write::{Refusal, Write, object_key};

/// A reference to an object.
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

/// The details of an Event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EventDetails<'a> {
    /// The name of the controller.
    pub(crate) controller: &'a str,
    /// Whether its type is Normal.
    pub(crate) normal: bool,
    /// The reason, in CamelCase.
    pub(crate) reason: &'a str,
    /// The message.
    pub(crate) message: &'a str,
    /// The timestamp.
    pub(crate) now: &'a str,
}

/// An Event about the owner of a new object that admission denied.
pub(crate) fn refused(controller: &str, refusal: &Refusal, now: Timestamp) -> Write {
    let Refusal { namespace, owner, why } = refusal;
    let object =
        Reference { namespace: namespace.clone(), name: owner.text("name").into(), uid: owner.text("uid").into() };
    let (message, now) = (format!("Error creating: {why}"), lifecycle::seconds(now));
    let finding = EventDetails { controller, normal: false, reason: "FailedCreate", message: &message, now: &now };
    new_event(owner.text("kind"), owner.text("apiVersion"), &object, &finding)
}

/// Whether the store has a new object, such as an Event that is not to be repeated.
pub(crate) fn exists(store: &dyn Store, write: &Write) -> bool {
    match write {
        Write::Object { table, object, .. } => store.get(&object_key(table, object)).is_some(),
        _ => false,
    }
}

/// An Event about an object. The same details about the same object give the same name, so a repetition is dropped while the Event exists; each Event
/// needs its own transaction, because the name may be taken.
pub(crate) fn new_event(kind: &str, api_version: &str, object: &Reference, finding: &EventDetails<'_>) -> Write {
    let EventDetails { controller, normal, reason, message, now } = *finding;
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
