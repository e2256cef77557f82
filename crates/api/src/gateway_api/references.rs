//! References from one object to another.

use super::schema::{Field, Schema, int32, list, object, optional, required};
use super::shapes::{group, kind, namespace, object_name, port, section_name};
use super::{Channel, GROUP};

fn object_field() -> Field {
    required("name", "The name of the object.", object_name())
}

fn namespace_field() -> Field {
    optional("namespace", "The namespace of the object; by default that of the referring one.", namespace())
}

/// Group and kind of any object.
fn any_kind() -> [Field; 2] {
    [required("group", "The API group of the object.", group()), required("kind", "The kind of the object.", kind())]
}

/// Group and kind with defaults.
fn default_kind(default_group: &str, default: &str) -> [Field; 2] {
    [
        optional("group", "The API group of the object.", group().default(default_group)),
        optional("kind", "The kind of the object.", kind().default(default)),
    ]
}

/// An object of the same namespace.
pub(super) fn local() -> Schema {
    object(any_kind()).fields([object_field()])
}

/// An object of any namespace.
pub(super) fn global() -> Schema {
    local().fields([namespace_field()])
}

/// A Secret with a certificate.
pub(super) fn secret() -> Schema {
    object(default_kind("", "Secret")).fields([object_field(), namespace_field()])
}

/// The Gateway of a ListenerSet.
pub(super) fn gateway() -> Schema {
    object(default_kind(GROUP, "Gateway")).fields([object_field(), namespace_field()])
}

/// What a route attaches to.
pub(super) fn parent() -> Schema {
    gateway().fields([
        optional("port", "Only listeners of this port.", port()),
        optional("sectionName", "Only the listener of this name.", section_name()),
    ])
}

/// Whether an optional text of `a` and `b` is the same; absent is empty. Values of optionals have no bound, and a rule that
/// compares two of them exceeds the cost limit of definitions.
pub(super) fn equal(field: &str) -> String {
    format!(
        "(has(a.{field}) && a.{field} != '' ? has(b.{field}) && a.{field} == b.{field} : !has(b.{field}) || b.{field} == '')"
    )
}

/// The parents of a route: several references to one parent name different parts of it.
pub(super) fn parents(channel: Channel) -> Schema {
    let is_named = |x: &str| format!("({x}.?sectionName.orValue('') == '')");
    let has_port = |x: &str| format!("({x}.?port.orValue(0) == 0)");
    let mut part = "sectionName";
    let mut both_or_none = format!("{} == {}", is_named("a"), is_named("b"));
    let mut same_part = equal("sectionName");
    // Whether two parentRefs, `a` and `b`, name the same object.
    let same = format!("a.group == b.group && a.kind == b.kind && a.name == b.name && {}", equal("__namespace__"));
    if channel.is_experimental() {
        part = "sectionName or port";
        both_or_none = format!("{both_or_none} && {} == {}", has_port("a"), has_port("b"));
        same_part = format!("{same_part} && a.?port.orValue(0) == b.?port.orValue(0)");
    }
    let when = "when parentRefs includes 2 or more references to the same parent";
    list(parent())
        .max_items(32)
        .rule(
            &format!("{part} must be specified {when}"),
            &format!("self.all(a, self.all(b, ({same}) ? ({both_or_none}) : true))"),
        )
        .rule(
            &format!("{part} must be unique {when}"),
            &format!("self.all(a, self.exists_one(b, {same} && {same_part}))"),
        )
}

/// A backend of any kind, a Service by default.
pub(super) fn backend(channel: Channel) -> Schema {
    object(default_kind("", "Service"))
        .fields([object_field(), namespace_field(), optional("port", "The port of the Service.", port())])
        .rule("Must have port for Service reference", "self.group != '' || self.kind != 'Service' || has(self.port)")
        .experimental(channel, |schema| {
            schema.rule(
                "Must not have port for Backend reference",
                "self.group != 'gateway.networking.x-k8s.io' || self.kind != 'XBackend' || !has(self.port)",
            )
        })
}

/// A backend among several.
pub(super) fn weighted_backend(channel: Channel) -> Schema {
    let weight = int32().range(0..=1_000_000).default(1);
    backend(channel).fields([optional("weight", "The share of requests, relative to the other backends.", weight)])
}

/// The target of a policy.
pub(super) fn policy_target() -> Schema {
    local()
}

/// The target of a policy, or a part of it.
pub(super) fn policy_section_target() -> Schema {
    local().fields([optional("sectionName", "The part of the target, like the port of a Service.", section_name())])
}
