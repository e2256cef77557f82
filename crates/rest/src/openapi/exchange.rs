//! The types of bodies, and the names of their definitions.
//!
//! Operations refer to bodies as an [`Exchange`]; documents refer to definitions by the names that Kubernetes uses. The two versions of OpenAPI
//! differ in where definitions are and in what may be beside a reference: that is a [`Dialect`].

use api::kind::Kind;
use api::schema::{self, Shape, TypeId};
use serde_json::{Value, json};

use super::own;

/// The prefix of types of all groups.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The prefix of the types of CustomResourceDefinitions.
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

/// The prefix of the types of APIServices.
const REGISTRATION: &str = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1";

/// The version of OpenAPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Dialect {
    V2,
    V3,
}

/// The body of a request or response.
#[derive(Clone, Copy)]
pub(super) enum Exchange {
    /// An object of the tables.
    Object(TypeId),
    /// A custom resource.
    Custom(&'static Kind),
    /// A list of objects of a kind.
    List(&'static Kind),
    /// A patch of any format.
    Patch,
    /// One event of a watch.
    WatchEvent,
    /// Plain text, and objects without a schema.
    Text,
}

/// A kind with its group and version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Gvk {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
}

impl Dialect {
    /// A reference to a definition.
    pub(super) fn reference(self, definition: &str) -> Value {
        match self {
            Self::V2 => json!({ "$ref": format!("#/definitions/{definition}") }),
            Self::V3 => json!({ "$ref": format!("#/components/schemas/{definition}") }),
        }
    }
}

impl Exchange {
    /// The name of its definition; plain text has none.
    pub(super) fn definition(self) -> Option<String> {
        match self {
            Self::Object(id) => Some(definition_name(id.get().name)),
            Self::Custom(kind) => Some(definition_of_kind(kind)),
            Self::List(kind) => Some(format!("{}List", definition_of_kind(kind))),
            Self::Patch => Some(format!("{META}.Patch")),
            Self::WatchEvent => Some(format!("{META}.WatchEvent")),
            Self::Text => None,
        }
    }
}

impl Gvk {
    pub(super) fn of(kind: &Kind) -> Self {
        Self { group: kind.group, version: kind.version, kind: kind.kind }
    }

    pub(super) fn to_value(self) -> Value {
        json!({ "group": self.group, "version": self.version, "kind": self.kind })
    }
}

/// `core.ServiceSpec` → `io.k8s.api.core.v1.ServiceSpec`.
pub(super) fn definition_name(schema: &str) -> String {
    match schema.split_once('.') {
        Some(("meta", name)) => format!("{META}.{name}"),
        Some(("apiextensions", name)) => format!("{EXTENSIONS}.{name}"),
        Some(("apiregistration", name)) => format!("{REGISTRATION}.{name}"),
        Some(("autoscaling_v2", name)) => format!("io.k8s.api.autoscaling.v2.{name}"),
        Some((own::TABLE, name)) => format!("{}.{name}", own::PACKAGE),
        Some((table, name)) => format!("io.k8s.api.{table}.v1.{name}"),
        None => schema.to_owned(),
    }
}

/// The definition of the objects of a kind; that of a custom kind is named by its group in reverse.
pub(super) fn definition_of_kind(kind: &Kind) -> String {
    if !kind.is_custom() {
        return definition_name(kind.schema);
    }
    let mut parts: Vec<&str> = kind.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), kind.version, kind.kind)
}

/// The type of an object of this group, if a table has it.
pub(super) fn object_of(group: &str, kind: &str) -> Option<TypeId> {
    let table = if group.is_empty() { "core" } else { group.split('.').next()? };
    schema::find(&format!("{table}.{kind}"))
}

/// The definition of a shape that is written as a reference.
pub(super) fn definition_of(shape: &Shape) -> Option<String> {
    Some(match shape {
        Shape::Object(id) => definition_name(id.get().name),
        Shape::Time => format!("{META}.Time"),
        Shape::MicroTime => format!("{META}.MicroTime"),
        Shape::Duration => format!("{META}.Duration"),
        Shape::FieldsV1 => format!("{META}.FieldsV1"),
        Shape::Quantity => "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
        Shape::IntOrString => "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
        Shape::Raw => "io.k8s.apimachinery.pkg.runtime.RawExtension".to_owned(),
        Shape::Json => format!("{EXTENSIONS}.JSON"),
        Shape::Union(_, other) => match **other {
            Shape::Bool => format!("{EXTENSIONS}.JSONSchemaPropsOrBool"),
            Shape::List(ref item) if **item == Shape::String => format!("{EXTENSIONS}.JSONSchemaPropsOrStringArray"),
            _ => format!("{EXTENSIONS}.JSONSchemaPropsOrArray"),
        },
        _ => return None,
    })
}
