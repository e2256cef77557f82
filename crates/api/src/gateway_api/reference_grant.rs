//! ReferenceGrant: which objects of other namespaces may refer to objects of its own.

use serde_json::{Value, json};

use super::Channel;
use super::definition::{Names, Version, age, definition as define, root};
use super::schema::{list, object, optional, required};
use super::shapes::{group, kind, namespace, object_name};

pub(super) fn definition(channel: Channel) -> Value {
    let from = object([
        required("group", "The API group of the referring objects.", group()),
        required("kind", "The kind of the referring objects.", kind()),
        required("namespace", "The namespace of the referring objects.", namespace()),
    ]);
    let to = object([
        required("group", "The API group of the objects.", group()),
        required("kind", "The kind of the objects.", kind()),
        optional("name", "The name of the object; by default all of the kind.", object_name()),
    ]);
    let spec = object([
        required("from", "The objects that may refer.", list(from).items(1..=16)),
        required("to", "The objects that may be referred to.", list(to).items(1..=16)),
    ]);
    let schema = root("ReferenceGrant permits references from other namespaces to its own.", spec, None);
    let v1beta1 = Version { has_status: false, ..Version::stored("v1beta1", json!([age()]), schema) };
    let v1 = v1beta1.also("v1");
    let names = Names { short: Some("refgrant"), ..Names::namespaced("ReferenceGrant", "referencegrants") };
    define(channel, &names, [v1, v1beta1])
}
