//! XMesh: a service mesh and its controller.

use serde_json::{Value, json};

use super::Channel;
use super::conditions::{conditions, pending};
use super::definition::{Names, Version, age, condition_column, definition as define, root};
use super::gateway_class::{spec, status};

pub(super) fn definition(channel: Channel) -> Value {
    let names = Names {
        short: Some("mesh"),
        is_namespaced: false,
        is_experimental: true,
        ..Names::namespaced("XMesh", "xmeshes")
    };
    let status = status(conditions().default(pending(&["Accepted", "Programmed"])));
    let schema = root("XMesh describes a service mesh.", spec(), Some(status));
    define(channel, &names, [Version::stored("v1alpha1", json!([condition_column("Accepted"), age()]), schema)])
}
